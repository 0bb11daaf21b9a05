"""A disk that fills up under a run: the error says which file and why, and with room again the run goes on.

The disk is a real small tmpfs in a mount namespace of its own. What the cluster writes lies elsewhere: it is the disk of the
person that is full.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY as ROOT
from tests.local.local_desk import LocalDesk

TEST = "{kernel: udp_stream, parameters: {rate_bps: 1e6, duration_s: 6, warmup_s: 0}}"
#: argv: folder on the disk, home elsewhere, moment. Prints what `hpcq run` said, then how many results `hpcq resume` brought.
STORY = f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.faults.test_full_disk import story
from tests import REPOSITORY
story(*sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Desk(LocalDesk):
    """A desk whose home is on another disk."""

    home: Path = Path()

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "HOME": str(self.home)}


def fill(disk: Path) -> None:
    """To the last byte, in files of their own: what is freed meanwhile is taken too."""
    number = 0
    while os.statvfs(disk).f_bavail:
        number += 1
        with (disk / f"ballast-{number}").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                continue


def story(folder: str, home: str, moment: str) -> None:
    """Runs in the namespace of the disk."""
    made = LocalDesk.at(Path(home).parent)  # gives that home the builds which are kept for the session
    desk = Desk(Path(folder), made.folder / "home")
    desk.cluster("tiny")
    desk.campaign(TEST)
    if moment == "before":
        fill(desk.folder)
    with desk.running(["-m", "hpcq", "run", "try.yaml", "--json"], log=made.folder / "said.txt") as child:
        if moment == "opened":
            desk.wait_for(lambda: child.poll() is not None or list(desk.folder.glob("runs/*/run.json")))
        if moment == "submitted":
            desk.wait_for(lambda: child.poll() is not None or any(one["event"] == "submitted" for one in desk.events()))
        fill(desk.folder)
        code = child.wait(timeout=240)
    print(code, (made.folder / "said.txt").read_text(), sep="\n", flush=True)
    for path in desk.folder.glob("ballast-*"):
        path.unlink()
    if moment != "before":
        print("measured", desk.json("resume")["runs"][0]["measured_count"])


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "opened", "submitted"])
def test_a_full_disk_is_named_and_the_run_goes_on_when_there_is_room(tmp_path: Path, moment: str) -> None:
    place, home = tmp_path / "small", tmp_path / "elsewhere" / "home"
    place.mkdir()
    mounted = f'mount -t tmpfs -o size=6m small "{place}" && exec "{sys.executable}" -c "$0" "$@"'
    argv = ["unshare", "--mount", "sh", "-c", mounted, STORY, str(place), str(home), moment]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    code, _, said = done.stdout.partition("\n")
    assert code == "1", said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors, said
    # A stage, Snakemake's own notes, the loading of what there is: each may meet the full disk.
    assert all("No space left on device" in line or "disk is full" in line for line in errors), said
    assert moment == "before" or any(line.startswith((f"error: {place}/", "error: runs/")) for line in errors), said
    assert "\nhint: " in said
    assert "defect of hpcq" not in said
    assert "Traceback" not in said
    if moment != "before":
        assert said.splitlines()[-1] == "measured 1"
