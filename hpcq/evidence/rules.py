"""The table of rules. docs/evidence.md is made from it; judge.py applies it.

A row (row.py): where it is looked for, the condition, the condition in words, what is said about the figures, what that means,
what to try, where the knowledge comes from. Conditions and their thresholds stand in conditions*.py.
"""

from __future__ import annotations

from hpcq.evidence.table.crossing import CROSSING
from hpcq.evidence.table.disturbance import DISTURBANCE
from hpcq.evidence.table.limits import LIMITS
from hpcq.evidence.table.loss import LOSS
from hpcq.evidence.table.row import Row, Scope

__all__ = ["RULES", "VERSION", "Row", "Scope"]

#: Counts up with every rule that is new or judges otherwise. It is stored with each result, and findings of different versions
#: are never compared: a newer rule is no change of the machine (`hpcq db rejudge` brings old results up to date).
VERSION = 1

#: In the order in which findings are told.
RULES: tuple[Row, ...] = (*CROSSING, *LOSS, *LIMITS, *DISTURBANCE)
