"""The tutorial as a reader types it, on a lab of its own: each command ends as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.lab.lab_fixture import RunningLab, own_lab

#: Quiet: beside other work the verdict is INCONCLUSIVE, and rightly.
pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet, pytest.mark.timeout(1800)]

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text("utf-8")
FILES = re.findall(r"^<!-- lab file (\S+) -->\n```yaml\n(.*?)^```$", PAGE, re.M | re.S)
BLOCKS = re.findall(r"^<!-- lab (\d(?: or \d)*) -->\n```sh\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def tutorial_lab() -> Iterator[RunningLab]:
    with own_lab("tutorial") as lab:
        yield lab


def test_the_tutorial_comes_to_its_verdicts(tutorial_lab: RunningLab, tmp_path: Path) -> None:
    assert (len(FILES), len(BLOCKS)) == (2, PAGE.count("```sh"))
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clusters = f"/run/hpcq-lab/{tutorial_lab.name}/clusters"
    environment = {**os.environ, "PATH": path, "HPCQ_CLUSTERS": clusters, "HOME": str(tmp_path)}
    said = ""
    for codes, block in BLOCKS:
        expected = {int(code) for code in codes.split(" or ")}
        lines = block.splitlines()
        for line in lines:
            typed = re.sub(r"^sudo env \S+ ", "", line)
            typed = re.sub(r"(hpcq lab \w+)", rf"\1 --name {tutorial_lab.name}", typed)
            done = subprocess.run(
                ["bash", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
            )
            allowed = expected if line is lines[-1] else {0}
            assert done.returncode in allowed | {0}, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
            said += done.stdout + done.stderr
        assert done.returncode in expected, f"{lines[-1]}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert "4 nodes judged: 4 PASS" in said
    assert "3 PASS, 1 FAIL" in said
    assert "tbf_rate_bps 200000000 > 60000000" in said
    assert "1 node judged: 1 PASS" in said
    assert re.search(r"alpha/alpha-n02: suspected at \d\d:\d\d, confirmed at \d\d:\d\d by 6 of 6 jobs", said)
    assert re.search(r"^told: node alpha/alpha-n02: ", said, re.M)
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")
