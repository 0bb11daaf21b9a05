"""Limits of a process and places to write to: what a kernel cannot have or cannot write is told, and harms nothing."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import INSTANT, LIMIT_S, Programs, Server, children, state, wait_for, write_secret
from tests.kernels.test_kernels_control import measures, start

FULL = Path("/dev/full")


def limited(which: int, most: int) -> Callable[[], None]:
    """Before a program starts."""
    return lambda: resource.setrlimit(which, (most, most))


def run(command: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    """To its end."""
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False, **more)  # type: ignore[call-overload, no-any-return]


@pytest.mark.promise("More flows than a process may have files are refused at either end, with how many it may have.")
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_more_flows_than_files(server: Server, kernel: str) -> None:
    command = server.command(kernel, flow_count=1024, **INSTANT)
    done = run(command, stdout=subprocess.PIPE, preexec_fn=limited(resource.RLIMIT_NOFILE, 64))
    assert done.returncode == 4
    said = "flow_count: found 1024: allowed on this client: 40 (it may open 64 files, `ulimit -n`)"
    assert json.loads(done.stdout)["error"] == {"state": "open", "message": said}
    few = run(
        server.command(kernel, flow_count=40, **INSTANT), stdout=subprocess.PIPE, preexec_fn=limited(resource.RLIMIT_NOFILE, 64)
    )
    assert json.loads(few.stdout)["valid"], few.stderr


@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_a_server_says_that_it_has_too_few_files(programs: Programs, tmp_path: Path, kernel: str) -> None:
    few = tmp_path / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 64\nexec {programs.net} "$@"\n')
    few.chmod(0o755)
    with Server(few, write_secret(tmp_path / "secret")) as server:
        command = server.command(kernel, flow_count=1024, **INSTANT)
        done = run([str(programs.net), *command[1:]], stdout=subprocess.PIPE)
        assert done.returncode == 3
        assert "flow_count: found 1024: allowed on this server: 40 (it may open 64 files, `ulimit -n`)" in done.stderr
        assert server.serves()


@pytest.mark.promise("As many flows as an option allows fit under the soft limit that Linux gives a process.")
def test_a_soft_limit_is_no_limit(server: Server) -> None:
    def soft() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    options = {**INSTANT, "operation_count_max": 3000, "message_bytes": 1000}
    done = run(server.command("tcp_stream", flow_count=1024, **options), stdout=subprocess.PIPE, preexec_fn=soft)
    assert json.loads(done.stdout)["valid"], done.stderr


@pytest.mark.promise("A result that cannot be written is an error with its reason, also where standard output is closed.")
@pytest.mark.parametrize(
    ("words", "state"),
    [(["facts"], "facts"), (["--describe"], "hpcq-net"), (["tcp_pingpong", "--help"], "hpcq-net"), ([], "result")],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_printed_is_an_error(server: Server, words: list[str], state: str) -> None:
    command = [str(server.program), *words] if words else server.command("tcp_pingpong", **INSTANT)
    with FULL.open("w") as full:
        done = run(command, stdout=full)
    assert (done.returncode, done.stderr.startswith(f"error: {state}: write ")) == (4, True), done.stderr
    assert "(ENOSPC)" in done.stderr
    closed = run(["sh", "-c", '"$@" >&-', "sh", *command])
    assert (closed.returncode, closed.stderr.startswith(f"error: {state}: write ")) == (4, True), closed.stderr
    assert server.serves()


def test_a_server_that_cannot_say_where_it_listens_ends(programs: Programs, tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = run(
            [str(programs.net), "server", "--interface", "lo", "--secret-file", str(write_secret(tmp_path / "s"))], stdout=full
        )
    assert done.returncode == 4
    assert done.stderr == "error: server: write of where it listens: No space left on device (ENOSPC)\n"


@pytest.mark.promise("A device or a pipe that is named as a file is written to, and never replaced.")
def test_a_device_stays_a_device(server: Server, tmp_path: Path) -> None:
    device = tmp_path / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for flag, kernel in (("samples", "tcp_pingpong"), ("evidence", "tcp_pingpong")):
        assert server.run(kernel, f"--{flag}-file", str(device), **INSTANT).rc == 0
        assert stat.S_ISCHR(device.stat().st_mode)
    full = tmp_path / "full"
    os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    for flag in ("samples", "evidence"):
        done = server.run("tcp_pingpong", f"--{flag}-file", str(full), **INSTANT)
        assert (done.rc, done.line["error"]["state"]) == (4, flag)
        assert "(ENOSPC)" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "null", "secret"]


@pytest.mark.promise("A file that the limit of its size cuts off is an error, and no half file stays.")
def test_a_file_beyond_its_limit(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    command = server.command("tcp_pingpong", "--samples-file", str(folder / "samples"), **INSTANT)
    done = run(command, stdout=subprocess.PIPE, preexec_fn=limited(resource.RLIMIT_FSIZE, 0))
    assert done.returncode == 4
    error = {"state": "samples", "message": f"{folder}/samples: File too large (EFBIG)"}
    assert json.loads(done.stdout)["error"] == error
    assert list(folder.iterdir()) == []


@pytest.mark.promise("Ctrl-C and SIGTERM end a client whose standard output nobody reads.")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_full_pipe_holds_nobody(server: Server, number: signal.Signals) -> None:
    reader, writer = full_pipe()
    client = subprocess.Popen(server.command("tcp_pingpong", **INSTANT), stdout=writer, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: writes_to_standard_output(client.pid) or client.poll() is not None)
    client.send_signal(number)
    _, err = client.communicate(timeout=LIMIT_S)
    os.close(reader)
    os.close(writer)
    assert (client.returncode, err) == (4, "error: result: write of the result: Interrupted system call (EINTR)\n")


def test_a_pipe_that_does_not_block_gets_its_result_when_it_is_read(server: Server) -> None:
    reader, writer = full_pipe()
    os.set_blocking(writer, False)
    client = subprocess.Popen(server.command("tcp_pingpong", **INSTANT), stdout=writer, stderr=subprocess.DEVNULL)
    wait_for(lambda: children(server.process.pid))
    wait_for(lambda: not children(server.process.pid))  # it is measured
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().lstrip(b"x")
    assert client.wait(timeout=LIMIT_S) == 0
    assert json.loads(said)["valid"]


def full_pipe() -> tuple[int, int]:
    """One that takes no byte more until it is read: its ends to read and to write."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


