"""Fill templates, and give files to the users of a cluster."""

import os
import pwd
import string
from collections.abc import Mapping
from pathlib import Path

from layout import Cluster

TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, values: Mapping[str, object]) -> str:
    """The content of a file in templates/ with its $names replaced."""
    return string.Template((TEMPLATES / template).read_text()).substitute(values)


def own_by(cluster: Cluster, user: str, *paths: Path) -> None:
    """Give paths to a user of the cluster, whose id outside may differ."""
    uid, gid = _ids(cluster.root / "etc/passwd", user)
    for path in paths:
        os.chown(path, uid, gid)


def _ids(passwd: Path, user: str) -> tuple[int, int]:
    for line in passwd.read_text().splitlines():
        fields = line.split(":")
        if fields[0] == user:
            return int(fields[2]), int(fields[3])
    found = pwd.getpwnam(user)
    return found.pw_uid, found.pw_gid
