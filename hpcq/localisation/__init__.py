"""Blame: from results of pairs to the node, link or group that is slow, to noise, or to what should be measured next.

    pairs.py      the table of results, and what is said about it
    levels.py     how fast a healthy pair is, and how much healthy pairs scatter
    suspects.py   everything that could be at fault, and which results it touches
    explain.py    the smallest set of suspects that explains the slow results
    advice.py     the pairs that would settle what is left open
    blame.py      blame(): the five in a row

docs/methods/blame.md explains the method to people. This package imports numpy; import it where it is used.
"""

from hpcq.localisation.blame import blame
from hpcq.localisation.pairs import Blame, Culprit, Kind, PairTable

__all__ = ["Blame", "Culprit", "Kind", "PairTable", "blame"]
