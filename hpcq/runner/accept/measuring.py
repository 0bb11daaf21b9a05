"""Run a campaign that an acceptance derived from its own, and load the run."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcq import units
from hpcq.definition.derive import with_reservation
from hpcq.errors import HpcqError
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.site.place import open_run
from hpcq.store.database import reading
from hpcq.store.time_windows import run_id_of


class Order(Protocol):
    """What is asked for, as far as measuring needs it."""

    @property
    def campaign(self) -> Path: ...
    @property
    def cluster_folders(self) -> tuple[Path, ...]: ...
    @property
    def database(self) -> Path: ...
    @property
    def runs_folder(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Measuring:
    """Where to run. path: the cluster's file. reservation: the one to run in."""

    order: Order
    cluster: str
    path: Path
    reservation: str | None
    say: Callable[[str], None]

    def run(self, write: Callable[[Path], None], runs: list[str], what: str) -> int:
        """Run the campaign that `write` writes, and load it. What cannot be measured becomes rows with reasons.

        Adds the run to `runs` before it starts. Returns its number in the database.
        """
        moment = units.utc_now()[:19].replace(":", "")
        folder = self.order.runs_folder / ".accept" / f"{self.cluster}-{moment}-{len(runs)}"
        campaign = folder / self.order.campaign.name
        while campaign.exists():
            campaign = campaign.with_name(f"again-{campaign.name}")
        write(campaign)
        folders = [*self.order.cluster_folders, self.path.parent]
        if self.reservation is not None:
            with_reservation(self.path, folder / "clusters" / self.path.name, self.reservation)
            folders = [folder / "clusters", *folders]
        run: RunFolder = open_run(campaign, folders, self.order.database, self.order.runs_folder)
        self.say(f"{self.cluster}: run {run.run_id}: {what}")
        runs.append(run.run_id)
        try:
            stages.build(run, self.cluster, self.say)
            stages.plan(run, self.cluster)
            stages.drive(run, self.cluster, self.say)
        except BaseException:
            with contextlib.suppress(
                HpcqError
            ):  # load what exists, so that it is not lost; the outer error says why there is no more
                stages.load(run, self.order.database)
            raise
        stages.load(run, self.order.database)
        with reading(self.order.database) as database:
            return run_id_of(database, run.run_id)


@contextlib.contextmanager
def alone(runs_folder: Path, cluster: str) -> Iterator[bool]:
    """Whether no other acceptance of this cluster runs here. The lock lasts until the end."""
    runs_folder.mkdir(parents=True, exist_ok=True)
    with (runs_folder / f".accept-{cluster}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
