"""Run the stages with Snakemake: in order, clusters side by side, and from where a run stopped.

    hpcq run / resume  -> python -m snakemake -s workflow/Snakefile --directory RUN --config run=RUN
    hpcq run --detach  -> the same, to the target `submitted`
    workflow/Snakefile -> expand(config): which runs with which clusters -> shell rules that call `hpcq stage`

Importing Snakemake takes seconds, so nothing here imports it. The Snakefile imports `expand`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq import assets, units
from hpcq.errors import Exit, HeldError, HpcqError, StoreError, UserError, of_the_machine
from hpcq.run_folder.paths import FailedStage, RunFolder, read_json, write_json
from hpcq.transport import quote, run_here
from hpcq.visible import visible
from hpcq.writer_lock import STALE_S, WriterLock

#: Joins the names of a group's clusters, and of a link's. A cluster's name cannot contain it.
SIGN = "+"


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """One campaign of a workflow: its run folder, its clusters, and its file (None: the run is already open)."""

    folder: str
    clusters: tuple[str, ...]
    campaign: str | None
    #: The links between its clusters, each with the keys name, from and to.
    links: tuple[Mapping[str, str], ...] = ()
    #: Whether its suspects are measured again.
    confirms: bool = False

    def done(self, part: str) -> str:
        """Return the last marker of a part, relative to the run's folder."""
        return f"{part}/confirmed.json" if self.confirms and part in self.clusters else f"{part}/loaded.json"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts with their own plan and results: clusters, then links."""
        return self.clusters + tuple(link["name"] for link in self.links)

    def planned_before(self, part: str) -> list[str]:
        """Return the clusters whose plans a part's plan needs; none for a cluster."""
        return [link[end] for link in self.links if link["name"] == part for end in ("from", "to")]

    def built_before(self, part: str) -> list[str]:
        """Return the clusters whose kernels a part's jobs need: itself, or both ends of a link."""
        return self.planned_before(part) or [part]

    def driven_by(self, part: str) -> str:
        """Return the marker of the driver of a part, relative to the run's folder.

        Each group of linked clusters has one.
        """
        group = next(group for group in groups(self.clusters, self.links) if self.built_before(part)[0] in group)
        return f"{part}/driven.json" if len(group) == 1 else f"groups/{SIGN.join(group)}.json"


def expand(config: Mapping[str, Any]) -> list[WorkflowRun]:
    """Return what `--config` asks for.

    run=FOLDER: an open run. campaign=FILE[,FILE…], with runs=FOLDER (default runs): new runs.
    """
    if "run" in config:
        folder = os.path.normpath(str(config["run"]))
        run = RunFolder(Path(folder)).described_run()
        links = tuple(run.get("links", ()))
        return [WorkflowRun(folder, tuple(run["clusters"]), None, links, bool(run.get("confirm")))]
    if "campaign" not in config:
        raise UserError(
            "workflow: neither run nor campaign given: must be --config run=FOLDER or --config campaign=FILE[,FILE]",
            "hpcq run CAMPAIGN does this for you",
        )
    from hpcq.definition.files.campaign import read_campaign
    from hpcq.definition.find import find_campaign

    found = []
    for text in str(config["campaign"]).split(","):
        path = find_campaign(text)
        campaign = read_campaign(path)
        folder = os.path.normpath(Path(str(config.get("runs", "runs"))) / campaign.name)
        links = tuple({"name": link.name, "from": link.from_cluster, "to": link.to_cluster} for link in campaign.links)
        found.append(WorkflowRun(folder, campaign.clusters, str(path.absolute()), links))
    return found


