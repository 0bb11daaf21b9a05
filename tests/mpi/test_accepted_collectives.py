"""What an acceptance says of tests that several nodes run together: which set runs them, and what slow and failed ones are."""

from __future__ import annotations

import json
from itertools import combinations
from math import log
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli import accept as verb
from hpcq.definition.derive import with_set
from hpcq.definition.files.campaign import read_campaign
from hpcq.kernels import own_kernels
from hpcq.runner.accept.accepting import ClusterAcceptance, judged_collectives, not_covered, set_to_run
from hpcq.runner.accept.judging import Measured
from hpcq.store.database import reading
from hpcq.verdict.acceptance import Acceptance, CollectiveVerdict, SetJob, judge_collective
from hpcq.verdict.node_sets import PairsOfSet
from hpcq.verdict.words import Verdict
from tests import REPOSITORY
from tests.acceptance.judged import Job, counts_of, judge
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.local_desk import CLUSTER, LocalDesk
from tests.mpi.test_slow_collectives import Collectives

NODES = ("n1", "n2", "n3", "n4")
PAIRS = tuple(combinations(NODES, 2))
TEST = "mpi_collective 64 KiB"
EARLIER = [0.0, 0.002, -0.002, 0.001, -0.001, 0.0]


def said(*jobs: SetJob, before: list[float] = EARLIER, slow: tuple[tuple[str, str], ...] = ()) -> CollectiveVerdict:
    return judge_collective(TEST, PairsOfSet.of(NODES, PAIRS, slow, slow), before, jobs, "rank 3 died")


@pytest.mark.promise("accept: a collective that fails or is far slower in two jobs fails.")
@pytest.mark.fast
def test_a_collective_that_is_far_slower_or_fails_in_two_jobs_fails_and_its_pairs_stand_beside_it() -> None:
    slow = SetJob(log(0.5))
    found = said(slow, slow, slow=(("n1", "n3"), ("n2", "n3")))
    assert found.verdict is Verdict.FAILED
    assert found.ratio == pytest.approx(0.5, rel=0.01)
    assert found.words == (
        f"collective {TEST} on n[1-4]: 50 % slower than before in 2 of 2 jobs;"
        " its pairs: 2 of 6 judged pairs of its nodes got worse with it: n1 - n3, n2 - n3"
    )
    failed = said(SetJob(None, 5), SetJob(None, 5))
    assert failed.verdict is Verdict.FAILED
    assert "brings nothing in 2 of 2 jobs: rank 3 died; its pairs: none of 6" in failed.words
    assert "measure the pairs all at once" in failed.words


@pytest.mark.promise("accept: one bad job of a collective accuses no set, and passes none.")
@pytest.mark.fast
def test_one_job_or_a_doubt_accuses_no_set_and_passes_none() -> None:
    slow, fine, nothing = SetJob(log(0.5)), SetJob(0.001), SetJob(None, 5)
    assert said(slow).reason.endswith("seen in one job only")
    assert said(nothing, fine).reason.endswith("fine in another")
    assert said(SetJob(log(0.5), disturbed=True), slow).reason.endswith("beside other work")
    assert said(SetJob(0.001, 2)).reason == "2 repetitions brought nothing: rank 3 died"
    assert said(fine, before=[]).reason == "no reference: no earlier job of this set"
    for found in (said(slow), said(nothing, fine), said(SetJob(0.001, 2)), said(fine, before=[])):
        assert found.verdict is Verdict.INCONCLUSIVE
    assert said().verdict is Verdict.NOT_COVERED


@pytest.mark.promise("accept: a collective that passes says which slowdown it would have reported.")
@pytest.mark.fast
def test_what_passes_says_how_much_would_have_been_told() -> None:
    """10 % where the scatter of earlier jobs is known; what one earlier job allows where it is not."""
    assert said(SetJob(log(0.93))).reason == "-7.0 % against before in 1 job; 10 % slower would be found"
    assert said(SetJob(log(0.88))).verdict is Verdict.INCONCLUSIVE
    alone = said(SetJob(log(0.88)), before=[0.0])
    assert (alone.verdict, alone.reason.split("; ")[1]) == (Verdict.PASS, "19 % slower would be found")


@pytest.mark.promise("accept: a collective takes no node that nobody asked about.")
@pytest.mark.fast
def test_a_set_runs_where_it_has_run_before_with_a_node_under_test_and_all_nodes_available() -> None:
    known = [("n1", "n2"), ("n1", "n[2-3]"), ("n1", "n[2-4]"), ("n1", "n[2-8]")]
    assert set_to_run(known, ["n3"], set(NODES)) == NODES
    assert set_to_run(known, ["n3"], {"n1", "n2"}) == ("n1", "n2", "n3")
    assert set_to_run(known, ["n9"], {*NODES, "n9"}) == ()
    assert set_to_run(known, ["n3"], {"n2", "n4"}) == ()
    assert set_to_run(known[:1], ["n1"], set(NODES)) == ()


