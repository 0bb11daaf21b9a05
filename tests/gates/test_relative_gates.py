"""Gates relative to a baseline, to peers of the same hardware and to the physical limit."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from hpcq.analysis.gates import judge_run
from hpcq.cli.main import run
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.model import Gate, GateStatistic
from hpcq.gate_kinds import End, MeasuredSeries, Peers, is_reverse, link_reference, memory_reference, read_against
from hpcq.kernels import Better
from hpcq.reports import write_report
from hpcq.store.database import reading
from hpcq.verdict.gates import judge_gates
from hpcq.verdict.words import Verdict
from tests.history.histories import History, campaign_text, json_of
from tests.local.local_desk import LocalDesk

NODES = [f"n{i}" for i in range(1, 9)]
XEON = {"cpu": {"model": "Xeon"}, "nic": {"eth0.driver": "mlx5_core", "eth0.speed_mbps": 100000}}
EPYC = {"cpu": {"model": "EPYC"}, "nic": {"eth0.driver": "mlx5_core", "eth0.speed_mbps": 100000}}
BASELINE = '  - {metric: throughput_bps, against: "baseline:good", minimum: 95%}'
PEERS = "  - {metric: throughput_bps, against: peers, minimum: 90%}"


def series(number: int, client: str, server: str, *values: float, **parameters: Any) -> MeasuredSeries:
    return MeasuredSeries("alpha", client, server, "tcp_stream", parameters, "throughput_bps", values, number, number)


def end(node: str, interface: str = "eth0", **facts: Any) -> End:
    return End(node, interface, {name.replace("__", "."): value for name, value in facts.items()})


def words(database: Path, name: str) -> dict[str, tuple[Verdict, str]]:
    """What the run's one gate says of each pair."""
    with reading(database) as connection:
        found = judge_run(connection, name)
    return {f"{one.series.client}>{one.series.server}": (one.verdict, one.reason or one.words) for one in found}


@pytest.mark.promise("The peers of a pair are other pairs, not itself.")
@pytest.mark.fast
def test_peers_are_the_other_pairs_of_the_same_hardware() -> None:
    random.seed(3)
    measured = [series(i, *pair, 100 + random.random()) for i, pair in enumerate(permutations(NODES, 2), 1)]
    ends = {one.result_id: (end(one.client, cpu__model="a"), end(one.server, cpu__model="a")) for one in measured}
    peers = Peers(measured, ends)
    for one in measured:
        mine = frozenset((one.client, one.server))
        pairs: dict[frozenset[str], list[float]] = {}
        for other in measured:
            pairs.setdefault(frozenset((other.client, other.server)), []).append(other.values[0])
        others = [median(each) for pair, each in pairs.items() if pair != mine]
        found = peers.reference(one, 5)
        assert found.value == pytest.approx(median(others))
        assert found.count == 27
        assert peers.reference(one, 28).value is None


@pytest.mark.fast
def test_other_hardware_directions_and_tests_are_no_peers() -> None:
    pairs = [("n1", "n2"), ("n3", "n4"), ("n5", "n6"), ("n7", "n8"), ("n2", "n1")]
    measured = [series(i, *pair, 1.0) for i, pair in enumerate(pairs, 1)]
    measured.append(series(6, "n3", "n4", 1.0, message_bytes=1))
    ends = {one.result_id: (end(one.client, cpu__model="a"), end(one.server, cpu__model="a")) for one in measured}
    ends[3] = (end("n5", cpu__model="b"), end("n6", cpu__model="a"))
    ends[4] = (end("n7"), end("n8", cpu__model="a"))
    assert Peers(measured, ends).reference(measured[0], 3).count == 1
    assert "the hardware of n7 is not known" in Peers(measured, ends).reference(measured[3], 1).reason
    found = Peers(measured, ends).reference(measured[0], 3)
    assert (found.value, found.reason) == (None, "1 other pairs of the same hardware have this test: 3 are needed")


@pytest.mark.fast
def test_a_link_that_came_up_slow_is_no_other_hardware() -> None:
    card: dict[str, Any] = {"cpu__model": "a", "nic__eth0__pci_vendor": "0x15b3", "nic__eth0__pci_device": "0x1017"}
    measured = [series(i, NODES[2 * i], NODES[2 * i + 1], 100.0 if i else 40.0) for i in range(4)]
    ends = {
        one.result_id: (end(one.client, **card), end(one.server, **card, nic__eth0__speed_mbps=100000 if i else 25000))
        for i, one in enumerate(measured)
    }
    assert Peers(measured, ends).reference(measured[0], 3).value == 100.0


