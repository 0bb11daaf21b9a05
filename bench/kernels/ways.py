"""Ways to send and to receive that the socket kernels do not have, beside those that they have: do they pay?

    python bench/kernels/ways.py [--rounds 20]

io_uring with 32 sends a call; MSG_ZEROCOPY of datagrams, alone and with UDP_SEGMENT, towards a device that no copy is needed
for; TCP_ZEROCOPY_RECEIVE, where what came is read afterwards (a word of each cache line) and where it is not. Both ends have a
CPU of their own, every run has processes of its own, and the order turns each round. Figures for information, without a goal:
they say why a way is not built. CPU time is that of the process; of the receiver for receiving, of the sender for sending.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, claim, finish, paired, parser
from bench.kernels.peers import LIMIT_S, placed, same_congestion_control
from bench.support.kernel_tools import SERVER
from tests.kernels.kernel_namespaces import ADDRESSES, inside, joined

ROUNDS = 20
SECONDS = 0.5
ROOM_BYTES = 131072
FIRST_PORT = 21000
NOWHERE, NOWHERE_MAC = "10.90.0.2", "02:00:00:00:00:02"
MTUS = (1500, 4148, 9000)  # 4148: with heads of 52 bytes, each segment of TCP is a page


@dataclass(frozen=True)
class Run:
    """What one run brought."""

    moved_bytes: float
    cpu_ns: float
    told_bytes: float
    """Calls that were copied all the same, or bytes that came as pages."""

    @property
    def cpu_per_byte_ns(self) -> float:
        """CPU time of the end that is measured."""
        return self.cpu_ns / self.moved_bytes


def told(said: str) -> Run:
    """The one line of ways.c."""
    return Run(*map(float, said.split()))


def given(program: Path, way: tuple[str, str, int], address: str, port: int) -> Run:
    """A sender, to an end. way: how, the protocol, and how many bytes."""
    words = [str(program), "give", *map(str, way), address, str(port), str(SECONDS)]
    done = subprocess.run(placed("client", words), capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return told(done.stdout)


def wait_for_listener(port: int) -> None:
    """Until somebody listens there."""
    while f":{port}" not in inside("server", "ss", "-Hlnt", "sport", "=", f":{port}"):
        pass


def connected(program: Path, port: int, send: tuple[str, int], take: tuple[str, str]) -> tuple[Run, Run]:
    """A connection with a way for each end: what the sender and what the receiver says."""
    words = [str(program), "take", take[0], str(ROOM_BYTES), take[1], str(port)]
    with subprocess.Popen(placed("server", words), stdout=subprocess.PIPE, text=True) as server:
        try:
            wait_for_listener(port)
            sent = given(program, (send[0], "tcp", send[1]), SERVER, port)
            said, _ = server.communicate(timeout=LIMIT_S)
        finally:
            server.kill()
    return sent, told(said)


def nowhere() -> None:
    """A device at the client behind which every frame is dropped before anything would have to copy it."""
    inside("client", "ip", "link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")
    inside("client", "ip", "link", "set", "nowhere0", "up")
    inside("client", "ip", "address", "add", "10.90.0.1/24", "dev", "nowhere0")
    inside("client", "ip", "neighbor", "add", NOWHERE, "lladdr", NOWHERE_MAC, "dev", "nowhere0")


def mtu(size: int) -> None:
    """Of both ends."""
    for end in ADDRESSES:
        inside(end, "ip", "link", "set", "eth0", "mtu", str(size))
    same_congestion_control()


class Ports:
    """Each run has one that no closed connection holds."""

    def __init__(self) -> None:
        self.last = FIRST_PORT

    def next(self) -> int:
        """Another one."""
        self.last += 1
        return self.last


def in_turn(ways: dict[str, Callable[[], Run]], rounds: int) -> dict[str, list[Run]]:
    """Each way once a round."""
    found = defaultdict(list)
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else reversed(ways):
            found[name].append(ways[name]())
    return found


def beside(text: str, found: dict[str, list[Run]]) -> list[Claim]:
    """The first way is that of the kernels."""
    mine, *others = found
    own = [one.cpu_per_byte_ns for one in found[mine]]
    return [
        paired(
            f"{text}: {mine}", "CPU time a byte", "ns", own, peer=other, theirs=[one.cpu_per_byte_ns for one in found[other]]
        )
        for other in others
    ]


def sending(program: Path, ports: Ports, rounds: int) -> list[Claim]:
    """The sender's CPU time."""
    claims = []
    for message_bytes in (64, 1448, 131072):

        def tcp(way: str, size: int = message_bytes) -> Run:
            return connected(program, ports.next(), (way, size), ("read", "leave"))[0]

        ways = {"send()": lambda: tcp("send"), "io_uring, 32 a call": lambda: tcp("rings")}
        claims += beside(f"TCP, {message_bytes} bytes a message", in_turn(ways, rounds))

    def udp(way: str, size: int) -> Run:
        return given(program, (way, "udp", size), NOWHERE, ports.next())

    ways = {
        "send()": lambda: udp("send", 1472),
        "io_uring, 32 a call": lambda: udp("rings", 1472),
        "MSG_ZEROCOPY": lambda: udp("in_place", 1472),
    }
    claims += beside("UDP, datagrams of 1472 bytes", in_turn(ways, rounds))
    merged = {
        "UDP_SEGMENT": lambda: udp("segments", 44 * 1472),
        "UDP_SEGMENT and MSG_ZEROCOPY": lambda: udp("segments_in_place", 44 * 1472),
    }
    found = in_turn(merged, rounds)
    copied = sum(one.told_bytes for one in found["UDP_SEGMENT and MSG_ZEROCOPY"])
    return [
        *claims,
        *beside("UDP, 44 datagrams of 1472 bytes", found),
        claim("UDP, 44 datagrams of 1472 bytes: MSG_ZEROCOPY", "calls copied all the same", "calls", copied),
    ]


