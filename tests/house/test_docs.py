"""Documentation that cannot rot: the reference is generated, examples and marked blocks are run, links lead somewhere.

A block of commands (fenced, or indented by four) below the line `<!-- run -->` is run, line by line, in a folder with loaded
runs and a few CSV files. `<!-- run 3 -->` expects that exit code of its last line. The tutorial's test types those below
`<!-- lab -->`; one that another test reads and types names it: `<!-- typed by tests/x/test_y.py -->`. Every other one is marked
`<!-- by hand: why -->`, and its commands are at least ones that hpcq takes.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hpcq import assets
from hpcq.cli.main import hpcq as hpcq_command
from tests import REPOSITORY
from tests.local.local_desk import LocalDesk
from tests.store import run_folders
from tools import reference

PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
#: Those with commands that are run.
MARKED = [page for page in PAGES if "\n<!-- run" in page.read_text()]
#: Verbs whose examples submit jobs, compile, or need the lab or a recorded change; other tests run them.
NOT_RUN = {"run", "resume", "cancel", "build", "lab", "changes set", "changes show"} | {
    "accept",
    "schedule remove",
    "schedule tick",
}
#: An example may come to a verdict, but it must be one that works.
FINE = {0, 3, 4}
#: Enough series and results that the numbers in examples name some.
SIZES = [("tcp_stream", {"message_bytes": 65536}), *(("tcp_pingpong", {"message_bytes": 64 << turn}) for turn in range(6))]
LEAVES = [(name, command) for name, command in reference.verbs() if not isinstance(command, click.Group)]


@pytest.fixture
def desk(filled: LocalDesk) -> Iterator[LocalDesk]:
    """That folder, with its database as it was at first: what one page merges or retracts, another does not see."""
    yield filled
    for name in ("results.db-wal", "results.db-shm"):
        (filled.folder / name).unlink(missing_ok=True)
    shutil.copyfile(filled.folder / "first.db", filled.folder / "results.db")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    """A folder in which the commands of the documentation mean something: loaded runs, series and pairs."""
    made = LocalDesk.at(tmp_path_factory.mktemp("docs"))
    made.cluster("local")  # this machine as ever, its kernels built without optimiser
    with pytest.MonkeyPatch.context() as patch:
        for day in ("0205", "0305", "1118", "1119", "1120", "1121", "1122"):
            moment = dt.datetime.strptime(f"2026{day}02+0000", "%Y%m%d%H%z")
            patch.setattr(run_folders, "START", moment)
            campaign = "lab" if day == "1122" else "nightly"
            run_id = f"{campaign}-{moment:%Y%m%dT%H%M%SZ}-00ff"
            run = run_folders.RunBuilder(made.folder / "runs", run=run_id, campaign=campaign, tests=SIZES)
            run.everything()
            run_folders.load(made.folder / "results.db", run)
            for marker in ("driven.json", "loaded.json"):
                (run.path / "alpha" / marker).write_text("{}\n")
    level = [str(9.4e9 + 1e7 * (number * 7 % 13)) for number in range(40)]
    for name in ("history.csv", "nightly.csv", "latency.csv"):
        (made.folder / name).write_text("\n".join(level) + "\n")
    nodes = [f"n{number}" for number in range(1, 9)]
    trips = [f"2026-11-{day:02d},{node},n1,{20_000 + 7 * (day % 5)}" for day in range(1, 21) for node in nodes[1:3]]
    (made.folder / "round_trips.csv").write_text("\n".join(["date,node,partner,round_trip_p50_ns", *trips]) + "\n")
    (made.folder / "old_notes.json").write_text('{"format": 1}\n')
    shutil.copyfile(REPOSITORY / "tests/described/samples/iperf3_tcp/3.12.json", made.folder / "iperf3.json")
    shutil.copytree(REPOSITORY / "docs/nuttcp", made.folder / "docs/nuttcp")
    nightly = (REPOSITORY / "campaigns/nightly.yaml").read_text("utf-8").replace("[example-slurm]", "[site]")
    (made.folder / "nightly.yaml").write_text(nightly)
    made.cluster("site", f"name: site\nscheduler: local\nnodes: {[f's{number}' for number in range(40)]}\n")
    (made.folder / "tell-chat").write_text("#!/bin/sh\n")
    (made.folder / "tell-chat").chmod(0o755)
    samples = REPOSITORY / "tests/imports/samples"
    of_others = {
        "perflogs/bandwidth.log": (samples / "reframe-4.10.4.log").read_text("utf-8"),
        "out/000012/result/table.dat": "jube_benchmark_start,host,server,bw[MB/s]\n2026-11-26T19:30:05,n1,n2,100.5\n",
        "outputs/20261120T020000Z/results-summary.jsonl": '{"node": "n1", "mem-bw/h2d_bw:0": 25.5}\n',
        "logs/20261121T020000Z/n1_n2.txt": (REPOSITORY / "tests/described/samples/osu_bw/7.4.txt").read_text("utf-8"),
    }
    for name, text in of_others.items():
        (made.folder / name).parent.mkdir(parents=True)
        (made.folder / name).write_text(text)
    rows = [
        f"{turn},{a},{b},{9.4e9 + 1e7 * ((turn + ord(a[1]) * ord(b[1])) % 13)}"
        for turn in range(1, 6)
        for position, a in enumerate(nodes)
        for b in nodes[position + 1 :]
    ]
    (made.folder / "pairs.csv").write_text("round,node_a,node_b,value\n" + "\n".join(rows) + "\n")
    head = "time,run,test,client,server,metric,value,unit,better"
    measured = [
        f"2025-12-{day:02d}T02:00:00Z,night-{day},osu_bw_of_site,n1,n2,bandwidth,{9.4e9 + day},bps,higher"
        for day in range(1, 9)
    ]
    (made.folder / "measured.csv").write_text("\n".join([head, *measured]) + "\n")
    (made.folder / "facts.csv").write_text("node,time,fact,value\nn1,2025-12-01T00:00:00Z,nic.eth0.speed_bps,100000000000\n")
    (made.folder / "leaves.csv").write_text("\n".join(f"{name},leaf{1 + (name > 'n4')}" for name in nodes) + "\n")
    made.hpcq("baseline", "set", "good", "latest", expect=None)
    for name in ("old.db", "first.db"):
        shutil.copyfile(made.folder / "results.db", made.folder / name)
    elsewhere = run_folders.RunBuilder(made.folder / "elsewhere", run="nightly-20261121T030000Z-5173")
    elsewhere.everything()
    run_folders.load(made.folder / "siteb.db", elsewhere)
    return made


def shell(desk: LocalDesk, line: str) -> subprocess.CompletedProcess[str]:
    """Run one command line as a person's shell would."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**desk.environment(), "PATH": path, "GITHUB_STEP_SUMMARY": str(desk.folder / "summary.md")}
    argv = ["bash", "-c", line]
    return subprocess.run(argv, cwd=desk.folder, env=environment, capture_output=True, text=True, timeout=240, check=False)


