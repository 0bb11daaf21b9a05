"""A seeded fault injector without a cluster: the real driver on a site in this process, and a clock that only waiting moves.

    python -m tests.faults.storms --seed 7 [--seed 8 ...]

A seed draws the campaign, two to four kinds of trouble and their moments; whoever ends is resumed. What the driver must
keep whatever happens is looked at in the end: `broken`. The lab's own injector is fault_campaign.py.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hpcq.errors import HpcqError
from hpcq.run_folder.journal import fold
from hpcq.runner.cancelling import still_there
from hpcq.scheduler.types import NodeCondition
from hpcq.transport import Completed
from tests.driver.fake_site import NEVER, FakeSite
from tests.faults.storm_site import Orders, StormScheduler

RESUMES_MAX = 6
#: After the end the world goes on for so long: what comes later than this belongs to nobody.
_AFTERWARDS_S = 1200.0
#: The time limit of a job by its length: a job that outlasts it is ended by it, and that costs its results.
_LIMIT_RATIO = 1.5
#: How long after a cancel and the end of an outage a driver may take; jobs that last longer end by orders only.
_CANCELLED_S, _OUTLASTS_S = 1500.0, 20_000.0


@dataclass
class Storm:
    """A campaign, and what was done to it."""

    seed: int
    site: FakeSite
    dice: random.Random
    said: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    cancelled: bool = False
    #: Whether a driver is at work (one that ended is resumed a minute later), and whether another one took the run from it.
    driving: bool = False
    taken_over: bool = False
    #: The run has ended: what a seed drew for later does not happen, there is no driver to see it.
    ended: bool = False
    #: When the driver must have ended.
    over_s: float = NEVER

    @property
    def scheduler(self) -> StormScheduler:
        assert isinstance(self.site.scheduler, StormScheduler)
        return self.site.scheduler

    def at(self, passed_s: float, words: str, happens: Callable[[], object]) -> None:
        """Something happens, and is said."""

        def do() -> None:
            if self.ended:
                return
            self.said.append(f"{passed_s:.0f} s: {words}")
            happens()

        self.site.at(passed_s, do)

    def for_a_while(self, from_s: float, length_s: float, words: str, switch: Callable[[bool], object]) -> None:
        """Something holds for a time."""
        self.at(from_s, f"{words} for {length_s:.0f} s", lambda: switch(True))
        self.site.at(from_s + length_s, lambda: switch(False))


KINDS: dict[str, Callable[[Storm], None]] = {}


def kind(do: Callable[[Storm], None]) -> Callable[[Storm], None]:
    """Register a kind of trouble under its function's name."""
    KINDS[do.__name__] = do
    return do


# -- kinds -------------------------------------------------------------------------------------------------------------


@kind
def id_is_nonsense(storm: Storm) -> None:
    """A wrapper prints a banner, or something that is no id, in place of the id."""
    words = storm.dice.choice(["unknown", "Welcome to sim!", "", "0", "101; rm -rf /", "1,2", "²", "-1", "job 17 queued"])
    _next_wave(storm, Orders(answer=Completed(0, f"{words}\n".encode(), "")), f"sbatch answers {words!r}")


@kind
def sbatch_takes_90_s(storm: Storm) -> None:
    """sbatch tries a busy controller again and again by itself, at times for longer than anybody waits."""
    delay_s = storm.dice.choice([90.0, 90.0, 240.0])
    _next_wave(storm, Orders(delay_s=delay_s), f"sbatch takes {delay_s:.0f} s")


@kind
def sbatch_is_killed_after_acceptance(storm: Storm) -> None:
    """The controller has the job; the command, or its whole shell, dies before it says so."""
    code = storm.dice.choice([137, 143, -1])
    _next_wave(storm, Orders(answer=Completed(code, b"", "")), f"sbatch is killed after acceptance ({code})")


@kind
def controller_is_back_on_an_old_state(storm: Storm) -> None:
    """It lost its last state file and knows what it knew two minutes ago."""
    at_s = _moment(storm)
    storm.at(at_s, "the controller is back on a state of two minutes ago", lambda: storm.scheduler.forget(at_s - 120))


@kind
def exit_files_are_45_s_late(storm: Storm) -> None:
    """Attribute caches of a shared file system."""
    storm.at(0, "exit files appear 45 s late", lambda: setattr(storm.scheduler, "exit_file_delay_s", 45.0))


@kind
def second_driver_on_another_head(storm: Storm) -> None:
    """Locks lock nothing there; the first driver lives."""
    storm.at(_moment(storm), "a second driver on another head", lambda: _is_refused(storm))


@kind
def driver_is_taken_over(storm: Storm) -> None:
    """It seemed dead to a driver on another head, and goes on."""
    storm.at(_moment(storm), "another driver takes the run over", lambda: _take_over(storm))


@kind
def driver_is_taken_over_amid_a_submission(storm: Storm) -> None:
    """It stands still between the journal and sbatch, until another driver has done everything."""
    _next_wave(storm, Orders(meanwhile=lambda: _drive_elsewhere(storm)), "another driver takes over amid a submission")


