"""Recorded outputs of foreign programs and what hpcq must read from them: samples/NAME/expected.toml beside the outputs.

[[sample]]      an output as a version of the program wrote it
file            the output
version         of the program
from            "run" (where it ran stands in `where`) or "documentation" (its address stands there)
options         that the program ran with, where they are not the defaults
rows            metrics; `size` where the program has a table; or `reason` of a refusal, as below

[[hostile]]     a sample after damage
of, what        which sample; what happened to it, one of DAMAGES, or anything more
replace         [[old, new], ...]: each old once in the text
cut_after       the text ends there
twice           the whole output twice
reason          of the refusal (without `rows`); or `rows`, and `said`: the warnings kept beside them
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hpcq import assets
from hpcq.definition.kernel_file import read_kernel
from hpcq.described import Read, UnreadableError, read_output, sizes
from hpcq.kernels import Kernel, complete, own_kernels
from tests import REPOSITORY

FOLDER = REPOSITORY / "tests" / "described" / "samples"
#: What every description has a damaged output of.
DAMAGES = ("truncated", "nan", "warnings in the middle", "other locale", "zero rows", "twice the rows")


@dataclass(frozen=True)
class Sample:
    """One output and what is expected of it."""

    name: str
    title: str
    text: str
    row: dict[str, Any]
    described_by: Kernel | Path

    @property
    def kernel(self) -> Kernel:
        return kernel_in(self.described_by) if isinstance(self.described_by, Path) else self.described_by

    def read(self, text: str | None = None) -> Read:
        parameters = complete(self.kernel, self.row.get("options", {}))
        described = self.kernel.described
        assert described is not None
        return read_output(described, self.text if text is None else text, sizes(described, parameters))


@cache
def kernel_in(description: Path) -> Kernel:
    """What a description says, read when a test needs it: each worker of a run imports this, and one of them tests it."""
    return read_kernel(description, own_kernels())


def expected_file(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((folder / "expected.toml").read_text("utf-8"))


def samples(folder: Path, description: Path) -> tuple[list[Sample], list[Sample]]:
    """The recorded outputs of a description, and the damaged ones."""
    file = expected_file(folder)
    name = folder.name
    good = {
        one["file"]: Sample(name, f"{name} {one['file']}", (folder / one["file"]).read_text("utf-8"), one, description)
        for one in file["sample"]
    }
    bad = []
    for one in file["hostile"]:
        base = good[one["of"]]
        row = {"options": base.row.get("options", {}), **one}
        bad.append(Sample(name, f"{name} {one['what']}", _damaged(base.text, one), row, description))
    return list(good.values()), bad


def delivered() -> list[str]:
    return sorted(path.stem for path in assets.described_kernels().glob("*.yaml"))


def rows_of(found: Read) -> list[dict[str, Any]]:
    """What was read, as expected.toml writes it."""
    return [{**({} if size is None else {"size": size}), **metrics} for size, metrics in found.metrics.items()]


def refusal(sample: Sample) -> str:
    """The reason why nothing can be read, or why rows cannot; empty when all was read."""
    try:
        found = sample.read()
    except UnreadableError as error:
        return str(error)
    return "; ".join(f"{size}: {reason}" if size is not None else reason for size, reason in found.complaints.items())


def _damaged(text: str, how: dict[str, Any]) -> str:
    for old, new in how.get("replace", []):
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    if "cut_after" in how:
        head, found, _ = text.partition(how["cut_after"])
        assert found
        text = head + found
    assert how.keys() & {"replace", "cut_after", "twice"}, how
    return text * 2 if how.get("twice") else text
