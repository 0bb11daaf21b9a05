"""What the kernels refuse, and in which words."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hpcq.kernels import own_kernel
from tests.definition.test_campaign_tests import RELATED
from tests.kernels.kernel_namespaces import inside, joined, namespace_of
from tests.kernels.kernel_programs import INSTANT, SOURCES, Programs, Server, ended
from tools import kernel_reference


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("udp_pingpong", {"message_bytes": 65536}, "message_bytes: found 65536: allowed: integer 16 to 65507 bytes"),
        ("udp_stream", {"message_bytes": 15}, "message_bytes: found 15: allowed: integer 16 to 65507 bytes"),
        ("tcp_stream", {"message_bytes": "1e3.5"}, "message_bytes: found 1e3.5: allowed: integer 1 to 67108864 bytes"),
        ("tcp_stream", {"duration_s": "inf"}, "duration_s: found inf: allowed: number 0.001 to 604800 s"),
        ("tcp_stream", {"no_delay": 2}, "no_delay: found 2: allowed: true or false"),
        ("udp_stream", {"pacing": "slow"}, "pacing: found slow: allowed: one of sleep spin"),
    ],
)
def test_out_of_range_is_usage(server: Server, kernel: str, options: dict[str, object], message: str) -> None:
    done = server.run(kernel, **options)
    assert done.rc == 2
    assert done.err.startswith(f"error: {kernel}: {message}")
    assert (done.line["valid"], done.line["exit_code"], done.line["metrics"]) == (False, 2, {})
    assert done.line["error"] == {"state": kernel, "message": message}


@pytest.mark.parametrize(
    ("name", "options", "option", "said"), [row for row in RELATED if own_kernel(row[0]).program == "hpcq-net"]
)
def test_the_program_refuses_what_check_refuses(
    server: Server, name: str, options: dict[str, object], option: str, said: str
) -> None:
    done = server.run(name, **options)
    assert done.rc == 2
    assert done.err.startswith(f"error: {name}: {option}: found {said.partition(':')[0]}: allowed: ")
    assert server.serves()


def test_unknown_words_name_the_valid_ones(server: Server, programs: Programs) -> None:
    done = server.run("tcp_stream", mesage_bytes=5)
    assert done.rc == 2
    assert "--mesage_bytes: unknown: allowed:" in done.err
    assert "--message_bytes" in done.err
    verb = subprocess.run([programs.net, "tcp_strem"], capture_output=True, text=True, check=False)
    assert verb.returncode == 2
    assert "tcp_stream" in verb.stderr
    assert server.run("tcp_stream", "--interface", "nope0").rc == 2


def test_what_cannot_be_set_is_an_error_that_names_it(server: Server) -> None:
    for end, rc in (("client", 2), ("server", 3)):
        done = server.run("tcp_stream", **{**INSTANT, f"{end}_cpu_index": 8191})
        assert done.rc == rc
        assert f"{end}_cpu_index: found 8191: allowed on this {end}: -1, or one of the CPUs " in done.err
        assert "hint: `taskset" in done.err
    done = server.run("tcp_stream", congestion_control="no_such", **INSTANT)
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert done.rc in (2, 3)  # whichever end says it first
    assert f"congestion_control: found no_such: allowed on this {'client' if done.rc == 2 else 'server'}: system" in done.err
    assert all(name in done.err for name in available)


@pytest.mark.promise("A socket option is set again on the connection that the server accepts, and read back there.")
def test_a_cork_holds_small_messages_back(server: Server) -> None:
    """The kernel keeps a segment that is not full for 200 ms (tcp(7)), here once each way."""
    quick = server.run("tcp_pingpong", operation_count_max=3, duration_s=20, warmup_s=0).line
    held = server.run("tcp_pingpong", tcp_cork="true", operation_count_max=3, duration_s=20, warmup_s=0).line
    assert quick["metrics"]["round_trip_p50_ns"] < 100e6
    assert held["metrics"]["round_trip_min_ns"] > 300e6
    assert held["granted"]["client_tcp_cork"] is held["granted"]["server_tcp_cork"] is True


@pytest.mark.promise("What the system granted is read at the end, when auto-tuned buffers have grown.")
def test_auto_tuned_buffers_are_read_at_the_end(server: Server) -> None:
    line = server.run("tcp_stream", duration_s=0.5, warmup_s=0.2).line
    granted = line["granted"]
    grown = [
        granted[f"{end}_{which}_buffer_bytes"] > granted[f"{end}_{which}_buffer_at_connect_bytes"]
        for end, which in (("client", "send"), ("server", "receive"))
    ]
    assert any(grown), granted


def test_too_short_is_measured_but_invalid(server: Server) -> None:
    done = server.run("tcp_stream", message_bytes=1, operation_count_max=1, duration_s=1, warmup_s=0)
    assert done.rc == 1
    assert done.line["valid"] is False
    assert done.line["exit_code"] == 1
    assert "too short" in done.line["invalid_reason"]
    assert done.line["error"] is None


def test_functions_are_of_the_agreed_size() -> None:
    sources = sorted(SOURCES.rglob("*.[ch]"))
    assert len(sources) > 80
    for path in sources:
        lines = path.read_text().splitlines()
        start = None
        for number, line in enumerate(lines):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                assert number - start < 60, f"{path.name}:{start}"
                start = None


def test_the_page_has_every_option_and_metric() -> None:
    page = kernel_reference.PAGE.read_text()
    assert kernel_reference.with_reference(page) == page, "run python -m tools.kernel_reference"
    assert "| `round_trip_p999_ns` | lower |" in page


def named(said: str) -> bool:
    """Whether an error says what was found, what is allowed, and gives a hint."""
    return bool(re.search(r": found \S.*: allowed\b.*: \S", said)) and "\n\nhint: " in said


@pytest.mark.promise("What a system refuses of an option is said with what was found, what is allowed, and a hint.")
def test_what_the_system_refuses_is_said_with_what_it_takes(programs: Programs, tmp_path: Path) -> None:
    """Both ends without a right, as most are on a cluster."""
    powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    with joined(tmp_path) as pair:
        inside("client", "ip", "link", "add", "apart", "type", "veth", "peer", "name", "far")
        controls = {
            which: inside("server", "cat", f"/proc/sys/net/ipv4/tcp_{which}_congestion_control").split()
            for which in ("available", "allowed")
        }
        kept = next((one for one in controls["available"] if one not in controls["allowed"]), "no_such")
        with pair.serving(programs.net, by=powerless) as place:

            def said(kernel: str, **options: object) -> str:
                given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
                command = [*powerless, str(programs.net), kernel, *place, "--duration_s", "0.2", "--warmup_s", "0", *given]
                done = ended(["ip", "netns", "exec", namespace_of("client"), *command])
                assert done.rc in (2, 3), done.err
                assert named(done.err), done.err
                return done.err

            assert "found port 5: allowed: 1024 and more" in said("tcp_stream", source_port_first_no=5)
            assert "found port 5: allowed: 1024 and more" in said("udp_pingpong", source_port_first_no=5)
            refused = said("tcp_stream", congestion_control=kept)
            assert f"congestion_control: found {kept}: allowed on this server: system {controls['allowed'][0]}" in refused
            for kernel in ("udp_stream", "udp_oneway", "udp_pingpong", "udp_dispersion"):
                found = said(kernel, message_bytes=3000, do_not_fragment="true")
                assert "message_bytes: found 3000: allowed on this client: 1472 at most" in found
            found = said("udp_stream", message_bytes=3000, gso_segment_count=4)
            assert "message_bytes: found 3000: allowed on this client: 1472 at most" in found
            for kernel in ("tcp_stream", "udp_stream"):
                assert "bind_device: found apart on the client, system on the server" in said(
                    kernel, client_bind_device="apart"
                )


@pytest.mark.parametrize("kernel", ["tcp_stream", "tcp_connect"])
def test_a_port_that_is_taken_is_named(server: Server, kernel: str) -> None:
    done = server.run(kernel, source_port_first_no=server.port, **INSTANT)
    assert (done.rc, f"found port {server.port}: allowed: a port that is not taken" in done.err) == (4, True), done.err
    assert named(done.err)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--to", "127.0.0.1", "--bind", "::1"], "bind: found ::1: allowed: an address of IPv4, as the server's is"),
        (["--to", "127.0.0.1", "--bind", "192.0.2.9"], "bind: found 192.0.2.9: allowed: an address of this node\n"),
        (["--to", "no host", "--bind", "::1"], "to: found no host: allowed: an address, or a name that this node knows ("),
    ],
)
def test_an_address_that_does_not_fit(programs: Programs, secret: Path, words: list[str], found: str) -> None:
    done = ended([str(programs.net), "tcp_stream", *words, "--port", "4711", "--secret-file", str(secret)])
    assert (done.rc, found in done.err) == (2, True), done.err
