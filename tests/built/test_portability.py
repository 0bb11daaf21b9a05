"""Which libraries the programs need: a floor for glibc by the symbols that they import, and musl by a build that measures."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import SOURCES, Programs, Server, make

#: CentOS 7 and SLES 12: older systems have no Linux that the kernels' socket options know.
GLIBC_FLOOR = (2, 17)
#: Functions that every glibc has, and that got a new version of their symbol later: which one a program asks for follows from
#: the library that it was built with. A program is built on the cluster that runs it.
REVERSIONED = {
    "__libc_start_main": "2.34: start-up code",
    **dict.fromkeys(("stat", "fstat", "lstat", "fstatat", "mknod"), "2.33: were inline functions around __xstat()"),
    **dict.fromkeys(("fcntl64", "fcntl"), "2.28: with 64-bit offsets"),
    **dict.fromkeys(("pow", "exp", "log", "log2", "exp2"), "2.29: without the SVID error handler"),
    **dict.fromkeys(("fmod", "hypot"), "2.38: without the SVID error handler"),
    **dict.fromkeys(("strtol", "strtoul", "strtoull", "strtoll", "sscanf"), "2.38: binary numbers of C23, as __isoc23_*"),
    **dict.fromkeys(("dlopen", "dlsym", "dlclose", "dlerror", "sem_init", "sem_wait", "sem_post"), "2.34: moved into libc"),
}


def imports(program: Path) -> dict[str, tuple[int, ...]]:
    """The functions of glibc that a program asks for, each with the version of its symbol."""
    said = subprocess.run(["objdump", "-T", program], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"\*UND\*.*\(?GLIBC_([0-9.]+)\)?\s+(\w+)$", said, re.MULTILINE)
    assert len(rows) > 50, said
    return {name: tuple(int(part) for part in version.split(".")) for version, name in rows}


def too_new(found: dict[str, tuple[int, ...]]) -> list[str]:
    """Those that a system of the floor has not."""
    return sorted(
        name
        for name, version in found.items()
        if version > GLIBC_FLOOR and name.removeprefix("__isoc23_") not in REVERSIONED and not name.startswith("pthread_")
    )


@pytest.mark.promise("The kernels need no function of a glibc younger than 2.17.")
def test_no_function_is_younger_than_the_floor(programs: Programs) -> None:
    """memfd_create (2.27) and getrandom (2.25) were needed once, for 16 bytes and a lock."""
    assert too_new(imports(programs.net)) == []


def test_a_young_function_is_seen(tmp_path: Path) -> None:
    source = "#include <sys/random.h>\nint main(void) { char byte; return (int)getrandom(&byte, 1, 0); }\n"
    (tmp_path / "young.c").write_text(source)
    subprocess.run(["cc", "-o", tmp_path / "young", tmp_path / "young.c"], check=True)
    said = subprocess.run(["objdump", "-T", tmp_path / "young"], capture_output=True, text=True, check=True).stdout
    assert too_new({"getrandom": (2, 25), "read": (2, 2), "stat": (2, 33)}) == ["getrandom"]
    assert re.search(r"GLIBC_2\.25\)?\s+getrandom", said)


@pytest.fixture(scope="module")
def with_musl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hpcq-net against musl (Debian: musl-tools), with the system's headers of Linux."""
    base = tmp_path_factory.mktemp("musl")
    headers = base / "headers"
    headers.mkdir()
    triplet = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    for name in ("linux", "asm-generic"):
        (headers / name).symlink_to(f"/usr/include/{name}")
    (headers / "asm").symlink_to(f"/usr/include/{triplet}/asm")
    try:
        make("net", f"BUILD={base / 'built'}", "CC=musl-gcc", f"CFLAGS=-O2 -isystem {headers}")
    except RuntimeError as error:  # that it compiles is what is promised here
        pytest.fail(str(error))
    return base / "built" / "hpcq-net"


@pytest.mark.long
@pytest.mark.promise("The kernels compile and measure with musl.")
def test_measures_with_musl(with_musl: Path, programs: Programs, secret: Path) -> None:
    needed = subprocess.run(["readelf", "-d", with_musl], capture_output=True, text=True, check=True).stdout
    assert "libc.so]" in needed
    assert "libc.so.6" not in needed
    with Server(with_musl, secret) as server:
        for kernel in ("tcp_stream", "udp_pingpong"):
            done = server.run(kernel, duration_s=0.2, warmup_s=0.05)
            assert (done.rc, done.err) == (0, "")
            assert done.line["valid"]
    facts = subprocess.run([with_musl, "facts", "--interface", "lo"], capture_output=True, text=True, check=True).stdout
    assert '"libc":"not glibc"' in facts
    for text in ("--describe", "--help"):
        said = [
            subprocess.run([one, text], capture_output=True, text=True, check=True).stdout for one in (with_musl, programs.net)
        ]
        assert len({re.sub(r'"build_id":"\w+"', "", one) for one in said}) == 1


@pytest.mark.promise("A compiler for a 32-bit system refuses the kernels by name.")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="-m32 is a flag of compilers for x86")
def test_a_32_bit_system_is_refused() -> None:
    checked: list[str | Path] = [
        "cc",
        "-fsyntax-only",
        "-std=c11",
        '-DHPCQ_BUILD_ID="none"',
        "-I",
        SOURCES,
        SOURCES / "build_id.c",
    ]
    assert subprocess.run(checked, check=False).returncode == 0
    refused = subprocess.run([*checked, "-m32"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "need a 64-bit system" in refused.stderr
