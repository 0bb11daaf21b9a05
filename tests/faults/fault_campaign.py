"""A small seeded fault injector: a campaign over two clusters and their link, and things that break under it.

    python -m tests.faults.fault_campaign --lab NAME --seed 7 [--seed 8 ...] [--folder DIR]

A seed draws how pairs are packed, which faults (fault_kinds.py), at which moment each and on which cluster; the real
`hpcq run` runs, is resumed where it ended, and tests/faults/fault_invariants.py says which promise was broken.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fault_invariants import DONE, Step, broken_promises, final_rows, to_the_end
from tests.faults.fault_kinds import CLUSTERS, FAULTS, MOMENTS, Scene
from tests.lab.campaigns_in_lab import Desk, wait_idle
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import kill_session

CAMPAIGN = """clusters: [alpha, beta]
links: [{{from: alpha, to: beta, list: [[alpha-n01, beta-n01]], directions: one, peer_wait_s: 8}}]
pairs: {{rounds: 2}}
repetitions: {repetition_count}
{allocation}
tests: [{{kernel: tcp_pingpong, parameters: {{duration_s: 1, warmup_s: 0, message_bytes: 1}}}}]
"""
#: A desk on a disk of its own, which can be full.
DISK_BYTES = 48 << 20
RESUMES_MAX = 4


@dataclass(frozen=True)
class Planned:
    """One fault of a schedule."""

    kind: str
    moment: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.moment} ({self.cluster}): {self.kind}"


@dataclass(frozen=True)
class Schedule:
    """What a seed draws."""

    seed: int
    allocation: str
    faults: tuple[Planned, ...]
    repetition_count: int = 2

    @property
    def free(self) -> bool:
        """Whether everything must be measured in the end."""
        return all(FAULTS[one.kind].free for one in self.faults)


@dataclass
class Story:
    """What came of a schedule."""

    schedule: Schedule
    said: list[str]
    exit_code: int | None
    rows: dict[Step, tuple[str, str | None]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def count(self, outcome: str, part: str | None = None) -> int:
        """Final rows with this outcome."""
        return sum(found == outcome and part in {None, step[0]} for step, (found, _) in self.rows.items())


def in_order(faults: Sequence[Planned]) -> tuple[Planned, ...]:
    """As a campaign comes by their moments."""
    return tuple(sorted(faults, key=lambda one: list(MOMENTS).index(one.moment)))


def drawn(seed: int) -> Schedule:
    """The schedule of a seed."""
    dice = random.Random(seed)
    allocation = dice.choice(["allocation: whole", "allocation: whole", "allocation: group of 3", ""])
    kinds = dice.sample(sorted(FAULTS), dice.randint(2, 4))
    faults = [Planned(kind, dice.choice(FAULTS[kind].moments), dice.choice(CLUSTERS)) for kind in kinds]
    return Schedule(seed, allocation, in_order(faults))


def play(lab: RunningLab, folder: Path, schedule: Schedule) -> Story:
    """Run the campaign, break what the schedule says, resume it as a person would, and look at what came of it."""
    started = time.monotonic()
    lab.at_rest(*CLUSTERS)
    with _desk(lab, folder) as desk:
        desk.campaign(
            CAMPAIGN.format(allocation=schedule.allocation, repetition_count=schedule.repetition_count),
            f"faults-{schedule.seed}",
        )
        scene = Scene(desk, random.Random(schedule.seed), "alpha")
        scene.start("run", "campaign.yaml")
        try:
            _break_things(scene, schedule)
            code = to_the_end(scene, _resumed, within_s=400)
        finally:
            if scene.child is not None:
                kill_session(scene.child)
            for how in scene.mends:
                how()
            _healthy(lab)
        story = Story(schedule, scene.said, code)
        if code is None or code not in DONE:
            story.broken.append(f"hpcq ended with {code}: {_tail(folder)}")
        else:
            story.rows = final_rows(scene)
            story.broken += broken_promises(scene, code)
            if schedule.free and story.count("measured") != len(story.rows):
                lost = sorted((step, row) for step, row in story.rows.items() if row[0] != "measured")
                story.broken.append(f"nothing of this costs a result, but these were lost: {lost}")
    story.wall_s = time.monotonic() - started
    return story


def _break_things(scene: Scene, schedule: Schedule) -> None:
    for one in schedule.faults:
        scene.cluster = one.cluster
        while not MOMENTS[one.moment](scene):
            if scene.ended and not _resumed(scene):
                scene.said.append(f"{one}: the run had ended before")
                return
            time.sleep(0.02)
        scene.said.append(str(one))
        FAULTS[one.kind].do(scene)


def _resumed(scene: Scene) -> bool:
    """Where hpcq ended for a fault and not for its results, a person types `hpcq resume`; not for ever."""
    assert scene.child is not None
    if scene.child.returncode in DONE or scene.resume_count == RESUMES_MAX:
        return False
    scene.said.append(f"  hpcq ended with {scene.child.returncode}; resumed")
    scene.resume_count += 1
    scene.start("resume")
    return True


def _healthy(lab: RunningLab) -> None:
    for cluster in CLUSTERS:
        lab.exec(cluster, "scontrol", "update", f"nodename={cluster}-n[01-04]", "state=resume", check=False)
        wait_idle(lab, cluster)


@contextmanager
def _desk(lab: RunningLab, folder: Path) -> Iterator[Desk]:
    place = folder / "desk"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "desk", str(place)], check=True)
    try:
        (place / "clusters").mkdir()
        for name in CLUSTERS:
            text = lab.cluster_file(name).read_text()
            (place / "clusters" / f"{name}.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\nmax_wait_s: 15\n")
        yield Desk(place, lab)
        subprocess.run(["cp", "-a", f"{place}/.", str(folder / "kept")], check=False)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _tail(folder: Path) -> str:
    return (folder / "said.log").read_text(errors="replace")[-1500:]


def told(story: Story) -> str:
    """A story for people."""
    counts = ", ".join(f"{story.count(word)} {word}" for word in ("measured", "invalid", "failed", "not_measured"))
    kind = story.schedule.allocation or "pairs"
    head = f"seed {story.schedule.seed} ({kind}): exit {story.exit_code}, {counts}, {story.wall_s:.0f} s"
    return "\n".join([head, *(f"  {line}" for line in story.said), *(f"  BROKEN {line}" for line in story.broken)])


def main() -> int:
    """Play seeds on a lab that is up."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--lab", required=True, help="a lab that is up")
    words.add_argument("--seed", type=int, action="append", required=True)
    words.add_argument("--folder", type=Path, help="where desks are kept (default: a new one below /tmp)")
    given = words.parse_args()
    base = given.folder or Path(tempfile.mkdtemp(prefix="hpcq-faults-"))
    broken = 0
    for seed in given.seed:
        story = play(RunningLab(given.lab), base / str(seed), drawn(seed))
        print(told(story), flush=True)
        broken += bool(story.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
