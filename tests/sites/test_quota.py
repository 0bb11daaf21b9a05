"""A user's quota on a cluster that is full: real EDQUOT, of a btrfs in a file, in a mount namespace of its own.

The work directory lies there; the person's own folder does not.
"""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.local.local_desk import CLUSTER, LocalDesk

pytestmark = pytest.mark.long

TEST = "{kernel: udp_stream, parameters: {rate_bps: 1e6, duration_s: 6, warmup_s: 0}}"
#: argv: image, mount point, then what `story` takes.
MOUNTED = """truncate -s 256M "$1" && mkfs.btrfs -q "$1" >"$1.log" 2>&1 && mount -o loop "$1" "$2" && btrfs quota enable "$2" &&
btrfs subvolume create "$2/work" >/dev/null && btrfs qgroup limit 12M "$2/work" && exec "$3" -c "$4" "$2/work" "$5" "$6"
"""
STORY = f"""import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from tests.sites.test_quota import story
story(*sys.argv[1:])
"""


def fill(work: Path) -> list[Path]:
    """To the last byte that the quota gives, and what is given back meanwhile."""
    made = []
    for number, size_bytes in enumerate((65536, 4096, 512)):
        path = work / f"ballast-{number}"
        made.append(path)
        try:
            with path.open("wb", buffering=0) as file:
                while file.write(bytes(size_bytes)):
                    pass
        except OSError as error:
            if error.errno != errno.EDQUOT:
                raise
    return [path for path in made if path.exists()]


def story(work_folder: str, folder: str, moment: str) -> None:
    """Runs in the namespace. Prints the exit code of `hpcq run`, what it said, and what `hpcq resume` brought."""
    work = Path(work_folder)
    desk = LocalDesk.at(Path(folder))
    desk.cluster("tiny", f"{CLUSTER}work_directory: {work}\nfilesystem_delay_s: 3s\n")
    desk.campaign(TEST, more="retries: 3")
    ballast = fill(work) if moment == "before" else []
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as child:
        if moment == "running":
            desk.wait_for(lambda: any(one.get("state") == "running" for one in desk.events()))
            time.sleep(1)
            ballast = fill(work)
        code = child.wait(timeout=240)
    print(code, (desk.folder / "background.log").read_text(), sep="\n")
    ends = [(one["outcome"], one["reason"]) for one in desk.events() if one["event"] == "ended"]
    print("ends", ends)
    for path in ballast:
        path.unlink()
    print("resume", desk.hpcq("resume").returncode)
    tags = [one["tag"] for one in desk.events() if one["event"] == "attempt"]
    outcomes = [row["outcome"] for row in desk.rows("SELECT outcome FROM result")]
    print("outcomes", outcomes, "twice", len(tags) - len(set(tags)))


@pytest.mark.promise(
    "Where a cluster's disk or quota is full, the error says so and what to do, and nothing is measured twice after it."
)
@pytest.mark.parametrize("moment", ["before", "running"])
def test_a_full_quota_on_the_cluster_is_named_and_the_run_goes_on_when_there_is_room(tmp_path: Path, moment: str) -> None:
    (tmp_path / "mounted").mkdir()
    argv = [tmp_path / "image", tmp_path / "mounted", sys.executable, STORY, tmp_path / "desk", moment]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTED, "sh", *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr + done.stdout
    code, _, said = done.stdout.partition("\n")
    assert code == "1", said
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    place, refused = ("tiny", "cannot be made") if moment == "before" else ("here", "cannot write there")
    assert error.startswith(f"error: {place}: {tmp_path}/mounted/work/"), said
    assert refused in error, said
    assert error.endswith("Disk quota exceeded"), said
    assert "\nhint: make room there and type `hpcq resume`" in said
    assert "defect of hpcq" not in said
    assert "Traceback" not in said
    ends = "[]" if moment == "before" else "[('failed', 'no exit file; the scheduler says COMPLETED')]"
    assert said.splitlines()[-3:] == [f"ends {ends}", "resume 0", "outcomes ['measured'] twice 0"], said
