"""The verdict on one node. Pure.

The rules are tried in order. The first that applies gives the verdict; if none applies, the verdict is PASS.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, exp

from hpcq.verdict.acceptance.culprits import behind
from hpcq.verdict.acceptance.found import Found, ratio_of
from hpcq.verdict.acceptance.points import (
    NO_REFERENCE,
    PACKETS,
    Pair,
    PairPoint,
    PairVerdict,
    Pooled,
    by_test,
    in_words,
    pooled,
)
from hpcq.verdict.acceptance.small_faults import SCATTER_MAX
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict

#: PASS rules a slowdown out with 95 % confidence (one-sided, normal).
CONFIDENCE_Z = 1.645
#: Partners per role with which a node must have been measured, if that many were planned.
CLEAN_PARTNERS_MIN = 2


#: To advise more jobs than this would not help anybody.
ADVICE_JOBS_MAX = 200


class NodeVerdicts:
    """Verdicts on nodes from the findings."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.known = found.known

    def of(self, node: str) -> VerdictRecord:
        """The verdict on a node."""
        mine = self.found.of_node.get(node, [])
        flaw = self.known.flaws.get(node, "")
        if not any(one.change is not None or one.lost_share > 0 or one.gate for one in mine) and not self.found.shifts:
            return self._without_value(node, mine)
        if node in self.found.culprits.nodes:
            return self._accused_node(node, flaw)
        if node in self.known.booted:
            why = f"booted after it was measured ({self.known.booted[node]}): measure again"
            return _record(node, Verdict.INCONCLUSIVE, why)
        if flaw:
            return _record(node, Verdict.DEGRADED, f"its results do not show it yet, but: {flaw}")
        rules = (self._of_cluster, self._open, self._behind, self._intermittent, self._incomplete, self._beyond_bounds)
        reason = next((why for rule in rules if (why := rule(node))), "")
        return _record(node, Verdict.INCONCLUSIVE, reason) if reason else self._pass(node, mine)

    def _without_value(self, node: str, mine: Sequence[PairPoint]) -> VerdictRecord:
        """The verdict if nothing was measured, or if none of it can be compared."""
        if any(one.reason.startswith(NO_REFERENCE) for one in mine):
            return _record(node, Verdict.INCONCLUSIVE, next(one.reason for one in mine if one.reason.startswith(NO_REFERENCE)))
        reason = self.known.missing.get(node, "") if not mine else next((one.reason for one in mine if one.reason), "")
        return _record(node, Verdict.NOT_COVERED, reason or self.known.missing.get(node, "nothing was measured with it"))

    def _accused_node(self, node: str, flaw: str) -> VerdictRecord:
        against = self.found.against(node)
        partners = sorted({end for one in against for end in one.pair} - {node})
        fine = sorted(
            {end for pair, word in self.found.words.items() if node in pair and word is PairVerdict.FINE for end in pair}
            - {node}
        )
        small = pooled(self.found.small.nodes.get(node, ()))
        failure = any(one.failure for pair in self.found.culprits.nodes[node] for one in [self.found.pairs[pair]])
        if small is not None:
            failure = small.mean <= -small.scale.failure
        fine_words = f" (fine with {_some(fine)})" if set(fine) - set(partners) else ""
        reason = f"bad with {_some(partners)}{fine_words}: {in_words(against)}"
        ratio = ratio_of(against)
        return _record(node, Verdict.FAILED if failure else Verdict.DEGRADED, f"{flaw}; {reason}" if flaw else reason, ratio)

    def _of_cluster(self, node: str) -> str:  # noqa: ARG002 - a rule like the others
        return "as bad as everything on this cluster: see the cluster's verdict" if self.found.shifts else ""

    def _open(self, node: str) -> str:
        mine = {pair for pair in self.found.culprits.open if node in pair}
        if node not in self.found.culprits.suspected(self.found.leaf_of):
            return ""
        said = in_words([one for pair in sorted(mine) for one in self.found.pairs[pair].points])
        asks = sorted({" - ".join(sorted(pair)) for pair in self.found.would_settle if node in pair})
        leaf = self.found.leaf_of.get(node, "its leaf")
        settle = f"; a clean result of {', '.join(asks)} would tell it from {leaf}" if asks else ""
        return f"bad with {_others(node, mine)}, and it is not clear whose fault it is: {said}{settle}"

    def _behind(self, node: str) -> str:
        leaf = self.found.leaf_of.get(node)
        crossing = any(leaf and node in pair and behind(pair, leaf, self.found.leaf_of) for pair in self.found.words)
        if leaf in self.found.leaves_at_fault() and crossing:
            return f"behind {leaf}, which is bad: to be judged when that is repaired"
        return ""

    def _intermittent(self, node: str) -> str:
        mine = [
            pair
            for pair, word in self.found.words.items()
            if node in pair and word is PairVerdict.INTERMITTENT and pair not in self.found.explained
        ]
        if not mine:
            return ""
        said = in_words([one for pair in sorted(mine) for one in self.found.pairs[pair].points])
        return f"bad in one run and fine in another with {_others(node, mine)}: {said}; it is watched"

    def _incomplete(self, node: str) -> str:
        """What was planned but not measured, or cannot be compared: a PASS would not cover it."""
        if node not in self.found.of_node:
            return "nothing was measured with it"
        tests = {one.test for one in self.found.points if not one.scale.is_loss}
        for role, name in ((0, "client"), (1, "server")):
            own = [one for one in self.found.of_node[node] if one.pair[role] == node]
            if not own:
                return f"it was never tested as the {name}"
            for test in sorted(tests):
                planned = [one for one in own if one.test == test]
                partners = {one.pair[1 - role] for one in planned}
                clean = {
                    one.pair[1 - role]
                    for one in planned
                    if one.change is not None and not one.disturbed and one.pair not in self.found.explained
                }
                if len(clean) >= min(CLEAN_PARTNERS_MIN, max(1, len(partners))):
                    continue
                if not planned:
                    return f"{test} was not planned with it as the {name}"
                open_gate = next((one.gate_open for one in planned if one.gate_open), "")
                reason = next(
                    (
                        one.reason
                        for one in own
                        if one.test == test and one.change is None and one.pair not in self.found.explained
                    ),
                    "",
                )
                reason = reason or open_gate
                if not reason and any(one.disturbed for one in planned):
                    reason = "other work ran on its nodes during the test"
                have = f"{test} as the {name}: {len(clean)} of {len(partners)} partners can tell"
                return f"{have}{f': {reason}' if reason else ', the others are bad themselves'}"
        open_gate = next((one.gate_open for one in self.found.of_node[node] if one.gate_open), "")
        return f"a gate cannot be judged: {open_gate}" if open_gate else ""

    def thin(self, node: str) -> bool:
        """Whether it lacks partners that are not bad themselves, or all of them scatter: runs with others would settle it."""
        wild = any(one.scale.scatter > SCATTER_MAX and not one.scale.is_loss for one in self.found.of_node.get(node, ()))
        return wild or "partners can tell, the others are bad" in self._incomplete(node)

    def measured_enough(self, node: str) -> bool:
        """Whether more of the same jobs would help: they do not if results are missing or have no reference."""
        return node in self.found.of_node and not (self._open(node) or self._behind(node) or self._incomplete(node))

    def _beyond_bounds(self, node: str) -> str:
        """Whether its mean may still be slower by what matters, and how many more jobs would settle it."""
        mine = [one for one in self.found.of_node[node] if one.pair not in self.found.explained]
        for test, points in sorted(by_test(mine).items()):
            for role in (None, 0, 1):
                part = [one for one in points if role is None or one.pair[role] == node]
                mean = pooled(part)
                if mean is None:
                    continue
                allowed = mean.scale.effect if role is None else mean.scale.failure
                if mean.mean - CONFIDENCE_Z * mean.error > -allowed:
                    continue
                margin = max(mean.mean + allowed, allowed / 4)
                needed = max(1, ceil((CONFIDENCE_Z * mean.scale.scatter / margin) ** 2 * 2) - mean.job_count)
                what = "% of the packets lost" if mean.scale.is_loss else "% below what is expected"
                shown = f"{mean.percent:.1f} {what}, give or take {100 * CONFIDENCE_Z * mean.error:.1f} %"
                named = f"{test.removesuffix(PACKETS)}{'' if role is None else (' as the client', ' as the server')[role]}"
                modes = "; its speed changes from job to job" if test in self.found.unsteady else ""
                modes += f"; {self.known.sleep[test]}" if test in self.known.sleep else ""
                out = f"{100 * _share(allowed, mean):.3g} % is not ruled out"
                settle = f"about {needed} more jobs would settle it"
                advice = settle if needed <= ADVICE_JOBS_MAX else "its jobs scatter too much to tell"
                return f"{named}: {shown}{modes}: {out}; {advice}"
        return ""

    def _pass(self, node: str, mine: Sequence[PairPoint]) -> VerdictRecord:
        clean = [one for one in mine if one.pair not in self.found.explained and one.change is not None and not one.disturbed]
        jobs = len({(one.pair, one.run_no) for one in clean})
        why = f"as expected with {_others(node, {one.pair for one in clean})} in {jobs} jobs"
        links = [" - ".join(ends) for ends in self.found.culprits.links if node in ends]
        why = f"{why}; see link {', '.join(links)}" if links else why
        unclear = {
            pair
            for pair, word in self.found.words.items()
            if node in pair and word is PairVerdict.UNCLEAR and pair not in self.found.explained
        }
        why = f"{why}; not enough seen with {_others(node, unclear)}" if unclear else why
        return _record(node, Verdict.PASS, why, ratio_of(clean))


def _share(change: float, mean: Pooled) -> float:
    """A change as a share: computed from the logarithm for speed, unchanged for packets."""
    return change if mean.scale.is_loss else 1 - exp(-change)


def _record(node: str, verdict: Verdict, reason: str, ratio: float | None = None) -> VerdictRecord:
    return VerdictRecord(Thing.NODE, node, verdict, reason, (node,), ratio)


def _others(node: str, pairs: Collection[Pair]) -> str:
    return _some(sorted({end for pair in pairs for end in pair} - {node}))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"
