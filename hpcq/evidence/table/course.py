"""Rules on the course of a measurement: it was not one thing from beginning to end. See rules.py."""

from __future__ import annotations

from hpcq.evidence.conditions import course
from hpcq.evidence.table.row import Row, Scope, rule

COURSE: tuple[Row, ...] = (
    rule(
        "rate_drifted",
        Scope.RESULT,
        course.rate_drifted,
        when=f"a trend of the rate by interval of {course.DRIFT_RATIO:.0%} from beginning to end that chance makes once in"
        " 1,000 times, where no ramp was said and there are not two levels",
        message="{metric} {direction} by {change_ratio}, from {first_bps} to {last_bps}",
        meaning="The rate went one way through the whole measurement: its mean is not what a longer one would tell.",
        advice="Measure longer and look at the series (`hpcq show`): a buffer that fills, a clock that falls, a cache.",
        source="Theil 1950 and Sen 1968 (slope); Mann 1945 and Kendall 1975 (trend)",
    ),
    rule(
        "round_trip_drifted",
        Scope.RESULT,
        course.round_trips_drifted,
        when=f"a trend of the median round trip by interval of {course.DRIFT_RATIO:.0%} from beginning to end that chance makes"
        " once in 1,000 times, where there are not two levels",
        message="the median round trip of an interval {direction} by {change_ratio}, from {first_ns} to {last_ns}",
        meaning="Round trips went one way through the whole measurement: its percentiles are not what a longer one would tell.",
        advice="Measure longer, with a longer warm-up, and look at the series (`hpcq show`): a queue that fills, a clock"
        " that rises or falls.",
        source="Theil 1950 and Sen 1968 (slope); Mann 1945 and Kendall 1975 (trend)",
    ),
    rule(
        "rate_of_two_levels",
        Scope.RESULT,
        course.rate_of_two_levels,
        when=f"two levels of the rate by interval, {course.APART_RATIO:.0%} or more apart, each in {course.SHARE_MIN:.0%} or"
        f" more of the intervals, that explain {course.EXPLAINED_RATIO:.0%} of its variance",
        message="{metric} was {low_bps} in {low_ratio} of the intervals and {high_bps} in the others, with {switch_count}"
        " changes between them",
        meaning="The measurement was two things, and its mean is neither of them.",
        advice="Look at the series (`hpcq show`): another flow that comes and goes, a CPU that changes its clock or its"
        " place, a path that changes. Pin the ends, and measure each level by itself.",
        source="Otsu 1979 (the split with the most variance between the groups)",
    ),
    rule(
        "round_trip_of_two_levels",
        Scope.RESULT,
        course.round_trips_of_two_levels,
        when=f"{course.ROUND_TRIPS_MIN} round trips or more at two times, {course.APART_RATIO:.0%} or more apart, each with"
        f" {course.SHARE_MIN:.0%} or more of them, that explain {course.EXPLAINED_RATIO:.0%} of the variance of their"
        " logarithms",
        message="{low_ratio} of the round trips are near {low_ns}, the others near {high_ns}",
        meaning="There are two kinds of round trips: the median stands for one of them, and the mean for none.",
        advice="Idle states (`idle: hold`), interrupts on another socket, adaptive coalescing, two paths: change one of them"
        " and look at the histogram again.",
        source="Otsu 1979 (the split with the most variance between the groups)",
    ),
)
