"""A cluster in a box: two real Slurm clusters in namespaces of this machine, joined by a wide-area link.

usage: python3 lab/ up|down|status|exec|kill-node|start-node|restart-controller|slow|lossy|mend|wan|prepare [options]
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import damage
import machines
import report
import wan
import whole
from arguments import Parser, add_cache, add_wan
from faults import LabError, UsageError
from layout import LABS_FOLDER, LEAF_COUNT_MAX, NODE_COUNT_MAX, USERS, Lab, Settings, Wan, checked_name
from other_system import SYSTEMS, root_of
from processes import ENVIRONMENT, recorded
from quantities import delay_ns, loss_ratio, rate_bps
from requirements import check_programs, check_root
from services import daemons, nodes
from services.pbs_files import check_pbs

PATIENCE_S = 60.0  # for another command that changes the same lab


def main(words: list[str]) -> int:
    signal.signal(signal.SIGTERM, _on_term)
    words, command = _split_exec(words) if words[:1] == ["exec"] else (words, [])
    try:
        options = parser().parse_args(words)
        options.command = command
        return int(options.run(options) or 0)
    except LabError as found:
        print(f"error: {found.message}", file=sys.stderr)
        if found.hint:
            print(f"\nhint: {found.hint}", file=sys.stderr)
        return found.exit_status
    except KeyboardInterrupt:
        print("error: lab: interrupted", file=sys.stderr)
        return 130


def _split_exec(words: list[str]) -> tuple[list[str], list[str]]:
    """Split our own words from the command: at `--`, or from the second word that is no option."""
    index, plain_count = 1, 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return words[:index], words[index + 1 :]
        if word.startswith("-"):
            index += 1 if "=" in word or word in {"-h", "--help"} else 2
            continue
        plain_count += 1
        if plain_count == 2:
            return words[:index], words[index:]
        index += 1
    return words, []


def _on_term(_number: int, _frame: object) -> NoReturn:
    """End as on Ctrl-C, so that a half-made lab is taken down."""
    raise KeyboardInterrupt


def _add_up(one: argparse.ArgumentParser) -> None:
    one.add_argument("--nodes", default="4", metavar="N", help=f"nodes of each cluster, 1 to {NODE_COUNT_MAX} (default: 4)")
    one.add_argument(
        "--leaves",
        default="2",
        metavar="N",
        help=f"leaf switches that these are spread over, 1 to {LEAF_COUNT_MAX} (default: 2)",
    )
    add_wan(one, delay="1.45ms", rate="400mbit", loss="0")
    one.add_argument(
        "--wan-wire", choices=("auto", "netem", "user"), default="auto", help="what makes the link (default: auto)"
    )
    one.add_argument(
        "--node-rate", default="200mbit", metavar="RATE", help="of eth0 of every machine, or none (default: 200mbit)"
    )
    one.add_argument(
        "--uplink-rate", default="400mbit", metavar="RATE", help="of each leaf's uplink, or none (default: 400mbit)"
    )
    one.add_argument(
        "--alpha", choices=("host", "pbs"), default="host", help="pbs: PBS instead of Slurm on alpha, too (default: host)"
    )
    one.add_argument(
        "--beta",
        choices=(*SYSTEMS, "pbs"),
        default="host",
        help="the system that beta's machines run: this one's (default) or another release's; pbs: PBS instead of Slurm",
    )
    one.add_argument("--pbs-history", action="store_true", help="with PBS: the server remembers ended jobs")
    add_cache(one)
    one.add_argument("--seed", type=int, default=1, help="of the link's losses (default: 1)")


def parser() -> Parser:
    top = Parser(prog="hpcq lab", description=(__doc__ or "").split("\n", 1)[0])
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, run: object, summary: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=summary, description=summary)
        made.add_argument("--name", default="hpcq", help="which lab (default: hpcq); labs of different names can be up at once")
        made.add_argument("--state-dir", metavar="DIR", help=f"its folder (default: {LABS_FOLDER}/NAME)")
        made.set_defaults(run=run)
        return made

    _add_up(verb("up", run_up, "start a lab"))
    verb("down", run_down, "take a lab down and remove all of it, whatever happened to it")
    verb("status", run_status, "show what is up").add_argument("--json", action="store_true", help="as one JSON object")
    one = verb("exec", run_exec, "run a command, given after --, on a head or a node")
    one.add_argument("where", metavar="CLUSTER[/NODE]", help="alpha is its head; alpha/n02 a node")
    one.add_argument("--user", default="root", help=f"root (default), {' or '.join(USERS)}")
    one = verb("kill-node", run_kill_node, "cut the power of a node, or of a head: SIGKILL to everything on it")
    one.add_argument("where", metavar="CLUSTER/NODE")
    one = verb("start-node", run_start_node, "boot it again")
    one.add_argument("where", metavar="CLUSTER/NODE")
    one = verb("restart-controller", run_restart_controller, "end slurmctld and start it again")
    one.add_argument("cluster", metavar="CLUSTER")
    one.add_argument("--crash", action="store_true", help="end it by SIGKILL")
    _add_damage(verb)
    one = verb("wan", run_wan, "change the link between the clusters, or show it")
    one.add_argument("--json", action="store_true", help="settings and counters as one JSON object")
    add_wan(one, prefix="--")
    one = verbs.add_parser("prepare", help="make another release's files ahead of lab up", description=run_prepare.__doc__)
    one.add_argument("system", choices=SYSTEMS[1:], metavar="SYSTEM", help=" or ".join(SYSTEMS[1:]))
    add_cache(one)
    one.set_defaults(run=run_prepare)
    return top


def _add_damage(verb: Callable[..., argparse.ArgumentParser]) -> None:
    one = verb("slow", run_slow, "slow a node's eth0, or the uplink of a leaf switch, in both directions")
    one.add_argument("where", metavar="CLUSTER/NODE|LEAF", help="alpha/n02, or alpha/leaf2 for its uplink")
    one.add_argument("--rate", required=True, metavar="RATE", help="such as 60mbit")
    one = verb("lossy", run_lossy, "lose packets between two nodes of a cluster, in both directions, and no others")
    one.add_argument("where", metavar="CLUSTER/NODE")
    one.add_argument("other", metavar="NODE")
    one.add_argument("--loss", required=True, metavar="LOSS", help="such as 5%% or 0.05")
    one = verb("mend", run_mend, "undo what slow and lossy did")
    one.add_argument("cluster", metavar="CLUSTER", nargs="?", help="only there (default: both)")


def run_up(options: argparse.Namespace) -> None:
    if not options.nodes.isdigit() or not 1 <= int(options.nodes) <= NODE_COUNT_MAX:
        raise UsageError(f"--nodes: {options.nodes!r}: must be 1 to {NODE_COUNT_MAX}", "hpcq lab up --help")
    if not options.leaves.isdigit() or not 1 <= int(options.leaves) <= LEAF_COUNT_MAX:
        raise UsageError(f"--leaves: {options.leaves!r}: must be 1 to {LEAF_COUNT_MAX}", "hpcq lab up --help")
    settings = Settings(
        name=checked_name(options.name),
        node_count=int(options.nodes),
        leaf_count=int(options.leaves),
        wan=Wan(
            delay_ns("--wan-delay", options.delay),
            rate_bps("--wan-rate", options.rate, may_be_none=True),
            loss_ratio("--wan-loss", options.loss),
        ),
        wire=options.wan_wire,
        seed=options.seed,
        node_rate_bps=rate_bps("--node-rate", options.node_rate, may_be_none=True),
        uplink_rate_bps=rate_bps("--uplink-rate", options.uplink_rate, may_be_none=True),
        alpha_root="/",
        alpha_scheduler="pbs" if options.alpha == "pbs" else "slurm",
        beta_scheduler="pbs" if options.beta == "pbs" else "slurm",
        pbs_history=options.pbs_history,
        beta_root="/" if options.beta in {"host", "pbs"} else str(Path(options.cache_dir).absolute() / options.beta),
    )
    state = state_folder(options)
    check_root("up")
    check_programs()
    progress = whole.progress_on_tty()
    if "pbs" in {options.alpha, options.beta}:
        check_pbs("--alpha pbs" if options.alpha == "pbs" else "--beta pbs")
    if options.beta not in {"host", "pbs"}:
        progress(f"{options.beta}: its root file system, which takes a minute or two the first time")
        root_of(options.beta, Path(options.cache_dir).absolute())
    started_s = time.monotonic()
    lab = whole.up(settings, state, progress)
    print("\n".join(report.rows(lab, report.status(lab))))
    print(f"lab {settings.name} came up in {time.monotonic() - started_s:.1f} s", file=sys.stderr)


def run_prepare(options: argparse.Namespace) -> None:
    """Make the root file system of another release now, so that `up` finds it. Does nothing if it exists."""
    check_root("prepare")
    print(root_of(options.system, Path(options.cache_dir).absolute()))


def run_down(options: argparse.Namespace) -> None:
    state = state_folder(options)
    check_root("down")
    if whole.down(state):
        print(f"lab {options.name} is down", file=sys.stderr)
    else:
        print(f"lab {options.name} was not there", file=sys.stderr)


def run_status(options: argparse.Namespace) -> int:
    lab = whole.load(state_folder(options))
    if lab is None or not lab.init_pid_file.exists():
        return _not_up(options, "absent")
    check_root("status")
    if recorded(lab.init_pid_file) is None:
        return _not_up(options, "broken")
    found = report.status(lab)
    print(json.dumps(found, indent=1) if options.json else "\n".join(report.rows(lab, found)))
    return 0


def _not_up(options: argparse.Namespace, state: str) -> int:
    """absent: there is no lab; broken: its folder exists but its processes are gone."""
    if options.json:
        print(json.dumps({"name": options.name, "state": state, "folder": str(state_folder(options))}))
        return 1
    hint = "hpcq lab up" if state == "absent" else "hpcq lab down clears it away"
    raise LabError(f"lab {options.name}: found it {state}: it must be up", hint)


def run_exec(options: argparse.Namespace) -> None:
    """Replace this process with the command, so that its streams and its exit code are ours."""
    lab = standing(options)
    if not options.command:
        raise UsageError("exec: found no command: one is needed, after --", "hpcq lab exec alpha/n01 -- hostname")
    if options.user not in {"root", *USERS}:
        raise UsageError(f"--user: {options.user!r} is not a user of the lab: root, {', '.join(USERS)} are")
    words = machines.in_machine(lab, lab.machine(options.where), options.command, user=options.user)
    os.execvpe(words[0], words, {**ENVIRONMENT, "TERM": os.environ.get("TERM", "dumb")})


def run_kill_node(options: argparse.Namespace) -> None:
    lab = standing(options)
    with whole.lock(lab.state, PATIENCE_S):
        machines.stop_machine(lab, lab.machine(options.where))


def run_start_node(options: argparse.Namespace) -> None:
    lab = standing(options)
    machine = lab.machine(options.where)
    with whole.lock(lab.state, PATIENCE_S):
        if machine.is_head:
            daemons.boot_head(lab, lab.cluster(machine.cluster))
        else:
            nodes.boot(lab, machine)


def run_restart_controller(options: argparse.Namespace) -> None:
    lab = standing(options)
    with whole.lock(lab.state, PATIENCE_S):
        daemons.restart_controller(lab, lab.cluster(options.cluster), crash=options.crash)


def run_slow(options: argparse.Namespace) -> None:
    lab = standing(options)
    damage_bps = rate_bps("--rate", options.rate)
    leaf_no = lab.leaf_no(options.where)
    with whole.lock(lab.state, PATIENCE_S):
        if leaf_no is not None:
            damage.slow_leaf(lab.cluster(options.where.partition("/")[0]), leaf_no, damage_bps)
        else:
            damage.slow_node(lab, lab.machine(options.where), damage_bps)


def run_lossy(options: argparse.Namespace) -> None:
    lab = standing(options)
    loss = loss_ratio("--loss", options.loss)
    one = lab.machine(options.where)
    cluster_name, _, short = options.other.rpartition("/")
    other = lab.machine(f"{cluster_name or one.cluster}/{short}")
    if one.cluster != other.cluster or one == other:
        raise UsageError(
            f"lossy: {options.where} and {options.other}: two nodes of one cluster are needed", "hpcq lab wan --loss"
        )
    with whole.lock(lab.state, PATIENCE_S):
        damage.lossy_pair(lab, one, other, loss)


def run_mend(options: argparse.Namespace) -> None:
    lab = standing(options)
    clusters = lab.clusters if options.cluster is None else (lab.cluster(options.cluster),)
    with whole.lock(lab.state, PATIENCE_S):
        for cluster in clusters:
            damage.mend(lab, cluster)


def run_wan(options: argparse.Namespace) -> None:
    lab = standing(options)
    before = wan.settings_now(lab)
    after = Wan(
        before.delay_ns if options.delay is None else delay_ns("--delay", options.delay),
        before.rate_bps if options.rate is None else rate_bps("--rate", options.rate, may_be_none=True),
        before.loss_ratio if options.loss is None else loss_ratio("--loss", options.loss),
    )
    if after != before:
        with whole.lock(lab.state, PATIENCE_S):
            wan.set_wan(lab, after)
    print(json.dumps(wan.wan_now(lab)) if options.json else report.wan_row(lab))


def standing(options: argparse.Namespace) -> Lab:
    """The requested lab, which must be up."""
    check_root(options.verb)
    lab = whole.load(state_folder(options))
    if lab is None:
        raise LabError(f"lab {options.name}: found nothing in {state_folder(options)}: it must be up", "hpcq lab up")
    machines.init_of(lab)
    return lab


def state_folder(options: argparse.Namespace) -> Path:
    """The folder of the lab.

    Its path appears in ssh_config and a socket's address, so it must be short and without blanks.
    """
    name = checked_name(options.name)
    if options.state_dir is None:
        return LABS_FOLDER / name
    folder = Path(options.state_dir).absolute()
    if re.fullmatch(r"[A-Za-z0-9._/-]{1,80}", str(folder)) is None:
        raise UsageError(f"--state-dir: {str(folder)!r} is not a path for a lab: up to 80 of A-Z, a-z, 0-9, . _ - and /")
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
