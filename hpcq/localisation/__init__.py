"""Blame: find the slow node, link or group in the results of pairs, call them noise, or say what to measure next.

    pairs.py        the table of results, and what blame says about it
    levels.py       how fast a healthy pair is, and how much healthy pairs scatter
    suspects.py     everything that could be at fault, and which results it touches
    explain.py      the smallest set of suspects that explains the slow results
    coincidence.py  which of them chance may have made slow
    advice.py       the pairs that would settle the open questions
    blame.py        blame(): the steps in order

docs/methods/blame.md explains the method to people. This package imports numpy, so import it only where you use it.
"""

from hpcq.localisation.blame import blame
from hpcq.localisation.pairs import Blame, Culprit, Kind, PairTable

__all__ = ["Blame", "Culprit", "Kind", "PairTable", "blame"]
