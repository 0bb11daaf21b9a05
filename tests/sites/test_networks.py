"""Several networks of one machine: a campaign names one, and plans, results and series keep them apart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget
from hpcq.errors import UserError
from hpcq.planning.allocations import Basis, choose_allocations, plan_allocations
from hpcq.planning.make_plan import make_plan
from hpcq.planning.plan import Plan
from hpcq.runner.site.checking import _NODE_LOOK, _address, _interfaces
from hpcq.runner.site.place import check_definitions, open_run, place
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.store.database import reading
from hpcq.store.history import series_values
from hpcq.store.load.cluster import load_run
from tests.history.histories import History
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

CLUSTER = "name: big\nscheduler: slurm\nwork_directory: /shared\nnetworks: {ib: ib0, eth: eth0}\n"
CAMPAIGN = "name: both\nclusters: [big]\npairs: all\ntests: [{kernel: tcp_stream}]\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a cluster of two networks."""
    (tmp_path / "big.yaml").write_text(CLUSTER)
    return tmp_path


def campaign(folder: Path, more: str) -> Path:
    path = folder / "both.yaml"
    path.write_text(CAMPAIGN + more)
    return path


@pytest.mark.promise("A campaign measures the network that it names.")
@pytest.mark.parametrize(("more", "interface"), [("", "ib0"), ("network: eth\n", "eth0"), ("network: ib\n", "ib0")])
def test_a_campaign_names_its_network(files: Path, more: str, interface: str) -> None:
    run = open_run(campaign(files, more), [files], files / "results.db", files / "runs")
    assert place(run, "big").cluster.interface == interface


def test_interface_is_the_default_beside_networks(files: Path) -> None:
    (files / "big.yaml").write_text(CLUSTER + "interface: hsn0\n")
    assert read_cluster(files / "big.yaml").interface == "hsn0"
    read, _ = check_definitions(campaign(files, "network: eth\n"), [files])
    assert read.narrowed(read_cluster(files / "big.yaml")).interface == "eth0"


@pytest.mark.promise("A network that the cluster file does not name is refused before anything runs.")
def test_an_unknown_network_is_refused_before_anything_runs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = campaign(files, "network: opa\n")
    with pytest.raises(UserError, match="big: networks: opa: both asks for it: the cluster file names ib, eth"):
        check_definitions(path, [files])
    assert hpcq(["check", str(path), "--clusters", str(files)]) == 2
    assert "the cluster file names ib, eth" in capsys.readouterr().err


def test_a_name_that_is_no_interface_is_refused(files: Path) -> None:
    (files / "big.yaml").write_text(CLUSTER.replace("ib0", "a name with blanks"))
    with pytest.raises(UserError, match=r"big\.yaml:4: ib: 'a name with blanks' is not an interface"):
        read_cluster(files / "big.yaml")


def test_check_names_the_networks(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hpcq(["check", str(campaign(files, "network: eth\n")), str(files / "big.yaml"), "--clusters", str(files)]) == 0
    said = capsys.readouterr().out
    assert "on big over eth" in said
    assert "interface ib0, networks ib ib0, eth eth0" in said


@pytest.mark.heavy
@pytest.mark.promise("Series over two networks are two, and no label stands for both.")
def test_series_of_two_networks_are_two_and_the_nodes_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, interface in enumerate(("ib0", "eth0")):
        builder = RunBuilder(tmp_path / "runs", interface=interface, run=f"nightly-20261121T02000{number}Z-00ff")
        builder.everything()
        load_run(tmp_path / "results.db", builder.path)
    database = ["--db", str(tmp_path / "results.db"), "--json"]
    assert hpcq(["history", "--kernel", "tcp_stream", *database]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["client"], row["network"]) for row in rows} == {(n, i) for n in ("n1", "n2") for i in ("ib0", "eth0")}
    assert {row["variant"] for row in rows} == {"network=ib0", "network=eth0"}
    assert hpcq(["history", "--kernel", "tcp_stream", "--network", "ib0", *database]) == 0
    assert {row["network"] for row in json.loads(capsys.readouterr().out)} == {"ib0"}
    assert hpcq(["history", "--network", "opa0", *database]) == 2
    assert "--network" in capsys.readouterr().err
    assert hpcq(["nodes", *database]) == 0
    assert [row["node"] for row in json.loads(capsys.readouterr().out)][:2] == ["n1", "n2"]


