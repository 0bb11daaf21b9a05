"""A head that sees old attributes: what a node wrote appears there half a minute later, as NFS may have it.

The head's /scratch goes through FUSE, and the kernel keeps what it was told: also that a file is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq import units
from tests.lab.campaigns_in_lab import Desk, wait_idle
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean

pytestmark = [pytest.mark.lab, pytest.mark.long]

KEPT_S = 25
OPTIONS = ",".join(["nonempty", *(f"{what}_timeout={KEPT_S}" for what in ("attr", "entry", "negative"))])
TEST = "tests: [{kernel: tcp_pingpong, parameters: {message_bytes: 1, duration_s: 3, warmup_s: 0}}]"


#: Somebody of the head looks for every exit file before it is there, and again and again.
LOOKS = "while :; do for at in /scratch/hpcq/*/alpha/jobs/*/*; do [ -e $at/exit.json ]; done; sleep 0.2; done"


@pytest.fixture
def old_news(lab: RunningLab) -> Iterator[RunningLab]:
    """alpha, whose head is late."""
    wait_idle(lab, "alpha")
    lab.exec("alpha", "sh", "-c", f"[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229; bindfs -o {OPTIONS} /scratch /scratch")
    yield lab
    lab.exec("alpha", "umount", "-l", "/scratch")


def late_s(events: list[dict[str, object]]) -> list[float]:
    """Of each attempt: from the word of the scheduler that it had ended to hpcq's."""
    ended = {one["tag"]: units.parse_utc(str(one["utc"])) for one in events if one["event"] == "ended"}
    told = {one["tag"]: units.parse_utc(str(one["utc"])) for one in events if one.get("state") == "completed"}
    return [(ended[tag] - told[tag]).total_seconds() for tag in told]


@pytest.mark.promise("An exit file that a head sees half a minute late is waited for, with what hpcq does by itself.")
def test_results_that_a_late_head_does_not_see_yet_are_waited_for(old_news: RunningLab, tmp_path: Path) -> None:
    """With what hpcq does by itself: the lab's own, shorter wait is left out."""
    (tmp_path / "clusters").mkdir()
    text = re.sub(r"^filesystem_delay_s:.*\n", "", old_news.cluster_file("alpha").read_text(), flags=re.MULTILINE)
    (tmp_path / "clusters" / "alpha.yaml").write_text(f"{text}compiler: {{cflags: -O0}}\n")
    desk = Desk(tmp_path, old_news)
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 1}}\nrepetitions: 1\n{TEST}")
    looker = old_news.exec("alpha", "sh", "-c", f"({LOOKS}) >/dev/null 2>&1 & echo $!", user="labuser").strip()
    try:
        desk.hpcq("run", "campaign.yaml", timeout_s=400)
    finally:
        old_news.exec("alpha", "kill", looker)
    assert [row["outcome"] for row in desk.rows("SELECT outcome FROM result")] == ["measured"] * 2
    assert_clean(desk.run_folder)
    assert max(late_s(desk.events("alpha"))) > 5, "nothing was late, so nothing was shown"


@pytest.mark.parametrize(
    ("waits_s", "follows"),
    [
        (10, "filesystem_delay_s is 10: at {late} or less, jobs that are done count as failed"),
        (90, "a job counts as failed only 90 s after its end (filesystem_delay_s)"),
    ],
)
def test_cluster_check_says_how_late_a_head_is(old_news: RunningLab, tmp_path: Path, waits_s: int, follows: str) -> None:
    (tmp_path / "clusters").mkdir()
    text = old_news.cluster_file("alpha").read_text()
    assert "filesystem_delay_s: 10s" in text
    changed = text.replace("filesystem_delay_s: 10s", f"filesystem_delay_s: {waits_s}s")
    (tmp_path / "clusters" / "alpha.yaml").write_text(changed)
    said = Desk(tmp_path, old_news).hpcq("cluster", "check", "alpha", expect=None).stdout
    lines = [line for line in said.splitlines() if "file attributes" in line]
    assert len(lines) == 1, said
    [line] = lines
    found = re.search(r"the head saw a node's file after ([\d.]+) s", line)
    assert found, said
    assert KEPT_S / 2 <= float(found[1]) <= 60, line
    assert follows.format(late=found[1]) in said
