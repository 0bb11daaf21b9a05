"""A root file system of another Debian release, for a cluster whose software is newer or older than this machine's.

mmdebstrap, a debootstrap that lets apt fetch everything at once, makes it. It stays in a cache folder, because making
it takes a minute and some hundred megabytes:

    /var/cache/hpcq-lab/trixie/            the root file system
    /var/cache/hpcq-lab/trixie.packages    the requested packages, written last: without it the folder is not complete

Its packages come from the same place as those of this machine's apt. Everything runs in separate mount and PID
namespaces, so an interrupted build leaves no mount and no process.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import LabError
from processes import ENVIRONMENT, run

SYSTEMS = ("host", "trixie", "sid")
CACHE_FOLDER = Path("/var/cache/hpcq-lab")
BUILD_TIMEOUT_S = 1800
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# Nobody reads manuals on a node, and nothing there must survive a power cut.
NOT_UNPACKED = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/i18n/*")


def root_of(system: str, cache: Path) -> Path:
    """The root file system of `host` or of a release; makes it if it does not exist."""
    if system == "host":
        return Path("/")
    packages = Path(__file__).with_name(f"packages-{system}.txt").read_text()
    cache.mkdir(parents=True, exist_ok=True)
    root, mark = cache / system, cache / f"{system}.packages"
    with _lock(cache):
        if not (mark.exists() and mark.read_text() == packages):
            if shutil.which("mmdebstrap", path=ENVIRONMENT["PATH"]) is None:
                raise LabError(
                    f"lab up: not found on this machine: mmdebstrap, which makes the system {system}",
                    "apt-get install --no-install-recommends mmdebstrap debian-archive-keyring",
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
    options = ["--mode=root", "--variant=essential", "--format=directory", f"--include={','.join(packages)}"]
    # sid's lists expire after a week, and a mirror may stand still for longer; their signature is checked all the same.
    settings = ('APT::Install-Recommends "false"', 'Acquire::Check-Valid-Until "false"', *_proxies())
    options += [f"--aptopt={line}" for line in settings]
    options += ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={pattern}" for pattern in NOT_UNPACKED)]
    command = [*separate, "mmdebstrap", *options, release, str(root), f"deb {_mirror()} {release} main"]
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
    """The address from which this machine's apt gets this machine's own release."""
    own = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    targets = run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"], "apt's sources"
    )
    for line in targets.splitlines():
        release, component, uri = line.split(maxsplit=2)
        if own is not None and release == own[1] and component == "main":
            return uri
    raise LabError(
        f"apt's sources: found none of main of this machine's own release {own[1] if own else ''}: one is needed",
        "the other release comes from the same place; apt-get indextargets lists what apt knows",
    )


def _proxies() -> list[str]:
    """The proxies of this machine's apt, as options for the apt that fills the new root."""
    settings = run(["apt-config", "dump", "--format", '%F "%v"%n', "Acquire"], "apt's settings")
    return [line for line in settings.splitlines() if re.match(r'Acquire::\S*proxy\S* "[^"]', line, re.IGNORECASE)]


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Hold a lock, so that two labs that need the same system make it once: the second waits."""
    folder = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
