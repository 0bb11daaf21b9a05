"""Find campaign and cluster files by name.

A cluster's file is NAME.yaml. hpcq searches these folders in order; the first that has the file wins:

    folders given on the command line, $HPCQ_CLUSTERS (joined by :), the campaign's folder/clusters, ./clusters,
    ./campaigns/clusters, ~/.config/hpcq/clusters, /run/hpcq-lab/*/clusters, the examples that come with hpcq

Labs that somebody else runs on this machine are left out with HPCQ_LABS=no.

These files say which commands run, so a file that a name found is taken only if nobody but the user, root and the members
of the user's groups could have put it there: in /tmp it may be anybody's. Whoever names its folder or its path has it taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hpcq import assets
from hpcq.errors import UserError
from hpcq.kernels import Kernel, Kernels, own_kernels
from hpcq.strangers import stranger

#: Running labs write the files of their clusters here.
LAB_FOLDER = Path("/run/hpcq-lab")
_ENDINGS = (".yaml", ".yml")
#: Whoever installed hpcq for all put its examples there, and hpcq itself.
_OWN = assets.campaigns().parent


def find_cluster(name: str, campaign_path: Path | None = None, extra_dirs: Sequence[Path] = ()) -> Path:
    """The file of a cluster; `name` may also be a path. Raises UserError that lists the searched folders."""
    if "/" in name or name.endswith(_ENDINGS):
        if not _is_file(Path(name)):
            shown = name if name.isprintable() else repr(name)
            raise UserError(f"{shown}: no such cluster file", "a name without / and .yaml is looked for: hpcq cluster list")
        return Path(name)
    folders = cluster_folders(campaign_path, extra_dirs)
    for folder in folders:
        for ending in _ENDINGS:
            path = folder / f"{name}{ending}"
            if _is_file(path):
                if folder.absolute() not in {named.absolute() for named in _named_folders(extra_dirs)}:
                    refuse_strangers(
                        path, f"HPCQ_CLUSTERS={folder.absolute()} or --clusters {folder.absolute()} takes what is there"
                    )
                    _refuse_second_lab(name, path, folders)
                return path
    known = list_clusters(campaign_path, extra_dirs)
    raise _not_found("cluster", name, list(known), [str(folder) for folder in folders])


def list_clusters(campaign_path: Path | None = None, extra_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Every cluster file that a name can find, by name."""
    found: dict[str, Path] = {}
    for folder in cluster_folders(campaign_path, extra_dirs):
        for path in _entries(folder):
            if path.suffix in _ENDINGS and _is_file(path):
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def cluster_folders(campaign_path: Path | None = None, extra_dirs: Sequence[Path] = ()) -> list[Path]:
    """The folders searched for cluster files, in order, whether they exist or not."""
    folders = _named_folders(extra_dirs)
    if campaign_path is not None:
        folders.append(campaign_path.parent / "clusters")
    folders += [Path("clusters"), Path("campaigns/clusters"), assets.home() / ".config/hpcq/clusters"]
    folders += _lab_folders()
    folders.append(assets.campaigns() / "clusters")
    return list({folder.absolute(): folder for folder in folders}.values())


def find_campaign(text: str) -> Path:
    """A campaign's file: a path, or the name of an example that comes with hpcq (`demo`, `campaigns/demo.yaml`)."""
    path = Path(text)
    if _is_file(path):
        if "/" not in text and path.suffix not in _ENDINGS:  # a name, as that of an example is
            refuse_strangers(path, f"./{text} in place of {text} takes it as it is")
        return path
    examples = {example.stem: example for example in sorted(assets.campaigns().glob("*.yaml"))}
    here = sorted(Path("campaigns").glob("*.yaml")) if Path("campaigns").is_dir() else []
    known = {**examples, **{campaign.stem: campaign for campaign in here}}
    if text in known:
        refuse_strangers(known[text], f"{known[text].absolute()} in place of {text} takes it as it is")
        return known[text]
    if text == f"campaigns/{path.name}" and path.suffix in _ENDINGS and path.stem in examples:
        return examples[path.stem]
    if text and "\0" not in text and path.is_dir():
        raise UserError(f"{text!r}: this is a folder: name the file in it", f"for example: {path / 'campaign.yaml'}")
    raise _not_found("campaign file", text, list(known), [])


def refuse_strangers(path: Path, remedy: str) -> None:
    """Raise UserError if somebody whom the user does not work with could have put a file where a name finds it.

    remedy: how to have it taken all the same.
    """
    if path.absolute().is_relative_to(_OWN):
        return
    if words := stranger(path, groups={os.getegid(), *os.getgroups()}):
        raise UserError(
            f"{path}: {words}",
            f"what it says would run as you, so a name takes no file that others can put there. If you have read it: {remedy}",
        )


