"""Every delivered description against outputs of real versions, and against damaged ones: see samples.py."""

from __future__ import annotations

import re

import pytest

from hpcq import assets, described
from hpcq.definition.kernel_file import kernel_of
from hpcq.described import UnreadableError
from hpcq.errors import UserError
from hpcq.kernels import own_kernels
from tests import REPOSITORY
from tests.described.descriptions import RATE
from tests.described.samples import DAMAGES, FOLDER, Sample, delivered, expected_file, refusal, rows_of, samples

pytestmark = pytest.mark.fast

#: The one that docs/described-kernels.md adds, with its samples.
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


@pytest.mark.promise("What a foreign program writes that is no number (nan, 1,5) never becomes one.")
@pytest.mark.promise("A table with more or fewer rows than described gives no number.")
@pytest.mark.promise("A number that stands twice in a program's output is no number.")
@pytest.mark.parametrize("sample", BAD, ids=lambda one: one.title)
def test_a_damaged_output(sample: Sample) -> None:
    assert refusal(sample) == sample.row.get("reason", "")
    if "rows" in sample.row:
        found = sample.read()
        assert rows_of(found) == approximately(sample.row["rows"])
        assert found.said == sample.row.get("said", [])


@pytest.mark.promise("Output of a foreign program that ends anywhere gives the numbers of the whole one, or none.")
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


@pytest.mark.promise("Colours, line ends of Windows and a byte order mark in a program's output change no number.")
@pytest.mark.parametrize("sample", [one for one in GOOD if "rows" in one.row], ids=lambda one: one.title)
def test_what_terminals_and_editors_add_changes_no_number(sample: Sample) -> None:
    plain = sample.read()
    coloured = re.sub(r"(?<![\d;[])\d+", "\x1b[1;32m\\g<0>\x1b[0m", sample.text)
    for text in (sample.text.replace("\n", "\r\n"), coloured, "\ufeff" + sample.text):
        assert text != sample.text
        assert sample.read(text) == plain


LAST_NUMBER = re.compile(r"(?m)[\d.]{2,}(?:[eE][-+]?\d+)?$")


