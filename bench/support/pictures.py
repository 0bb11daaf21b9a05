"""Draw the pictures of docs/methods/ as SVG: `python bench/support/pictures.py`. The same seed gives the same picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.blame import Truth, measure
from bench.support.blame_noise import Pair, circle_rounds
from hpcq.judge.series import judge_series
from hpcq.statistics import ComparisonVerdict, compare

Floats = NDArray[np.float64]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "methods"
INK, GREY, BLUE, ORANGE, RED = "#222222", "#9a9a9a", "#2a6fb0", "#d9822b", "#b3261e"


class Picture:
    """An SVG under construction; coordinates in pixels from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self.parts = [f"<title>{escape(title)}</title>", f'<rect width="{width}" height="{height}" fill="white"/>']

    def text(self, x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", colour: str = INK) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
        self.parts.append(f"<text {place}>{escape(words)}</text>")

    def line(
        self, start: tuple[float, float], end: tuple[float, float], *, colour: str = INK, width: float = 1, dash: str = ""
    ) -> None:
        places = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line {places} stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def dot(self, x: float, y: float, *, colour: str = GREY, radius: float = 3) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def box(self, x: float, y: float, *, width: float, height: float, colour: str) -> None:
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def curve(self, points: Sequence[tuple[float, float]], *, colour: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')

    def save(self, name: str) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
        head += f'height="{self.height}" font-family="Helvetica, Arial, sans-serif">'
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text("\n".join([head, *self.parts, "</svg>"]) + "\n", encoding="utf-8")


def boundary() -> None:
    """Before, after, and the same values in order of size."""
    random = np.random.default_rng(5)
    before, after = 100 + 2 * random.standard_normal(30), 95 + 2 * random.standard_normal(5)
    before[11] = 84
    picture = Picture(760, 300, "Before and after a maintenance: values, medians and ranks")

    def place(value: float) -> float:
        return 210 - (value - 82) * 7.5

    for i, value in enumerate([*before, *after]):
        x = 40 + 11 * i + (24 if i >= 30 else 0)
        picture.dot(x, place(value), colour=BLUE if i < 30 else ORANGE, radius=3.5)
    for values, low, high, colour in ((before, 34, 366, BLUE), (after, 388, 446, ORANGE)):
        middle = place(float(np.median(values)))
        picture.line((low, middle), (high, middle), colour=colour, width=2)
    picture.line((377, 30), (377, 215), colour=GREY, dash="4 4")
    picture.text(40, 22, "before: 30 runs", colour=BLUE)
    picture.text(384, 22, "after: 5 runs", colour=ORANGE)
    picture.text(120, place(84) + 4 + 12, "one bad run: one low rank, no more", size=12, colour=GREY)
    picture.text(490, 70, "The medians differ by 5 %:")
    picture.text(490, 90, "enough to matter (2 % or more)?  yes", colour=INK)
    picture.text(490, 130, "The five runs after are nearly")
    picture.text(490, 150, "the lowest of all 35:")
    picture.text(490, 170, "luck in fewer than 1 of 100?  yes", colour=INK)
    picture.text(490, 205, "both yes: degraded", size=15, colour=RED)
    order = np.argsort(np.concatenate([before, after]))
    for rank, i in enumerate(order):
        picture.box(40 + 19.4 * rank, 245, width=17, height=22, colour=BLUE if i < 30 else ORANGE)
    picture.text(40, 290, "slowest", size=12)
    picture.text(716, 290, "fastest", size=12, anchor="end")
    picture.save("known-boundary.svg")


def search() -> None:
    """A series with outliers and two steps, and the levels that judge_series reports."""
    random = np.random.default_rng(8)
    values = 100 + 2 * random.standard_normal(150)
    values[60:] *= 0.93
    values[110:] *= 1.05
    values[[15, 40, 85, 131]] *= 0.8
    changes = judge_series([values])[0].changes
    picture = Picture(760, 270, "A series with outliers, and its levels")

    def place(value: float) -> float:
        return 226 - (value - 74) * 6.0

    for i, value in enumerate(values):
        picture.dot(30 + 4.8 * i, place(value), radius=2.6)
    bounds = [0, *(change.index for change in changes), len(values)]
    for low, high in pairwise(bounds):
        middle = place(float(np.median(values[low:high])))
        picture.line((30 + 4.8 * low, middle), (30 + 4.8 * (high - 1), middle), colour=BLUE, width=3)
    for change in changes:
        x = 30 + 4.8 * (change.index - 0.5)
        picture.line((x, 32), (x, 225), colour=RED, dash="4 4")
        share = 100 * ((change.effect_ratio or 1) - 1)
        span = f"{100 * ((change.low or 1) - 1):+.1f} to {100 * ((change.high or 1) - 1):+.1f} %"
        picture.text(x, 26, f"value {change.index}: {share:+.1f} % ({span})", colour=RED, size=12, anchor="middle")
    picture.text(36, place(values[15]) + 26, "single bad runs are nobody's change", size=12, colour=GREY)
    picture.text(30, 256, "nights", size=12)
    picture.line((75, 252), (745, 252), colour=GREY)
    picture.save("unknown-boundary.svg")


def repetitions() -> None:
    """How many runs after the boundary are needed, by size of the drop in units of the noise."""
    random = np.random.default_rng(11)
    counts = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15)
    picture = Picture(760, 330, "Share of drops found against repetitions")
    left, top, wide, high = 60, 40, 470, 230

    def at(count: float, share: float) -> tuple[float, float]:
        return left + wide * (count - 1) / 14, top + high * (1 - share)

    for share in (0, 0.25, 0.5, 0.75, 0.95, 1.0):
        picture.line(
            at(1, share), at(15, share), colour="#dddddd" if share != 0.95 else GREY, dash="" if share != 0.95 else "4 4"
        )
        if share != 1.0:
            picture.text(left - 8, at(1, share)[1] + 4, f"{100 * share:.0f} %", size=11, anchor="end")
    for count in (1, 3, 5, 8, 10, 12, 15):
        picture.text(at(count, 0)[0], top + high + 18, str(count), size=11, anchor="middle")
    for ratio, colour in ((5.0, BLUE), (2.5, "#2e8b57"), (2.0, ORANGE), (1.0, RED)):
        shares = []
        for count in counts:
            hits = []
            for _ in range(300):
                before, after = 1 + 0.02 * random.standard_normal(30), 1 - 0.02 * ratio + 0.02 * random.standard_normal(count)
                hits.append(compare(before, after, minimum_effect_ratio=0.01).verdict is ComparisonVerdict.DEGRADED)
            shares.append(float(np.mean(hits)))
        picture.curve([at(count, share) for count, share in zip(counts, shares, strict=True)], colour=colour)
        label_y = {5.0: 60, 2.5: 84, 2.0: 108, 1.0: 132}[ratio]
        picture.line((555, label_y - 4), (580, label_y - 4), colour=colour, width=2.5)
        picture.text(588, label_y, f"drop = {ratio:g} x noise")
    picture.text(588, 168, "noise of 2 %: a drop of", size=12, colour=GREY)
    picture.text(588, 184, "5 % is 2.5 x noise", size=12, colour=GREY)
    picture.text(left, 24, "drops found, 30 runs before, gauss noise")
    picture.text(left + wide / 2, top + high + 42, "runs after the boundary", anchor="middle", size=12)
    picture.save("repetitions.svg")


def matrices() -> None:
    """Four tables of pairs: a node, a leaf, a link, noise."""
    nodes = 24
    group = np.arange(nodes) // 6
    slow = np.ones(nodes)
    slow[9] = 0.85
    truths: list[tuple[str, Truth]] = [
        ("a node: a cross", Truth(slow)),
        ("a leaf: a band, without its own block", Truth(np.ones(nodes), group=group, uplink=np.array([1, 1, 0.85, 1.0]))),
        ("a link: one cell, every time", Truth(np.ones(nodes), {(4, 17): 0.8})),
        ("noise: cells here and there", Truth(np.ones(nodes))),
    ]
    picture = Picture(760, 250, "What faults look like in a node by node matrix")
    random = np.random.default_rng(21)
    for number, (label, truth) in enumerate(truths):
        left, top, cell = 12 + 187 * number, 46, 7.2
        pairs: list[Pair] = [pair for each in circle_rounds(nodes, random, nodes - 1) for pair in each]
        values = measure(random, truth, pairs)
        if number in {0, 2}:
            values = np.where(np.abs(values - 100) > 5, np.where([_touched(p, truth) for p in pairs], values, 100.0), values)
        picture.text(left, 30, label.split(":")[0], size=14)
        picture.box(left, top, width=cell * nodes, height=cell * nodes, colour="#e1e8f0")
        for (a, b), value in zip(pairs, values, strict=True):
            lost = float(np.clip((100 - value) / 25, 0, 1))
            if lost < 0.1:
                continue
            colour = f"rgb({int(225 - 46 * lost)},{int(232 - 194 * lost)},{int(240 - 210 * lost)})"
            for row, column in ((a, b), (b, a)):
                picture.box(left + cell * column, top + cell * row, width=cell - 0.6, height=cell - 0.6, colour=colour)
        picture.text(left, 240, label.split(": ")[1], size=11, colour=GREY)
    picture.save("pair-matrices.svg")


def _touched(pair: Pair, truth: Truth) -> bool:
    slow = bool(truth.speed[pair[0]] < 1 or truth.speed[pair[1]] < 1)
    return slow or (min(pair), max(pair)) in truth.links


def explaining_away() -> None:
    """Three rounds of six nodes, one of them bad: which nodes remain to explain the results."""
    picture = Picture(760, 300, "Explaining away: one bad node slows three partners")
    names = ["A", "B", "C", "D", "E", "F"]
    centre_x, centre_y, radius = 190, 160, 105
    places = [
        (centre_x + radius * np.cos(np.pi / 3 * i - np.pi / 2), centre_y + radius * np.sin(np.pi / 3 * i - np.pi / 2))
        for i in range(6)
    ]
    pairs = [(0, 1), (2, 3), (4, 5), (1, 2), (3, 4), (0, 5), (1, 4), (0, 3), (2, 5)]
    for a, b in pairs:
        slow = 1 in (a, b)
        picture.line(places[a], places[b], colour=RED if slow else "#b8c7d6", width=4 if slow else 2.5)
    for (x, y), label in zip(places, names, strict=True):
        picture.dot(x, y, colour=RED if label == "B" else BLUE, radius=17)
        picture.text(x, y + 5, label, size=15, anchor="middle", colour="white")
    picture.text(20, 22, "Nine pairs in three rounds; three are slow (red).")
    rows = [
        ("A, C, E", "one slow pair each, two good ones: each is fine with others"),
        ("B", "three slow pairs with three partners, none good"),
        ("B alone", "explains all three slow pairs; then A, C and E have nothing left"),
        ("link A-B", "slow once: never blamed for that"),
    ]
    for number, (who, why) in enumerate(rows):
        y = 90 + 46 * number
        picture.text(345, y, who, size=14, colour=RED if who.startswith("B") else INK)
        picture.text(345, y + 18, why, size=12, colour="#555555")
    picture.save("explaining-away.svg")


def main() -> int:
    """Draw all pictures."""
    for draw in (boundary, search, repetitions, matrices, explaining_away):
        draw()
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
