"""Write kernels/described/index.json from the descriptions beside it: `make docs` does it, a test compares."""

from __future__ import annotations

from pathlib import Path

from hpcq import assets
from hpcq.definition.foreign.kernel_file import read_kernel
from hpcq.described.index import INDEX, index_text
from hpcq.kernels import own_kernels


def delivered_index(folder: Path) -> str:
    """The index of every description in a folder. Raises UserError for one that cannot be read."""
    own = own_kernels()
    return index_text(read_kernel(path, own) for path in sorted(folder.glob("*.yaml")))


if __name__ == "__main__":
    delivered = assets.described_kernels()
    (delivered / INDEX).write_text(delivered_index(delivered), "utf-8")