def _is_file(path: Path) -> bool:
    """Whether a file exists and we may see it; False for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _named_folders(extra_dirs: Sequence[Path]) -> list[Path]:
    """The folders that a person named."""
    return [*extra_dirs, *(Path(text) for text in os.environ.get("HPCQ_CLUSTERS", "").split(":") if text)]


def _lab_folders() -> list[Path]:
    wanted = os.environ.get("HPCQ_LABS") or "yes"
    if wanted not in {"yes", "no"}:
        raise UserError(
            f"HPCQ_LABS: {wanted!r} is not an answer: must be yes or no", "no leaves the clusters of running labs out"
        )
    if wanted == "no":
        return []
    try:
        return sorted(LAB_FOLDER.glob("*/clusters"))
    except OSError:
        return []


def _refuse_second_lab(name: str, path: Path, folders: Sequence[Path]) -> None:
    """Raise UserError if two running labs both have such a cluster: then you must say which."""
    if not path.is_relative_to(LAB_FOLDER):
        return
    others = [folder / path.name for folder in folders if folder.is_relative_to(LAB_FOLDER) and (folder / path.name).is_file()]
    if len(others) > 1:
        found = ", ".join(map(str, others))
        raise UserError(
            f"{name}: several labs have this cluster ({found}): say which",
            hint=f"for example: export HPCQ_CLUSTERS={path.parent}",
        )


def _not_found(what: str, name: str, known: Sequence[str], folders: Sequence[str]) -> UserError:
    from difflib import get_close_matches

    near = get_close_matches(Path(name).stem, known, n=1, cutoff=0.6)
    message = f"{name!r}: no such {what}" + (f": the nearest is {near[0]}" if near else "")
    hint = f"known are {', '.join(known) or 'none'}"
    if folders:
        hint += f"\nlooked for {name}.yaml in {', '.join(folders)}"
    return UserError(message, hint)


# ----------------------------------------------------------------------------------------------------------------------
# Find descriptions of foreign programs: the kernels that a campaign, a run or a database may use.
#
# hpcq searches these folders; the first that has NAME.yaml wins:
#
#     kernels/ beside the campaign, ~/.config/hpcq/kernels, kernels/described of hpcq


def described_folders(campaign_path: Path | None = None) -> list[Path]:
    """The folders searched for descriptions, in order, whether they exist or not."""
    beside = [] if campaign_path is None else [campaign_path.parent / "kernels"]
    return [*beside, assets.home() / ".config/hpcq/kernels", assets.described_kernels()]


def list_described(campaign_path: Path | None = None) -> dict[str, Path]:
    """Every description that a name can find, by name."""
    found: dict[str, Path] = {}
    for folder in described_folders(campaign_path):
        for path in _descriptions_in(folder):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def kernel_names(campaign_path: Path | None = None) -> list[str]:
    """All names that a campaign may use: hpcq's own kernels, then those described."""
    return list(dict.fromkeys([*own_kernels(), *list_described(campaign_path)]))


def kernels_named(names: Iterable[str], campaign_path: Path | None = None) -> Kernels:
    """Hpcq's own kernels, and those of `names` that are described. Raises UserError for one that has the name of an own.

    Reads only the files that are asked for: a broken description of a kernel that nobody uses stops nobody.
    """
    own, asked = own_kernels(), sorted(set(names))
    found = list_described(campaign_path)
    of_run = campaign_path is not None and (campaign_path.parent / "run.json").is_file()
    stored = described_folders(campaign_path)[0] if of_run else None
    return {**own, **{name: _read(found[name], own, stored=found[name].parent == stored) for name in asked if name in found}}


def all_kernels() -> tuple[Kernels, list[str]]:
    """Every kernel whose description can be read, and what is wrong with the others."""
    found, unread = dict(own_kernels()), []
    for name in list_described():
        try:
            found |= kernels_named({name})
        except UserError as error:
            unread.append(error.message)
    return found, unread


def kernels_of_texts(texts: Mapping[str, str]) -> Kernels:
    """Hpcq's own kernels, and those of these descriptions: their texts by name, as a database stores them."""
    own = own_kernels()
    if not texts:
        return own
    from hpcq.definition.kernel_file import kernel_of

    return {**own, **{name: kernel_of(text, f"{name}.yaml", own, stored=True) for name, text in texts.items()}}


def kernels_of_run(described: Path) -> Kernels:
    """Hpcq's own kernels, and those that a run's folder has copies of, in its folder `described`."""
    own, paths = own_kernels(), _descriptions_in(described)
    if not paths:
        return own
    from hpcq.definition.kernel_file import read_kernel

    read = (read_kernel(path, own, stored=True) for path in paths)
    return {**own, **{one.name: one for one in read}}


def described_kernel(name: str) -> Kernel:
    """The described kernel of this name, or from this file. Raises UserError."""
    from hpcq.definition.kernel_file import read_kernel

    if name.endswith(".yaml"):
        if not Path(name).is_file():
            raise UserError(f"{name}: no such description of a kernel", "`hpcq kernels` lists what is known by name")
        return read_kernel(Path(name), own_kernels())
    known = list_described()
    if name in known:
        return kernels_named({name})[name]
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


def _read(path: Path, own: Kernels, *, stored: bool) -> Kernel:
    """The kernel of a file: by the index of those that come with hpcq, else read and checked."""
    from hpcq.described import indexed

    known = indexed(path)
    if known is not None:
        return known
    from hpcq.definition.kernel_file import read_kernel

    if not stored:
        refuse_strangers(path, f"a copy in {assets.home() / '.config/hpcq/kernels'} is taken")
    return read_kernel(path, own, stored=stored)


def _descriptions_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".yaml" and path.is_file())
    except OSError:
        return []
