"""The judge: what is worse, since when, and who is to blame. Pure: numbers in, causes out; no SQL, no files.

    Values (values.py)  ->  levels, each judged on what those above it leave  ->  Causes (causes.py)

This package imports numpy. A module that loads at start-up of a reading verb imports it only where it uses it.
"""
