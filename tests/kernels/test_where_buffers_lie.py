"""Where the buffers of the socket kernels lie: as asked for, as said, and truly, by the addresses of the calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import UserError
from tests.kernels.kernel_programs import INSTANT, SOURCES, Programs, Server, write_secret

#: Of each kernel: options, how much one call sends, and how much room one call gives.
OF_MESSAGES: dict[str, tuple[dict[str, Any], int, int]] = {
    "tcp_stream": ({}, 131072, 131072),
    "tcp_pingpong": ({"message_bytes": 2000}, 2000, 16384),
    "udp_stream": ({"rate_bps": 1e7}, 1452, 1453),
    "udp_pingpong": ({"message_bytes": 1200}, 1200, 1201),
    "udp_oneway": ({"message_bytes": 1200}, 1200, 1201),
}
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("buffers") / "buffers.so"
    source = Path(__file__).with_name("buffers.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.mark.promise("What is sent from and received into begins at a page, or so many bytes after it as was asked for.")
@pytest.mark.parametrize("kernel", OF_MESSAGES)
def test_buffers_begin_where_they_were_asked_to(
    programs: Programs, shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    found = {}
    asked, sent_bytes, received_bytes = OF_MESSAGES[kernel]
    monkeypatch.setenv("SENT", str(sent_bytes))
    monkeypatch.setenv("RECEIVED", str(received_bytes))
    for offset_bytes in (None, 16):
        said = tmp_path / f"said_{offset_bytes}"
        monkeypatch.setenv("LD_PRELOAD", str(shim))
        monkeypatch.setenv("BUFFERS", str(said))
        options = {} if offset_bytes is None else {"buffer_offset_bytes": offset_bytes}
        with Server(programs.net, write_secret(tmp_path / f"secret_{offset_bytes}")) as server:
            line = server.run(kernel, **INSTANT, **asked, **options).line
        monkeypatch.delenv("LD_PRELOAD")
        assert line["valid"], line["invalid_reason"]
        granted = {end: line["granted"][f"{end}_buffer_offset_bytes"] for end in ("client", "server")}
        found[line["options"]["buffer_offset_bytes"]] = (granted, set(said.read_text().splitlines()))
    assert found == {
        offset_bytes: ({"client": offset_bytes, "server": offset_bytes}, {f"SENT {offset_bytes}", f"RECEIVED {offset_bytes}"})
        for offset_bytes in (0, 16)
    }


def test_two_offsets_are_two_tests_of_a_campaign(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    head = "name: c\nclusters: [alpha]\npairs: all\ntests:\n- kernel: tcp_stream\n"
    path.write_text(head + "  matrix: {buffer_offset_bytes: [0, 16]}\n")
    assert [test.parameters["buffer_offset_bytes"] for test in read_campaign(path).tests] == [0, 16]
    path.write_text(head + "- kernel: tcp_stream\n  parameters: {buffer_offset_bytes: 0}\n")
    with pytest.raises(UserError, match="the same tcp_stream"):  # 0 is what a test without a word of it has
        read_campaign(path)


@pytest.mark.promise("Pages of the buffers are those that were asked for, or the result says so.")
def test_pages_are_those_that_were_asked_for(server: Server) -> None:
    """Where the system has huge pages they are huge; where it has none the result says so."""
    sizes = {"message_bytes": 4194304, "duration_s": 60, "warmup_s": 0, "operation_count_max": 20}
    small = server.run("tcp_stream", buffer_pages="small", **sizes).line
    huge = server.run("tcp_stream", buffer_pages="huge", **sizes).line
    for end in ("client", "server"):
        assert small["granted"][f"{end}_buffer_page_bytes"] == os.sysconf("SC_PAGE_SIZE")
        page_bytes = huge["granted"][f"{end}_buffer_page_bytes"]
        assert page_bytes >= 2 * os.sysconf("SC_PAGE_SIZE") or any(
            warning["name"] == "option_not_granted" and warning["message"].startswith(f"{end}: buffer_pages: ")
            for warning in huge["warnings"]
        )
        if HUGE.exists() and "[never]" not in HUGE.read_text():
            assert page_bytes >= 2 * os.sysconf("SC_PAGE_SIZE")


def test_memory_that_is_moved_lies_where_it_was_asked_to(server: Server) -> None:
    few: dict[str, Any] = {"array_bytes": 1_000_000, "duration_s": 0.05, "warmup_s": 0}
    for offset_bytes in (0, 16):
        line = server.run("memory_copy", buffer_offset_bytes=offset_bytes, **few).line
        assert line["valid"], line["invalid_reason"]
        assert [line["granted"][f"{end}_buffer_offset_bytes"] for end in ("client", "server")] == [offset_bytes] * 2


def test_an_offset_beyond_a_page_is_refused(server: Server) -> None:
    done = server.run("tcp_stream", buffer_offset_bytes=4096, **INSTANT)
    assert done.rc == 2
    assert "buffer_offset_bytes: found 4096: allowed: integer 0 to 4095 bytes" in done.err


def test_a_sanitizer_still_sees_who_writes_behind_a_buffer(tmp_path: Path) -> None:
    """The memory ends with the buffer wherever that begins: a byte more is an error that the sanitizer names."""
    source = tmp_path / "behind.c"
    source.write_text(
        '#include "base/placed.h"\n#include <stdlib.h>\n'
        "int main(int argc, char **argv)\n{\n"
        "    struct placed placed = placed_new(1000, (size_t)atoi(argv[1]), PAGES_SYSTEM);\n"
        "    placed.at[999 + argc - 2] = 1;\n    placed_free(&placed);\n    return 0;\n}\n"
    )
    program = tmp_path / "behind"
    flags = ["-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=address", "-I", str(SOURCES)]
    subprocess.run(["cc", *flags, "-o", program, source, SOURCES / "base" / "placed.c", "-lm"], check=True)
    for offset_bytes in ("0", "16"):
        assert subprocess.run([program, offset_bytes], check=False, capture_output=True).returncode == 0
        behind = subprocess.run([program, offset_bytes, "more"], check=False, capture_output=True, text=True)
        assert "heap-buffer-overflow" in behind.stderr
