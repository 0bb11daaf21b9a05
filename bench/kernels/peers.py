"""Our socket kernels against iperf3, nuttcp, sockperf, qperf, NetPIPE and a bare loop (floor.c), between two namespaces.

    python bench/kernels/peers.py [--cell tcp_stream_1]... [--idle free|held]... [--rounds 20 or 60]
                                  [--iperf3 PROGRAM] [--neper FOLDER] [--netperf FOLDER]

--neper and --netperf name folders with the programs that their sources make.
Client and server are pinned to one CPU each, congestion control is the same by route, every tool and every round has
processes of its own, and the order turns each round. Ours is as good where the whole interval of the paired ratio lies
above 0.97; rounds are added, to three times as many, until an interval is at most 3 % wide on either side and decides.
held: /dev/cpu_dma_latency at 0 keeps CPUs out of deep idle
states. Ping-pongs take 60 rounds: the median round trip of each tool moves by a third from one start to the next. A cell
replaces its own lines of bench/results/peers.json, so cells may be measured at different times.
"""

from __future__ import annotations

import contextlib
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import (
    NON_INFERIOR_RATIO,
    Claim,
    finish,
    is_narrow,
    non_inferior,
    paired,
    paired_difference,
    paired_ratio,
    parser,
    with_older,
)
from bench.support.kernel_tools import CELLS, UDP_BUFFER_BYTES, Cell, Figures, Given, Tool, tools_of
from tests.kernels.kernel_namespaces import ADDRESSES, Pair, inside, joined, namespace_of
from tests.kernels.kernel_programs import make

CONGESTION_CONTROL = "cubic"
LIMIT_S = 30.0
TRIES = 5
ROUNDS_FACTOR = 3
FLOOR = "bare loop"
WITHIN_NS = 300  # of the bare loop's median round trip
HIGHER = {"throughput_bps": "bit/s", "best_throughput_bps": "bit/s", "connection_rate_pps": "1/s"}
CPU = "cpu_per_byte_ns"  # of both ends
TRIALS = 7  # NetPIPE reports the best of so many
GSO_SEGMENTS, GSO_GAIN = 44, 8  # datagrams of 1472 bytes in one message; times the throughput of iperf3
FIRST_PORT, PORTS_PER_ROUND = 10000, 100


@contextlib.contextmanager
def idle_states(held: bool) -> Iterator[None]:
    """Hold every CPU out of the idle states that take time to leave, or leave them to the system."""
    with contextlib.ExitStack() as stack:
        if held:
            wish = stack.enter_context(Path("/dev/cpu_dma_latency").open("wb", buffering=0))
            wish.write(struct.pack("i", 0))
        yield


def same_congestion_control() -> None:
    """By route: the only place where it is set for tools that have no option for it."""
    for end, address in ADDRESSES.items():
        network = address.rsplit(".", 1)[0] + ".0/24"
        route = [network, "dev", "eth0", "proto", "kernel", "scope", "link", "src", address, "congctl", CONGESTION_CONTROL]
        inside(end, "ip", "route", "change", *route)


def cpus() -> dict[str, int]:
    """The CPU of each end."""
    allowed = sorted(os.sched_getaffinity(0))
    return {"server": allowed[0], "client": allowed[-1]}


def placed(end: str, words: list[str]) -> list[str]:
    """A command in the namespace and on the CPU of an end."""
    return ["ip", "netns", "exec", namespace_of(end), "taskset", "-c", str(cpus()[end]), *words]


def wait_until_ready(tool: Tool, server: subprocess.Popen[str]) -> None:
    """Until the tool's server has its port."""
    deadline = time.monotonic() + LIMIT_S
    flag = "-t" if tool.ready_protocol == "tcp" else "-u"
    while tool.port not in inside("server", "ss", "-Hlan", flag, "sport", "=", f":{tool.port}"):
        if server.poll() is not None:
            raise RuntimeError(f"{tool.name}: its server ended with {server.returncode}: `tools/packages bench` installs tools")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{tool.name}: the server does not listen")
        time.sleep(0.01)


def measured(tool: Tool, cell: Cell) -> Figures:
    """One run that counts: a tool that fails (NetPIPE's connection is reset now and then) runs again, and it is said."""
    for _ in range(TRIES - 1):
        try:
            return measured_once(tool, cell)
        except (RuntimeError, ValueError, subprocess.SubprocessError) as failed:
            print(f"again: {tool.name}: {failed}", file=sys.stderr)
    return measured_once(tool, cell)