def writes_to_standard_output(pid: int) -> bool:
    """A process that waits in write(1, ...)."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().startswith("1 0x1 ")
    return False


@pytest.mark.promise("`--timeout-s` ends a measurement whose requests under way take longer than that.")
def test_what_is_under_way_keeps_no_client_beyond_its_limit(server: Server) -> None:
    """Requests of 64 MiB to a server that is stopped amid them, so that only the client's own limit can end it."""
    many = {"message_bytes": 67108864, "outstanding_count": 256, "flow_count": 64}
    client = start(server, "tcp_pingpong", "--timeout-s", "5", duration_s=1, **many)
    wait_for(lambda: measures(client.pid))
    [session] = children(server.process.pid)
    os.kill(session, signal.SIGSTOP)
    try:
        out, _ = client.communicate(timeout=LIMIT_S)
    finally:
        os.kill(session, signal.SIGCONT)
    said = {"state": "measure", "message": "timed out: not all that is under way ended within the limit of 5 s"}
    assert (client.returncode, json.loads(out)["error"]) == (3, said)
    assert server.serves()


@pytest.mark.promise("A measurement during which an end stood still (SIGSTOP, a suspended job) is invalid, and says which end.")
@pytest.mark.parametrize("end", ["client", "server"])
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_pingpong", "memory_copy"])
def test_what_stood_still_is_no_measurement(server: Server, kernel: str, end: str) -> None:
    options = {"array_bytes": 1000000} if kernel == "memory_copy" else {}
    client = start(server, kernel, duration_s=5, **options)
    wait_for(lambda: measures(client.pid))
    stopped = client.pid if end == "client" else children(server.process.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: state(stopped) == "T")
    os.kill(stopped, signal.SIGCONT)
    out, _ = client.communicate(timeout=LIMIT_S)
    line = json.loads(out)
    reason = f"the {end} stood still during the measurement: its process was stopped and continued (SIGCONT)"
    assert (client.returncode, line["valid"], line["invalid_reason"]) == (1, False, reason)
    assert line["metrics"]["client_cpu_ns"] > 0, "what was measured is kept"
    assert server.run(kernel, **{**options, "duration_s": 0.1, "warmup_s": 0}).line["valid"], "it is forgotten then"
