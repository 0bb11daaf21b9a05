"""Every delivered description against outputs of real versions, and against damaged ones: see samples.py."""

from __future__ import annotations

import pytest

from hpcq import assets
from hpcq.described.numbers import UnreadableError
from tests import REPOSITORY
from tests.described.samples import DAMAGES, FOLDER, Sample, delivered, expected_file, refusal, rows_of, samples

pytestmark = pytest.mark.fast

#: The one that docs/described-walk.md adds, with its samples.
WALK = REPOSITORY / "docs" / "nuttcp"
FOLDERS = {name: FOLDER / name for name in delivered()} | {"nuttcp_tcp": WALK / "samples" / "nuttcp_tcp"}
ALL = {name: samples(FOLDERS[name], assets.described_kernels() / f"{name}.yaml") for name in delivered()}
ALL["nuttcp_tcp"] = samples(FOLDERS["nuttcp_tcp"], WALK / "nuttcp_tcp.yaml")
GOOD = [one for good, _ in ALL.values() for one in good]
BAD = [one for _, bad in ALL.values() for one in bad]


def approximately(rows: list[dict[str, float]]) -> list[object]:
    return [pytest.approx(row, rel=1e-9) for row in rows]


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_every_description_has_two_versions_and_all_damages(name: str) -> None:
    file = expected_file(FOLDERS[name])
    assert len({one["version"] for one in file["sample"]}) >= 2
    assert {one["from"] for one in file["sample"]} <= {"run", "documentation"}
    assert all(one["where"] for one in file["sample"])
    assert {one["what"] for one in file["hostile"]} >= set(DAMAGES)
    used = {one["file"] for one in file["sample"]} | {"expected.toml"}
    assert {path.name for path in FOLDERS[name].iterdir()} == used


@pytest.mark.parametrize("sample", GOOD, ids=lambda one: one.title)
def test_an_output_of_a_real_version(sample: Sample) -> None:
    if "reason" in sample.row:  # a version whose output is another one
        assert refusal(sample) == sample.row["reason"]
        return
    found = sample.read()
    assert found.complaints == {}
    assert rows_of(found) == approximately(sample.row["rows"])


@pytest.mark.parametrize("sample", BAD, ids=lambda one: one.title)
def test_a_damaged_output(sample: Sample) -> None:
    assert refusal(sample) == sample.row.get("reason", "")
    if "rows" in sample.row:
        found = sample.read()
        assert rows_of(found) == approximately(sample.row["rows"])
        assert found.said == sample.row.get("said", [])


@pytest.mark.parametrize("sample", [one for one in GOOD if "rows" in one.row], ids=lambda one: one.title)
def test_no_cut_gives_another_number(sample: Sample) -> None:
    """Wherever an output ends, it gives the numbers of the whole one, or none."""
    whole = rows_of(sample.read())
    step = max(1, len(sample.text) // 150)
    for end in [*range(1, len(sample.text), step), *range(max(0, len(sample.text) - 40), len(sample.text))]:
        try:
            found = sample.read(sample.text[:end])
        except UnreadableError:
            continue
        assert found.complaints or rows_of(found) == whole, sample.text[max(0, end - 60) : end]