@pytest.mark.heavy
@pytest.mark.promise("A line of a program's output that is broken within a number gives the number of the whole line, or none.")
@pytest.mark.parametrize(
    "sample", [one for one in GOOD if "rows" in one.row and LAST_NUMBER.search(one.text)], ids=lambda one: one.title
)
def test_no_broken_line_gives_another_number(sample: Sample) -> None:
    """Terminals and schedulers break long lines; another process writes a line end between."""
    whole = rows_of(sample.read())
    for number in LAST_NUMBER.finditer(sample.text):
        for at in {number.start() + 1, (number.start() + number.end()) // 2, number.end() - 1} - {number.start(), number.end()}:
            try:
                found = sample.read(sample.text[:at] + "\n" + sample.text[at:])
            except UnreadableError:
                continue
            assert found.complaints or rows_of(found) == whole, sample.text[max(0, at - 60) : at + 20]


COMMAS = "\n    comma_separates: true"


def said_of(how: str, text: str) -> str | float:
    """What a description that reads its rate by `how` makes of an output: the value, or why there is none."""
    kernel = kernel_of(
        RATE.replace("PYTHON", "sh").replace("regex: 'rate = (\\S+) Mbit/s'", how), "foreign_rate.yaml", own_kernels()
    )
    sample = Sample("", "", text, {}, kernel)
    reason = refusal(sample)
    return reason or float(rows_of(sample.read())[0]["rate_bps"])


@pytest.mark.promise("A described program's number is read whole: an expression that reads 12 of 12.5 gives a reason.")
@pytest.mark.promise("A key that stands twice in a described program's JSON gives a reason: nobody knows which value is meant.")
@pytest.mark.promise("Where commas separate fields, as a description says, a field is a number, and a part of it is none.")
@pytest.mark.parametrize(
    ("how", "text", "said"),
    [
        (r"regex: 'rate = (\d+)'", "rate = 12 Mbit/s\n", 12e6),
        (r"regex: 'rate = (\d+)'", "rate = 12, of which 3\n", 12e6),
        (r"regex: 'rate = (\d+)'", "rate = 12.5 Mbit/s\n", "reads 12 of '= 12.5'"),
        (r"regex: 'rate = (\d+)'", "rate = 1,250 Mbit/s\n", "reads 1 of '= 1,25'"),
        (r"regex: 'rate = (\d+)'", "rate = 1e3 Mbit/s\n", "reads 1 of '= 1e3'"),
        (r"regex: 'rate = (\d+)'", "rate = 12\n34\n", "reads 12 of '= 12\\n34'"),
        (r"regex: 'rate = (\d+)'", "rate = 12\n34 others\n", 12e6),
        (r"regex: 'rate = (\d+)'", "rate = 12K\n", "reads 12 of '= 12K'"),
        (r"regex: 'rate = (\d+)'", "rate = 0x1F\n", "reads 0 of '= 0x1F'"),
        (r"regex: 'rate = (\d+)'", "rate = 1_000\n", "reads 1 of '= 1_00'"),
        (r"regex: 'rate = (\d+)M'", "rate = 12Mbit/s\n", 12e6),
        (r"regex: '(\d+) Mbit/s'", "12.5 Mbit/s\n", "reads 5 of '2.5 Mb'"),
        (r"regex: 'rate = (\S+)'", "rate = \u0661\u0662 Mbit/s\n", "must be a number"),
        (r"regex: '^a,(\d+),'", "a,12,7\n", "reads 12 of 'a,12,7'"),
        (rf"regex: '^a,(\d+),'{COMMAS}", "a,12,7\n", 12e6),
        (rf"regex: '^1,(\d+)$'{COMMAS}", "1,12\n", 12e6),
        (rf"regex: '^1,(\d+)'{COMMAS}", "1,12.5,7\n", "reads 12 of '1,12.5,'"),
        (rf"regex: '^1,-(\d+)'{COMMAS}", "1,-12,7\n", "reads 12 of ',-12,7'"),
        ("json: rate", '{"rate": 12}\n', 12e6),
        ("json: rate", '{"rate": 12, "rate": 13}\n', "the key 'rate' stands twice"),
        ("json: rate", '{"rate": 1' + "0" * 400 + "}\n", "must be a finite number"),
        ("json: rate", '{"rate": 1' + "0" * 5000 + "}\n", "a number of too many digits"),
        ("json: rate", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "nested too deeply"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_a_part_of_a_number_is_no_number(how: str, text: str, said: str | float) -> None:
    found = said_of(how, text)
    assert found == said if isinstance(said, float) else said in str(found)


@pytest.mark.promise("What a described program did not measure, and says so by N/A or 0.00, is no value.")
@pytest.mark.parametrize(
    ("how", "text"),
    [(r"regex: 'rate = (\S+)'", "rate = {} Mbit/s\n"), ("json: rate", '{{"rate": "{}"}}\n')],
    ids=["regex", "json"],
)
def test_what_was_not_measured_is_no_value(how: str, text: str) -> None:
    file = RATE.replace("PYTHON", "sh").replace("regex: 'rate = (\\S+) Mbit/s'", f"{how}\n    not_measured: [N/A]")
    kernel = kernel_of(file, "foreign_rate.yaml", own_kernels())
    assert rows_of(Sample("", "", text.format("N/A"), {}, kernel).read()) == [{}]
    assert "must be a number" in refusal(Sample("", "", text.format("n/a"), {}, kernel))


def test_commas_separate_fields_of_an_expression_only() -> None:
    with pytest.raises(UserError, match="comma_separates: without regex: allowed with it only"):
        said_of(f"json: rate{COMMAS}", '{"rate": 12}\n')


@pytest.mark.heavy
@pytest.mark.promise("A described kernel's expression that takes too long is a reason, and stops nothing.")
def test_an_expression_that_never_ends_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described, "_READ_S", 0.2)
    found = said_of(r"regex: '(?:a+)+ rate = (\d+)'", "a" * 27 + "\n")
    assert "its regular expressions take more than 0.2 s" in str(found)


@pytest.mark.heavy
@pytest.mark.promise(
    "No reader takes a zero of a program for a rate or a time, but where its description says that it may be one."
)
@pytest.mark.parametrize("sample", GOOD, ids=lambda one: f"{one.name} {one.row['file']}")
def test_no_zero_is_a_rate_or_a_time(sample: Sample) -> None:
    described_by = sample.kernel.described
    assert described_by is not None
    never_zero = {one.metric for one in described_by.readings if one.above_zero}
    for found in re.finditer(r"(?<![\w.])\d+\.\d+(?![\w.])", sample.text):
        zeros = re.sub(r"\d", "0", found[0])
        try:
            rows = sample.read(sample.text[: found.start()] + zeros + sample.text[found.end() :])
        except UnreadableError:
            continue
        assert not never_zero & {name for row in rows_of(rows) for name, value in row.items() if value == 0}, found[0]


def test_a_rate_of_zero_may_be_declared() -> None:
    """A description made by a site: `minimum: 0` says that a 0 is a value."""
    how = r"regex: 'rate = (\S+) Mbit/s'"
    assert said_of(how, "rate = 0.00 Mbit/s\n") == "rate_bps: 0: must be more: a rate or a time of 0 is no measurement"
    assert said_of(f"{how}\n    minimum: 0", "rate = 0.00 Mbit/s\n") == 0.0
