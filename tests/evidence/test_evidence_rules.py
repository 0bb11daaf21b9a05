"""Rules over recorded and hand-written pairs of evidence: each fires where it should and nowhere else."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcq.clock import DriverTimes
from hpcq.evidence.case import CrossedInterface, EvidenceVerdict, JudgedResult
from hpcq.evidence.judge import judge
from hpcq.evidence.rules import COURSE, RULES, cpu_list

pytestmark = pytest.mark.fast

FOLDER = Path(__file__).parent / "recorded"
PAIRS = {
    path.name: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json")) if path.name != "changes.json"
}
CASES = json.loads((FOLDER / "changes.json").read_text("utf-8"))["cases"]
JUNK: tuple[Any, ...] = (None, "many", -1, 1.5, 2**70, True, [], {}, [1, 2, 3], float("nan"))


def merged(base: Any, change: Any) -> Any:
    """`base` with what `change` names put in; null takes away."""
    if not isinstance(change, dict) or not isinstance(base, dict):
        return copy.deepcopy(change)
    out = copy.deepcopy(base)
    for name, value in change.items():
        if value is None and name != "interface":
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name, {}), value)
    return out


def changed(case: dict[str, Any]) -> dict[str, Any]:
    base = PAIRS[case["base"]]
    same = {key: merged(base[key], case[key]) for key in ("line", "client_facts", "server_facts")}
    return same | {"driver_times": case.get("driver_times")}


def judged(pair: dict[str, Any]) -> EvidenceVerdict:
    times = pair.get("driver_times")
    facts = pair["client_facts"], pair["server_facts"]
    return judge(JudgedResult(pair["line"], pair["line"]["options"], *facts, driver_times=times and DriverTimes(*times)))


def found(judgement: EvidenceVerdict) -> list[tuple[str, str | None]]:
    return sorted(((one.rule.name, one.end) for one in judgement.findings), key=str)


def expected(case: dict[str, Any]) -> list[tuple[str, str | None]]:
    return sorted(((rule, end) for rule, end in case["finds"]), key=str)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_show_what_is_known_of_them(name: str) -> None:
    pair = PAIRS[name]
    judgement = judged(pair)
    assert found(judgement) == expected(pair)
    assert judgement.disturbed is pair["disturbed"]
    assert judgement.crossed_interface == pair["crossed"]
    assert judgement.invalid_reason is None


@pytest.mark.promise("Counters of RDMA ports other than the interface's are not judged.")
@pytest.mark.promise("PCIe is held against what card and slot both can.")
@pytest.mark.promise("NUMA nodes of one socket are near each other.")
@pytest.mark.promise("Threads of NAPI are no other work.")
@pytest.mark.promise("Split cables have two lanes and are not degraded.")
@pytest.mark.promise("A quota that held a process for half of a per cent is not called a limit.")
@pytest.mark.promise("A sender at 96 % of its rate did not fall behind.")
@pytest.mark.promise("A clock that was slewed by 9 ms did not step.")
@pytest.mark.promise("A core with a sixth of its time idle is not saturated by interrupts.")
@pytest.mark.promise("A CPU that left its turbo clock, and holds the clock it is sold with, saves no power.")
@pytest.mark.promise("Packets that an RDMA port sent again are reported.")
@pytest.mark.promise("Packets that switches marked are reported, also where only the IP layer counts them.")
@pytest.mark.promise("A handful of pause frames is no finding; many are.")
@pytest.mark.promise("A port that waited for credits is reported with its share of the time.")
@pytest.mark.promise("A test's process on a socket other than its NIC's is reported.")
@pytest.mark.promise("Deep sleep is reported for round trips only.")
@pytest.mark.promise("The other hardware thread of a test's core is reported when it works.")
@pytest.mark.promise("Processes that waited for large pages are reported from ten on.")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_change_is_found_and_nothing_else(case: dict[str, Any]) -> None:
    judgement = judged(changed(case))
    assert found(judgement) == expected(case)
    assert judgement.disturbed is case["disturbed"]
    assert judgement.crossed_interface == case["crossed"]
    assert (judgement.invalid_reason is not None) is (case["crossed"] == "no")


@pytest.mark.promise("Findings name a node as the plan does, also where two nodes are one host.")
def test_two_nodes_on_one_host_keep_their_own_names() -> None:
    """An MPI program knows its host's name alone; findings said `vm and vm`."""
    pair = copy.deepcopy(PAIRS["recorded-competitor.json"])
    for end in pair["line"]["evidence"].values():
        end["node"] = "vm"
    facts = pair["client_facts"], pair["server_facts"]
    told = judge(JudgedResult(pair["line"], pair["line"]["options"], *facts, ("local-a", "local-b"))).findings
    messages = [one.message for one in told]
    assert "vm" not in " ".join(messages)
    assert any("local-b" in message for message in messages), messages


