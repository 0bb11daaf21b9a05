"""The table of rules. docs/evidence.md is generated from it; judge.py applies it.

A row (row.py): its scope, the condition, the condition in words, the message about the figures, what that means, what
to try, the source of the knowledge. Conditions and their thresholds are in conditions/.
"""

from __future__ import annotations

from hpcq.evidence.table.course import COURSE
from hpcq.evidence.table.crossing import CROSSING
from hpcq.evidence.table.disturbance import DISTURBANCE
from hpcq.evidence.table.limits import LIMITS
from hpcq.evidence.table.loss import LOSS
from hpcq.evidence.table.row import Row, Scope

__all__ = ["RULES", "VERSION", "Row", "Scope"]

#: Increase it with every rule that is new or judges otherwise. Each result stores it, and findings of different
#: versions are
#: never compared: a newer rule is no change of the machine (`hpcq db rejudge` updates old results).
VERSION = 2

#: In the order in which findings are reported.
RULES: tuple[Row, ...] = (*CROSSING, *LOSS, *LIMITS, *COURSE, *DISTURBANCE)