@pytest.mark.fast
@pytest.mark.parametrize(
    ("client", "server", "parameters", "limit", "said"),
    [
        ({"nic__eth0__speed_mbps": 100000}, {"nic__eth0__link__speed_bps": 25e9}, {}, 25e9, "link of b"),
        ({"nic__eth0__speed_mbps": -1}, {"nic__eth0__speed_mbps": 10000}, {}, None, "the speed of eth0 of a is not known"),
        ({}, {}, {}, None, "the speed of eth0 of a is not known"),
        ({"nic__eth0__driver": "veth", "nic__eth0__link__speed_bps": 10e9}, {"nic__eth0__driver": "veth"}, {}, None,
         "eth0 of a is virtual (veth): the speed it reports is no limit"),
        ({"nic__eth0__driver": "veth", "qdisc__eth0__tbf_rate_bps": 2e8}, {"nic__eth0__driver": "veth"}, {}, 2e8,
         "token bucket of a"),
        ({"nic__eth0__driver": "veth", "qdisc__eth0__tbf_rate_bps": 2e8}, {"nic__eth0__driver": "veth"},
         {"direction": "server_to_client"}, None, "eth0 of a is virtual (veth): the speed it reports is no limit"),
        ({"nic__eth0__speed_mbps": 1000, "qdisc__eth0__tbf_rate_bps": 2e9}, {"nic__eth0__speed_mbps": 1000}, {}, 1e9,
         "link of a"),
    ],
)  # fmt: skip
def test_the_limit_of_a_link(
    client: Mapping[str, Any], server: Mapping[str, Any], parameters: dict[str, Any], limit: float | None, said: str
) -> None:
    found = link_reference(series(1, "a", "b", 1.0, **parameters), (end("a", **client), end("b", **server)))
    assert (found.value, found.source if limit else found.reason) == (limit, said)


@pytest.mark.fast
def test_the_limit_of_memory_and_of_loopback() -> None:
    ends = (end("a", "lo", now__memory_copy_bps=4e11), end("b", "lo", now__memory_copy_bps=3e11))
    assert memory_reference(ends).value == 3e11
    assert "b copies memory was not measured" in memory_reference((ends[0], end("b", "lo"))).reason
    assert "over lo, which is no link: gate against memory" in link_reference(series(1, "a", "b", 1.0), ends).reason


@pytest.mark.fast
def test_the_reverse_is_the_same_test_the_other_way() -> None:
    one = series(1, "a", "b", 1.0, message_bytes=1, direction="client_to_server")
    assert is_reverse(one, series(2, "b", "a", 1.0, message_bytes=1, direction="client_to_server"))
    assert is_reverse(one, series(2, "a", "b", 1.0, message_bytes=1, direction="server_to_client"))
    assert not is_reverse(one, one)
    assert not is_reverse(one, series(2, "b", "a", 1.0, message_bytes=2, direction="client_to_server"))
    assert not is_reverse(one, series(2, "b", "c", 1.0, message_bytes=1, direction="client_to_server"))
    assert not is_reverse(one, series(2, "b", "a", 1.0, message_bytes=1, direction="server_to_client"))


@pytest.mark.promise("A gate `against: reverse` fails the direction of a pair that is slow, and only that one.")
@pytest.mark.promise("A gate whose reference is missing is inconclusive, never a pass.")
def test_a_pair_that_is_fast_one_way_only_is_found(tmp_path: Path) -> None:
    made = History(tmp_path, pairs=[("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"), ("n2", "n3")])
    gates = "  - {metric: throughput_bps, against: reverse, minimum: 80%}"
    found = words(made.database, made.night(-1, repetitions=5, levels={"n2>n1": 0.5}, gates=gates))
    assert {pair: verdict for pair, (verdict, _) in found.items()} == {
        "n1>n2": Verdict.PASS, "n2>n1": Verdict.FAILED, "n1>n3": Verdict.PASS, "n3>n1": Verdict.PASS,
        "n2>n3": Verdict.INCONCLUSIVE,
    }  # fmt: skip
    assert "(other direction)" in found["n2>n1"][1]
    assert found["n2>n3"][1] == "n3 > n2 was not measured: give pairs `directions: both`"


