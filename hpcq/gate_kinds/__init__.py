"""The kinds of references that a gate can compare results with: one file per kind, found by `hpcq.gate_kinds.registry`.

A file says everything about its kind: its name in a campaign, its keys, the facts of nodes that it needs, its text in
docs/campaigns.md, and how it finds the reference of a series. docs/extending.md shows how to add one.
"""
