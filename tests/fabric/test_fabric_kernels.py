"""hpcq-fabric over the providers of libfabric that any machine has: tcp, shm, udp and sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import joined
from tests.kernels.kernel_programs import ROOT, SOURCES, Ended, Programs, Server, ended, made_once, make, write_secret

#: Both ends may share one CPU with others: an exchange of two that spin takes milliseconds then. So the count ends it.
SHORT: dict[str, Any] = {"duration_s": 60, "warmup_s": 0.02, "operation_count_max": 40}
PROVIDERS = ["tcp", "shm", "udp;ofi_rxd", "sockets"]
KERNELS = ["fabric_pingpong", "fabric_stream"]
ONE_SIDED = ["fabric_write", "fabric_read", "fabric_atomic"]


def built(programs: Programs, *words: str) -> Path:
    """hpcq-fabric, in a folder beside hpcq-net, whose objects need not be compiled again."""
    folder = programs.folder.with_name(f"{programs.folder.name}-fabric")
    made_once(folder, "fabric", *words, beside=programs.folder)
    return folder / "hpcq-fabric"


@pytest.fixture(scope="module")
def fabric(programs: Programs) -> Path:
    return built(programs)


@pytest.fixture(scope="module")
def checked(sanitized: Programs) -> Path:
    """With the address and undefined-behaviour sanitizers, which look for leaks too."""
    return built(sanitized, "SANITIZED=yes")


@pytest.fixture
def served(fabric: Path, secret: Path) -> Iterator[Server]:
    with Server(fabric, secret) as running:
        yield running


def measured(done: Ended) -> dict[str, Any]:
    assert (done.rc, done.err) == (0, ""), done
    assert done.line["valid"] is True
    return done.line


def test_committed_description_is_the_programs(fabric: Path) -> None:
    said = subprocess.run([fabric, "--describe"], capture_output=True, text=True, check=True).stdout
    committed = json.loads((ROOT / "kernels" / "describe" / "hpcq-fabric.json").read_text())
    assert {**json.loads(said), "build_id": ""} == committed, "run `make describe`"


@pytest.mark.promise("fabric_pingpong and fabric_stream measure over tcp, shm, udp and sockets, and say which one they used.")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider(served: Server, kernel: str, provider: str) -> None:
    line = measured(served.run(kernel, "--interface", "lo", provider=provider, **SHORT))
    granted = line["granted"]
    for end in ("client", "server"):
        assert provider.split(";", maxsplit=1)[0] in granted[f"{end}_provider"].split(";"), granted
        assert granted[f"{end}_domain"] == ("shm" if provider == "shm" else "lo")
        assert granted[f"{end}_libfabric"].count(".") == 1
    metrics = line["metrics"]
    if kernel == "fabric_stream":
        assert metrics["sent_count"] == metrics["received_count"] > 1
        assert metrics["received_bytes"] == 65536 * metrics["received_count"]
        assert metrics["throughput_bps"] == pytest.approx(8 * 65536 * metrics["message_rate_pps"])
    else:
        assert 0 < metrics["round_trip_min_ns"] <= metrics["round_trip_p50_ns"] * 1.01 <= metrics["round_trip_max_ns"] * 1.02


#: Process 1 of a new namespace; its end kills the others. The second time, each process has the number that it had before.
KILLED_AND_AGAIN = """
PROGRAM server --interface lo --port PORT --secret-file SECRET >/dev/null 2>&1 &
sleep 1
PROGRAM fabric_pingpong --interface lo --to 127.0.0.1 --port PORT --secret-file SECRET --provider shm --warmup_s 0 $@ &
sleep 2
[ "$1" != --duration_s ] || exit 0
wait $!
"""


@pytest.mark.promise("What a killed process left in shared memory does not stop a later one of the same number.")
def test_memory_that_a_killed_process_left_is_in_nobodys_way(fabric: Path, secret: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    script = KILLED_AND_AGAIN.replace("PROGRAM", str(fabric)).replace("PORT", port).replace("SECRET", str(secret))
    words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    before = set(Path("/dev/shm").iterdir())
    try:
        subprocess.run([*words, "--duration_s", "60"], capture_output=True, timeout=60, check=False)
        left = set(Path("/dev/shm").iterdir()) - before
        assert left, "nothing was left, so this shows nothing"
        done = subprocess.run([*words, "--operation_count_max", "40"], capture_output=True, text=True, timeout=90, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["valid"] is True
    finally:
        for path in set(Path("/dev/shm").iterdir()) - before:
            path.unlink()


@pytest.mark.promise("fabric_write, fabric_read and fabric_atomic work on the server's memory, which is checked at the end.")
@pytest.mark.parametrize("kernel", ONE_SIDED)
@pytest.mark.parametrize("provider", ["tcp", "shm", "sockets"])
def test_one_sided_over_each_provider(served: Server, kernel: str, provider: str) -> None:
    line = measured(served.run(kernel, "--interface", "lo", provider=provider, **SHORT))
    metrics = line["metrics"]
    assert metrics["operation_count"] > 0
    assert 0 < metrics["completion_min_ns"] <= metrics["completion_max_ns"]
    if kernel != "fabric_atomic":
        assert metrics["received_bytes"] == metrics["sent_bytes"] == 65536 * metrics["operation_count"]


MANY: dict[str, Any] = {"endpoint_count": 5, "window_count": 12}


@pytest.mark.promise(
    "Fabric kernels spread operations over several endpoints, all of which are connected before the clock starts."
)
@pytest.mark.parametrize("kernel", ["fabric_stream", *ONE_SIDED])
@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_several_endpoints(served: Server, kernel: str, provider: str) -> None:
    """12 under way do not divide by 5. Unconnected, the first operation over each takes 0.3 s and more over tcp."""
    first = {**SHORT, "warmup_s": 0, "operation_count_max": 20}
    line = measured(served.run(kernel, "--interface", "lo", provider=provider, **first, **MANY))
    assert line["options"]["endpoint_count"] == 5
    metrics = line["metrics"]
    assert metrics.get("received_count", metrics.get("operation_count")) == 20
    if kernel != "fabric_stream":
        assert metrics["completion_max_ns"] < 250e6, metrics


def sockets_of(process: int) -> int:
    """The sockets that a process has open now."""
    found = 0
    for path in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += str(path.readlink()).startswith("socket:")
    return found


def test_each_endpoint_has_a_connection_of_its_own(served: Server) -> None:
    most = {}
    for count in (1, 5):
        command = served.command("fabric_stream", provider="tcp", endpoint_count=count, duration_s=1, warmup_s=0)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
            most[count] = 0
            while client.poll() is None:
                with contextlib.suppress(OSError):
                    most[count] = max(most[count], sockets_of(client.pid))
                time.sleep(0.02)
            assert client.returncode == 0, client.stderr.read() if client.stderr else ""
    assert most[5] - most[1] >= 4, most


@pytest.mark.promise("Messages of fabric kernels whose bytes did not arrive make an invalid result.")
@pytest.mark.parametrize("kernel", [*KERNELS, "fabric_write", "fabric_read"])
def test_bytes_that_did_not_arrive_are_noticed(
    fabric: Path, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    lies = tmp_path / "lies.so"
    source = Path(__file__).with_name("lies.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", lies, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(lies))
    with Server(fabric, secret) as running:
        done = running.run(kernel, provider="shm", message_bytes=65536, **{**SHORT, "warmup_s": 0})
    assert (done.rc, done.line["valid"]) == (1, False)
    assert " is not what " in done.line["invalid_reason"] or " was sent" in done.line["invalid_reason"]


def test_any_is_a_network_and_the_environment_narrows_it(fabric: Path, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FI_PROVIDER", "sockets")
    with Server(fabric, secret) as running:
        monkeypatch.delenv("FI_PROVIDER")  # the client takes what the server has
        granted = measured(running.run("fabric_pingpong", **SHORT))["granted"]
        assert (granted["client_provider"], granted["server_provider"]) == ("sockets", "sockets")
    with Server(fabric, secret) as running:
        granted = measured(running.run("fabric_pingpong", **SHORT))["granted"]
        assert granted["client_provider"] == granted["server_provider"] != "shm"


@pytest.mark.promise("The bytes of fabric_stream over tcp show in the counters of the interface at both ends.")
def test_bytes_over_tcp_are_in_the_interfaces_counters(fabric: Path, tmp_path: Path) -> None:
    with joined(tmp_path) as pair:  # on loopback, other tests send too
        line = measured(pair.run(fabric, "fabric_stream", provider="tcp", **SHORT))
        for end in ("client", "server"):
            counted = line["evidence"][end]["interface_bytes"]
            assert sum(counted.values()) > 0.9 * line["metrics"]["received_bytes"]
        line = measured(pair.run(fabric, "fabric_stream", provider="shm", message_bytes=1 << 20, **SHORT))
        assert sum(line["evidence"]["client"]["interface_bytes"].values()) < 0.5 * line["metrics"]["received_bytes"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("fabric_pingpong", {"message_bytes": 0, "provider": "tcp"}),
        ("fabric_pingpong", {"message_bytes": 70000, "inject": "false", "provider": "tcp", "wait_by": "sleep"}),
        ("fabric_pingpong", {"message_bytes": 300, "buffers": "cold", "registration": "each", "provider": "shm"}),
        ("fabric_stream", {"message_bytes": 0, "provider": "tcp", "window_count": 1}),
        ("fabric_stream", {"message_bytes": 1000, "provider": "tcp", "wait_by": "sleep", "direction": "server_to_client"}),
        ("fabric_stream", {"message_bytes": 100000, "buffers": "cold", "registration": "each", "window_count": 7}),
        ("fabric_stream", {"message_bytes": 5000, "provider": "shm", "buffer_offset_bytes": 16, "operation_count_max": 37}),
        ("fabric_stream", {"message_bytes": 30000, "provider": "udp;ofi_rxd", "operation_count_max": 20}),
        ("fabric_stream", {"message_bytes": 3000, "provider": "tcp", "endpoint_count": 3, "window_count": 7}),
    ],
)
def test_every_way_is_clean(checked: Path, secret: Path, kernel: str, options: dict[str, Any]) -> None:
    with Server(checked, secret) as running:
        line = measured(running.run(kernel, **{**SHORT, **options}))
    if kernel == "fabric_stream":
        assert line["metrics"]["received_count"] == options.get("operation_count_max", SHORT["operation_count_max"])
    assert line["options"]["message_bytes"] == options["message_bytes"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("fabric_write", {"message_bytes": 0, "provider": "tcp"}),
        ("fabric_write", {"completion": "transmit", "provider": "tcp", "wait_by": "sleep"}),
        ("fabric_write", {"buffers": "cold", "registration": "each", "provider": "shm", "operation_count_max": 33}),
        ("fabric_read", {"message_bytes": 100001, "buffer_offset_bytes": 16, "provider": "tcp", "window_count": 1}),
        ("fabric_read", {"buffers": "cold", "registration": "each", "provider": "shm", "operation_count_max": 33}),
        ("fabric_atomic", {"operation": "add", "window_count": 8, "provider": "shm", "operation_count_max": 100}),
        ("fabric_atomic", {"window_count": 8, "provider": "tcp", "endpoint_count": 3}),
    ],
)
def test_every_way_of_one_sided_is_clean(checked: Path, secret: Path, kernel: str, options: dict[str, Any]) -> None:
    with Server(checked, secret) as running:
        line = measured(running.run(kernel, **{**SHORT, **options}))
    assert line["metrics"]["operation_count"] == options.get("operation_count_max", SHORT["operation_count_max"])


@pytest.mark.long
def test_a_message_of_a_gibibyte(served: Server) -> None:
    options = {"message_bytes": 1 << 30, "provider": "shm", "operation_count_max": 2, "warmup_s": 0, "duration_s": 60}
    line = measured(served.run("fabric_stream", window_count=1, **options))
    assert line["metrics"]["received_bytes"] == 2 << 30


def test_a_sweep(served: Server) -> None:
    done = served.run("fabric_pingpong", provider="tcp", message_bytes=0, sweep_to_bytes=4, **SHORT)
    assert [one["options"]["message_bytes"] for one in done.line["sizes"]] == [0, 1, 2, 4]
    assert all(one["valid"] for one in done.line["sizes"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"provider": "opx"}, "provider: found opx, which libfabric does not have for this on the server: allowed: tcp shm"),
        ({"provider": "shm", "wait_by": "sleep"}, "wait_by: found sleep: allowed with shm: spin"),
    ],
)
def test_what_this_node_has_not(served: Server, options: dict[str, Any], said: str) -> None:
    done = served.run("fabric_stream", **options, **SHORT)
    assert done.rc == 3
    assert said in done.line["error"]["message"]


@pytest.mark.promise("What libfabric would crash in is refused, with what is allowed instead.")
def test_what_crashes_in_libfabric_is_refused(served: Server) -> None:
    done = served.run("fabric_atomic", provider="udp;ofi_rxd", **SHORT)
    assert done.rc == 2
    assert "operation: found fetch_add, in which libfabric's udp;ofi_rxd crashes: allowed: add" in done.err
    measured(served.run("fabric_atomic", provider="udp;ofi_rxd", operation="add", **SHORT))


def test_a_peer_that_dies_ends_the_measurement(fabric: Path, secret: Path) -> None:
    """Nothing closes a connection of ours: the control channel tells."""
    with Server(fabric, secret) as running:
        command = running.command("fabric_pingpong", provider="shm", duration_s=60, warmup_s=0)
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # The first child may be the one that only asks libfabric what there is: end each until the session's was one.
            children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
            while client.poll() is None:
                for child in children.read_text().split():
                    with contextlib.suppress(OSError):  # it may have ended meanwhile
                        if "fabric" in Path(f"/proc/{child}/maps").read_text():
                            os.kill(int(child), 9)
            out, _ = client.communicate(timeout=30)
        finally:
            client.kill()
    assert client.returncode == 3
    assert json.loads(out)["valid"] is False


@pytest.mark.long
@pytest.mark.promise(
    "An end of a fabric kernel whose peer was killed leaves its node within seconds, also where libfabric does not return."
)
def test_an_end_does_not_outlive_a_peer_that_held_a_lock(fabric: Path, secret: Path) -> None:
    """Reading over shm, a client that is killed nearly always holds the lock that the server then waits for."""
    with Server(fabric, secret) as running:
        command = running.command("fabric_read", provider="shm", duration_s=60, warmup_s=0)
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)  # by then it reads
        client.kill()
        client.wait()
        until = time.monotonic() + 30
        while children.read_text().split() and time.monotonic() < until:
            time.sleep(0.1)
        assert children.read_text().split() == []


def test_without_libfabric_make_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="hpcq-fabric needs libfabric: pkg-config does not find it"):
        make("fabric", f"BUILD={tmp_path}", "LIBFABRIC=")
    assert "rdma" not in make("net", "-n", f"BUILD={tmp_path}", "LIBFABRIC=")


def test_agents_and_a_conductor(fabric: Path, tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "secret")
    lines = ["tournament 1", "node a", "node b", "test 1 fabric_stream 20", "option duration_s 60", "option warmup_s 0"]
    lines += ["option operation_count_max 40"]
    lines += ["option provider tcp", "test 2 tcp_stream 10", "step 1 1 1", "match j00001 a b"]
    (tmp_path / "tournament.txt").write_text("\n".join(lines) + "\n")
    words = ["--secret-file", str(secret)]
    files = ["--tournament", "tournament.txt", "--spool", "spool.jsonl"]
    conduct = [str(fabric), "conductor", "--interface", "lo", *words, *files]
    conductor = subprocess.Popen(conduct, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert conductor.stdout is not None
    port = json.loads(conductor.stdout.readline())["ready"]["port"]
    agent = [str(fabric), "agent", "--to", "127.0.0.1", "--port", str(port), "--interface", "lo", *words]
    agents = [subprocess.Popen([*agent, "--node", node], cwd=tmp_path, stdout=subprocess.PIPE, text=True) for node in "ab"]
    try:
        assert conductor.wait(timeout=60) == 0
    finally:
        for one in (conductor, *agents):
            one.kill()
            one.communicate()
    [line] = [json.loads(one) for one in (tmp_path / "spool.jsonl").read_text().splitlines() if '"result"' in one]
    assert (line["result"]["kernel"], line["result"]["valid"]) == ("fabric_stream", True)


def test_the_sources_are_of_this_program_only() -> None:
    """hpcq-net needs libc alone: nothing that it is made of includes libfabric."""
    users = {path.parent.name for path in SOURCES.rglob("*.[ch]") if "<rdma/" in path.read_text()}
    assert users == {"fabric"}


def test_help_names_the_kernels(fabric: Path) -> None:
    done = ended([str(fabric), "nosuch"])
    assert done.rc == 2
    assert all(kernel in done.err for kernel in (*KERNELS, *ONE_SIDED))
