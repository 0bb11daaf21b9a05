"""Shared by all benchmarks: alternating runs, ratios with intervals, one results file each and one page of all.

    python bench/harness.py            render bench/results/README.md again from the JSON files beside it

A results file bench/results/NAME.json is a list of objects {claim, metric, unit, ours, peer, peer_value, ratio,
ratio_low, ratio_high, goal, met}. Peer fields are null if a claim is no comparison; goal and met are null if nothing
was promised.
Absolute times are never compared between machines or days: both sides run in turn, in one process, in one run.
"""

from __future__ import annotations

import argparse
import json
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "results"
RESAMPLES = 2000
_TESTS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of a results file. ratio = ours / peer_value, with its 95 % interval when runs were paired."""

    claim: str
    metric: str
    unit: str
    ours: float
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    goal: str | None = None
    met: bool | None = None


def claim(text: str, metric: str, unit: str, ours: float, goal: str | None = None) -> Claim:
    """A claim without a peer. goal: a comparison such as ">= 0.99" or "<= 3", or None when the figure is for information."""
    return Claim(text, metric, unit, _rounded(ours), goal=goal, met=None if goal is None else _reached(ours, goal))


def against(text: str, metric: str, unit: str, ours: float, *, peer: str, peer_value: float, goal: str | None = None) -> Claim:
    """A claim beside a peer's figure. goal is about our figure; "peer" in it stands for the peer's: ">= peer"."""
    ratio = _rounded(ours / peer_value) if peer_value else None
    met = None if goal is None else _reached(ours, goal.replace("peer", repr(float(peer_value))))
    return Claim(text, metric, unit, _rounded(ours), peer, _rounded(peer_value), ratio, goal=goal, met=met)


def paired(
    text: str, metric: str, unit: str, ours: Sequence[float], *, peer: str, theirs: Sequence[float], goal: str | None = None
) -> Claim:
    """A claim from runs that alternated: the median of the paired ratios with its bootstrap interval.

    goal is about the ratio ours / theirs.
    """
    ratio, low, high = paired_ratio(ours, theirs)
    met = None if goal is None else _reached(ratio, goal)
    medians = float(np.median(ours)), float(np.median(theirs))
    return Claim(
        text,
        metric,
        unit,
        _rounded(medians[0]),
        peer,
        _rounded(medians[1]),
        _rounded(ratio),
        _rounded(low),
        _rounded(high),
        goal,
        met,
    )


#: At least this share of what the other reaches is as good as it, if the whole interval says so.
NON_INFERIOR_RATIO = 0.97
#: On either side of the ratio: a wider interval decides nothing.
INTERVAL_RATIO_MAX = 0.03


def non_inferior(low: float, high: float, *, gain: float = 1.0, higher_is_better: bool = True) -> bool | None:
    """Whether ours is as good as the other: True, False, or None where the interval of the ratio does not decide.

    low, high: the 95 % interval of ours / theirs. gain: what the ratio should be. True takes the lower bound, so no noise
    passes; where a smaller figure is better, the bounds change places.
    """
    if not higher_is_better:
        low, high = 1 / high, 1 / low
    if low >= NON_INFERIOR_RATIO * gain:
        return True
    return False if high < NON_INFERIOR_RATIO * gain else None


def is_narrow(middle: float, low: float, high: float) -> bool:
    """Whether the interval of a ratio is narrow enough to decide by."""
    return max(high - middle, middle - low) <= INTERVAL_RATIO_MAX * middle


def alternate(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Run both `rounds` times in turn and change the first one each round. Returns what each call returned."""
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        for first in (True, False) if number % 2 == 0 else (False, True):
            (mine if first else theirs).append(ours() if first else peer())
    return mine, theirs


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Median of ours[i] / theirs[i], with its 95 % percentile bootstrap interval. Source: Efron & Tibshirani 1993, ch. 13."""
    return median_interval(np.asarray(ours, dtype=np.float64) / np.asarray(theirs, dtype=np.float64))


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The same of ours[i] - theirs[i]."""
    return median_interval(np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))


