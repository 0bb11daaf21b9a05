"""Kernels on a cluster: sources there, the cluster's own compiler and modules, a record of what came out.

    kernels/c --push--> <work>/<run>/<cluster>/src --make--> bin/hpcq-net, hpcq-fabric, hpcq-mpi --> build.json
                                                        ^  |
                                                  <work>/builds/<key>     programs with the same key are used again

The key is a digest of everything that affects a program: sources, compilers, flags, modules, C library, machine.
What a kept program must be, only this machine says: its sum lies in the state folder of the user who built it, and a
program that others could have put there is never run.

build.json is part of every result: compiler, flags, MPI and the binaries' sha256.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcq import assets, units
from hpcq.definition.model import AllocationKind, Campaign, Cluster
from hpcq.errors import HpcqError, StoreError
from hpcq.own_folder import entering, secure
from hpcq.run_folder.paths import write_text
from hpcq.transport import Here, Transport, quote

_SECTION = "=== hpcq "
#: The program that is built only where pkg-config finds libfabric.
FABRIC = "hpcq-fabric"
#: How many compilers run at once: a login node is shared with others.
_JOBS = 4


def build_kernels(cluster: Cluster, transport: Transport, root: str, programs: set[str]) -> dict[str, Any]:
    """Build `programs` (hpcq-net, hpcq-fabric, hpcq-mpi) below the folder `root` on the cluster, or use kept ones.

    Returns the content of build.json. Raises HpcqError that quotes the compiler when a program does not build.
    """
    secure(transport, cluster.name, [root], cluster.trusted)
    transport.push(assets.kernel_sources(), f"{root}/src", _source_names())
    done = transport.sh(_script(cluster, root, programs, _kept_sums()), timeout_s=600)
    said = _sections(done.text)
    for program in sorted(programs):
        if said.get(f"rc {program}", "").strip() != "0":
            raise _build_failed(cluster, program, said)
        _note_sum(f"{said[f'key {program}'].strip()}.{program}", said[f"sha256 {program}"].split()[0])
    described = {program: _describe(cluster, program, said[f"describe {program}"]) for program in sorted(programs)}
    return {
        "format": 1,
        "cluster": cluster.name,
        "root": root,
        "built_utc": units.utc_text(max(dt.datetime.fromtimestamp(int(said[f"made {one}"]), dt.UTC) for one in programs)),
        "kept": sorted(program for program in programs if said[f"make {program}"].startswith(_KEPT)),
        "host": said["host"].strip(),
        "modules": list(cluster.modules),
        "cc": cluster.compiler.cc,
        "compiler_version": said["cc"].strip(),
        "cflags": list(cluster.compiler.cflags),
        "flags": said["flags"].strip(),
        "libc_version": said["libc"].strip(),
        "mpi_compiler": cluster.mpi.compiler if cluster.mpi and "hpcq-mpi" in programs else None,
        "mpi_version": said["mpi"].strip() or None,
        "libfabric_version": said["libfabric"].strip() or None,
        "programs": {
            program: {"sha256": said[f"sha256 {program}"].split()[0], **described[program]} for program in sorted(programs)
        },
    }


def work_root(cluster: Cluster, name: str) -> str:
    """Return the folder on the cluster of a run, or of something else with this `name`."""
    return f"{work_base(cluster)}/{name}/{cluster.name}"


def account_folder(cluster: Cluster) -> str:
    """Return the folder on the cluster where all runs of this user keep what they take of it."""
    return f"{work_base(cluster)}/account/{cluster.name}"


def work_base(cluster: Cluster) -> str:
    """Return the folder on the cluster below which hpcq keeps everything."""
    base = cluster.work_directory or os.environ.get("XDG_CACHE_HOME") or str(assets.home() / ".cache")
    return f"{base.rstrip('/')}/hpcq"


def state_folder() -> Path:
    """Return the folder on this machine where hpcq keeps what belongs to a user, whatever cluster or run it is of."""
    return Path(os.environ.get("XDG_STATE_HOME") or assets.home() / ".local" / "state") / "hpcq"


#: A sum that nothing used for so long is forgotten: the next run builds its program again.
_SUM_KEPT_S = 180 * 86400.0
_SUM = re.compile(r"[0-9a-f]{64}")


def _kept_sums() -> dict[str, str]:
    """Return the SHA-256 of each program that this user built, by KEY.PROGRAM.

    Raises HpcqError if others can write where they lie.
    """
    folder = state_folder() / "builds"
    secure(Here(), "", [str(folder)])
    found = {}
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _SUM_KEPT_S:
                path.unlink()
            elif _SUM.fullmatch(text := path.read_text("utf-8", errors="replace").strip()):
                found[path.name] = text
    return found


def _note_sum(name: str, sha256: str) -> None:
    """Remember what a program of this user is, from now on. A failure only costs the next run its build time."""
    with contextlib.suppress(StoreError):
        write_text(state_folder() / "builds" / name, f"{sha256}\n", synced=False)


def check_description(build: dict[str, Any]) -> None:
    """Raise HpcqError if a built kernel is not the one against which the campaign was checked."""
    for program, facts in build["programs"].items():
        path = assets.kernel_descriptions() / f"{program}.json"
        ours = json.loads(path.read_text(encoding="utf-8"))
        if facts["kernels"] != ours["kernels"]:
            raise HpcqError(
                f"{build['cluster']}: {program}: its --describe is not that of {path.name}: other sources",
                "after a change to kernels/c, `make describe` writes what campaigns are checked against",
            )


def _source_names() -> list[str]:
    """Return only the sources: programs that a person built in the checkout stay here."""
    folder = assets.kernel_sources()
    found = [folder / "Makefile", *folder.glob("*.c"), *folder.glob("*/*.[ch]")]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def load_modules(cluster: Cluster) -> str:
    """Return shell lines that load the cluster's modules and set its environment; empty if it names none."""
    lines = ["command -v module >/dev/null 2>&1 || . /etc/profile"] if cluster.modules else []
    lines += [f"module load {quote(name)} || exit 3" for name in cluster.modules]
    lines += [f"export {name}={quote(value)}" for name, value in cluster.environment.items()]
    return "\n".join(lines)


