"""Acceptance: from points of pairs to verdicts on nodes, links, groups and the whole cluster. Pure.

points.py          one test of one pair in one run; one word per pair over all its runs
whole_cluster.py   is everything slower?
culprits.py        what explains the bad pairs: leaves, nodes, links
small_faults.py    what is slower by so little that only the mean of many pairs shows it
found.py           the four steps in order
nodes.py           the verdict on one node
standing.py        links and groups that were at fault before
judge.py           judge(): all verdicts, and what to measure again
"""