def median_interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float, float]:
    """The median of these values, shape (n,), with its 95 % interval as above."""
    picks = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), (0.025, 0.975))
    return float(np.median(values)), float(low), float(high)


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def parser(description: str, seed: int) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--seed", type=int, default=seed, help="first seed (default %(default)s)")
    found.add_argument("--quick", action="store_true", help="a tenth of the work, and no results file")
    return found


def finish(name: str, claims: Sequence[Claim], *, quick: bool) -> int:
    """Print the claims; write NAME.json and the page unless quick. Returns 0 if every goal is met, otherwise 1.

    A goal that the runs do not decide is not met.
    """
    for one in claims:
        mark = {None: "????" if one.goal else "    ", True: "ok  ", False: "MISS"}[one.met]
        beside = f"   {one.peer}: {one.peer_value:g}" if one.peer is not None and one.peer_value is not None else ""
        print(f"{mark} {one.claim}: {one.metric} {one.ours:g} {one.unit}{beside}{f'   goal {one.goal}' if one.goal else ''}")
    if not quick:
        write_results(name, claims)
        render_page()
    return 1 if any(one.goal and not one.met for one in claims) else 0


def write_results(name: str, claims: Sequence[Claim], folder: Path = RESULTS) -> Path:
    """Write NAME.json, aside and renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    aside = path.with_suffix(".json.part")
    aside.write_text(json.dumps([asdict(one) for one in claims], indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def with_older(name: str, claims: Sequence[Claim]) -> list[Claim]:
    """What stands in NAME.json and was not measured now comes along; all in the order of their texts."""
    path = RESULTS / f"{name}.json"
    older = [Claim(**one) for one in json.loads(path.read_text())] if path.exists() else []
    new = {one.claim for one in claims}
    return sorted([*(one for one in older if one.claim not in new), *claims], key=lambda one: one.claim)


def render_page(folder: Path = RESULTS) -> Path:
    """Write README.md: one table from each results file."""
    lines = [
        "# Benchmark results",
        "",
        "Made by `python bench/harness.py` from the JSON files beside this page; each of those by its program in `bench/`.",
        "A ratio is ours divided by the peer's, with its 95 % interval where both ran in turn.",
    ]
    for path in sorted(folder.glob("*.json")):
        claims = json.loads(path.read_text(encoding="utf-8"))
        missed = sum(bool(one.get("goal")) and not one.get("met") for one in claims)
        stated = sum(bool(one.get("goal")) for one in claims)
        program = next((one for one in BENCH.rglob(f"{path.stem}.py")), BENCH / f"{path.stem}.py").relative_to(BENCH.parent)
        lines += ["", f"## {path.stem}", "", f"{stated - missed} of {stated} goals met. `python {program}`", ""]
        lines += ["| claim | metric | ours | peer | peer's | ratio | goal | met |", "|---|---|---|---|---|---|---|---|"]
        lines += [_row(one) for one in claims]
    page = folder / "README.md"
    aside = page.with_suffix(".md.part")
    aside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    aside.replace(page)
    return page


def _row(one: dict[str, object]) -> str:
    ratio = "" if one.get("ratio") is None else f"{one['ratio']:.3g}"
    if one.get("ratio_low") is not None:
        ratio += f" ({one['ratio_low']:.3g} to {one['ratio_high']:.3g})"
    peer_value = "" if one.get("peer_value") is None else f"{one['peer_value']:.4g}"
    undecided = "undecided" if one.get("goal") else ""
    met = undecided if one.get("met") is None else "yes" if one["met"] else "**no**"
    unit = f" {one['unit']}" if one.get("unit") not in (None, "", "share", "count") else ""
    cells = [
        one["claim"],
        one["metric"],
        f"{one['ours']:.4g}{unit}",
        one.get("peer") or "",
        f"{peer_value}{unit if peer_value else ''}",
        ratio,
        one.get("goal") or "",
        met,
    ]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _reached(value: float, goal: str) -> bool:
    sign, bound = goal.split()
    return _TESTS[sign](value, float(bound))


def _rounded(value: float) -> float:
    """Round to six significant digits: further digits mean nothing and would change results files."""
    return float(f"{value:.6g}")


if __name__ == "__main__":
    print(render_page())
