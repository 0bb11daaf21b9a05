"""The index of delivered descriptions says what their files say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.definition.kernel_file import delivered_index, read_kernel
from hpcq.described import INDEX, indexed
from hpcq.kernels import own_kernels

pytestmark = pytest.mark.fast


@pytest.mark.heavy
def test_the_index_is_what_the_files_say() -> None:
    folder = assets.described_kernels()
    assert (folder / INDEX).read_text("utf-8") == delivered_index(folder), "make docs"
    own = own_kernels()
    for path in folder.glob("*.yaml"):
        assert indexed(path) == read_kernel(path, own), path.name


@pytest.mark.promise("A delivered description that somebody edited counts as it is now, not as it was delivered.")
def test_a_file_that_has_changed_is_read_itself(tmp_path: Path) -> None:
    folder = shutil.copytree(assets.described_kernels(), tmp_path / "described")
    path = folder / "iperf3_tcp.yaml"
    assert indexed(path) is not None
    path.write_text(path.read_text().replace("minimum: 1,", "minimum: 2,"))
    assert indexed(path) is None