@pytest.mark.heavy
@pytest.mark.promise("Results, series and the page say a network by the name that the cluster's file gives it.")
@pytest.mark.promise("No median mixes two networks.")
def test_results_say_the_network_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, interface in enumerate(("ib0", "eth0")):
        builder = RunBuilder(tmp_path / "runs", interface=interface, run=f"nightly-20261121T02000{number}Z-00ff")
        builder.write_plan(networks={"ib": "ib0", "eth": "eth0"})
        builder.everything()
        load_run(tmp_path / "results.db", builder.path)
    database = ["--db", str(tmp_path / "results.db")]
    hpcq(["results", "nightly-20261121T020000Z", *database])
    head, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines() if "\t" in line]
    assert {row[head.index("network")] for row in rows} == {"ib (ib0)"}
    hpcq(["results", "--since", "2026-11", "--kernel", "tcp_stream", *database])
    head, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines() if "\t" in line]
    assert {row[head.index("network")] for row in rows} == {"ib (ib0)", "eth (eth0)"}  # not one median over both
    assert {row[head.index("n")] for row in rows} == {"3"}
    hpcq(["results", "latest", "--json", *database])
    told = json.loads(capsys.readouterr().out)["results"]
    assert {(row["network"], row["network_name"]) for row in told} == {("eth0", "eth")}
    assert hpcq(["history", "--network", "ib", "--json", *database]) == 0
    assert {(row["network"], row["network_name"]) for row in json.loads(capsys.readouterr().out)} == {("ib0", "ib")}
    page = tmp_path / "page.html"
    hpcq(["report", "latest", "--to", str(page), *database, "--runs", str(tmp_path / "none")])
    assert "<td>eth (eth0)</td>" in page.read_text()


@pytest.mark.heavy
@pytest.mark.promise("Prometheus, JUnit and Markdown exports name the network where a cluster has several.")
def test_exports_name_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(tmp_path / "runs", interface="ib0")
    builder.write_plan(networks={"ib": "ib0", "eth": "eth0"})
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    told = {}
    for kind in ("prometheus", "junit", "markdown"):
        assert hpcq(["export", "--db", str(tmp_path / "results.db"), "--format", kind]) == 0, "nothing judges this run"
        told[kind] = capsys.readouterr().out
    gauges = [line for line in told["prometheus"].splitlines() if line.startswith("hpcq_throughput_bps")]
    assert gauges
    assert all('network="ib"' in line for line in gauges)
    cases = [case.get("name", "") for case in ElementTree.fromstring(told["junit"]).iter("testcase")]
    cases.remove("verdict of the run")
    assert cases
    assert all(name.endswith(" over ib (ib0)") for name in cases)
    medians = told["markdown"].partition("### Medians")[2].splitlines()[4:]
    assert medians
    assert all("over ib (ib0) |" in line for line in medians)


def test_a_plan_knows_the_networks_of_its_cluster(files: Path) -> None:
    read, _ = check_definitions(campaign(files, "network: eth\n"), [files])
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read, read.narrowed(read_cluster(files / "big.yaml")), nodes, "both-20261121T020000Z-00ff", 1)
    assert Plan.from_json(plan.to_json()).networks == {"ib": "ib0", "eth": "eth0"}


@pytest.mark.promise("cluster check looks for an address on every network of the cluster file.")
def test_cluster_check_looks_at_every_network(files: Path) -> None:
    assert _interfaces(read_cluster(files / "big.yaml")) == ["ib0", "eth0"]
    script = _NODE_LOOK.replace("INTERFACES", "lo hpcq-none")
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True, cwd=files).stdout
    told = dict(line.partition(" ")[::2] for line in said.splitlines())
    assert _address("lo", told).found.startswith("lo: ")
    assert _address("lo", told).ok
    assert not _address("hpcq-none", told).ok
    over_infiniband = _address("ib0", {"interface@ib0": "up(IPoIB) 10.0.0.1/24 "})
    assert over_infiniband.ok
    assert "RDMA is reached by MPI tests" in (over_infiniband.advice or "")


DIFFER = "name: big\nscheduler: slurm\nwork_directory: /shared\ninterface: ib0\ninterfaces: {gpu*: ib1, old: eth0}\n"


def planned(folder: Path, more: str, features: Sequence[str], cluster: str = DIFFER) -> Plan:
    """A plan on nodes n1, n2, ... with one feature each."""
    (folder / "big.yaml").write_text(cluster)
    nodes = [NodeState(f"n{no}", NodeCondition.IDLE, "idle", features=(word,)) for no, word in enumerate(features, 1)]
    read, _ = check_definitions(campaign(folder, more), [folder])
    return make_plan(read, read.narrowed(read_cluster(folder / "big.yaml")), nodes, "both-1", 7)


