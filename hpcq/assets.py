"""Where templates, Snakefile, schema, kernel sources and example campaigns are; the user's name and home folder.

Hides the one difference between a checkout and an installed wheel:

    checkout:  <repo>/templates          <repo>/hpcq/assets.py
    wheel:     <site>/hpcq/data/templates   <site>/hpcq/assets.py
"""

from __future__ import annotations

import os
import pwd
import sys
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@cache
def _root() -> Path:
    packaged = _PACKAGE / "data"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def templates() -> Path:
    """Folder of the Jinja templates for job scripts and reports."""
    return _root() / "templates"


def snakefile() -> Path:
    """The workflow that `hpcq run` drives."""
    return _root() / "workflow" / "Snakefile"


def database_schema() -> Path:
    """The SQL text of results.db.

    It lies in the package, not where people type `rm results.db*`. The one at the top of the sources is its copy to read.
    """
    return _PACKAGE / "store" / "results.db.schema"


def kernel_sources() -> Path:
    """Folder of the C sources; hpcq copies it to a cluster and builds it there."""
    return _root() / "kernels" / "c"


@cache  # asked for each series
def kernel_descriptions() -> Path:
    """Folder of what each kernel program prints with --describe, one JSON file per program."""
    return _root() / "kernels" / "describe"


def described_kernels() -> Path:
    """Folder of the descriptions of foreign programs, one YAML file per kernel."""
    return _root() / "kernels" / "described"


def campaigns() -> Path:
    """Folder of the example campaigns; its subfolder clusters/ holds the example clusters."""
    return _root() / "campaigns"


def lab() -> Path:
    """Folder of the lab's programs."""
    return _root() / "lab"


def own_command() -> tuple[str, ...]:
    """The words that start this same hpcq later, from any environment.

    Of the one-file hpcq that is the file: only what it starts itself finds its modules.
    """
    one_file = os.environ.get("HPCQ_ONE_FILE")
    return (sys.executable, one_file) if one_file else (sys.executable, "-P", "-m", "hpcq")


def home() -> Path:
    """The user's home folder. Of a user without one, as in containers, a folder that does not exist and holds nothing."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/HOME-is-not-set")


def user_name(number: int) -> str:
    """The name of a user, or `uid-4711` where this machine has none for it, as in containers."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid-{number}"
