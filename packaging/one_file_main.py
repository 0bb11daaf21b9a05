"""How one-file hpcq starts: `python3 hpcq.pyz ...`. It becomes the archive's __main__.py; standard library only.

    hpcq.pyz --unpacked once--> <cache>/hpcq/one-file/<build>/ --PYTHONPATH--> python3 -P -m hpcq ...

Compiled parts of libraries and the C sources must lie in a file system. What is unpacked is used only if it belongs to
the user and nobody else can change it. Whatever hpcq starts finds the modules by PYTHONPATH; what must outlive its
environment, like a crontab's line, starts the archive, whose path HPCQ_ONE_FILE has.
"""

import json
import os
import platform
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NoReturn


def refuse(message: str, hint: str) -> NoReturn:
    """End with an error as hpcq's own are."""
    print(f"error: {message}", file=sys.stderr)
    print(f"hint: {hint}", file=sys.stderr)
    sys.exit(1)


def secured(folder: Path) -> None:
    """Refuse a folder that somebody else owns or can change."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        refuse(
            f"{folder}: owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}: must be a folder of yours that nobody else"
            " can write to",
            "remove it, or name another place in XDG_CACHE_HOME",
        )


def unpacked(archive: Path, build: str) -> Path:
    """Return the folder that holds the archive's modules, unpacked by this start or an earlier one."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcq" / "one-file"
        folder = base / build
        if not folder.exists():
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            secured(base)
            # aside first: what bears the name is whole
            aside = Path(tempfile.mkdtemp(prefix=f".{build}.", dir=base))
            try:
                with zipfile.ZipFile(archive) as file:
                    file.extractall(aside, [name for name in file.namelist() if name.startswith("site/")])
                try:
                    (aside / "site").rename(folder)
                except OSError:
                    if not folder.is_dir():  # else another start was faster
                        raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except (OSError, RuntimeError) as error:
        refuse(f"{archive.name}: cannot be unpacked: {error}", "XDG_CACHE_HOME names a folder with 150 MB of room")
    secured(base)
    secured(folder)
    sys.path.insert(0, f"{archive}/site")  # this far nothing but the archive is trusted
    from hpcq.strangers import stranger

    if words := stranger(folder):
        refuse(f"{words}: what is unpacked below it would run", "XDG_CACHE_HOME names another place")
    return folder


def main() -> NoReturn:
    """Start hpcq with the command line as it is."""
    archive = Path(sys.argv[0]).resolve()
    with zipfile.ZipFile(archive) as file:
        made = json.loads(file.read("made.json"))
    here = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "machine": platform.machine()}
    if here != {name: made[name] for name in here}:
        refuse(
            f"{archive.name}: Python {here['python']} on {here['machine']}: must be Python {made['python']} on"
            f" {made['machine']}, for which it was made",
            f"python{made['python']} {archive.name} ..., or make one here: make one-file",
        )
    paths = [str(unpacked(archive, made["build"])), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["HPCQ_ONE_FILE"] = str(archive)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "hpcq", *sys.argv[1:]])


main()