def marked_blocks(page: Path) -> list[tuple[set[int], list[str]]]:
    """Expected exit codes and command lines of each marked block.

    `0 or 4`: examples that ran before on this page add runs and retract results, and too little of them is 4.
    """
    found = []
    for mark in re.finditer(
        r"^<!-- run ?(\d*(?: or \d+)*) -->\n\n?((?:```\w*\n.*?^```$)|(?:(?:    [^\n]*\n)+))", page.read_text(), re.M | re.S
    ):
        lines = [line.strip() for line in mark.group(2).splitlines() if not line.startswith("```")]
        codes = {int(code) for code in re.findall(r"\d+", mark.group(1))} or {0}
        found.append((codes, [line for line in lines if line and not line.startswith("#")]))
    return found


@pytest.mark.fast
def test_the_reference_is_what_the_program_says() -> None:
    assert (REPOSITORY / "docs" / "cli.md").read_text() == reference.reference(), "make docs"


@pytest.mark.promise("`rm results.db*` in a checkout takes nothing that hpcq needs.")
def test_the_schema_to_read_is_that_of_the_program() -> None:
    told = "results.db.schema and hpcq/store/results.db.schema differ: change both"
    assert (REPOSITORY / "results.db.schema").read_bytes() == assets.database_schema().read_bytes(), told
    assert assets.database_schema().parent != REPOSITORY


@pytest.mark.parametrize(("name", "command"), LEAVES, ids=[name for name, _ in LEAVES])
def test_every_verb_has_an_example_that_works(name: str, command: click.Command, desk: LocalDesk) -> None:
    lines = reference.examples(command)
    assert lines
    for line in lines:
        assert line.startswith(f"hpcq {name}")
        if name not in NOT_RUN:
            done = shell(desk, line)
            assert done.returncode in FINE, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.fast
def test_every_option_says_what_it_does() -> None:
    for name, command in LEAVES:
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.name}"


