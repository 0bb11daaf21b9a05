"""The version of a wheel: that of hpcq, and built from a clone, its commit, so that pip takes a later build for newer.

    1.0.0                                a release: the commit has the tag v1.0.0; or sources without git
    1.0.0+20261128100628.g0906ccbd       any other commit: its time in UTC, and its name
    1.0.0+20261128101500.changed         files differ from the commit: the time of the build

`pip install --upgrade` does nothing where the versions are the same. pyproject.toml names version() to the builder of wheels.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_STAMP = "%Y%m%d%H%M%S"


def version(root: Path = _ROOT) -> str:
    """Return the version of the sources below `root`."""
    told = root / "PKG-INFO"  # of a source archive, which says what it was made from
    if told.is_file():
        return _found(r"^Version: (\S+)$", told)
    plain = _found(r'^__version__ = "(\S+)"$', root / "hpcq" / "__init__.py")
    if _git(root, "rev-parse", "--show-toplevel") != str(root):  # no clone, or unpacked within that of something else
        return plain
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        return f"{plain}+{dt.datetime.now(dt.UTC).strftime(_STAMP)}.changed"
    if f"v{plain}" in _git(root, "tag", "--points-at", "HEAD").split():
        return plain
    seconds, _, name = _git(root, "show", "--no-patch", "--format=%ct %h", "HEAD").partition(" ")
    return f"{plain}+{dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime(_STAMP)}.g{name}" if name else plain


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{path}: no line matches {pattern}")
    return match[1]


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