@kind
def quota_is_full(storm: Storm) -> None:
    """Nothing can be written on the cluster; a person makes room and resumes."""
    length_s = storm.dice.uniform(20, 300)
    storm.for_a_while(_moment(storm), length_s, "quota full", lambda on: setattr(storm.scheduler.quota, "full", on))


@kind
def cancel_while_the_controller_is_down(storm: Storm) -> None:
    """Somebody gives up just then."""
    from_s, length_s = _moment(storm), storm.dice.uniform(30, 400)
    storm.over_s = from_s + length_s + _CANCELLED_S
    storm.scheduler.run_s = storm.dice.choice([storm.scheduler.run_s, _OUTLASTS_S])

    def cancel() -> None:
        storm.cancelled = True
        (storm.site.run.path / "cancel").touch()

    storm.for_a_while(from_s, length_s, "controller down", lambda on: setattr(storm.scheduler, "down", on))
    storm.at(from_s + storm.dice.uniform(0, length_s), "hpcq cancel", cancel)


# -- play --------------------------------------------------------------------------------------------------------------


def play(folder: Path, seed: int, *kinds: str) -> Storm:
    """Drive a campaign through a seed's storm, with these kinds or those that it draws, and look at what came of it."""
    dice = random.Random(seed)
    pair_count, node_count = dice.randint(2, 6), dice.randint(4, 8)
    nodes = [f"n{number}" for number in range(1, node_count + 1)]
    drawn = [sorted(dice.sample(nodes, 2)) for _ in range(40)]
    pairs = sorted({(one, two) for one, two in drawn})[:pair_count]
    site = FakeSite(
        folder,
        node_count=node_count,
        pairs=pairs,
        attempts=6,
        scheduler_class=StormScheduler,  # type: ignore[type-abstract]
    )
    storm = Storm(seed, site, dice)
    storm.scheduler.dice, storm.scheduler.run_s = dice, dice.choice([dice.uniform(20, 100), dice.uniform(300, 1000)])
    for name in kinds or dice.sample(sorted(KINDS), dice.randint(2, 4)):
        KINDS[name](storm)
    site.allow(int(storm.scheduler.run_s * _LIMIT_RATIO))
    with _locks_lock_nothing():
        _to_the_end(storm)
    storm.broken += broken(storm)
    return storm


def _to_the_end(storm: Storm) -> None:
    for _ in range(RESUMES_MAX):
        storm.driving = True
        try:
            storm.site.drive()
            break
        except HpcqError as error:
            storm.driving = False
            storm.said.append(f"  hpcq ended: {error.message}; resumed")
            storm.site.clock.sleep(60)
    else:
        storm.broken.append(f"no end after {RESUMES_MAX} drivers")
    if storm.site.clock.passed_s > storm.over_s:
        storm.broken.append(f"cancelled, and it took until {storm.site.clock.passed_s:.0f} s")
    if storm.cancelled:
        left = _asked(storm)
        while storm.scheduler.down:  # it says that the queue cannot be asked, and for how long it tried: a person asks again
            if not any("cannot be asked" in words for words in left):
                storm.broken.append(f"hpcq cancel did not say that the controller is down: {left}")
            storm.site.clock.sleep(60)
            left = _asked(storm)
        storm.broken += [f"after hpcq cancel: {words}" for words in left]
        storm.broken += [f"left after cancel: {job.tag} {job.state}" for job in storm.scheduler.live()]
    storm.ended = True
    for node in storm.scheduler.nodes_known:  # users take all nodes: what waits in the queue stays there
        storm.scheduler.node_states[node] = (NodeCondition.BUSY, "allocated")
    storm.site.clock.sleep(_AFTERWARDS_S)
    storm.scheduler.advance()


def _asked(storm: Storm) -> list[str]:
    """Return what the end of `hpcq cancel` says is left."""
    return still_there(storm.site.run, storm.said.append, storm.site.clock, lambda *_: storm.scheduler)


# -- what must hold ----------------------------------------------------------------------------------------------------


def broken(storm: Storm) -> list[str]:
    """Every promise that does not hold, in words."""
    return [*_journal_is_whole(storm), *_measured_once(storm), *_nothing_left(storm)]


def _journal_is_whole(storm: Storm) -> Iterator[str]:
    events = storm.site.events()
    begun = Counter(one["tag"] for one in events if one["event"] == "attempt")
    ends = Counter(one["tag"] for one in events if one["event"] in {"ended", "refused"})
    yield from (f"begun {count} times: {tag}" for tag, count in begun.items() if count > 1)
    yield from (f"{ends[tag]} ends: {tag}" for tag in begun if ends[tag] != 1)
    not_run = Counter(one["job"] for one in events if one["event"] == "not_run")
    settled = Counter(one.job for one in fold(events).attempts.values() if one.outcome == "completed")
    if storm.cancelled:  # the last attempt of a pair says how it ended
        settled = Counter({one.job for one in fold(events).attempts.values() if one.outcome} - not_run.keys())
    for index in range(1, len(storm.site.pairs) + 1):
        job_id = f"j{index:05d}"
        if settled[job_id] + not_run[job_id] != 1:
            yield f"{job_id}: settled {settled[job_id]} times, not run {not_run[job_id]} times"
        if not_run[job_id] and not storm.cancelled:
            yield f"{job_id}: not run, though nothing of this costs a result: {storm.site.reasons()[job_id]}"