def _script(cluster: Cluster, root: str, programs: set[str], sums: dict[str, str]) -> str:
    cc, cflags = quote(cluster.compiler.cc), quote(" ".join(cluster.compiler.cflags))
    mpicc = quote(cluster.mpi.compiler if cluster.mpi else "mpicc")
    # BUILD is relative: make takes a path with a blank for two files.
    make = f"make -C src -j {_JOBS} BUILD=../bin CC={cc} CFLAGS={cflags} MPICC={mpicc}"
    lines = [
        load_modules(cluster),
        entering(cluster.trusted),
        f"enter {quote(root)} own",
        "sums=" + quote("".join(f"{name} {sha256}\n" for name, sha256 in sorted(sums.items()))),
        f"builds={quote(f'{work_base(cluster)}/builds')}",
        _KEEPING,
        "section() { printf '%s%s\\n' '" + _SECTION + '\' "$1"; }',
        "section host; uname -n",
        f"section cc; {cc} --version 2>&1 | head -n 1",
        "section libc; ldd --version 2>/dev/null | head -n 1",
        f"section flags; echo {cflags}",
        "section mpi; :" if "hpcq-mpi" not in programs else f"section mpi; {_MPI_VERSION.replace('MPICC', mpicc)}",
        f"section libfabric; libfabric={_LIBFABRIC if FABRIC in programs else ''}",
        f"printf '%s' \"$libfabric\"; libpcap={_LIBPCAP}",
        f"section found; command -v {cc} >/dev/null 2>&1 && echo yes",
        "section all; missing=",
    ]
    for program in sorted(programs):
        target = program.removeprefix("hpcq-")
        compilers = f"{cc} {mpicc}" if target == "mpi" else cc
        libraries = f'"{"$libfabric" if program == FABRIC else ""}$libpcap"'
        lines.append(f"{target}=$(LIBRARIES={libraries} digest {cflags} {compilers})")
        lines.append(f'taken {program} ${target} || missing="$missing {target}"')
    # First all at once, so that every core compiles; then each by itself, which shows its result.
    lines.append(f'[ -z "$missing" ] || {make} -k $missing >/dev/null 2>&1')
    for program in sorted(programs):
        target = program.removeprefix("hpcq-")
        built = f"{make} {target} 2>&1; rc=$?; [ $rc -ne 0 ] || keep {program} ${target}"
        lines += [
            f"section 'make {program}'",
            f'case " $missing " in *" {target} "*) {built};; *) rc=0; echo "{_KEPT} $builds/${target}";; esac',
            f"section 'rc {program}'; echo $rc",
            f"section 'key {program}'; echo ${target}",
            f"section 'sha256 {program}'; sha256sum bin/{program}",
            f"section 'made {program}'; stat -c %Y bin/{program}",
            f"section 'describe {program}'; bin/{program} --describe 2>said || cat said",
        ]
    return "\n".join(lines)


