"""workflow/Snakefile by itself, as somebody would use it who has Snakemake and profiles already."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.cli.main import run as hpcq
from hpcq.errors import HpcqError
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.site.place import open_run
from hpcq.runner.workflow import expand, run_workflow
from tests.links.link_campaigns import taken
from tests.local.desk import kill_session
from tests.local.local_desk import INSTANT, LocalDesk
from tests.store.run_folders import RunBuilder, load

SNAKEMAKE = ["-m", "snakemake", "--snakefile", str(assets.snakefile()), "--cores", "4"]
#: What no reading verb may import: each costs a good part of the 0.2 s in which it is to answer.
HEAVY = {"snakemake", "pydantic", "numpy", "jinja2", "rich", "ruamel", "asyncio"}


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    """A desk in a folder with a blank in its name."""
    return LocalDesk.at(tmp_path / "my desk")


def test_dry_run_and_dag(desk: LocalDesk) -> None:
    campaign = desk.campaign(name="dry")
    said = desk.start([*SNAKEMAKE, "-n", "--config", f"campaign={campaign}"])
    assert said.returncode == 0, said.stderr
    for rule in ("open", "build", "plan", "drive", "load", "report"):
        assert f"\n{rule}  " in said.stdout + said.stderr
    drawn = desk.start([*SNAKEMAKE, "--dag", "--config", f"campaign={campaign}"])
    assert drawn.stdout.startswith("digraph snakemake_dag {")
    assert not (desk.folder / "runs").exists()
    assert not (desk.folder / "results.db").exists()


@pytest.mark.long
def test_the_first_wave_is_a_target_and_the_rest_follows(desk: LocalDesk) -> None:
    """`hpcq run --detach` is the workflow up to `submitted`: the same build, plan and files as of a whole run."""
    desk.campaign(INSTANT)
    desk.hpcq("run", "--detach", "try.yaml")
    of_run = ["--config", f"run={desk.run_folder.relative_to(desk.folder)}"]
    tiny = desk.run_folder / "tiny"
    assert {"build.json", "plan.json", "submitted.json"} <= {path.name for path in tiny.iterdir()}
    assert not (tiny / "driven.json").exists()
    listed = desk.start([*SNAKEMAKE, "--summary", *of_run])
    left = {line.split("\t")[0].rpartition("/")[2]: line for line in listed.stdout.splitlines()[1:]}
    assert "no update" in left["build.json"]
    assert "update pending" in left["driven.json"]
    assert desk.start([*SNAKEMAKE, *of_run]).returncode == 0, desk.log()
    assert desk.json("results")["runs"][0]["measured_count"] == 1
    made = desk.start([*SNAKEMAKE, "--report", "stages.html", *of_run])
    assert made.returncode == 0, made.stderr
    assert (desk.folder / "stages.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.fast
def test_a_python_without_snakemake_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "snakemake" else found(name))
    with pytest.raises(HpcqError, match="finds no Snakemake there") as raised:
        run_workflow(RunFolder(tmp_path))
    assert "-m pip install 'snakemake>=9.3,<10'" in str(raised.value.hint)


@pytest.mark.fast
def test_several_campaigns_and_runs_expand(desk: LocalDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)
    desk.campaign(name="one")
    desk.campaign(name="two", clusters="tiny, other")
    found = expand({"campaign": "one.yaml,two.yaml", "runs": "here/too/"})
    assert [(run.folder, run.clusters) for run in found] == [("here/too/one", ("tiny",)), ("here/too/two", ("tiny", "other"))]
    fields = {"run": "night-1", "campaign": "night", "clusters": ["tiny"], "seed": 1, "created_utc": "2026-11-01T00:00:00Z"}
    (desk.folder / "run.json").write_text(json.dumps(fields | {"database": "results.db"}))
    assert [(run.folder, run.clusters) for run in expand({"run": "."})] == [(".", ("tiny",))]


def test_clusters_side_by_side_and_again(desk: LocalDesk) -> None:
    desk.cluster("wee")
    desk.campaign(INSTANT, name="both", clusters="tiny, wee")
    config = ["--config", "campaign=both.yaml"]
    said = desk.start([*SNAKEMAKE, "--until", "build", "plan", *config])
    assert said.returncode == 0, said.stderr
    journals = [desk.folder / "runs" / "both" / cluster / "journal.jsonl" for cluster in ("tiny", "wee")]
    state = desk.folder / "home" / ".local" / "state"
    with ExitStack() as stack:
        # While their nodes are somebody else's neither driver can come to its end: that both are there is side by side.
        with taken(state, "tiny", ("tiny-a", "tiny-b")), taken(state, "wee", ("wee-a", "wee-b")):
            child = stack.enter_context(desk.running([*SNAKEMAKE, *config]))
            desk.wait_for(lambda: child.poll() is not None or all(path.exists() for path in journals))
            assert child.poll() is None, desk.log()
        assert child.wait(timeout=240) == 0, desk.log()
    [run] = {row["run"] for row in desk.rows("SELECT run FROM v_results WHERE outcome = 'measured'")}
    assert run.startswith("both-")  # a name of its own, so that another folder's run of this campaign is another run
    again = desk.start([*SNAKEMAKE, *config])
    assert "Nothing to be done" in again.stdout + again.stderr
    assert desk.json("results", "both")["runs"][0]["run"] == run
    assert desk.json("status", "both")["run"] == run


@pytest.mark.long
def test_several_campaigns_killed_and_taken_up(desk: LocalDesk) -> None:
    desk.campaign("{kernel: tcp_pingpong, parameters: {duration_s: 2, warmup_s: 0}}", name="one")
    desk.cluster("wee")
    desk.campaign(INSTANT, name="two", clusters="wee")
    argv = [*SNAKEMAKE, "--config", "campaign=one.yaml,two.yaml"]
    journal = desk.folder / "runs" / "one" / "tiny" / "journal.jsonl"
    with desk.running(argv) as child:
        desk.wait_for(lambda: child.poll() is not None or (journal.exists() and '"submitted"' in journal.read_text()))
        kill_session(child)
    assert desk.start([*argv[:-2], "--unlock", *argv[-2:]]).returncode == 0
    said = desk.start([*argv[:-2], "--rerun-incomplete", *argv[-2:]])
    assert said.returncode == 0, said.stderr
    assert journal.read_text().count('"event":"attempt"') == 1
    assert desk.rows("SELECT campaign, outcome FROM v_results ORDER BY campaign") == [
        {"campaign": "one", "outcome": "measured"},
        {"campaign": "two", "outcome": "measured"},
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["results"],
        ["results", "--json"],
        ["results", "--each"],
        ["show", "1"],
        ["status"],
        ["status", "--json"],
        ["db", "load", "--json"],
        ["kernels", "tcp_stream"],
        ["cluster", "list"],
    ],
    ids=" ".join,
)
def test_reading_verbs_import_nothing_heavy(words: list[str], measured_desk: LocalDesk) -> None:
    code = (
        "import sys\nfrom hpcq.cli.main import run\ncode = run(sys.argv[1:])\n"
        f"print(int(code), *sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr)"
    )
    said = measured_desk.start(["-c", code, *words])
    assert said.stderr.splitlines()[-1] == "0", said.stderr
    assert said.stdout


@pytest.fixture(scope="module")
def measured_desk(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    """A desk with a loaded run that nobody measured: its folder is written by hand."""
    desk = LocalDesk.at(tmp_path_factory.mktemp("reading"))
    run = RunBuilder(desk.folder / "runs")
    for job_id in ("j00001", "j00002"):
        run.attempt(job_id, 1)
    load(desk.folder / "results.db", run)
    return desk


@pytest.mark.promise("`hpcq db load` of a run without a plan exits 4 and says that nothing was loaded.")
@pytest.mark.fast
def test_loading_a_run_without_a_plan_is_incomplete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny")
    run = open_run(tmp_path / desk.campaign(), [tmp_path / "clusters"], tmp_path / "results.db", tmp_path / "runs")
    words = ["db", "load", "--db", str(tmp_path / "results.db"), "--runs", str(tmp_path / "runs")]
    assert hpcq(words) == 4
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{run.run}: no cluster has a plan yet: nothing was loaded\n")
    assert hpcq([*words, "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["clusters"] == []