def _measured_once(storm: Storm) -> Iterator[str]:
    """No two jobs of a pair measure at once; what a job brought counts, once."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for one in storm.scheduler.world.measuring:
        spans.setdefault(one.tag.rsplit("-", 2)[1], []).append((one.from_s, one.until_s))
    for job_id, found in spans.items():
        found.sort()
        yield from (
            f"{job_id}: two jobs measured at once: {one} and {two}" for one, two in itertools.pairwise(found) if two[0] < one[1]
        )
    told = {one["tag"] for one in storm.site.events() if one["event"] == "ended" and one["measured"]}
    brought = {path.parents[1].name + "-" + path.parent.name for path in storm.site.root.rglob("t1-r1.status")}
    counted = {"-".join(tag.rsplit("-", 2)[1:]) for tag in told}
    yield from (f"measured, but not counted: {one}" for one in sorted(brought - counted))
    yield from (f"counted, but nowhere measured: {one}" for one in sorted(counted - brought))
    yield from (
        f"measured {count} times: {one}" for one, count in Counter(x.split("-")[0] for x in counted).items() if count > 1
    )


def _nothing_left(storm: Storm) -> Iterator[str]:
    yield from (f"left in the queue: {job.tag} {job.state}" for job in storm.scheduler.live())
    yield from (f"left on the nodes: {job.tag}" for job, _ in storm.scheduler.orphans)
    yield from (f"measures without an end: {one.tag}" for one in storm.scheduler.world.measuring if one.until_s == NEVER)
    yield from (f"a stranger's job was ended: {tag}" for tag in storm.scheduler.world.strangers_ended)


# -- private -----------------------------------------------------------------------------------------------------------


def _moment(storm: Storm) -> float:
    return storm.dice.uniform(3, 150)


def _next_wave(storm: Storm, orders: Orders, words: str) -> None:
    """The first wave, or the next one where that has another trouble."""
    storm.said.append(f"a wave: {words}")
    storm.scheduler.troubles.append(orders)


def _is_refused(storm: Storm) -> None:
    link = storm.site.run.journal("sim").with_name("journal.jsonl.writer")
    if not storm.driving or (storm.taken_over and (not link.is_symlink() or str(link.readlink()).startswith("head2/"))):
        storm.said.append("  there is no living driver that has the run")
        return
    with _another_head():
        try:
            with storm.site.driver():
                storm.broken.append("a second driver was let in beside a living one")
        except HpcqError as error:
            storm.said.append(f"  refused: {error.message}")


def _take_over(storm: Storm) -> None:
    """The link beside the journal is another head's from now on; nobody there touches it: whoever comes next is let in."""
    storm.taken_over = True
    link = storm.site.run.journal("sim").with_name("journal.jsonl.writer")
    if link.is_symlink():
        link.unlink()
        link.symlink_to("head2/boot/pid:[1]/77/5/00")


def _drive_elsewhere(storm: Storm) -> None:
    """The first driver stands still amid its submission for so long that a second one takes over and drives to the end."""
    _take_over(storm)
    with contextlib.suppress(HpcqError):
        storm.site.drive()


@contextlib.contextmanager
def _another_head() -> Iterator[None]:
    """It waits in earnest: a living driver may be slow to touch its link on a machine that is busy."""
    with mock.patch("hpcq.writer_lock._place", return_value="head2/boot/pid:[2]"), mock.patch("hpcq.writer_lock.STALE_S", 30.0):
        yield


@contextlib.contextmanager
def _locks_lock_nothing() -> Iterator[None]:
    """flock lets everybody in; the beat of links and the time without one are shorter than in earnest."""
    with (
        mock.patch("hpcq.run_folder.journal.fcntl.flock", return_value=None),
        mock.patch("hpcq.writer_lock.BEAT_S", 0.02),
        mock.patch("hpcq.writer_lock.STALE_S", 0.3),
    ):
        yield


def told(storm: Storm) -> str:
    """A storm for people."""
    head = f"seed {storm.seed}: {len(storm.site.pairs)} pairs, over after {storm.site.clock.passed_s:.0f} s"
    return "\n".join([head, *(f"  {line}" for line in storm.said), *(f"  BROKEN {line}" for line in storm.broken)])


def main() -> int:
    """Play seeds."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--seed", type=int, action="append", required=True)
    given = words.parse_args()
    found = 0
    for seed in given.seed:
        with tempfile.TemporaryDirectory(prefix="hpcq-storm-") as folder:
            storm = play(Path(folder), seed)
        print(told(storm), flush=True)
        found += bool(storm.broken)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