def receiving(program: Path, ports: Ports, rounds: int) -> list[Claim]:
    """The receiver's CPU time, and how much came."""
    claims = []
    for size in MTUS:
        mtu(size)
        for send in ("send", "in_place"):
            for touch in ("leave", "touch"):

                def tcp(take: str, send: str = send, touch: str = touch) -> Run:
                    return connected(program, ports.next(), (send, ROOM_BYTES), (take, touch))[1]

                found = in_turn({"recv()": lambda: tcp("read"), "TCP_ZEROCOPY_RECEIVE": lambda: tcp("map")}, rounds)
                text = (
                    f"TCP to an MTU of {size}, {'send()' if send == 'send' else 'MSG_ZEROCOPY'} at the sender, "
                    f"{'each line read' if touch == 'touch' else 'not read'}"
                )
                moved = [[one.moved_bytes * 8 / SECONDS for one in runs] for runs in found.values()]
                mapped = found["TCP_ZEROCOPY_RECEIVE"]
                share = sum(one.told_bytes for one in mapped) / sum(one.moved_bytes for one in mapped)
                claims += beside(text, found)
                claims.append(
                    paired(f"{text}: recv()", "throughput", "bit/s", moved[0], peer="TCP_ZEROCOPY_RECEIVE", theirs=moved[1])
                )
                claims.append(claim(f"{text}: TCP_ZEROCOPY_RECEIVE", "share that came as pages", "ratio", share))
    return claims


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = options.parse_args()
    rounds = 2 if chosen.quick else chosen.rounds
    ports = Ports()
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        program = folder / "ways"
        source = Path(__file__).with_name("ways.c")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O2", "-std=c11", "-o", program, source], check=True)
        with joined(folder) as pair:
            assert pair.interface == "eth0"
            nowhere()
            same_congestion_control()
            claims = sending(program, ports, rounds) + receiving(program, ports, rounds)
    return finish("ways", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
