"""The link between the clusters: netem if Linux here has it, otherwise the program wire.c."""

import dataclasses
import itertools
import json
import socket
from pathlib import Path

from faults import LabError
from layout import Cluster, Lab, Wan
from machines import init_of, site_of
from processes import enter_command, run, wait_for

INTERFACE = "wan0"
WIRE_START_S = 10.0
PPB = 1_000_000_000
NETEM_QUEUE_FRAMES = 20_000


def build_wire(lab: Lab) -> None:
    source, program = Path(__file__).with_name("wire.c"), lab.state / "wire"
    run(["gcc", "-std=c11", "-O2", "-o", str(program), str(source)], "lab/wire.c")


def has_netem(lab: Lab) -> bool:
    """Whether netem works: try it on the loopback interface of a site, where nothing depends on it."""
    site = site_of(lab.clusters[0])
    try:
        run(enter_command(site, ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], ["--net"]), "netem")
    except LabError:
        return False
    run(enter_command(site, ["tc", "qdisc", "del", "dev", "lo", "root"], ["--net"]), "netem")
    return True


def start_wan(lab: Lab) -> None:
    """Join the two sites, then give each its end of the link and the route to the other."""
    wire = lab.settings.wire
    if wire == "auto":
        wire = "netem" if has_netem(lab) else "user"
    if wire == "netem":
        if not has_netem(lab):
            raise LabError("--wan-wire: found no netem in this kernel: auto and user are allowed")
        _start_netem(lab)
    else:
        _start_wire(lab)
    for here, there in itertools.permutations(lab.clusters):
        batch = (
            f"address add {here.wan_address}/30 dev {INTERFACE}\nlink set {INTERFACE} up\n"
            f"route add {there.network} via {there.wan_address}\n"
        )
        run(enter_command(site_of(here), ["ip", "-batch", "-"], ["--net"]), f"{here.name}: wan0", input_text=batch)
    (lab.state / "wire.kind").write_text(wire)
    _keep(lab, lab.settings.wan)


def set_wan(lab: Lab, wan: Wan) -> None:
    """Change the link while it carries traffic. Returns when the new values are in force."""
    if wire_kind(lab) == "netem":
        for cluster in lab.clusters:
            _netem(cluster, "change", wan)
    else:
        _ask_wire(lab, f"set {wan.delay_ns} {wan.rate_bps} {round(wan.loss_ratio * PPB)}\n")
    _keep(lab, wan)


def settings_now(lab: Lab) -> Wan:
    """The settings last given to the link."""
    return Wan(**json.loads((lab.state / "wan.json").read_text()))


def wan_now(lab: Lab) -> dict[str, object]:
    """The link's present settings and, with wire.c, its counters."""
    kind = wire_kind(lab)
    if kind == "netem":
        return {"wire": kind, "qdisc": [_tc_show(cluster) for cluster in lab.clusters]}
    found = _ask_wire(lab, "get\n")
    found["loss_ratio"] = int(str(found.pop("loss_ppb"))) / PPB
    return {"wire": kind, **found}


def wire_kind(lab: Lab) -> str:
    kind = lab.state / "wire.kind"
    return kind.read_text().strip() if kind.exists() else "none"


def _keep(lab: Lab, wan: Wan) -> None:
    (lab.state / "wan.json").write_text(json.dumps(dataclasses.asdict(wan)) + "\n")


def _start_wire(lab: Lab) -> None:
    wan = lab.settings.wan
    words = [lab.state / "wire", lab.wire_socket]
    words += [Path(f"/proc/{site_of(cluster).pid}/ns/net") for cluster in lab.clusters]
    numbers = [wan.delay_ns, wan.rate_bps, round(wan.loss_ratio * PPB), lab.settings.seed]
    command = ["sh", "-c", f'setsid "$@" < /dev/null > "{lab.state}/wire.log" 2>&1 &', "sh"]
    command += [*map(str, words), INTERFACE, *map(str, numbers)]
    run(enter_command(init_of(lab), command, ["--mount", "--pid"]), "starting the wide-area link")
    wait_for(
        lambda: _wire_answers(lab),
        WIRE_START_S,
        "the wide-area link does not answer",
        f"its log is {lab.state}/wire.log",
    )


def _start_netem(lab: Lab) -> None:
    """Create one veth pair between the sites, delayed at both ends."""
    here, there = lab.clusters
    make = f"link add {INTERFACE} type veth peer name {INTERFACE} netns {site_of(there).pid}\n"
    run(enter_command(site_of(here), ["ip", "-batch", "-"], ["--net"]), "the wide-area link", input_text=make)
    for cluster in lab.clusters:
        _netem(cluster, "add", lab.settings.wan)


def _netem(cluster: Cluster, verb: str, wan: Wan) -> None:
    words = ["tc", "qdisc", verb, "dev", INTERFACE, "root", "netem", "limit", str(NETEM_QUEUE_FRAMES)]
    words += ["delay", f"{wan.delay_ns}ns", "loss", f"{wan.loss_ratio * 100:.6f}%"]
    if wan.rate_bps:
        words += ["rate", f"{wan.rate_bps}bit"]
    run(enter_command(site_of(cluster), words, ["--net"]), f"{cluster.name}: netem")


def _tc_show(cluster: Cluster) -> object:
    words = ["tc", "-s", "-j", "qdisc", "show", "dev", INTERFACE]
    found: object = json.loads(run(enter_command(site_of(cluster), words, ["--net"]), f"{cluster.name}: netem"))
    return found


def _wire_answers(lab: Lab) -> bool:
    try:
        _ask_wire(lab, "get\n")
    except LabError:
        return False
    return True


def _ask_wire(lab: Lab, request: str) -> dict[str, object]:
    """Send one line and read one line of JSON."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(str(lab.wire_socket))
            client.sendall(request.encode())
            answer: dict[str, object] = json.loads(client.makefile().readline())
            return answer
    except (OSError, ValueError) as found:
        raise LabError(
            f"{lab.wire_socket}: the wide-area link does not answer: {found}", "hpcq lab down, then lab up"
        ) from found
