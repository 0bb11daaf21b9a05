"""Acceptance: what the verdict of a run (hpcq.judge.acceptance) is for people and for the ledger. Pure.

judge.py           records of nodes, links, groups and the cluster
collectives.py     tests of several nodes together
standing.py        links and groups that were at fault before
culprits.py        what explains the failing pairs of `blame`
"""
