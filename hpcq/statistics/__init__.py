"""Statistics of series, and of before against after: numbers in, numbers out, without files or questions.

    find_changes        unknown boundary: when did it change?       changes.py
    compare             known boundary: is after worse than before?  boundary.py
    compare_jobs        the same for single jobs, given how far jobs scatter     comparison.py
    median_shift        how far, with an interval                    comparison.py
    benjamini_hochberg  many series at once                          comparison.py

This package imports numpy. A module that loads at start-up of a reading verb imports it only where it uses it.
docs/methods/change-points.md explains both methods to people.
"""

from hpcq.statistics.boundary import compare, compare_many
from hpcq.statistics.changes import Change, change_indices, find_changes
from hpcq.statistics.comparison import (
    Comparison,
    ComparisonVerdict,
    JobScatter,
    Shift,
    benjamini_hochberg,
    compare_jobs,
    job_scatter,
    job_scatters,
    mann_whitney,
    median_shift,
    noise_scale,
    pooled_scatter,
)

__all__ = [
    "Change",
    "Comparison",
    "ComparisonVerdict",
    "JobScatter",
    "Shift",
    "benjamini_hochberg",
    "change_indices",
    "compare",
    "compare_jobs",
    "compare_many",
    "find_changes",
    "job_scatter",
    "job_scatters",
    "mann_whitney",
    "median_shift",
    "noise_scale",
    "pooled_scatter",
]