def groups(clusters: Sequence[str], links: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the clusters of a run in its order, linked ones grouped together. `links` as in run.json."""
    found: list[set[str]] = [{name} for name in clusters]
    for link in links:
        ends = {link["from"], link["to"]}
        touched = [group for group in found if group & ends]
        found = [group for group in found if not group & ends] + [set().union(*touched)]
    ordered = [tuple(name for name in clusters if name in group) for group in found]
    return sorted(ordered, key=lambda group: clusters.index(group[0]))


def hpcq_command() -> str:
    """Return the shell words that start this same hpcq."""
    return " ".join(map(quote, assets.own_command()))


@contextlib.contextmanager
def leading(run: RunFolder) -> Iterator[None]:
    """Hold the right to start the stages of a run: `run.json.writer`.

    Two workflows of one run would build, load and report beside each other, and each would take the other's refusals for
    failures of the run. Raises HeldError if another living process has the right, HpcqError if others can change the run's
    folder; nothing of the run is touched then.
    """
    from hpcq.runner.site.place import refuse_others

    refuse_others(run)
    try:
        lock = WriterLock(run.run_json, STALE_S + 5.0, refuse_the_living=True)
    except StoreError as error:
        hint = "one `hpcq run` or `hpcq resume` per run: wait for it (hpcq status), or hpcq cancel"
        raise type(error)(error.message, hint) from None
    try:
        yield
    finally:
        lock.release()


def run_workflow(run: RunFolder, *, target: str | None = None) -> int:
    """Drive a run to its report, or to the rule `target`. Returns Snakemake's exit code; its output goes to
    snakemake.log.

    It does not repeat finished stages. A failure on one cluster does not stop the others.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise HpcqError(
            f"{sys.executable}: Python finds no Snakemake there: hpcq's stages are ordered by it",
            f"{quote(sys.executable)} -m pip install 'snakemake>=9.3,<10'; then hpcq resume {run.run}",
        )
    clusters = run.described_run()["clusters"]
    argv = [
        sys.executable,
        "-P",
        "-m",
        "snakemake",
        *([target] if target else []),
    ]  # first: some options take any number of words
    argv += ["--snakefile", str(assets.snakefile()), "--directory", str(run.path)]
    # A driver sleeps nearly all the time, so each gets a core, however few this machine has.
    argv += ["--cores", str(max(2, len(clusters))), "--keep-going", "--nolock", "--rerun-incomplete"]
    argv += ["--rerun-triggers", "mtime", "--quiet", "all"]
    # A failed run has a page, too. Left in place, it would make Snakemake take the missing stages for done.
    parts = [*run.clusters(), *run.link_names()]
    if target is None and run.report.is_file() and not all((run.path / part / "loaded.json").is_file() for part in parts):
        argv += ["--forcerun", "report"]
    # Snakemake reads values of --config as YAML and paths as patterns: "." is safe for every folder name.
    argv += ["--config", "run=."]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return run_here(argv, environment=environment, output=run.path / "snakemake.log").returncode


# ----------------------------------------------------------------------------------------------------------------------
# What a failed stage leaves for those who read the run: a marker, and a line in the run's log.
#
#     stage fails      -> <run>/<part>/<stage>.error.json    who wrote it, when, the message, the hint, the exit code
#     stage succeeds   -> removes that marker, whoever wrote it: what it tells of is over
#     lock refused     -> nothing: another process is at that stage, and its outcome counts
#     the run ended    -> no marker: a driver that stood still while another one did its stage fails late, and leaves one
#
# The traceback of an unforeseen failure goes to <run>/log.txt.

#: Space reserved for the last error message: on a full disk nothing new can be written.
_SPARE_BYTES = 4096


def say(run: RunFolder, text: str) -> None:
    """Log one event per line, UTC first, to stderr and to the run's own log; further lines of its words are indented."""
    line = visible(f"{units.utc_now()} {text}".replace("\n", "\n    "))
    print(line, file=sys.stderr)  # noqa: T201
    with contextlib.suppress(OSError), (run.path / "log.txt").open("a", encoding="utf-8") as file:  # stderr has it already
        file.write(line + "\n")


@contextlib.contextmanager
def marked(run: RunFolder, part: str, stage: str) -> Iterator[None]:
    """Record a failure of this stage where `hpcq run` and `hpcq status` look for it, then raise it.

    part: a cluster or a link; empty for a stage of the whole run. Success removes what an earlier failure left.
    """
    mark = run.path / part / f"{stage}.error.json"
    spare = mark.with_name(f".{stage}.spare")
    ours = True
    mark.unlink(missing_ok=True)
    try:
        spare.parent.mkdir(parents=True, exist_ok=True)
        ours = not spare.exists()  # else it is of a process that is at this stage now, or was killed there
        spare.write_text(" " * _SPARE_BYTES)
        yield
        ours = True
        mark.unlink(missing_ok=True)
    except HeldError:
        raise
    except Exception as error:
        ours = True
        place = f"{part}: {stage}" if part else stage
        failure = error if isinstance(error, HpcqError) else of_the_machine(error, run.path)
        if failure is None:
            say(run, f"error={stage} cluster={part} unexpected\n{traceback.format_exc()}")
            hint = f"this is a defect of hpcq: its traceback is in {run.path / 'log.txt'}"
            _leave_word(mark, spare, stage, HpcqError(f"{place}: {type(error).__name__}: {error}", hint))
            raise
        say(run, f"error={stage} cluster={part} {failure.message}")
        _leave_word(mark, spare, stage, failure)
        if failure is error:
            raise
        raise failure from error
    finally:
        if ours:
            spare.unlink(missing_ok=True)


def failures_of(run: RunFolder) -> list[HpcqError]:
    """Return the failures that stages recorded, the gravest exit code first.

    If two stages report the same message, it is one failure.
    """
    found: dict[str, HpcqError] = {}
    for path in _marks(run):
        said = read_json(path, FailedStage)
        kind = UserError if said["exit_code"] == Exit.USAGE else HpcqError
        found.setdefault(said["message"], kind(said["message"], said["hint"]))
    return sorted(found.values(), key=lambda error: error.exit_code, reverse=True)


def forget_failures(run: RunFolder) -> None:
    """Remove what failed stages left: all stages have ended well since."""
    for path in _marks(run):
        path.unlink(missing_ok=True)


def _marks(run: RunFolder) -> list[Path]:
    return sorted([*run.path.glob("*.error.json"), *run.path.glob("*/*.error.json")])


def _leave_word(mark: Path, spare: Path, stage: str, failure: HpcqError) -> None:
    writer = {"host": socket.gethostname(), "pid": os.getpid(), "utc": units.utc_now()}
    said = {"stage": stage, "message": failure.message, "hint": failure.hint, "exit_code": int(failure.exit_code)}
    try:
        write_json(mark, {**said, "writer": writer})
    except StoreError:
        said |= {"message": failure.message[:1000], "hint": (failure.hint or "")[:200]}
        with contextlib.suppress(OSError), spare.open("r+", encoding="utf-8") as file:  # `hpcq run` checks the disk
            file.write(json.dumps({**said, "writer": writer}))
            file.flush()
            spare.replace(mark)