_KEPT = "kept:"
#: The script keeps built programs below $builds, each in a folder with its digest as name: scratch file systems lose old
#: files. $sums says what each must be: what is kept there is copied first, and the copy is what is summed and run.
#:   digest CFLAGS COMPILER...   prints the digest of all that affects a program (a new static MPI has a new wrapper);
#:                               LIBRARIES: what it is linked with besides
#:   taken PROGRAM DIGEST        copies it from there; jobs may run the one in bin, so a rename puts it there
#:   keep PROGRAM DIGEST         puts it there; a failure only costs the next run its build time
_KEEPING = """\
digest() { (
    (cd src && find . -type f -exec sha256sum {} + | LC_ALL=C sort) 2>/dev/null
    printf '%s|' "$@" "$LDFLAGS" "$CPATH" "$C_INCLUDE_PATH" "$LIBRARY_PATH" "$LIBRARIES"
    uname -nm; ldd --version 2>/dev/null | head -n 1; shift
    for compiler in "$@"; do
        "$compiler" --version 2>&1; "$compiler" -show 2>/dev/null; stat -L -c '%n %s %Y' -- "$(command -v "$compiler")" 2>&1
    done
) | sha256sum | cut -c 1-32; }
taken() { (
    sum=$(printf '%s' "$sums" | while read -r name one; do [ "$name" != "$2.$1" ] || echo "$one"; done)
    [ -n "$sum" ] || exit 1
    copy=$PWD/bin/.$1.$$; mkdir -p -- bin
    (enter "$builds/$2" own && cp -p -- "$1" "$copy") && [ "$(sha256sum <"$copy" | cut -c 1-64)" = "$sum" ] &&
        mv -f -- "$copy" "bin/$1" || { rm -f -- "$copy"; exit 1; }
) >/dev/null 2>&1; }
keep() { (
    umask 077; from=$PWD/bin/$1; enter "$builds" own make
    new=$(mktemp -d -- ".new.XXXXXX") || exit 1
    cp -p -- "$from" "$new/" && rm -rf -- "./$2" && mv -T -- "$new" "$2"
    rm -rf -- "$new"
) >/dev/null 2>&1; }
"""
_LIBPCAP = "$(pkg-config --modversion libpcap 2>/dev/null)"  # without it no program captures
_LIBFABRIC = "$(pkg-config --modversion --libs libfabric 2>/dev/null)"
#: ompi_info gives the version of Open MPI, mpichversion that of MPICH; either may exist only beside the compiler.
_MPI_VERSION = (
    "{ MPICC --showme:version 2>/dev/null || MPICC -v 2>/dev/null | grep -i -m 1 'mpi.*version'"
    " || MPICC --version 2>/dev/null; } | head -n 1"
)


