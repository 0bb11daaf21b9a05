"""Blocks of the documentation that need a lab, typed on one: README and docs, below `<!-- lab CODE -->`. docs/tutorial.md has a
test of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.lab.lab_fixture import RunningLab, lab_command

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800)]

#: Page, exit codes and lines of each block.
BLOCKS = [
    (page, {int(code) for code in codes.split(" or ")}, [line.strip() for line in block.splitlines()])
    for page in ("docs/links.md", "docs/lab.md")  # which ends with a link that is cut and a head that is off
    for codes, block in re.findall(
        r"^<!-- lab (\d(?: or \d)*) -->\n((?:    [^\n]*\n)+)", (REPOSITORY / page).read_text("utf-8"), re.M
    )
]


@pytest.fixture(scope="module")
def own_lab() -> Iterator[RunningLab]:
    """A lab that these blocks may cut, slow down and break."""
    name = f"pages-{os.getpid()}"
    try:
        lab_command("up", "--name", name, timeout_s=180)
        yield RunningLab(name)
    finally:
        lab_command("down", "--name", name)


@pytest.mark.promise("Blocks of the documentation that need a lab work when typed on one.")
@pytest.mark.parametrize("block", BLOCKS, ids=[f"{page}: {lines[0][:30]}" for page, _, lines in BLOCKS])
def test_blocks_of_pages_work_as_typed(own_lab: RunningLab, tmp_path: Path, block: tuple[str, set[int], list[str]]) -> None:
    _, codes, lines = block
    (tmp_path / "campaigns").symlink_to(REPOSITORY / "campaigns")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clusters = str(own_lab.state / "clusters")
    environment = {**os.environ, "PATH": path, "HPCQ_CLUSTERS": clusters, "HOME": str(tmp_path)}
    for line in lines:
        typed = re.sub(r"hpcq lab ([\w-]+)", rf"hpcq lab \1 --name {own_lab.name}", line)
        done = subprocess.run(
            ["bash", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode in {0, *codes}, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode in codes, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
    own_lab.command("mend")
    own_lab.at_rest("alpha", "beta")
