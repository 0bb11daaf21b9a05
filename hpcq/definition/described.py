"""Find descriptions of foreign programs, and make them known as kernels.

hpcq searches these folders; the first that has NAME.yaml wins:

    kernels/ beside the campaign, ~/.config/hpcq/kernels, kernels/described of hpcq
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from hpcq import assets
from hpcq.described import indexed
from hpcq.errors import UserError
from hpcq.kernels import Kernel, kernels, own_kernels, register


def described_folders(campaign_path: Path | None = None) -> list[Path]:
    """The folders searched for descriptions, in order, whether they exist or not."""
    beside = [] if campaign_path is None else [campaign_path.parent / "kernels"]
    return [*beside, assets.home() / ".config/hpcq/kernels", assets.described_kernels()]


def list_described(campaign_path: Path | None = None) -> dict[str, Path]:
    """Every description that a name can find, by name."""
    found: dict[str, Path] = {}
    for folder in described_folders(campaign_path):
        for path in _entries(folder):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def know_described(names: set[str], campaign_path: Path | None = None) -> list[str]:
    """Register those of `names` that are described; returns all names that a campaign may use.

    Reads only the files that are asked for: a broken description of a kernel that nobody uses stops nobody.
    """
    found = list_described(campaign_path)
    own = own_kernels()
    of_run = campaign_path is not None and (campaign_path.parent / "run.json").is_file()
    stored = described_folders(campaign_path)[0] if of_run else None
    register(_read(found[name], own, stored=found[name].parent == stored) for name in sorted(names) if name in found)
    return [*own, *(name for name in found if name not in own)]


def know_texts(texts: Mapping[str, str]) -> None:
    """Register descriptions from their texts, by name, as a database stores them."""
    if not texts:
        return
    from hpcq.definition.kernel_file import kernel_of

    own = own_kernels()
    register(kernel_of(text, f"{name}.yaml", own, stored=True) for name, text in texts.items())


def described_paths(names: set[str]) -> dict[str, Path]:
    """The files of those of `names` that are described, as they were registered."""
    known = kernels()
    described = {name: known[name].described for name in names if name in known}
    return {name: Path(one.path) for name, one in sorted(described.items()) if one is not None}


def know_folder(folder: Path) -> None:
    """Register all descriptions of a folder: the copies of a run. Does nothing when there are none."""
    paths = _entries(folder)
    if not paths:
        return
    from hpcq.definition.kernel_file import read_kernel

    own = own_kernels()
    register(read_kernel(path, own, stored=True) for path in paths)


def described_kernel(name: str) -> Kernel:
    """The described kernel of this name, or from this file. Raises UserError."""
    from hpcq.definition.kernel_file import read_kernel

    if name.endswith(".yaml"):
        if not Path(name).is_file():
            raise UserError(f"{name}: no such description of a kernel", "`hpcq kernels` lists what is known by name")
        kernel = read_kernel(Path(name), own_kernels())
        register([kernel])
        return kernel
    known = list_described()
    if name in known:
        know_described({name})
        return kernels()[name]
    raise UserError(
        f"{name!r}: no such description of a kernel",
        f"described are {', '.join(known) or 'none'}; a path that ends in .yaml is read as it is",
    )


def write_skeleton(name: str, *, mpi: bool) -> Path:
    """Write kernels/NAME.yaml with a comment on every key; returns its path. Raises UserError if it exists."""
    from hpcq.render import render

    if re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) is None:
        raise UserError(f"{name!r} is not a name: must be a-z, 0-9 and _, 41 at most, a letter first")
    if name in own_kernels():
        raise UserError(f"{name} is a kernel of hpcq itself: must be another name", f"for example my_{name}")
    path = Path("kernels") / f"{name}.yaml"
    text = render("kernel.yaml.j2", {"name": name, "mpi": mpi})
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path}: exists already: must be a new file", "take another name, or edit this one") from None
    return path


def _read(path: Path, own: dict[str, Kernel], *, stored: bool) -> Kernel:
    """The kernel of a file: by the index of those that come with hpcq, else read and checked."""
    known = indexed(path)
    if known is not None:
        return known
    from hpcq.definition.kernel_file import read_kernel

    return read_kernel(path, own, stored=stored)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".yaml" and path.is_file())
    except OSError:
        return []
