"""The kinds of references that a gate may hold results against: one file per kind, found by `hpcq.gate_kinds.registry`.

A file says everything about its kind: what it is called in a campaign, which keys belong to it, which facts of the nodes it
needs, what docs/campaigns.md says of it, and how it finds the reference of a series. docs/extending.md adds one.
"""