@pytest.mark.promise("The reported share of waiting for a CPU is at most 100 %.")
def test_nobody_waits_longer_than_the_interval() -> None:
    """A wait counts when it ends, and may have begun before: 108.2 % was told of a busy machine."""
    [waited] = [case for case in CASES if case["name"] == "waited for a CPU"]
    counters = {**waited["line"]["evidence"]["client"]["counters"], "self.schedstat.wait_ns": 10**11}
    more = {**waited, "line": {"evidence": {"client": {"counters": counters}}}}
    [finding] = [one for one in judged(changed(more)).findings if one.rule.name == "waited_for_cpu"]
    assert finding.figures["waited_ratio"] == 1.0


def swapped(pair: dict[str, Any]) -> dict[str, Any]:
    """The same with the ends exchanged, nodes and direction too."""
    line = copy.deepcopy(pair["line"])
    line["evidence"] = {"client": line["evidence"]["server"], "server": line["evidence"]["client"]}
    line["granted"] = {
        re.sub("client|server", lambda m: "server" if m[0] == "client" else "client", key): value
        for key, value in line["granted"].items()
    }
    if "direction" in line["options"]:
        back = line["options"]["direction"] == "client_to_server"
        line["options"]["direction"] = "server_to_client" if back else "client_to_server"
    facts = {"client_facts": pair["server_facts"], "server_facts": pair["client_facts"]}
    return {"line": line, **facts, "driver_times": pair.get("driver_times")}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_ends_are_told_apart(case: dict[str, Any]) -> None:
    other = {"client": "server", "server": "client", None: None}
    wanted = sorted(((rule, other[end]) for rule, end in expected(case)), key=str)
    assert found(judged(swapped(changed(case)))) == wanted


def test_every_rule_has_a_case_of_its_own() -> None:
    alone = {case["finds"][0][0] for case in CASES if len(case["finds"]) == 1}
    assert alone == {row.rule.name for row in RULES}


def test_every_rule_has_a_near_miss() -> None:
    """Evidence that resembles what the rule is about, and is not it: `near` names the rule, and it must stay silent."""
    near = [(case["near"], {rule for rule, _ in case["finds"]}) for case in CASES if "near" in case]
    assert {rule for rule, _ in near} == {row.rule.name for row in RULES}
    assert not [rule for rule, finds in near if rule in finds]


@pytest.mark.heavy
def test_messages_and_figures_are_whole() -> None:
    for case in CASES:
        for one in judged(changed(case)).findings:
            assert "{" not in one.message
            assert one.message.strip()
            json.dumps(one.figures, allow_nan=False)
            assert (one.end is None) is ("role" not in one.figures)


def test_what_the_kernel_timed_goes_before_what_is_estimated() -> None:
    case = next(one for one in CASES if one["name"] == "small send buffer")
    pair = changed(case)
    assert found(judged(pair)) == [("small_buffer", "client")]
    counters = pair["line"]["evidence"]["client"]["counters"]
    counters |= {"self.tcp_info.busy_us": 990_000, "self.tcp_info.sndbuf_limited_us": 12_000}
    assert found(judged(pair)) == []


@pytest.mark.promise("Of an end with many threads the evidence says which core was full, and adds none up.")
def test_of_many_threads_the_busiest_counts() -> None:
    case = next(one for one in CASES if one["name"] == "the process at its end")
    pair = changed(case)
    pair["line"]["metrics"]["client_busiest_thread_ratio"] = 0.97
    pair["line"]["granted"]["client_busiest_thread_cpu_index"] = 11
    [finding] = judged(pair).findings
    assert (finding.rule.name, finding.figures["cpu"], finding.figures["own_ratio"]) == (
        "core_saturated_by_process",
        "cpu11",
        0.97,
    )
    pair["line"]["metrics"]["client_busiest_thread_ratio"] = 0.5
    assert found(judged(pair)) == []


@pytest.mark.heavy
def test_the_role_of_an_end() -> None:
    roles = {}
    for case in CASES:
        for one in judged(changed(case)).findings:
            roles[case["name"]] = one.figures.get("role")
    assert roles["NIC without receive buffers"] == "receiver"
    assert roles["qdisc drops"] == "sender"
    assert roles["lost, server to client"] == "sender"
    assert roles["a second flow to the receiver, beside a ping-pong"] == "both"