@pytest.mark.parametrize("page", MARKED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_marked_blocks_run(page: Path, desk: LocalDesk) -> None:
    assert len(marked_blocks(page)) == page.read_text().count("\n<!-- run"), "a mark without a block below it"
    for expected, lines in marked_blocks(page):
        codes = []
        for line in lines:
            done = shell(desk, line)
            codes.append(done.returncode)
            assert done.returncode in {0, *expected} or line is lines[-1], f"{line}\n{done.stdout}{done.stderr}"
        assert codes[-1] in expected, f"{lines[-1]}\n{done.stdout}{done.stderr}"


#: A block of a page: its mark, the language of its fence, its lines.
_BLOCK = re.compile(
    r"(?P<mark>^<!-- [^\n]*-->\n\n?)?"
    r"(?:^```(?P<lang>\w*)\n(?P<fenced>.*?)^```$|\n(?P<indented>(?:^    [^\n]*\n(?:\n(?=    ))?)+))",
    re.MULTILINE | re.DOTALL,
)
#: A line that a reader types.
_TYPED = re.compile(
    r"(?:sudo (?:env \S+ )?)?(?:hpcq [a-z]|make( |$)|git clone|python3?(?:\.\d+)? -?|pip install|snakemake -|\.venv/|/opt/"
    r"|datasette |sqlite3 |scontrol )"
)
#: Blocks that no test types: they install packages, or need a cluster, a lab or other programs.
BY_HAND_MAX = 29


def typed_blocks(page: Path) -> list[tuple[str, list[str]]]:
    """The mark and the lines of each block that begins with a command; the generated pages print usage, and no commands."""
    text = re.sub(r"^(<!-- [^\n]*-->)\n(?=    )", r"\1\n\n", page.read_text("utf-8"), flags=re.MULTILINE)
    found = []
    for block in _BLOCK.finditer("" if page.name in {"cli.md", "promises.md"} else text):
        lines = [line.strip() for line in (block["fenced"] or block["indented"]).splitlines() if line.strip()]
        if lines and _TYPED.match(lines[0]) and block["lang"] in {None, "", "sh", "bash"}:
            found.append(((block["mark"] or "").strip(), lines))
    return found


@pytest.mark.fast
@pytest.mark.promise("Every block of commands in README and docs is typed by a test, or says why not; few say so.")
def test_every_block_of_commands_is_typed_or_says_why_not() -> None:
    marked = [(page.name, mark, lines[0]) for page in PAGES for mark, lines in typed_blocks(page)]
    assert len(marked) > 80
    assert [one for one in marked if not re.match(r"<!-- (run|lab|typed by tests/|by hand: \S)", one[1])] == []
    elsewhere = [(page, one[1]) for page, mark, _ in marked if (one := re.match(r"<!-- typed by (\S+)", mark))]
    assert [one for one in elsewhere if one[0] not in (REPOSITORY / one[1]).read_text("utf-8")] == []
    assert len([one for one in marked if "by hand" in one[1]]) <= BY_HAND_MAX


@pytest.mark.fast
@pytest.mark.promise("Every hpcq command line of README and docs has verbs and options that hpcq takes.")
def test_every_command_of_a_page_is_one_that_hpcq_takes() -> None:
    lines = [(page, line) for page in PAGES for _, typed in typed_blocks(page) for line in typed]
    parts = [(page, part) for page, line in lines for part in re.split(r"&&|\||>+ ", re.split(r"\s#", line)[0])]
    found = [(page, match[1]) for page, part in parts if (match := re.search(r"(?:^|\s)hpcq ([a-z].*)", part))]
    assert len(found) > 150
    wrong = [f"{page.name}: {words}: {why}" for page, words in found if (why := refused(words))]
    assert wrong == []
    assert "--no-such" in refused("results --no-such")  # Click's words differ by version
    assert refused("resultz") == "there is no verb resultz"


def refused(words: str) -> str:
    """Why hpcq would not take a command line; empty if it would, but for files that are not here."""
    command: click.Command = hpcq_command
    arguments = shlex.split(words.replace("$(hostname -s)", "n1"))
    while isinstance(command, click.Group) and not getattr(command, "invoke_without_command", False):
        name, *arguments = arguments
        below = command.get_command(click.Context(command), name)
        if below is None:
            return f"there is no verb {name}"
        command = below
    try:
        command.make_context(words, arguments)
    except click.UsageError as error:
        return "" if "does not exist" in error.message else error.message
    return ""


@pytest.mark.fast
def test_a_column_of_results_is_a_change_in_two_files() -> None:
    """The diff in CONTRIBUTING.md fits these files, wherever its lines stand by now, and what comes out is Python."""
    [diff] = re.findall(r"^```diff\n(.*?)^```$", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.M | re.S)
    files = re.split(r"^--- .*\n\+\+\+ b/(\S+)\n", diff, flags=re.M)[1:]
    assert files[::2] == ["hpcq/store/query.py", "hpcq/cli/results.py"]
    for path, hunks in zip(files[::2], files[1::2], strict=True):
        text = (REPOSITORY / path).read_text()
        for hunk in re.split(r"^@@ .*\n", hunks, flags=re.M)[1:]:
            lines = hunk.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
            assert text.count(before) == 1, f"{path}: not in the file:\n{before}"
            text = text.replace(before, after)
        compile(text, path, "exec")


@pytest.mark.fast
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`|^    [^\n]*$", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "mailto:", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, test in re.findall(r"`(test_\w+\.py)::(test_\w+)`", page.read_text("utf-8")):
        found = [path for path in (REPOSITORY / "tests").rglob(file) if re.search(rf"def {test}\(", path.read_text("utf-8"))]
        assert found, f"{page.name}: {file}::{test}: there is no such test"


@pytest.mark.promise("Each row of the table of threats names the tests that keep its promise.")
def test_every_row_of_the_table_of_threats_has_a_test() -> None:
    rows = [line for line in (REPOSITORY / "SECURITY.md").read_text("utf-8").splitlines() if line.startswith("| **")]
    assert len(rows) >= 10
    assert [row for row in rows if "`test_" not in row.rpartition(" | ")[2]] == []


def test_every_page_is_named_in_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for page in sorted({*(REPOSITORY / "docs").glob("*.md")} - {REPOSITORY / "docs/promises.md"}):
        assert f"docs/{page.name}" in readme, page.name
