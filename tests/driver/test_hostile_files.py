"""What a node writes into its job's folder may be anything: the attempt ends in few words, and the other jobs as ever."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.driver.fake_site import FakeJob, FakeSite

pytestmark = pytest.mark.fast

#: A number that Python itself refuses to read.
DIGITS = "1" * 5000
HOSTILE: tuple[Any, ...] = (
    *("9" * 5000, "x" * 10**6, "\x1b[31m\u202e", "\u00b2", "1970-01-01T00:00:00.000000Z"),
    *([], {}, [[1]], {"a": {}}, None, True, -1, 10**38, DIGITS, 1e308),
)
FIELDS = ("rc", "exit_code", "reason", "started_utc", "ended_utc", "node", "scheduler_job_id")


@pytest.mark.promise(
    "Whatever a node writes into a job's files, the driver ends that attempt in few words and runs the others."
)
@pytest.mark.parametrize("file", ["exit.json", "started.json", "t1-r1.status", "t1-r1.json"])
def test_a_node_may_write_anything(tmp_path: Path, file: str) -> None:
    for number, value in enumerate(HOSTILE):
        site = FakeSite(tmp_path / str(number), node_count=4, pairs=[("n1", "n2"), ("n3", "n4")])
        end = site.scheduler._write_end

        def write_end(job: FakeJob, site: FakeSite = site, end: Any = end, value: Any = value) -> None:
            end(job)
            path = job.folder / file
            if "n1" in job.nodes and path.exists():
                said = {"format": 1, "tag": job.tag, "error": None} | dict.fromkeys(FIELDS, "@")
                path.write_text(json.dumps(said).replace('"@"', DIGITS if value is DIGITS else json.dumps(value)))

        site.scheduler._write_end = write_end  # type: ignore[method-assign]
        events = site.drive()
        assert ("j00002", "completed") in site.ends(), (file, str(value)[:40])
        assert {job for job, _ in site.ends()} == {"j00001", "j00002"}
        assert max(len(json.dumps(event)) for event in events) < 10_000, (file, str(value)[:40])


@pytest.mark.promise("A file of a job that stays on the cluster is told once, and costs no other result.")
def test_a_file_that_stays_on_the_cluster_is_told_once(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, node_count=4, pairs=[("n1", "n2"), ("n3", "n4")])
    end = site.scheduler._write_end

    def write_end(job: FakeJob) -> None:
        end(job)
        if "n1" in job.nodes:
            (job.folder / "core").touch()
            os.truncate(job.folder / "core", 2**42)

    site.scheduler._write_end = write_end  # type: ignore[method-assign]
    site.drive()
    assert sorted(site.ends()) == [("j00001", "completed"), ("j00002", "completed")]
    [said] = [text for text in site.said if "stays on the cluster" in text]
    assert said.endswith("j00001/1/core: larger than 256 MiB")