def sources(pair: dict[str, Any]) -> Iterator[str]:
    names = {name for end in ("client", "server") for name in pair["line"]["evidence"][end]["counters"]}
    yield from sorted({name.split(".")[0] for name in names})


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_unavailable_sources_raise_nothing(case: dict[str, Any]) -> None:
    """Without any source, only that the crossing is unknown may be said, and what facts and metrics tell."""
    pair = changed(case)
    allowed = {rule for rule, _ in expected(case)} | {"interface_unverified"}
    for source in sources(pair):
        less = copy.deepcopy(pair)
        for end in ("client", "server"):
            evidence = less["line"]["evidence"][end]
            evidence["counters"] = {k: v for k, v in evidence["counters"].items() if not k.startswith(source + ".")}
            evidence["unavailable"][source] = "EACCES"
        told = {rule for rule, _ in found(judged(less))}
        # a drop that cannot be seen at the host any more may look like one of the network: only where that is certain
        assert told <= allowed | ({"loss_in_network"} if source in {"ethtool", "sys_net", "qdisc", "infiniband"} else set())
    for end in ("client", "server"):
        pair["line"]["evidence"][end]["counters"] = {}
        pair["line"]["evidence"][end]["gauges"] = {}
        pair["line"]["evidence"][end]["unavailable"] = dict.fromkeys(sources(PAIRS[case["base"]]), "ENOENT")
    pair["client_facts"] = pair["server_facts"] = None
    silent = judged(pair)
    told = {rule for rule, _ in found(silent)}
    told -= {row.rule.name for row in COURSE}  # of the kernel's own line
    assert told <= {
        "interface_unverified",
        "small_buffer",
        "sender_fell_behind",
        "loss_at_receive_socket",
        "clock_stepped",
        "clock_off",
    }
    assert silent.crossed_interface is CrossedInterface.UNKNOWN
    assert silent.invalid_reason is None


@pytest.mark.heavy
@pytest.mark.parametrize("name", PAIRS)
def test_junk_never_raises(name: str) -> None:
    chance = random.Random(name)
    for _ in range(300):
        pair = copy.deepcopy(PAIRS[name])
        for _ in range(chance.randint(1, 4)):
            place = pair["line"]
            key = "evidence"
            while isinstance(place.get(key), dict) and place[key] and chance.random() < 0.85:
                place = place[key]
                key = chance.choice(list(place))
            if chance.random() < 0.3:
                place.pop(key, None)
            else:
                place[key] = chance.choice(JUNK)
        pair["line"].setdefault("options", {})
        options = pair["line"]["options"] if isinstance(pair["line"]["options"], dict) else {}
        facts = pair["client_facts"] and {
            group: chance.choice((content, *JUNK)) for group, content in pair["client_facts"].items()
        }
        judge(JudgedResult(pair["line"], options, facts, pair["server_facts"]))


def test_an_empty_line_is_no_evidence() -> None:
    lines: list[dict[str, Any]] = [
        {},
        {"evidence": None},
        {"evidence": {"client": None, "server": {}}},
        {"evidence": []},
    ]
    for line in lines:
        judgement = judge(JudgedResult(line, {}, None, None))
        assert judgement.crossed_interface is CrossedInterface.UNKNOWN
        assert judgement.invalid_reason is None
        assert not judgement.disturbed
        assert judgement.findings == ()


def test_one_end_alone_is_judged_for_itself() -> None:
    pair = changed(next(case for case in CASES if case["name"] == "receive socket refuses"))
    pair["line"]["evidence"]["client"] = None
    assert ("loss_at_receive_socket", "server") in found(judged(pair))


def test_a_node_with_many_cpus_leaves_idle_time_out() -> None:
    """Lines of large nodes keep the busiest four CPUs of each mode and no idle time; a quiet core must not look busy."""
    pair = copy.deepcopy(PAIRS["hand-tcp_stream.json"])
    counters = pair["line"]["evidence"]["server"]["counters"]
    for name in [name for name in counters if name.startswith("stat.cpu") and name.endswith("idle_ticks")]:
        del counters[name]
    assert found(judged(pair)) == []


def test_lists_of_cpus() -> None:
    assert cpu_list("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert cpu_list("") == set()


def test_rules_are_explained() -> None:
    names = [row.rule.name for row in RULES]
    assert len(names) == len(set(names))
    for row in RULES:
        for text in (row.rule.meaning, row.rule.advice, row.rule.source, row.when, row.message):
            assert text.strip()
            assert not text.startswith("TODO")
