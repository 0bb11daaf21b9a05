"""A root file system of another Debian release, for a cluster of another generation than this machine.

Made once by debootstrap and apt, and kept in a cache folder, since it takes a minute and some hundred megabytes:

    /var/cache/hpcq-lab/trixie/            the root file system
    /var/cache/hpcq-lab/trixie.packages    what was asked for, written last: without it the folder is not complete

Everything is done in mount and PID namespaces of its own, so that an interrupted build leaves no mount and no process.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from faults import LabError
from processes import ENVIRONMENT

SYSTEMS = ("host", "trixie")
CACHE_FOLDER = Path("/var/cache/hpcq-lab")
DEFAULT_MIRROR = "http://deb.debian.org/debian"
BUILD_TIMEOUT_S = 1800
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# In the new root: no daemon is started, nothing asks questions, and what was downloaded is not kept.
BUILD = """
set -eu
root=$1 release=$2 mirror=$3
shift 3
debootstrap --variant=minbase "$release" "$root" "$mirror"
printf '#!/bin/sh\\nexit 101\\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
chroot "$root" apt-get install --yes --no-install-recommends "$@"
chroot "$root" apt-get clean
rm -r "$root/var/lib/apt/lists"
"""


def root_of(system: str, cache: Path) -> Path:
    """The root file system of `host` or of a release, made now if it was not made before."""
    if system == "host":
        return Path("/")
    packages = Path(__file__).with_name(f"packages-{system}.txt").read_text()
    cache.mkdir(parents=True, exist_ok=True)
    root, mark = cache / system, cache / f"{system}.packages"
    with _lock(cache):
        if not (mark.exists() and mark.read_text() == packages):
            if shutil.which("debootstrap", path=ENVIRONMENT["PATH"]) is None:
                raise LabError(
                    f"lab up: not found on this machine: debootstrap, which makes the system {system}",
                    "apt-get install --no-install-recommends debootstrap debian-archive-keyring",
                )
            mark.unlink(missing_ok=True)
            if root.exists():
                shutil.rmtree(root)
            _build(root, system, packages.split())
            mark.write_text(packages)
    return root


def _build(root: Path, release: str, packages: list[str]) -> None:
    log = root.parent / f"{release}.log"
    environment = {**ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"}
    environment |= {name: os.environ[name] for name in PROXY_VARIABLES if name in os.environ}
    separate = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--propagation", "private"]
    command = [*separate, "sh", "-c", BUILD, "sh", str(root), release, _mirror(), *packages]
    with log.open("w") as log_file:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as found:
            raise LabError(f"{release}: not made within {BUILD_TIMEOUT_S} s", f"its log is {log}") from found
    if done.returncode != 0:
        last_words = (log.read_text(errors="replace").strip() or "no message").splitlines()[-1]
        raise LabError(f"{release}: its root file system could not be made: {last_words}", f"its log is {log}")


def _mirror() -> str:
    """Where this machine itself gets Debian from."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        with contextlib.suppress(OSError):
            for line in source.read_text().splitlines():
                found = re.match(r"(?:deb(?:\s+\[.*?\])?|URIs:)\s+(https?://\S+/debian)/?(?:\s|$)", line)
                if found:
                    return found[1]
    return DEFAULT_MIRROR


@contextlib.contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Two labs that need the same system make it once: the second waits."""
    folder = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