@pytest.mark.promise("A relative gate without its reference passes nothing.")
@pytest.mark.fast
def test_without_a_reference_nothing_passes() -> None:
    gate = Gate(
        "throughput_bps", "tcp_stream", GateStatistic.MEDIAN, 0.1, None, {}, read_against("peers"), better=Better.HIGHER
    )
    [found] = judge_gates([gate], [series(1, "a", "b", 1.0)])
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A good night, which is the baseline; a night with n5 slow; eight nodes, two of them of other hardware."""
    pairs = [(NODES[i], NODES[j]) for i in range(6) for j in range(i + 1, 6)] + [("n7", "n8")]
    made = History(tmp_path_factory.mktemp("known"), pairs=pairs)
    facts = {node: EPYC if node in {"n7", "n8"} else XEON for node in NODES}
    good = made.night(-3, repetitions=5, facts=facts, gates=BASELINE)
    assert run(["baseline", "set", "good", good, "--why", "new", "--db", str(made.database)]) == 0
    made.night(-2, repetitions=5, facts=facts, levels={"n5": 0.8}, gates=BASELINE + "\n" + PEERS)
    return made


def second_night(known: History) -> str:
    return str(sorted(path.name for path in known.runs.iterdir())[-1])


def test_both_kinds_find_the_slow_node_and_nothing_else(known: History, capsys: pytest.CaptureFixture[str]) -> None:
    name = second_night(known)
    assert run(["results", name, "--json", "--db", str(known.database)]) == 3
    gates = json_of(capsys.readouterr().out)["gates"]
    failed = {(one["against"], one["series"]["client"], one["series"]["server"]) for one in gates if one["verdict"] == "failed"}
    slow = [pair for pair in known.pairs if "n5" in pair]
    assert failed == {(against, *pair) for against in ("baseline:good", "peers") for pair in slow}
    [other] = [one for one in gates if one["verdict"] == "inconclusive"]
    assert (other["series"]["client"], other["reason"][:33]) == ("n7", "0 other pairs of the same hardwar")
    [one] = [
        one
        for one in gates
        if one["against"] == "peers" and one["series"]["client"] == "n1" and one["series"]["server"] == "n5"
    ]
    assert one["share_ratio"] == pytest.approx(0.8, abs=0.02)
    assert one["words"].endswith("(14 peers)")


def test_people_read_the_same_in_results_and_on_the_page(
    known: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = second_night(known)
    assert run(["results", name, "--db", str(known.database)]) == 3
    told = capsys.readouterr().out
    assert told.count("gate failed: alpha: ") == 10
    assert "gate inconclusive: median throughput_bps of tcp_stream >= 90 % of peers: 0 other pairs" in told
    assert "gates: 21 pass, 10 failed, 1 inconclusive" in told
    assert "(baseline good, 5 values): must be >= 95 %" in told
    write_report(known.database, name, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count('<td class="nw some">failed</td>') == 10
    assert "(baseline good, 5 values)" in page


def test_a_filter_leaves_out_gates_too(known: History, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["results", second_night(known), "--node", "n1", "--json", "--db", str(known.database)]) == 3
    gates = json_of(capsys.readouterr().out)["gates"]
    assert len(gates) == 10
    assert all("n1" in {one["series"]["client"], one["series"]["server"]} for one in gates)


def test_a_baseline_that_is_missing_or_too_small_is_inconclusive(tmp_path: Path) -> None:
    made = History(tmp_path)
    first = made.night(-3, repetitions=3, gates=BASELINE)
    assert {said[0] for said in words(made.database, first).values()} == {Verdict.INCONCLUSIVE}
    assert words(made.database, first)["n1>n2"][1].startswith("there is no baseline good: hpcq baseline set good RUN")
    run(["baseline", "set", "good", first, "--why", "new", "--db", str(made.database)])
    second = made.night(-2, repetitions=3, pairs=[("n1", "n2"), ("n5", "n6")], gates=BASELINE)
    found = words(made.database, second)
    assert found["n1>n2"] == (
        Verdict.INCONCLUSIVE,
        "baseline good has 3 undisturbed values of this test and pair: 5 are needed",
    )
    assert found["n5>n6"][1].startswith("baseline good has 0 undisturbed values")


def test_a_pruned_baseline_counts_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    good = made.night(-100, repetitions=5)
    run(["baseline", "set", "good", good, "--why", "new", "--db", str(made.database)])
    late = made.night(-1, repetitions=5, gates=BASELINE, levels={"n1": 0.9})
    before = words(made.database, late)
    assert run(["db", "prune", "--keep", "2026-11", "--db", str(made.database)]) == 0
    assert {pair: said[0] for pair, said in words(made.database, late).items()} == {
        pair: said[0] for pair, said in before.items()
    }
    assert before["n1>n2"][0] is Verdict.FAILED
    assert "5 values" in words(made.database, late)["n1>n2"][1]
    capsys.readouterr()


def test_peers_of_earlier_runs_count_where_the_gate_says_so(tmp_path: Path) -> None:
    pairs = [(NODES[i], NODES[j]) for i in range(6) for j in range(i + 1, 6)]
    made = History(tmp_path, pairs=pairs)
    facts = dict.fromkeys(NODES, XEON)
    made.night(-2, facts=facts)
    alone = made.night(-1, pairs=pairs[:1], facts=facts, levels={"n1": 0.8}, gates=PEERS)
    assert words(made.database, alone)["n1>n2"][0] is Verdict.INCONCLUSIVE
    longer = made.night(0, pairs=pairs[:1], facts=facts, levels={"n1": 0.8}, gates=PEERS.replace("}", ", history: 5d}"))
    assert words(made.database, longer)["n1>n2"][0] is Verdict.FAILED


@pytest.mark.parametrize("against", ["peers", "baseline:good", "memory"])
def test_proposed_shares_keep_their_promise(against: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(NODES[i], NODES[j]) for i in range(6) for j in range(i + 1, 6)]
    made = History(tmp_path, pairs=pairs)
    copying = {**XEON, "now": {"memory_copy_bps": 2e9}}
    facts = dict.fromkeys(NODES, copying)
    good = made.night(-30, repetitions=5, facts=facts)
    run(["baseline", "set", "good", good, "--why", "new", "--db", str(made.database)])
    for day in range(-4, 0):
        made.night(day, facts=facts)
    capsys.readouterr()
    words_of = [
        "gate",
        "propose",
        "--since",
        "2026",
        "--against",
        against,
        "--false-alarm-ratio",
        "0.01",
        "--db",
        str(made.database),
    ]
    assert run([*words_of, "--json"]) == 0
    [found] = json_of(capsys.readouterr().out)
    bound = float(found["gate"]["minimum"].rstrip("%")) / 100
    middle = 0.1 if against == "memory" else 1.0
    assert 0.94 * middle < bound < 0.985 * middle
    assert found["seen_ratio"] < 0.03
    assert found["value_count"] == (5 if against != "baseline:good" else 4) * 15
    assert run(words_of) == 0
    path = tmp_path / "a.yaml"
    path.write_text(campaign_text("a", capsys.readouterr().out.removeprefix("gates:\n")))
    [gate] = read_campaign(path).gates
    assert str(gate.against) == against
    assert gate.minimum == pytest.approx(bound)
    fresh = [made.night(day, facts=facts, gates=f"  - {found['gate']}") for day in (1, 2)]
    verdicts = [said[0] for name in fresh for said in words(made.database, name).values()]
    assert np.mean([verdict is Verdict.FAILED for verdict in verdicts]) < 0.1
    assert Verdict.INCONCLUSIVE not in verdicts


def test_what_cannot_be_proposed(known: History, capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (
        (["--against", "peer"], "--against: 'peer': must be baseline:NAME, link, memory, peers or reverse"),
        (["--against", "baseline:bad"], "'bad' is not a baseline"),
        (["--against", "link", "--metric", "retransmit_count"], "--against link: no chosen metric is in bps"),
    ):
        assert run(["gate", "propose", "--since", "2026", *given, "--db", str(known.database)]) == 2
        assert said in capsys.readouterr().err
    assert run(["gate", "propose", "--since", "2026", "--against", "memory", "--db", str(known.database)]) == 4
    assert "with a reference to memory" in capsys.readouterr().err


@pytest.mark.long
def test_relative_gates_on_real_runs(tmp_path: Path) -> None:
    """Two nodes of this machine over loopback: told after the run, by results and on the page."""
    desk = LocalDesk.at(tmp_path)
    test = "{kernel: tcp_stream, parameters: {duration_s: 60ms, warmup_s: 0}}"
    desk.campaign(test, name="first", more="seed: 7")
    text = (tmp_path / "first.yaml").read_text().replace("repetitions: 1", "repetitions: 5")
    (tmp_path / "first.yaml").write_text(text)
    desk.hpcq("run", "first.yaml")
    with closing(sqlite3.connect(tmp_path / "results.db")) as database, database:  # other tests work on this machine
        database.execute("UPDATE result SET disturbed = 0")
    desk.hpcq("baseline", "set", "good", "first", "--why", "new")
    gates = """gates:
  - {metric: throughput_bps, against: "baseline:good", minimum: 1%}
  - {metric: throughput_bps, against: "baseline:good", maximum: 0.1%}
  - {metric: throughput_bps, against: memory, minimum: 0.01%, maximum: 100%}
  - {metric: throughput_bps, against: link, minimum: 90%}
  - {metric: throughput_bps, against: peers, minimum: 90%}
