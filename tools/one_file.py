"""`make one-file`: all that the wheel does in one file, build/hpcq.pyz, for the Python that makes it.

    requirements.lock + the wheel --uv--> site/ --> hpcq.pyz = #! line + zip of __main__.py, made.json, site/

Its name for unpacking is a digest of its content, so that two builds never share a folder. The same sources and lock make
the same file.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_MOMENT = (1980, 1, 1, 0, 0, 0)


def made(target: Path) -> Path:
    """Make the file. Raises CalledProcessError if uv cannot install what the lock names."""
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory() as made_in:
        site = Path(made_in) / "site"
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(site)]
        subprocess.run(
            [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", made_in, str(REPOSITORY)], check=True
        )
        [wheel] = Path(made_in).glob("*.whl")
        subprocess.run([*install, "--require-hashes", "--requirement", str(REPOSITORY / "requirements.lock")], check=True)
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)
        # commands that start by the path of the Python that made them, and libraries' own tests
        for unused in [site / "bin", *site.glob("*/tests"), *site.glob("*/*/tests"), *site.rglob("__pycache__")]:
            shutil.rmtree(unused, ignore_errors=True)
        _pack(site, target)
    return target


def _pack(site: Path, target: Path) -> None:
    # RECORD and direct_url.json have paths of this machine
    left_out = {"RECORD", "direct_url.json", "uv_cache.json", "INSTALLER", ".lock"}
    files = sorted(path for path in site.rglob("*") if path.is_file() and path.name not in left_out)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(site)}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    about = {"build": digest.hexdigest()[:24], "python": "{}.{}".format(*sys.version_info[:2]), "machine": platform.machine()}
    main = (REPOSITORY / "packaging" / "one_file_main.py").read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.part")
    with aside.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            contents = [("__main__.py", main), ("made.json", json.dumps(about, sort_keys=True).encode())]
            for name, content in [*contents, *((f"site/{path.relative_to(site)}", path.read_bytes()) for path in files)]:
                entry = zipfile.ZipInfo(name, _MOMENT)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, content)
    aside.chmod(0o755)
    aside.replace(target)


if __name__ == "__main__":
    print(made(Path(sys.argv[1] if len(sys.argv) > 1 else REPOSITORY / "build" / "hpcq.pyz")))
