"""Names with several addresses, and socket options over IPv6 as over IPv4."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import ADDRESSES_6, joined
from tests.kernels.kernel_programs import INSTANT, LIMIT_S, Programs, Server, unreported
from tests.kernels.test_kernels_tournament import QUICK, Tournament

SHORT: dict[str, Any] = dict(INSTANT)


def _twofold(folder: Path) -> list[str]:
    """Before a command: for it, the name `twofold` has an address where nobody listens, and 127.0.0.9 after it."""
    (folder / "hosts").write_text("127.0.0.1 twofold\n127.0.0.9 twofold\n")
    return ["unshare", "--mount", "sh", "-c", f"mount --bind '{folder}/hosts' /etc/hosts && exec \"$@\"", "sh"]


@pytest.mark.promise("An agent tries all addresses of a name as a client does, and says why the first of them cannot be had.")
@pytest.mark.lab
def test_an_agent_tries_all_addresses_of_a_name(programs: Programs, tmp_path: Path) -> None:
    made = Tournament(programs, tmp_path, "ab", QUICK, [("j1", "a", "b")])
    conducting = ["conductor", "--bind", "127.0.0.9", "--secret-file", str(made.secret)]
    files = ["--tournament", "tournament.txt", "--spool", "spool.jsonl", "--facts-dir", "."]
    command = [str(programs.net), *conducting, *files]
    made.conductor = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert made.conductor.stdout is not None
    port = made.conductor.stdout.readline().partition('"port":')[2].partition(",")[0]
    try:
        for node in "ab":
            place = ["--to", "twofold", "--port", port, "--secret-file", str(made.secret), "--interface", "lo"]
            words = [*_twofold(tmp_path), str(programs.net), "agent", *place, "--node", node]
            made.agents[node] = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert made.ended() == (0, "")
        assert made.lines["j1"]["rc"] == 0
        nobody = [word if word != port else "1" for word in words]
        refused = subprocess.run(nobody, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        unreported(refused.stderr)
        assert refused.returncode == 3
        assert "127.0.0.1 port 1" in refused.stderr, "what is said is of the address that is preferred, as a client says it"
    finally:
        made.end()


@pytest.mark.promise("Options of sockets over IPv6 are IPv6's own, and are read back as such.")
@pytest.mark.lab
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream", "tcp_pingpong", "udp_oneway"])
def test_socket_options_over_ipv6_are_read_back(programs: Programs, tmp_path: Path, kernel: str) -> None:
    asked = {"dscp": 46, "hop_limit_count": 33, "busy_poll_us": 50, "bind_device": "eth0"}
    more = {} if kernel.startswith("tcp") else {"do_not_fragment": True}
    with joined(tmp_path) as pair:
        words = {name: str(value).lower() if value is True else value for name, value in (asked | more).items()}
        line = pair.run(programs.net, kernel, six=True, **SHORT, **words).line
    assert line["valid"], line
    for end in ("client", "server"):
        assert line["evidence"][end]["address"] == ADDRESSES_6[end]
        assert {name: line["granted"][f"{end}_{name}"] for name in (*asked, *more)} == asked | more
        assert line["evidence"][end]["counters"]["snmp6.Ip6OutRequests"] > 0


@pytest.mark.lab
def test_a_hop_limit_over_ipv6_reaches_no_further(programs: Programs, tmp_path: Path) -> None:
    """No router lies between the two ends, so 1 is enough; DF holds over IPv6 too."""
    with joined(tmp_path) as pair:
        assert pair.run(programs.net, "udp_stream", six=True, hop_limit_count=1, **SHORT).rc == 0
        large = pair.run(programs.net, "udp_stream", six=True, message_bytes=1453, do_not_fragment="true", **SHORT)
        assert large.rc == 2
        found = "message_bytes: found 1453: allowed on this client: 1452 at most, which the path's MTU of 1500 has room for"
        assert large.err.startswith(f"error: warmup: {found} (EMSGSIZE)\n\nhint: ")


def test_busy_polling_is_read_back(server: Server) -> None:
    line = server.run("tcp_pingpong", busy_poll_us=50, **SHORT).line
    assert [line["granted"][f"{end}_busy_poll_us"] for end in ("client", "server")] == [50, 50]
    free = server.run("udp_pingpong", **SHORT).line
    standard = int(Path("/proc/sys/net/core/busy_read").read_text())
    assert [free["granted"][f"{end}_busy_poll_us"] for end in ("client", "server")] == [standard, standard]
    refused = server.run("tcp_pingpong", busy_poll_us=1_000_001)
    assert refused.rc == 2
    assert "busy_poll_us: found 1000001: allowed: integer 0 to 1000000 us" in refused.err
