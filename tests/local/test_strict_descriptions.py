"""What a description is refused for, before anything runs; and that what was stored with a run stays readable."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hpcq.cli.main import run as hpcq_main
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.find import kernels_of_run, kernels_of_texts
from hpcq.definition.kernel_file import kernel_of, read_kernel
from hpcq.errors import UserError
from hpcq.kernels import own_kernels
from tests.described.descriptions import FOLDER, RATE, TABLE, write
from tests.local.local_desk import LocalDesk

pytestmark = pytest.mark.fast

COMMAND = RATE.split("\ncommand: ")[1].splitlines()[0]
REGEX = "regex: 'rate = (\\S+) Mbit/s'"
NO_SHELL = "must be a program and its arguments"
NO_QUOTES = "begins or ends with a quote: must be words without quotes"
LIMIT = "limit_s: 60"
SENDS = "{client: 1, server: %s}"

#: What replaces what in which description, and the complaint: key, what was found, what is allowed.
REFUSED = [
    (RATE, "summary: A rate that a test makes up.", "summary: ' '", "summary: nothing: must be a text"),
    (RATE, "program: PYTHON", "program: ''", "program: nothing: must be a text"),
    (RATE, "program: PYTHON", "program: '{{ mode }}'", "program: '{{ mode }}' is no template: must be a name that PATH"),
    (RATE, COMMAND, "' '", "command: nothing: must be a text"),
    (RATE, COMMAND, "iperf {{ address }} | tee x", f"command: |: {NO_SHELL}"),
    (RATE, COMMAND, "iperf {{ address }} 2>&1", f"command: 2>&1: {NO_SHELL}"),
    (RATE, COMMAND, "iperf {{ address }} && true", f"command: &&: {NO_SHELL}"),
    (RATE, COMMAND, "iperf 'a b' {{ address }}", f"command: 'a: {NO_QUOTES}"),
    (RATE, "words: listening", "words: ' '", "words: nothing: must be a text"),
    (RATE, "words: [FAILED]", "words: ['']", "words: nothing: must be a text"),
    (
        RATE,
        "PEER --version",
        "PEER {{ address }}",
        "version: address is not known here: no server listens yet: must be the",
    ),
    (
        RATE,
        "  mode: {",
        "  port: {type: boolean, default: false}\n  mode: {",
        "port: port means something in templates",
    ),
    (
        RATE,
        "default: good, choices",
        "default: good, minimum: 1, choices",
        "mode: minimum and maximum with the type choice",
    ),
    (
        RATE,
        "maximum: 1.0e9",
        "minimum: 5\n    maximum: 4",
        "maximum: 4 is below the minimum 5: must be 5 or",
    ),
    (RATE, "maximum: 1.0e9", "maximum: 1.0e999", "maximum: inf: must be a finite number"),
    (RATE, "times: 1.0e6", "times: 1.0e999", "times: inf: must be a finite number"),
    (RATE, REGEX, "regex: '(\\S+) (\\S+)'\n    units: {Mbit/s: 0}", "Mbit/s: 0 is not above 0"),
    (RATE, "program: PYTHON", 'program: PYTHON\nmodules: ["-x"]', "modules: '-x': must be the name of one module"),
    (RATE, "program: PYTHON", "program: PYTHON\nmodules: a b", "modules: 'a b': must be the name of one module"),
    (RATE, "program: PYTHON", 'program: PYTHON\nmodules: [""]', "modules: '': must be the name of one module"),
    (TABLE, LIMIT, "limit_s: 0", "limit_s: 0 s: must be above 0 to 3600 s"),
    (TABLE, LIMIT, "limit_s: -1", "limit_s: -1 s: must be above 0 to 3600 s"),
    (TABLE, LIMIT, "limit_s: 1e9", "limit_s: 1e+09 s: must be above 0 to 3600 s"),
    (
        TABLE,
        "[message_bytes, rate]",
        "[message_bytes, rate, rate]",
        "columns: the column rate stands twice: must stand there once",
    ),
    (TABLE, LIMIT, f"{LIMIT}\nfiles: {{../a: b}}", "../a: '../a': must be the name of a file"),
    (FOLDER, "result-*.txt", "/etc/passwd", "output_file: '/etc/passwd': must be the name of a file"),
    (FOLDER, "program: /usr/bin/env", "program: bin/env", "program: 'bin/env' with files: must be a whole path"),
    (TABLE, "'^# Size',", "'^# Size', must_be: {rate: Pass},", "must_be: rate: must be a column that no metric"),
    (TABLE, "first: 1,", "first: 1.5,", "sizes: first: 1.5: must be a whole number from 0 to 2^60"),
    (TABLE, "first: 1,", "first: -1,", "sizes: first: -1: must be a whole number from 0 to 2^60"),
    (TABLE, LIMIT, f"{LIMIT}\nsends_at_least_bytes: {SENDS % -1}", "sends_at_least_bytes: -1: must be 0 or more"),
]
#: Of these, a run cannot have results: hpcq refused them when it was planned.
NEVER_RAN = {"limit_s: 0", "limit_s: -1", "limit_s: 1e9"}


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def name_of(text: str) -> str:
    return text.split("name: ", 1)[1].splitlines()[0]


@pytest.mark.promise("A pipe or redirection in a described command is refused before anything runs.")
@pytest.mark.promise("A described kernel's limit is above 0 to 3600 s, or refused.")
@pytest.mark.promise("A described kernel's module is a name, never an option of the module command.")
@pytest.mark.promise("A column of a described table that stands twice is refused.")
@pytest.mark.parametrize(("text", "old", "new", "said"), REFUSED, ids=[one[3][:50] for one in REFUSED])
def test_a_description_is_refused_with_its_key(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    path = write(tmp_path, changed(text, old, new))
    with pytest.raises(UserError) as caught:
        read_kernel(path, own_kernels())
    [line] = caught.value.message.splitlines()
    where, _, rest = line.removeprefix(f"{path}:").partition(": ")
    assert int(where) > 0
    assert rest.startswith(said)
    assert caught.value.exit_code == 2


@pytest.mark.promise("A description that is refused now stays readable where it was stored with a run.")
@pytest.mark.parametrize(("text", "old", "new", "said"), REFUSED, ids=[one[3][:50] for one in REFUSED])
def test_what_was_stored_with_a_run_is_read_all_the_same(tmp_path: Path, text: str, old: str, new: str, said: str) -> None:
    """The copies in run folders and in databases are of programs that have run."""
    assert said
    stored = changed(text, old, new)
    path = write(tmp_path, stored)
    assert kernels_of_run(path.parent)[name_of(text)].metrics
    assert kernels_of_texts({name_of(text): path.read_text()})[name_of(text)].metrics
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "campaign.yaml").write_text(f"name: c\nclusters: [a]\npairs: all\ntests: [{{kernel: {name_of(text)}}}]\n")
    if new not in NEVER_RAN and not said.startswith(("sizes", "sends")):
        assert read_campaign(tmp_path / "campaign.yaml").tests


@pytest.mark.long
@pytest.mark.promise("Results of a run whose description is refused now load again.")
@pytest.mark.heavy
def test_results_of_a_description_that_is_refused_now_load_into_another_database(tmp_path: Path) -> None:
    """From the run folder into a fresh database, and from the database to its gate and the page."""
    desk = LocalDesk.at(tmp_path)
    path = write(desk.folder, RATE)
    desk.campaign(
        "{kernel: foreign_rate}", more="retries: 0\ngates: [{metric: rate_bps, minimum: 1mbit, kernel: foreign_rate}]"
    )
    desk.hpcq("run", "try.yaml")
    copy = desk.run_folder / "kernels" / path.name
    old = (
        copy.read_text()
        .replace("words: [FAILED]", "words: [FAILED, '']")
        .replace("program: ", "modules: ['a b']\nprogram: ", 1)
    )
    copy.write_text(old)
    with pytest.raises(UserError):
        kernel_of(old, path.name, own_kernels())
    fresh = tmp_path / "fresh.db"
    desk.hpcq("db", "load", str(desk.run_folder), "--db", str(fresh))
    with sqlite3.connect(fresh) as database:
        assert database.execute("SELECT outcome, value FROM v_results").fetchall() == [("measured", 12.5e6)]
    path.unlink()
    desk.hpcq("report", "--db", str(fresh), "--to", str(tmp_path / "page.html"))  # its gate passes
    assert "foreign_rate" in (tmp_path / "page.html").read_text()


def sample_says(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *more: str) -> tuple[int, str]:
    path, saved = write(tmp_path, RATE), tmp_path / "saved.txt"
    saved.write_text(text)
    code = hpcq_main(["kernels", "check", str(path), "--sample", str(saved), *more])
    return code, capsys.readouterr().out


@pytest.mark.promise("kernels check gives no number for output with words of failure.")
def test_a_sample_with_words_of_failure_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_says(tmp_path, capsys, "rate = 12 Mbit/s\n")[0] == 0
    said = sample_says(tmp_path, capsys, "rate = 12 Mbit/s\nFAILED\n")
    assert said == (1, "failed: foreign_rate: it said: FAILED\n")


def test_a_sample_of_a_program_that_failed_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_says(tmp_path, capsys, "rate = 12 Mbit/s\n", "--exit-code", "0")[0] == 0
    said = sample_says(tmp_path, capsys, "rate = 12 Mbit/s\n", "--exit-code", "1")
    assert said == (1, "failed: foreign_rate: exit code 1: must be 0\n")


@pytest.mark.promise("An address as bind_device is refused before anything runs.")
@pytest.mark.parametrize(
    "entry",
    [
        "parameters: {bind_device: 10.0.0.1}",
        "matrix: {bind_device: [eth0, 10.0.0.1]}",
        "zip: {bind_device: [10.0.0.1]}",
        "zip: [{bind_device: [10.0.0.1]}]",
    ],
)
def test_an_address_is_no_interface(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"name: c\nclusters: [a]\npairs: all\ntests:\n  - {{kernel: tcp_stream, {entry}}}\n")
    with pytest.raises(UserError) as caught:
        read_campaign(path)
    said = "'10.0.0.1' is an address: must be the name of an interface"
    assert caught.value.message == f"{path}:5: bind_device: {said}"
    assert str(caught.value.hint).startswith("bind_device: eth0")
    assert caught.value.exit_code == 2
    path.write_text(path.read_text().replace("10.0.0.1", "eth1"))
    assert read_campaign(path).tests
