"""Verdicts. Pure: numbers and names in, words out.

    gates.py        a campaign's bounds on the series that it measured
    levels.py       did a series leave its level: before against after, or anywhere; thousands of series together
    causes.py       what differs between the two sides of a change
    acceptance.py   what may be said of nodes, groups and links after a maintenance

Only gates.py is light; the others import numpy and are imported where they are used.
"""

from hpcq.verdict.gates import GateVerdict, MeasuredSeries, Verdict, judge_gates

__all__ = ["GateVerdict", "MeasuredSeries", "Verdict", "judge_gates"]