def cpu_of_children_s() -> float:
    """CPU time of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured_once(tool: Tool, cell: Cell) -> Figures:
    """One run of a public tool or of the bare loop; of a stream, the CPU time of both ends from start to end, too."""
    before_s = cpu_of_children_s()
    with subprocess.Popen(
        placed("server", tool.server), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            wait_until_ready(tool, server)
            done = subprocess.run(placed("client", tool.client), capture_output=True, text=True, timeout=LIMIT_S, check=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=2)
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=5)
            server.kill()  # iperf3 may go on after the first signal, with a whole CPU
        said = server.stdout.read() if server.stdout else ""
    figures = tool.read(done.stdout, said)
    if not all(value > 0 for value in figures.values()):
        raise RuntimeError(f"{tool.name}: measured nothing: {figures}")
    if "throughput_bps" in figures and cell.protocol == "tcp":
        moved_bytes = figures["throughput_bps"] / 8 * cell.seconds
        figures[CPU] = (cpu_of_children_s() - before_s) * 1e9 / moved_bytes
    return figures


def ours(pair: Pair, program: Path, cell: Cell) -> Figures:
    """One run of our kernel, with its own server."""
    options: dict[str, Any] = {"message_bytes": cell.message_bytes, "duration_s": cell.seconds, "warmup_s": 0.1}
    options |= {f"{end}_cpu_index": cpu for end, cpu in cpus().items()}
    if cell.protocol == "udp" and cell.streams:
        options |= {"rate_bps": 0, "receive_buffer_bytes": UDP_BUFFER_BYTES}
    if cell.name == "udp_stream_gso":
        options |= {"gso_segment_count": GSO_SEGMENTS, "gro": "true"}
    if cell.flow_count > 1:
        options["flow_count"] = cell.flow_count
    if cell.name == "tcp_stream_small":
        options["read_bytes"] = cell.message_bytes
    kernel = f"{cell.protocol}_{'stream' if cell.streams else 'pingpong'}"
    if cell.name == "tcp_connect":
        kernel = cell.name
        del options["message_bytes"]
    samples = pair.secret.with_name("samples")
    words = [] if cell.streams or cell.name == "tcp_connect" else ["--samples-file", str(samples)]
    if cell.name == "tcp_stream_1":
        options["series_interval_ms"] = int(1000 * cell.seconds / TRIALS)
    ended = pair.run(program, kernel, *words, **options)
    metrics = ended.line["metrics"]
    if not ended.line["valid"]:
        raise RuntimeError(f"{kernel}: {ended.line['invalid_reason']}{ended.err}")
    if cell.name == "tcp_connect":
        return {"connection_rate_pps": metrics["connection_rate_pps"]}
    if cell.streams:
        cpu_ns = metrics["client_cpu_ns"] + metrics["server_cpu_ns"]
        cpu = {CPU: cpu_ns / metrics["received_bytes"]} if cell.protocol == "tcp" else {}
        return {"throughput_bps": metrics["throughput_bps"], "best_throughput_bps": best_bps(ended.line["series"]), **cpu}
    figures = {name: metrics[f"round_trip_{name}"] for name in ("mean_ns", "p50_ns", "p99_ns")}
    return {**figures, "best_mean_ns": best_mean_ns(np.fromfile(samples, dtype="<u8"))}


def best_mean_ns(samples_ns: np.ndarray[Any, np.dtype[np.uint64]]) -> float:
    """The lowest mean of seven equal parts of the round trips in their order, which is what NetPIPE tells."""
    each = len(samples_ns) // TRIALS
    return float(samples_ns[: each * TRIALS].reshape(TRIALS, each).mean(axis=1).min())


def best_bps(series: dict[str, Any]) -> float:
    """The fastest whole interval of a stream."""
    return max(float(one) for one in series["throughput_bps"] if one is not None)


def rounds_of(pair: Pair, programs: Path, cell: Cell, rounds: range, found: dict[str, list[Figures]], *, given: Given) -> None:
    """Every tool once per round, ours among them, added to what is found already; the order turns."""
    for number in rounds:
        tools = tools_of(cell, programs / "floor", FIRST_PORT + PORTS_PER_ROUND * number, given)
        turn: list[Tool | None] = [None, *tools]
        for tool in turn if number % 2 == 0 else reversed(turn):
            if tool is None:
                found["hpcq"].append(ours(pair, programs / "hpcq-net", cell))
            else:
                found[tool.name].append(measured(tool, cell))


def decided(claims: list[Claim]) -> bool:
    """Whether no goal is left open, nor met by an interval that is too wide."""
    return all(
        one.met is not None and is_narrow(one.ratio, one.ratio_low, one.ratio_high)
        for one in claims
        if one.goal and one.ratio is not None and one.ratio_low is not None and one.ratio_high is not None
    )


def measured_cell(pair: Pair, programs: Path, cell: Cell, idle: str, rounds: int, *, given: Given) -> list[Claim]:
    """The claims of a cell, after as many rounds as they need, three times `rounds` at most."""
    found: dict[str, list[Figures]] = defaultdict(list)
    for more in range(ROUNDS_FACTOR):
        rounds_of(pair, programs, cell, range(more * rounds, (more + 1) * rounds), found, given=given)
        claims = claims_of(cell, idle, found)
        if decided(claims):
            break
    return claims


def claims_of(cell: Cell, idle: str, found: dict[str, list[Figures]]) -> list[Claim]:
    """Ours beside each, metric by metric."""
    claims = []
    for name, figures in found.items():
        if name == "hpcq":
            continue
        for metric in figures[0]:
            mine, theirs = ([one[metric] for one in list_] for list_ in (found["hpcq"], figures))
            gain = GSO_GAIN if name == "iperf3" and cell.name == "udp_stream_gso" else 1.0
            claims.append(_claim(f"{cell.title}; idle states {idle}", metric, mine, name, theirs, gain=gain))
    return claims


def _claim(text: str, metric: str, mine: list[float], peer: str, theirs: list[float], *, gain: float) -> Claim:
    _, low, high = paired_ratio(mine, theirs)
    unit = HIGHER.get(metric, "ns")
    plain = paired(text, metric, unit, mine, peer=peer, theirs=theirs)
    higher = metric in HIGHER
    bound = NON_INFERIOR_RATIO * gain if higher else 1 / NON_INFERIOR_RATIO
    goal = f"whole interval {'at least' if higher else 'at most'} {bound:.3g}"
    met = non_inferior(low, high, gain=gain if higher else 1.0, higher_is_better=higher)
    if peer == FLOOR and metric == "p50_ns":
        # Round by round, as the ratios: the machine changes more between rounds than within one. From one start to the
        # next a round trip moves by thousands of ns, of the bare loop too, so its interval is what can be judged.
        middle, low, high = paired_difference(mine, theirs)
        told = f"{middle:.0f} ns ({low:.0f} to {high:.0f})"
        goal = f"interval of the difference, {told}, at most {WITHIN_NS} ns"
        met = True if high <= WITHIN_NS else False if low > WITHIN_NS else None
    return Claim(**{**{name: getattr(plain, name) for name in Claim.__slots__}, "goal": goal, "met": met})


def build(folder: Path) -> None:
    """hpcq-net as on a cluster, and the bare loop with the same compiler flags."""
    make("net", f"BUILD={folder}")
    source = Path(__file__).with_name("floor.c")
    subprocess.run(["cc", "-O2", "-std=c11", "-o", str(folder / "floor"), str(source)], check=True)


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, help="default: 20, of ping-pongs 60")
    options.add_argument("--cell", action="append", choices=[cell.name for cell in CELLS])
    options.add_argument("--idle", action="append", choices=["free", "held"])
    options.add_argument("--iperf3", default="iperf3", help="another iperf3 than the system's")
    options.add_argument("--neper", type=Path, help="folder with tcp_stream, tcp_rr and tcp_crr of neper")
    options.add_argument("--netperf", type=Path, help="folder with netperf and netserver")
    chosen = options.parse_args()
    given = Given(chosen.iperf3, chosen.neper, chosen.netperf)
    code = 0
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        build(folder)
        for cell in CELLS:
            if chosen.cell and cell.name not in chosen.cell:
                continue
            for idle in chosen.idle or ["free", "held"]:
                if cell.name == "tcp_connect" and not (given.neper or given.netperf):
                    continue
                with joined(folder) as pair, idle_states(idle == "held"):
                    same_congestion_control()
                    rounds = chosen.rounds or (20 if cell.streams else 60)
                    claims = measured_cell(pair, folder, cell, idle, 2 if chosen.quick else rounds, given=given)
                code |= finish("peers", claims if chosen.quick else with_older("peers", claims), quick=chosen.quick)
    return code


if __name__ == "__main__":
    sys.exit(main())
