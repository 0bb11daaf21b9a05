"""Verdicts. Pure: numbers and names in, words out.

    words.py        the words, their exit code, and the first line: how much was judged; one verdict on one thing
    gates.py        a campaign's bounds on the series that it measured
    levels.py       did a series leave its level: before against after, or anywhere; thousands of series together
    causes.py       what differs between the two sides of a change
    acceptance.py   what to say of nodes, groups and links after a maintenance

Only words.py and gates.py load fast. The others import numpy, so import them only where you use them.
"""