def _sections(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(_SECTION)[1:]:
        name, _, content = part.partition("\n")
        found[name] = content
    return found


class NotBuiltError(HpcqError):
    """A program that does not build, or does not start where it was built. words: why, on one line."""

    def __init__(self, message: str, hint: str, program: str, words: str) -> None:
        super().__init__(message, hint)
        self.program, self.words = program, words


def _describe(cluster: Cluster, program: str, text: str) -> dict[str, Any]:
    try:
        described = json.loads(text)
    except ValueError:
        words = f"{program} was built and does not start: {first_error(text)}"
        hint = "LD_LIBRARY_PATH or what else the library needs stands under environment, or in modules"
        raise NotBuiltError(f"{cluster.name}: {words}", hint, program, words) from None
    return {key: described[key] for key in ("version", "build_id", "kernels")}


_ERROR_LINE = re.compile(r"\berror\b(?! message)|not found|No such file|cannot|undefined|denied|fatal", re.IGNORECASE)


def first_error(output: str) -> str:
    """Return the first line of what a compiler or a program said that calls itself an error, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR_LINE.search(line)), lines[-1] if lines else "nothing was said")


def _build_failed(cluster: Cluster, program: str, said: dict[str, str]) -> NotBuiltError:
    output = said.get(f"make {program}", "").strip() or "nothing was said"
    # the plain compiler's flags are common to all programs
    mpi = program == "hpcq-mpi" and said.get("found", "").strip() == "yes"
    compiler = (cluster.mpi.compiler if cluster.mpi else "mpicc") if mpi else cluster.compiler.cc
    shown = "\n".join(output.splitlines()[-12:])
    if program == FABRIC and not said.get("libfabric", "").strip():
        hint = f"libfabric must be there with its headers: modules or environment (PKG_CONFIG_PATH) of {cluster.name}'s file"
    elif "not found" in output or "No such file" in output:
        hint = f"{compiler} must be on PATH there: name modules, compiler or mpi in the cluster file of {cluster.name}"
    else:
        hint = f"the compiler's words above say what it misses; hpcq cluster check {cluster.name} looks at the rest"
    words = f"does not build with {compiler}:"
    return NotBuiltError(
        f"{cluster.name}: {program}: {words}\n{shown}", hint, program, f"{program} {words} {first_error(output)}"
    )


def slim(build: dict[str, Any]) -> dict[str, Any]:
    """Return the content of build.json without the kernels' own tables."""
    programs = {name: {k: v for k, v in facts.items() if k != "kernels"} for name, facts in build["programs"].items()}
    return {**build, "programs": programs}


def write_build(build: dict[str, Any], path: Path) -> None:
    """Write build.json aside and rename it. It leaves out the kernels' own tables, which are the committed ones."""
    write_text(path, json.dumps(slim(build), indent=1) + "\n")


# ----------------------------------------------------------------------------------------------------------------------
# The MPI kernels once per toolchain: each below `toolchains/NAME` of the run's folder on the cluster.
#
# Each build is kept by sources, compiler and flags as the cluster's own is. Where one does not build, the file `failed`
# there has the reason, and the script gives it to each test of this toolchain; the others run.


#: The variables by which wrappers of Open MPI, MPICH and Intel MPI are told which compiler to use.
_COMPILER_VARIABLES = ("OMPI_CC", "MPICH_CC", "I_MPI_CC")


def build_toolchains(
    cluster: Cluster, transport: Transport, root: str, names: Sequence[str], *, alone: bool
) -> dict[str, dict[str, Any]]:
    """Build hpcq-mpi with each of these toolchains of the cluster.

    Returns the record of each, by name; {"toolchain", "failed": the reason} of one that does not build.
    alone: the campaign has no other tests. Raises HpcqError if then none builds.
    """
    found: dict[str, dict[str, Any]] = {}
    errors = []
    for name in names:
        folder = f"{root}/toolchains/{name}"
        reason = ""
        try:
            made = build_kernels(with_toolchain(cluster, name), transport, folder, {"hpcq-mpi"})
        except NotBuiltError as error:
            errors.append(error)
            reason = f"toolchain {name}: {error.words}"
            found[name] = {"toolchain": name, "failed": reason}
        else:
            check_description(made)
            found[name] = {**slim(made), "toolchain": name}
        _write_reason(cluster, transport, folder, reason)
    if alone and errors and len(errors) == len(names):
        raise errors[0]
    return found


def build_what_can(cluster: Cluster, transport: Transport, root: str, programs: set[str], campaign: Campaign) -> dict[str, Any]:
    """Build the programs of the cluster's own compiler. Where hpcq-mpi alone does not build, the tests of the others run.

    Returns the content of build.json, with `failed`, the reason, in that case. Raises HpcqError if another one does not
    build, or if the campaign's tests or its tournament need hpcq-mpi.
    """
    others = programs - {"hpcq-mpi"}
    try:
        made, reason = build_kernels(cluster, transport, root, programs), ""
    except NotBuiltError as error:
        if error.program != "hpcq-mpi" or not others or campaign.allocation.kind is not AllocationKind.PAIR:
            raise
        made, reason = build_kernels(cluster, transport, root, others), error.words
        made["failed"] = reason
    _write_reason(cluster, transport, root, reason)
    return made


def _write_reason(cluster: Cluster, transport: Transport, folder: str, reason: str) -> None:
    """Write why hpcq-mpi is not in a folder of the cluster; empty: it is."""
    written = transport.sh(f"{entering(cluster.trusted)}\nenter {quote(folder)} own\nprintf %s {quote(reason)} >failed")
    if written.returncode != 0:
        raise HpcqError(f"{cluster.name}: {folder}: {written.stderr.strip()}")


def with_toolchain(cluster: Cluster, name: str) -> Cluster:
    """The cluster as it is with this toolchain alone."""
    chosen = cluster.toolchains[name]
    return replace(
        cluster,
        compiler=chosen.compiler,
        mpi=chosen.mpi,
        modules=(*cluster.modules, *chosen.modules),
        environment={
            **cluster.environment,
            **dict.fromkeys(_COMPILER_VARIABLES, chosen.compiler.cc),
            **chosen.environment,
        },
    )
