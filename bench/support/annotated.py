"""Public annotated series, read from a folder of the developer's: nothing of them is kept here.

    annotated(FOLDER)   the Turing change point data set as its repository lays it out: annotations.json (series -> annotator ->
                        places) and datasets/*/*.json. Only one-dimensional series; those that need a download are left out.
    counted(FOLDER)     files with {"series": [...], "expected": N}, as in the tests of MongoDB's signal processing
                        algorithms (tests/data/profiling): N is the number of changes that their authors expect.

Score: van den Burg & Williams 2020. The places told, and 0, against those of all annotators together (precision) and of each
annotator (recall, averaged); a place is met within the margin, each once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MARGIN = 5


@dataclass(frozen=True, slots=True)
class Annotated:
    """One series without its missing values, the place of each value, and what each annotator marked."""

    name: str
    values: Floats
    places: list[int]
    annotators: list[set[int]]


def annotated(folder: Path) -> list[Annotated]:
    """Every one-dimensional series of the folder that has annotations and its data."""
    marks = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))
    found = []
    for path in sorted(folder.glob("datasets/*/*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["n_dim"] != 1 or data["name"] not in marks:
            continue
        raw = np.array([np.nan if one is None else one for one in data["series"][0]["raw"]], dtype=np.float64)
        kept = np.flatnonzero(np.isfinite(raw))
        annotators = [{0, *map(int, places)} for places in marks[data["name"]].values()]
        found.append(Annotated(data["name"], raw[kept], [int(one) for one in kept], annotators))
    return found


def counted(folder: Path) -> list[tuple[str, Floats, int]]:
    """Name, values and expected number of changes of each file that has them."""
    found = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and {"series", "expected"} <= set(data):
            found.append((path.stem, np.asarray(data["series"], dtype=np.float64), int(data["expected"])))
    return found


def f1(one: Annotated, indices: Sequence[int]) -> tuple[float, float, float]:
    """F1, precision and recall of the changes told in one series; indices count its values."""
    told = {0, *(one.places[index] for index in indices)}
    together = set().union(*one.annotators)
    precision = _met(together, told) / len(told)
    recall = float(np.mean([_met(marks, told) / len(marks) for marks in one.annotators]))
    return 2 * precision * recall / (precision + recall), precision, recall


def _met(marks: Collection[int], told: Collection[int]) -> int:
    left = set(told)
    count = 0
    for mark in sorted(marks):
        near = [place for place in left if abs(place - mark) <= MARGIN]
        if near:
            left.remove(min(near, key=lambda place: (abs(place - mark), place)))
            count += 1
    return count