@pytest.mark.fast
def test_the_campaign_of_a_set_has_its_tests_and_nodes_alone(tmp_path: Path) -> None:
    source = (REPOSITORY / "campaigns/mixed.yaml").read_text() + (
        "gates:\n  - {metric: throughput_bps, kernel: tcp_stream, minimum: 1}\n  - {metric: operation_p50_ns, maximum: 1s}\n"
    )
    with_set(source, own_kernels(), tmp_path / "set.yaml", "alpha", NODES, 5)
    made = read_campaign(tmp_path / "set.yaml")
    assert {test.kernel for test in made.tests} == {"mpi_collective"}
    assert (made.clusters, made.repetition_count, made.nodes.include) == (("alpha",), 5, NODES)
    assert [gate.metric for gate in made.gates] == ["operation_p50_ns"]


def accepted(made: Collectives, run: str, slow: float = 0.0) -> ClusterAcceptance:
    """The acceptance whose pairs are as expected, but for those of n3, and whose sets ran in `run`."""
    jobs = [
        Job(a, b, "tcp_stream", number, -slow if "n3" in (a, b) else 0.0)
        for number in (1, 2, 3)
        for pair in PAIRS
        for a, b in (pair, pair[::-1])
    ]
    verdicts = judge(NODES, jobs)
    with reading(made.database) as database:
        earlier = [int(row[0]) for row in database.execute("SELECT run_id FROM run WHERE name <> ?", (run,))]
    found = judged_collectives(made.database, "alpha", [run], earlier, verdicts, Measured(counts=counts_of(jobs)))
    return ClusterAcceptance("alpha", {}, verdicts, [run], collectives=found)


@pytest.mark.promise("accept: a bad collective decides the exit code though every node passes.")
@pytest.mark.promise("accept: what the pairs of a bad collective say stands beside it.")
def test_a_bad_collective_stands_in_the_summary_and_decides_the_exit_code(tmp_path: Path, capsys: Any) -> None:
    made = Collectives(tmp_path)
    for day in range(6):
        made.night(day)
    fine = accepted(made, made.night(6))
    assert [one.verdict for one in fine.collectives] == [Verdict.PASS] * 2
    assert verb._show([fine], apply=False, as_json=False) == 0
    assert "alpha: 4 nodes judged: 4 PASS; 2 collectives judged: 2 PASS" in capsys.readouterr().out
    for changed, words in ({"collective": 2.0}, "slower than before"), ({"collective_fails": True}, "brings nothing"):
        bad = accepted(made, made.night(7 + len(words), **changed))
        assert {one.verdict for one in bad.verdicts.nodes} == {Verdict.PASS}
        assert verb._show([bad], apply=False, as_json=False) == 4, "one job"
        told = capsys.readouterr().out
        assert "alpha: 4 nodes judged: 4 PASS; 2 collectives judged: 2 INCONCLUSIVE" in told
        assert told.count(words) == 2
        assert "its pairs: none of 6 judged pairs of its nodes got worse with it: measure the pairs all at once" in told
    slow = accepted(made, made.night(40, collective=2.0), slow=0.5)
    assert {one.name: one.verdict for one in slow.verdicts.nodes}["n3"] is Verdict.FAILED
    assert verb._show([slow], apply=False, as_json=True) == 3
    [cluster] = json.loads(capsys.readouterr().out)["clusters"]
    assert [one["pairs"]["slow"] for one in cluster["collectives"]] == [[["n1", "n3"], ["n2", "n3"], ["n3", "n4"]]] * 2


