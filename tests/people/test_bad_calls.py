"""Four hundred calls that a new user gets wrong: each says what was found and what is allowed, with a hint.

bad_calls.txt holds them, a line each: exit code, call, and how the error begins.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq.cli.main import run
from tests.history.histories import History

pytestmark = pytest.mark.fast

CALLS = [
    (int(line[0]), line[2:].partition(" => ")[0], line.partition(" => ")[2])
    for line in Path(__file__).with_name("bad_calls.txt").read_text(encoding="utf-8").splitlines()
]
CAMPAIGN = "name: t\nclusters: [local]\npairs: {pattern: all}\ntests:\n  - kernel: tcp_stream\n"
AWAY = """name: away
scheduler: slurm
connection: {ssh: no-such-host.invalid}
work_directory: /scratch
interface: ib0
partition: p
"""
FILES = {
    "file.txt": "hello\nworld\n",
    "empty.db": "",
    "empty.yaml": "",
    "broken.yaml": "name: [x\n",
    "wrongkey.yaml": "campain: x\n",
    "list.yaml": "- 1\n- 2\n",
    "wrongkernel.yaml": CAMPAIGN.replace("tcp_stream", "tcp_strem"),
    "wrongcluster.yaml": CAMPAIGN.replace("local", "nosuch"),
    "badnumber.yaml": f"{CAMPAIGN}    message_bytes: lots\n",
    "twosame.yaml": f"{CAMPAIGN}name: u\n",
    "badcluster.yaml": "name: x\nscheduler: lsf\n",
    "leaves.csv": "n1,l1\nn2,l2\n",
    "bad.csv": "n1,l1,x\n",
    "ragged.csv": "a,b\n1,2\n3\n",
    "words.csv": "a\n1\nx\n",
    "series.csv": "a\n" + "\n".join(map(str, range(20))) + "\n",
    "same.csv": "round,node_a,node_b,value\n1,n1,n1,4\n",
}


#: Campaigns with one mistake each: what stands after a good beginning, or instead of its pairs or its test.
MISTAKES = {
    "share": "gates: [{metric: throughput_bps, minimum: 90%}]",
    "noshare": "gates: [{metric: throughput_bps, against: peers, minimum: 9gbit}]",
    "bounds": "gates: [{metric: throughput_bps, minimum: 9gbit, maximum: 1gbit}]",
    "nobound": "gates: [{metric: throughput_bps}]",
    "nometric": "gates: [{metric: throughput, minimum: 1}]",
    "nokernel": "gates: [{metric: throughput_bps, kernel: tcp_pingpong, minimum: 1}]",
    "statistic": "gates: [{metric: throughput_bps, statistic: mean, minimum: 1}]",
    "walltime": "walltime_s: 0",
    "parsecs": "walltime_s: 5 parsecs",
    "repetitions": "repetitions: '3'",
    "seed": "seed: now",
    "network": "network: opa",
    "group": "allocation: group of 1",
    "alone": "concurrency: alone",
    "links": "links: [[local, local]]",
    "hours": "budget: {hours: 25:00-26:00}",
    "jobs": "budget: {jobs: lots}",
    "include": "nodes: {include: ['n[04-01]']}",
    "busy": "nodes: {state: busy}",
    "reserved": "nodes: {reservation: {make: true, name: x}}",
    "pairs_star": "{rounds: 2, star: n1}",
    "pairs_each": "{bisection: 2, each: 3}",
    "pairs_self": "{list: [[a, a]]}",
    "pairs_file": "{file: nosuch.pairs}",
    "pairs_some": "some",
    "test_none": "{message_bytes: 0}",
    "test_unit": "{message_bytes: 64K}",
    "test_list": "{message_bytes: [1, 2]}",
    "test_name": "{mesage_bytes: 1}",
    "test_text": "message_bytes",
    "test_large": "{message_bytes: 1TiB}",
}
PROGRAM = """name: NAME
summary: What it measures.
shape: one node
program: tool
options: {duration_s: {type: integer, default: 2, minimum: 1, maximum: 60}}
command: "{{ program }} {{ duration_s }}"
limit_s: "{{ duration_s + 15 }}"
failure: {exit_codes_allowed: [0]}
metrics: {throughput_bps: {better: higher, regex: 'rate (\\S+)', times: 1.0}}
"""
#: Descriptions with one mistake each: what is replaced, and by what.
SLIPS = {
    "power": ("{{ duration_s }}", "{{ 9**9**9 }}"),
    "loop": ("{{ duration_s }}", "{%for_i_in_range(9)%}{{i}}{%endfor%}"),
    "endless": ("{{ duration_s }}", "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"),
    "undefined": ("{{ duration_s }}", "{{ duration }}"),
    "limit": ('"{{ duration_s + 15 }}"', "soon"),
    "code": ("[0]", "[300]"),
    "times": ("1.0", "many"),
    "path": ("regex: 'rate (\\S+)'", "json: 'a..b'"),
    "group_of_two": ("(\\S+)", "(\\S+) (\\S+)"),
    "unread": ("regex: 'rate (\\S+)', ", ""),
    "shape": ("one node", "server"),
    "maximum": ("default: 2", "default: 99"),
}


def _campaign(name: str, mistake: str) -> str:
    if name.startswith("pairs_"):
        return CAMPAIGN.replace("{pattern: all}", mistake)
    return f"{CAMPAIGN}    parameters: {mistake}\n" if name.startswith("test_") else f"{CAMPAIGN}{mistake}\n"


@pytest.fixture(scope="module")
def desk(nights: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good database, and with everything that a call may name by mistake."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("results.db", "good.db"):
        shutil.copy(nights.database, folder / name)
    (folder / "folder").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, mistake in MISTAKES.items():
        (folder / f"{name}.yaml").write_text(_campaign(name, mistake))
    (folder / "kernels").mkdir()
    for name, (old, new) in SLIPS.items():
        assert old in PROGRAM
        (folder / f"kernels/{name}.yaml").write_text(PROGRAM.replace("NAME", name).replace(old, new))
        (folder / f"k_{name}.yaml").write_text(CAMPAIGN.replace("tcp_stream", name))
    (folder / "runs9/run9").mkdir(parents=True)
    (folder / "runs9/run9/run.json").write_text("{")
    (folder / "binary.yaml").write_bytes(bytes(range(256)))
    other = sqlite3.connect(folder / "other.db")
    with other:
        other.execute("CREATE TABLE x (a)")
    other.close()
    whole, page = nights.database.read_bytes(), 4096
    (folder / "torn.db").write_bytes(whole[: 3 * page] + b"\xff" * (20 * page) + whole[30 * page : 40 * page])
    return folder


@pytest.mark.promise(
    "A usage error says what was found and what is allowed, with a hint, and is never called a defect of hpcq."
)
@pytest.mark.promise("`hpcq facts` refuses a misspelt word and names the nearest.")
@pytest.mark.promise("A misspelt campaign or a missing file to merge is an error, not an empty answer.")
@pytest.mark.promise("schedule add refuses what would fail at night: a misspelt option, a missing campaign.")
@pytest.mark.promise("The reason of a retraction and the text of an event are never empty.")
@pytest.mark.promise("A cluster file in place of a campaign is named as such, not by each of its keys.")
@pytest.mark.heavy
def test_each_bad_call_says_what_is_allowed(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("HOME", str(desk))
    monkeypatch.setenv("XDG_STATE_HOME", str(desk / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # an answer that took long, on a machine that works, is kept there
    before = sorted(path.name for path in desk.iterdir())
    wrong = []
    for code, call, begins in CALLS:
        got = run(shlex.split(call)[1:])
        said = capsys.readouterr()
        error = f"\n{said.err}".partition("\nerror: ")[2]  # a verb may have said before what it read
        hinted = "\nhint: " in said.err or re.match(r"[\w./=-]+:", error)  # or the place in a file
        good = error.startswith(begins) and hinted and not said.out
        if got != code or not good or "Traceback" in said.err or "defect of hpcq" in said.err:
            wrong.append((call, got, said.out + said.err))
    assert len(CALLS) > 200
    assert wrong == []
    assert sorted(path.name for path in desk.iterdir()) == before


@pytest.mark.promise(
    "A file that a person names is written aside and renamed; a device or a pipe is written as it is and stays."
)
@pytest.mark.parametrize("call", ["export --format csv --to", "report --since 30d --to", "report --to", "plot curve -o"])
@pytest.mark.heavy
def test_what_is_no_file_is_never_replaced_by_one(
    call: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    null = desk / "null.svg"
    null.symlink_to("/dev/null")
    try:
        assert run([*call.split(), null.name]) in {0, 3, 4}, capsys.readouterr().err
        assert null.is_symlink()
        assert null.is_char_device()
    finally:
        null.unlink()


@pytest.mark.promise("A folder that the system refuses is an error in the system's words, not a defect of hpcq.")
def test_a_folder_that_cannot_be_made_is_no_defect(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("HOME", str(desk / "file.txt"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert run(["schedule", "add", "nightly", "--when", "02:00", "--", "sql", "SELECT 1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {desk}/file.txt: is not a folder\n")
    assert "XDG_CONFIG_HOME (else HOME)" in said
    assert "defect" not in said


@pytest.mark.promise("If standard output is on a full disk, the error says so.")
@pytest.mark.heavy
@pytest.mark.parametrize("words", ["runs", "runs --json", "export --format csv"])
def test_a_full_standard_output_is_named(words: str, desk: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [sys.executable, "-m", "hpcq", *words.split()]
        done = subprocess.run(argv, cwd=desk, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error: standard output: cannot be written: No space left on device",
    )


@pytest.mark.promise("hpcq check finds every error of a campaign and its cluster files without a cluster.")
def test_files_are_checked_without_a_cluster(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    (desk / "away.yaml").write_text(AWAY)
    (desk / "good.yaml").write_text(CAMPAIGN.replace("local", "away"))
    try:
        assert run(["check", "good.yaml", "away.yaml", "--clusters", "."]) == 0
        said = capsys.readouterr().out
        assert "ok  campaign  good.yaml: 1 test, each 3 times, on away, no gates" in said
        assert "ok  cluster   away.yaml: scheduler slurm, interface ib0" in said
        assert run(["check", "good.yaml", "list.yaml", "badcluster.yaml", "--clusters", "."]) == 2
        errors = capsys.readouterr().err
        assert "list.yaml:1: found a list" in errors
        assert "scheduler: 'lsf': must be" in errors
    finally:
        (desk / "away.yaml").unlink()
        (desk / "good.yaml").unlink()


@pytest.mark.promise("`hpcq check` says once what is wrong with a file that several files name.")
def test_a_file_that_two_campaigns_name_is_complained_of_once(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    for name in ("one", "two"):
        (desk / f"{name}.yaml").write_text(CAMPAIGN.replace("local", "badcluster"))
    try:
        assert run(["check", "one.yaml", "two.yaml", "badcluster.yaml", "--clusters", "."]) == 2
    finally:
        for name in ("one", "two"):
            (desk / f"{name}.yaml").unlink()
    assert capsys.readouterr().err.count("scheduler: 'lsf'") == 1


@pytest.mark.promise("hpcq plan shows the plans of the clusters that answer, and ends with the error of the one that does not.")
def test_a_plan_goes_on_past_a_cluster_that_cannot_be_reached(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    (desk / "away.yaml").write_text(AWAY)
    (desk / "two.yaml").write_text(CAMPAIGN.replace("[local]", "[away, local]"))
    try:
        assert run(["plan", "two.yaml", "--clusters", "."]) == 1
    finally:
        (desk / "away.yaml").unlink()
        (desk / "two.yaml").unlink()
    said = capsys.readouterr()
    assert said.out.startswith("local: 1 pair of 2 nodes")
    assert "no-such-host.invalid" in said.err