@pytest.mark.promise("Nodes whose interfaces differ are measured over their own, within their class; pairs across are named.")
def test_nodes_that_differ_are_measured_over_their_own_interface(files: Path) -> None:
    plan = planned(files, "", ["gpu8", "cpu", "gpu4", "cpu", "old"])
    assert sorted(sorted(pair) for pair in plan.pairs) == [["n1", "n3"], ["n2", "n4"]]
    assert [plan.interface_at(pair) for pair in (("n1", "n3"), ("n2", "n4"))] == ["ib1", "ib0"]
    assert plan.notes == ("nodes differ in their interface: ib1: n[1,3]; ib0: n[2,4]; eth0: n5: every job is within one",)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_pair_across_classes_says_why(files: Path) -> None:
    text = (files / "both.yaml").write_text
    (files / "big.yaml").write_text(DIFFER)
    text(CAMPAIGN.replace("pairs: all", "pairs: {list: [[n1, n2], [n1, n3]]}"))
    read, _ = check_definitions(files / "both.yaml", [files])
    nodes = [
        NodeState(f"n{no}", NodeCondition.IDLE, "idle", features=(word,)) for no, word in enumerate(("gpu", "cpu", "gpu"), 1)
    ]
    plan = make_plan(read, read.narrowed(read_cluster(files / "big.yaml")), nodes, "both-1", 7)
    assert plan.pairs == (("n1", "n3"),)
    assert [one.reason for one in plan.not_planned] == ["n1 is measured over ib1, n2 over ib0: no test has both"]


def test_nodes_of_one_class_have_one_interface(files: Path) -> None:
    plan = planned(files, "", ["gpu8", "gpu4", "gpu8"])
    assert (plan.interface, plan.interfaces, plan.fabrics, len(plan.pairs)) == ("ib1", {}, {}, 3)


def test_a_network_that_the_campaign_names_goes_before(files: Path) -> None:
    plan = planned(files, "network: mgmt\n", ["gpu8", "cpu"], f"{DIFFER}networks: {{mgmt: eno1}}\n")
    assert (plan.interface, plan.interfaces, len(plan.pairs)) == ("eno1", {}, 1)


# ----------------------------------------------------------------------------------------------------------------------
# Several networks in one campaign: every pair over each of them.

RAILS = "network: [ib, eth]\n"


@pytest.mark.promise("Several networks in one campaign are jobs of their own for each pair, beside each other in the plan.")
def test_every_pair_is_planned_over_each_network(files: Path) -> None:
    plan = planned(files, RAILS, ["x", "x", "x"], CLUSTER)
    assert len(plan.pairs) == 6
    assert plan.over == ("ib0", "eth0") * 3
    assert all(plan.pairs[place] == plan.pairs[place + 1] for place in (0, 2, 4))
    assert plan.notes == ("each pair is measured over ib (ib0), eth (eth0), in jobs of their own",)
    assert (plan.goals.pair_count, plan.goals.result_count, plan.cost.job_count) == (6, 18, 6)
    assert Plan.from_json(plan.to_json()) == plan
    again = plan.confirming([("n1", "n2")])
    assert again.over[6:] == ("ib0", "eth0")
    assert again.goals.result_count == 24


def test_a_node_alone_is_measured_once(files: Path) -> None:
    text = CAMPAIGN.replace("{kernel: tcp_stream}", "{kernel: stream}, {kernel: tcp_stream}") + RAILS
    (files / "both.yaml").write_text(text)
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    read, _ = check_definitions(files / "both.yaml", [files])
    plan = make_plan(read, read.narrowed(read_cluster(files / "big.yaml")), nodes, "both-1", 1)
    alone = [(pair, plan.interface_of(place)) for place, pair in enumerate(plan.pairs) if pair[0] == pair[1]]
    assert alone == [(("n1", "n1"), "ib0"), (("n2", "n2"), "ib0")]


RAILS_DIFFER = """name: big
scheduler: slurm
networks: {ib: ib0, eth: eth0}
interfaces: {gpu*: {ib: ib2, eth: ib3}, old: {ib: ib9}}
"""


@pytest.mark.promise("Nodes of each hardware class have their own interface per network, and pairs stay within a class.")
def test_every_class_has_rails_of_its_own(files: Path) -> None:
    plan = planned(files, RAILS, ["gpu8", "cpu", "gpu4", "cpu", "old", "old"], RAILS_DIFFER)
    found = {(*sorted(pair), over) for pair, over in zip(plan.pairs, plan.over, strict=True)}
    assert found == {
        ("n1", "n3", "ib2"), ("n1", "n3", "ib3"), ("n2", "n4", "ib0"), ("n2", "n4", "eth0"),
        ("n5", "n6", "ib9"), ("n5", "n6", "eth0"),
    }  # fmt: skip
    assert plan.networks_at == {"ib2": "ib", "ib3": "eth", "ib9": "ib"}
    assert plan.notes[1] == (
        "each pair is measured over ib (ib0), eth (eth0); nodes of gpu* over ib2, ib3; nodes of old over ib9, eth0,"
        " in jobs of their own"
    )
    assert plan.goals.pair_count == 6
    assert plan.confirming([("n1", "n3"), ("n4", "n2")]).over[6:] == ("ib2", "ib3", "ib0", "eth0")
    assert Plan.from_json(plan.to_json()) == plan
    one = planned(files, "network: ib\n", ["gpu8", "cpu", "gpu4", "cpu"], RAILS_DIFFER)
    assert [one.interface_at(pair) for pair in (("n1", "n3"), ("n2", "n4"))] == ["ib2", "ib0"]
    assert planned(files, RAILS, ["gpu8", "gpu8"], RAILS_DIFFER).interface == "ib2"