"""
    (tmp_path / "second.yaml").write_text(text.replace("name: first", "name: second") + gates)
    told = desk.json("run", "second.yaml", expect=3)
    assert [one["verdict"] for one in told["gates"]] == ["failed", "inconclusive", "inconclusive", "pass", "pass"]
    failed, link, peers, _, memory = told["gates"]
    assert failed["gate"] == "median throughput_bps of tcp_stream <= 0.1 % of baseline:good"
    assert "over lo, which is no link" in link["reason"]
    assert "0 other pairs of the same hardware" in peers["reason"]
    assert 0 < memory["share_ratio"] < 1
    assert memory["reference"]["source"].startswith("memory copy of tiny-")
    said = desk.hpcq("results", "second", expect=3).stdout
    assert said.count("gate failed: tiny: ") == 1
    assert "gates: 2 pass, 1 failed, 2 inconclusive" in said
    assert failed["gate"].replace("<=", "&lt;=") in (desk.run_folder / "report.html").read_text()


ALL_PAIRS = list(permutations(NODES[:6], 2))


def accepted(made: History, night: str, capsys: pytest.CaptureFixture[str], expect: int) -> dict[str, str]:
    """Verdicts by name of `accept --from` this night."""
    capsys.readouterr()
    assert run(["accept", "--from", night, "--json", "--db", str(made.database)]) == expect
    [found] = json_of(capsys.readouterr().out)["clusters"]
    return {one["name"]: one["verdict"] for one in (*found["clusters"], *found["nodes"], *found["links"], *found["groups"])}


@pytest.mark.promise("`expect` fails a first-time site at half of what its hardware should give, and passes one at full speed.")
def test_what_a_campaign_expects_is_judged_without_any_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = NODES[:6]
    for name, levels, code, wanted in (
        ("well", {}, 0, dict.fromkeys(nodes, "pass")),
        ("slow", dict.fromkeys(nodes, 0.5), 3, {"alpha": "failed"} | dict.fromkeys(nodes, "inconclusive")),
        ("odd", {"n4": 0.5}, 3, dict.fromkeys(nodes, "pass") | {"n4": "failed"}),
    ):
        made = History(tmp_path / name, pairs=ALL_PAIRS)
        night = made.night(-1, repetitions=3, levels=levels, gates="  []\nexpect: {throughput_bps: 190mbit}")
        assert accepted(made, night, capsys, code) == wanted
        assert run(["results", night, "--db", str(made.database)]) == code
        assert ("must be >= 171 Mbit/s" in capsys.readouterr().out) == (code == 3)


@pytest.mark.parametrize(
    ("speed_mbps", "share"),
    [
        (250, "80 % of 250 Mbit/s (link of n1)"),
        (1000, "20 % of 1 Gbit/s (link of n1)"),
        (100000, "1 % of 20 Gbit/s"),
        (None, ""),
    ],
)
def test_three_fifths_of_the_link_or_of_what_one_core_moves_are_expected(
    tmp_path: Path, speed_mbps: int | None, share: str
) -> None:
    made = History(tmp_path, pairs=[("n1", "n2")])
    card = {"eth0.driver": "mlx5_core"} | ({"eth0.speed_mbps": speed_mbps, "eth0.link.speed_bps": None} if speed_mbps else {})
    facts = {node: {"nic": card if speed_mbps else {"eth0.driver": "veth"}} for node in ("n1", "n2")}
    found = words(made.database, made.night(-1, repetitions=3, facts=facts, noise=0.0, gates="  []\nexpect: link"))
    if not share:
        assert not found, "where no link speed is known, nothing is expected of it"
        return
    verdict, said = found["n1>n2"]
    assert verdict is (Verdict.PASS if speed_mbps == 250 else Verdict.FAILED)
    assert share in said