@pytest.mark.promise("accept: a collective that no set of nodes can run is NOT COVERED, and the exit code says so.")
def test_a_collective_that_no_set_can_run_is_not_covered_and_exits_with_4(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("east", CLUSTER + "mpi: {{compiler: mpicc, launch: mpirun -np 2}}\n")
    desk.campaign(
        "{kernel: tcp_pingpong, parameters: {duration_s: 100ms, warmup_s: 0}}",
        "{kernel: mpi_collective, parameters: {operation: allreduce}}",
        clusters="east",
    )
    plan = desk.hpcq("accept", "try.yaml", "--plan").stdout
    assert "  collective mpi_collective: left out: no earlier run measured it on a set of nodes" in " ".join(plan.split("\n"))
    done = desk.hpcq("accept", "try.yaml", "--json", expect=None)
    [cluster] = json.loads(done.stdout)["clusters"]
    [left_out] = cluster["collectives"]
    assert (left_out["test"], left_out["nodes"], left_out["verdict"]) == ("mpi_collective", [], "not_covered")
    assert left_out["words"].startswith("collective mpi_collective: left out: no earlier run measured it on a set of nodes")
    assert done.returncode == 4
    outcome = ClusterAcceptance("east", {}, Acceptance(()), collectives=not_covered(["mpi_collective"]))
    assert verb._show([outcome], apply=False, as_json=False) == 4


@pytest.mark.fast
def test_a_collective_that_failed_twice_exits_with_3_though_every_node_passes(capsys: Any) -> None:
    nodes = judge(NODES, [])
    outcome = ClusterAcceptance("alpha", {}, Acceptance(()), collectives=(said(SetJob(None, 5), SetJob(None, 5)),))
    assert verb._show([outcome], apply=False, as_json=False) == 3
    assert "1 collective judged: 1 FAIL" in capsys.readouterr().out
    assert {one.verdict for one in nodes.nodes} == {Verdict.NOT_COVERED}, "a collective is no evidence of a node"


CAMPAIGN = """
clusters: [alpha]
pairs: {rounds: 3}
repetitions: 3
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 100ms, warmup_s: 50ms, send_buffer_bytes: 64KiB}}
  - kernel: mpi_collective
    parameters: {operation: allreduce, message_bytes: 64KiB, duration_s: 30, warmup_s: 0, operation_count_max: 20}
"""


#: Large packets of n03 are slow, or end the connection: a rank that loses its peer ends the job.
SLOW = "tc qdisc replace dev eth0 root tbf rate 5mbit burst 16000 latency 500ms"
BROKEN = (
    "ip link set eth0 gso_max_segs 1 && nft add table inet hole"
    " && nft add chain inet hole out '{ type filter hook output priority 0; }'"
    " && nft add rule inet hole out meta l4proto tcp meta length gt 1400 reject with tcp reset"
)
MENDED = "tc qdisc del dev eth0 root; nft delete table inet hole; ip link set eth0 gso_max_segs 65535"


@pytest.mark.long
@pytest.mark.quiet
@pytest.mark.lab
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("fault", "words"), [(SLOW, "slower than before in 2 of 2 jobs"), (BROKEN, "brings nothing in 2 of 2 jobs: ")]
)
def test_accept_runs_the_collective_on_the_set_of_its_baseline(lab: RunningLab, tmp_path: Path, fault: str, words: str) -> None:
    lab.at_rest("alpha")
    desk = Desk(tmp_path / "folder", lab)
    (desk.folder / "clusters").mkdir(parents=True)
    text = lab.cluster_file("alpha").read_text()
    (desk.folder / "clusters" / "alpha.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\n")
    desk.campaign(CAMPAIGN)
    desk.hpcq("run", "campaign.yaml")
    desk.hpcq("baseline", "set", "good", "latest", "--why", "test")
    lab.exec("alpha/n03", "sh", "-c", fault)
    try:
        accept = ("accept", "campaign.yaml", "--against", "good", "--node", "alpha-n03")
        done = desk.hpcq(*accept, "--json", expect=None, timeout_s=1200)
    finally:
        lab.exec("alpha/n03", "sh", "-c", f"{MENDED}; true")
    [cluster] = json.loads(done.stdout)["clusters"]
    [together] = cluster["collectives"]
    assert together["nodes"] == [f"alpha-n{number:02d}" for number in range(1, 5)]
    beside = "beside other work" in together["reason"]  # of other labs on this machine
    assert together["verdict"] == ("inconclusive" if beside else "failed"), together["words"]
    assert done.returncode in ({3, 4} if beside else {3})
    assert words in together["reason"]
    assert {"alpha-n03" in pair for pair in together["pairs"]["slow"]} <= {True}
    assert [one["name"] for one in cluster["nodes"]] == ["alpha-n03"]
    assert cluster["nodes"][0]["verdict"] != "pass"
    kept = json.loads(desk.hpcq("nodes", "alpha-n02", "--verdicts", "--json").stdout)
    [row] = [one for one in kept if one["kind"] == "collective"]
    assert (row["verdict"], row["run"]) == (together["verdict"], cluster["runs"][-1])
    assert row["name"].endswith(" on alpha-n[01-04]")
    assert together["reason"] in row["reason"]
    assert row["measured_utc"]