def test_a_rail_of_no_network_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "big.yaml").write_text(RAILS_DIFFER.replace("eth: ib3", "opa: ib3"))
    assert hpcq(["check", str(files / "big.yaml")]) == 2
    assert "opa: must be a network of this file: it names ib, eth" in capsys.readouterr().err


@pytest.mark.promise("No tournament has pairs of two networks.")
@pytest.mark.parametrize("allocation", ["whole", "group of 3"])
def test_no_tournament_has_two_networks(files: Path, allocation: str) -> None:
    read, _ = check_definitions(campaign(files, f"{RAILS}allocation: {allocation}\n"), [files])
    nodes = [NodeState(f"n{no}", NodeCondition.IDLE, "idle") for no in range(1, 7)]
    basis = Basis(read.narrowed(read_cluster(files / "big.yaml")), nodes, "both-1", 1)
    plan = plan_allocations(read, basis)
    pending, budget, seen = dict.fromkeys(plan.planned_pairs()), Budget(), set[str]()
    while pending:
        wave = choose_allocations(pending, [one.node for one in nodes], (), budget, plan)
        for pairs in wave:
            [over] = {pair.over for pair in pairs}
            seen.add(over)
            for pair in pairs:
                del pending[pair]
        assert wave
    assert seen == {"ib0", "eth0"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("network: [ib, ib]\n", "must name each network once"),
        ("network: [ib, opa]\n", "the cluster file names ib, eth"),
        ("network: [ib, eth]\nlinks: [{from: big, to: far}]\n", "a campaign with links measures one network"),
    ],
)
def test_several_networks_are_checked(files: Path, capsys: pytest.CaptureFixture[str], more: str, said: str) -> None:
    (files / "far.yaml").write_text(CLUSTER.replace("big", "far"))
    assert hpcq(["check", str(campaign(files, more)), "--clusters", str(files)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.promise("A network that brought nothing is rows of its own series, and gates judge each network for itself.")
def test_what_a_network_did_not_bring_is_a_row_of_it(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs", interface="ib0")
    builder.write_plan(networks={"ib": "ib0", "eth": "eth0"})
    builder.everything()
    plan = json.loads(builder.folder.plan("alpha").read_text())
    count = len(plan["pairs"])
    plan["pairs"] += plan["pairs"][:count]
    plan["over"] = ["ib0"] * count + ["eth0"] * count
    builder.folder.plan("alpha").write_text(json.dumps(plan))
    load_run(tmp_path / "results.db", builder.path)
    with reading(tmp_path / "results.db") as database:
        rows = database.execute("SELECT network, outcome, count(*) FROM v_results GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
        found = series_values(database, (builder.folder.run,), {"throughput_bps"})
    lost = {tuple(row)[:2] for row in rows if row[0] == "eth0"}
    assert lost == {("eth0", "not_measured")}
    assert "measured" in {row[1] for row in rows if row[0] == "ib0"}
    pairs = {(one[1], one[2], one[3], one[12]): bool(one[6]) for one in found if one[3] == "tcp_stream"}
    assert {key[-1] for key, has_values in pairs.items() if has_values} == {"ib0"}
    assert {key[-1] for key, has_values in pairs.items() if not has_values} >= {"eth0"}


@pytest.mark.heavy
@pytest.mark.promise("A node that is slow over one network is blamed for that network, and the others stay fine.")
def test_blame_keeps_the_networks_of_a_pair_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [f"n{number}" for number in range(1, 9)]
    history = History(tmp_path, pairs=list(combinations(nodes, 2)))
    runs = [
        history.night(0, interface="ib0", levels={"n3": 0.7}),
        history.night(1, 0.1, interface="eth0"),  # a tenth of the other network's rate
    ]
    database = ["--db", str(history.database), "--json"]
    named = [word for run in runs for word in ("--run", run)]
    assert hpcq(["blame", *named, *database]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["nodes"] == ["n3"]
    tests = {one["test"] for one in told["tests"]}
    assert tests == {"tcp_stream 64 KiB over ib0", "tcp_stream 64 KiB over eth0"}, told
