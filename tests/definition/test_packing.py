"""Pairs that share allocations: groups, rounds, steps, cost; and a spool as the driver and the database read it."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Allocation, AllocationKind, Budget, Campaign, Cluster, Concurrency
from hpcq.errors import UserError
from hpcq.kernels import own_kernels
from hpcq.planning.allocations import Basis, choose_allocations, nodes_of, plan_allocations, rounds_of
from hpcq.planning.plan import Plan, PlannedPair
from hpcq.planning.waves import ActiveJob
from hpcq.run_folder.journal import fold
from hpcq.run_folder.lines import Outcome, read_line
from hpcq.run_folder.spools import Spool, of_pairs, spooled_steps
from hpcq.runner.drive.tournaments import Tournament, make_tournament, tournament_text, write_tournament
from hpcq.runner.queue.run_state import ClusterState, all_steps
from hpcq.runner.site.place import counted
from hpcq.scheduler.types import NodeCondition, NodeState

pytestmark = pytest.mark.fast

TEXT = """name: c
clusters: [alpha]
repetitions: 2
tests:
  - {kernel: tcp_pingpong, parameters: {duration_s: 1, warmup_s: 0}}
  - {kernel: mpi_pingpong, parameters: {duration_s: 2, warmup_s: 0}}
"""


def campaign(folder: Path, more: str) -> Campaign:
    path = folder / "c.yaml"
    path.write_text(TEXT + more)
    return read_campaign(path)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    path = tmp_path / "alpha.yaml"
    path.write_text("{name: alpha, scheduler: slurm, interface: eth0, work_directory: /scratch, mpi: {compiler: mpicc}}\n")
    return read_cluster(path)


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def plan_of(folder: Path, cluster: Cluster, node_count: int, more: str) -> Plan:
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in names(node_count)]
    return plan_allocations(campaign(folder, more), Basis(cluster, nodes, "c-1", 7))


def whole_tournament(plan: Plan, indices: list[int] | None = None) -> Tournament:
    chosen = list(range(len(plan.pairs))) if indices is None else indices
    return make_tournament(plan, chosen, 1, {index: all_steps(plan) for index in chosen})


# -- campaign files ----------------------------------------------------------------------------------------------------


def test_pack_and_disturb_of_a_campaign(tmp_path: Path) -> None:
    assert campaign(tmp_path, "pairs: all\n").allocation == Allocation()
    assert campaign(tmp_path, "pairs: all\nallocation: whole\n").allocation == Allocation(AllocationKind.WHOLE)
    group = campaign(tmp_path, "pairs: all\nallocation: group of 8\nconcurrency: [alone, rounds]\n").allocation
    assert group == Allocation(AllocationKind.GROUP, 8, (Concurrency.ALONE, Concurrency.ROUNDS))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("allocation: all\n", "c.yaml:8: allocation: 'all': must be pair, whole or group of N"),
        ("allocation: group of 2\n", "a group has 3 nodes or more"),
        ("allocation: whole\nconcurrency: never\n", "c.yaml:9: concurrency"),
        ("allocation: whole\nconcurrency: [alone, alone]\n", "must be rounds, alone, or both once"),
        ("concurrency: alone\n", "belongs to tournaments: found allocation: pair"),
    ],
)
def test_bad_packs_are_refused(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        campaign(tmp_path, "pairs: all\n" + more)
    assert words in caught.value.message


# -- plans -------------------------------------------------------------------------------------------------------------


def test_each_test_is_planned_once_a_load(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 4, "pairs: all\nallocation: whole\nconcurrency: [alone, rounds]\n")
    assert [(test.test_no, test.kernel, test.load) for test in plan.tests] == [
        (1, "tcp_pingpong", "alone"),
        (2, "mpi_pingpong", "alone"),
        (3, "tcp_pingpong", "rounds"),
        (4, "mpi_pingpong", "rounds"),
    ]
    assert plan.goals.result_count == 6 * 4 * 2
    assert Plan.from_json(plan.to_json()) == plan


def test_the_plan_tells_the_cost_of_every_way_to_share(tmp_path: Path, cluster: Cluster) -> None:
    texts = {kind: plan_of(tmp_path, cluster, 48, f"pairs: {{rounds: 10}}\nallocation: {kind}\n") for kind in ("pair", "whole")}
    for plan in texts.values():
        by_name = {one.allocation: one for one in plan.cost.allocations}
        assert [by_name[name].job_count for name in ("pair", "whole")] == [240, 1]
        assert 1 < by_name["group of 8"].job_count < 240
        # ten rounds of two tests, twice: 60 s of measuring, on 48 nodes
        assert 48 * 60 < by_name["whole"].node_seconds < 48 * 80
    assert (texts["pair"].cost.job_count, texts["whole"].cost.job_count) == (240, 1)
    assert texts["pair"].walltime_s == 120


def test_a_pack_keeps_within_the_time_limit(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 48, "pairs: {rounds: 30}\nallocation: whole\nwalltime_s: 2min\n")
    assert plan.cost.job_count > 1
    assert plan.walltime_s <= 120
    [allocation] = choose_allocations(plan.planned_pairs(), names(48), [], Budget(), plan)
    assert len(allocation) % 24 == 0, "whole rounds"
    assert len(allocation) < 720
    assert whole_tournament(plan, [int(pair.job[1:]) - 1 for pair in allocation]).walltime_s <= 120
    with pytest.raises(UserError, match="walltime"):
        plan_of(tmp_path, cluster, 4, "pairs: all\nallocation: whole\nwalltime_s: 1min\nbudget: {max_walltime_s: 5s}\n")


def test_rounds_stay_as_they_were(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 48, "pairs: {rounds: 10}\nallocation: whole\n")
    rounds = rounds_of(plan.planned_pairs())
    assert [len(one) for one in rounds] == [24] * 10
    assert all(len(nodes_of(one)) == 48 for one in rounds)
    assert [pair for one in rounds for pair in one] == list(plan.planned_pairs())


def test_steps_hold_every_measurement_once_and_no_node_twice(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 6, "pairs: all\nallocation: whole\nconcurrency: [alone, rounds]\n")
    steps = whole_tournament(plan).steps
    assert steps == whole_tournament(plan).steps
    played = Counter((pair.job, step.test_no, step.repetition_no) for step in steps for pair in step.pairs)
    assert set(played.values()) == {1}
    assert len(played) == plan.goals.result_count
    for step in steps:
        assert len(nodes_of(step.pairs)) == 2 * len(step.pairs)
        assert len(step.pairs) == (1 if plan.tests[step.test_no - 1].load == "alone" else 3)
    assert [step.repetition_no for step in steps] == sorted(step.repetition_no for step in steps)


def test_every_pair_of_a_bisection_crosses_the_middle(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 9, "pairs: {bisection: 3}\nallocation: whole\nconcurrency: [alone, rounds]\n")
    assert len(plan.pairs) == 3 * 4
    for pair in plan.pairs:
        first, second = sorted(int(node[1:]) for node in pair)
        assert first <= 4 < second
    assert [len(one) for one in rounds_of(plan.planned_pairs())] == [4, 4, 4]
    assert {test.load for test in plan.tests} == {"alone", "bisection"}
    groups = plan_of(tmp_path, cluster, 9, "pairs: {bisection: 3}\nallocation: group of 4\n")
    assert {test.load for test in groups.tests} == {"rounds"}, "a part of it loads no bisection"


def test_what_is_there_is_not_played_again(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 4, "pairs: {rounds: 1}\nallocation: whole\n")
    tournament = make_tournament(plan, [0, 1], 3, {0: frozenset({(1, 2)}), 1: frozenset()})
    assert [(step.test_no, step.repetition_no, len(step.pairs)) for step in tournament.steps] == [(1, 2, 1)]
    assert (tournament.job, tournament.tag, tournament.programs) == ("g00003", "hpcq-c-1-alpha-g00003-1", {"hpcq-net"})


# -- waves -------------------------------------------------------------------------------------------------------------


def test_whole_takes_all_that_is_idle_and_waits_for_its_own(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 6, "pairs: all\nallocation: whole\n")
    pending = plan.planned_pairs()
    [allocation] = choose_allocations(pending, ["n1", "n2", "n3", "n5"], [], Budget(), plan)
    assert (len(allocation), set(nodes_of(allocation))) == (6, {"n1", "n2", "n3", "n5"})
    assert choose_allocations(pending, ["n4", "n6"], [ActiveJob(("n1", "n2"), True)], Budget(), plan) == []
    assert choose_allocations(pending, ["n4"], [], Budget(), plan) == []
    [allocation] = choose_allocations(pending, names(6), [], Budget(max_nodes=4), plan)
    assert len(nodes_of(allocation)) <= 4
    [allocation] = choose_allocations(pending, names(6), [], Budget(max_node_ratio=0.5), plan)
    assert len(nodes_of(allocation)) <= 3


def test_groups_are_disjoint_and_within_the_budget(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 24, "pairs: all\nallocation: group of 6\n")
    allocations = choose_allocations(plan.planned_pairs(), names(24), [], Budget(), plan)
    assert [len(nodes_of(allocation)) for allocation in allocations] == [6] * 4
    assert [len(allocation) for allocation in allocations] == [15] * 4, "all pairs of a group are in it"
    used = [node for allocation in allocations for node in nodes_of(allocation)]
    assert len(used) == len(set(used))
    assert len(choose_allocations(plan.planned_pairs(), names(24), [], Budget(max_jobs=2), plan)) == 2
    within = choose_allocations(plan.planned_pairs(), names(24), [], Budget(max_nodes=8), plan)
    assert sum(len(nodes_of(allocation)) for allocation in within) <= 8
    others = choose_allocations(plan.planned_pairs(), names(24), [ActiveJob(("n1", "n2", "n3"), False)], Budget(), plan)
    assert not {"n1", "n2", "n3"} & {node for allocation in others for node in nodes_of(allocation)}


def test_groups_cover_all_pairs_in_few_waves(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 24, "pairs: all\nallocation: group of 6\n")
    pending: list[PlannedPair] = list(plan.planned_pairs())
    job_count = 0
    while pending:
        allocations = choose_allocations(pending, names(24), [], Budget(), plan)
        gone = {pair.job for allocation in allocations for pair in allocation}
        pending = [pair for pair in pending if pair.job not in gone]
        job_count += len(allocations)
    assert job_count < 276 / 5, "a pair job each would be 276"


@pytest.mark.heavy
def test_scale(tmp_path: Path, cluster: Cluster) -> None:
    started = time.process_time()
    plan = plan_of(tmp_path, cluster, 1000, "pairs: all\nallocation: whole\n")
    assert len(plan.pairs) == 499_500
    plan = plan_of(tmp_path, cluster, 5000, "pairs: {rounds: 10}\nallocation: group of 16\n")
    assert len(choose_allocations(plan.planned_pairs(), names(5000), [], Budget(max_jobs=32), plan)) == 32
    assert time.process_time() - started < 60


# -- a tournament's folder ---------------------------------------------------------------------------------------------


def test_the_file_that_programs_read(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 2, "pairs: all\nallocation: whole\n")
    lines = tournament_text(whole_tournament(plan), own_kernels()).splitlines()
    assert lines[:4] == ["tournament 1", "node n1", "node n2", "test 1 tcp_pingpong 30"]
    assert "option no_delay true" in lines
    assert "option duration_s 1" in lines
    client, server = plan.pairs[0]
    assert lines.count(f"match j00001 {client} {server}") == 4
    assert {line for line in lines if line.startswith("step")} == {f"step 1 {test} {rep}" for test in (1, 2) for rep in (1, 2)}


def test_the_script_asks_for_all_nodes_and_outlives_one(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 4, "pairs: all\nallocation: whole\n")
    tournament = whole_tournament(plan)
    write_tournament(tournament, own_kernels(), cluster, "/scratch/it's", tmp_path / "g")
    script = (tmp_path / "g" / "job.sh").read_text()
    for words in (
        "--nodes=4",
        "--nodelist=n1,n2,n3,n4",
        "--no-kill",
        "--no-requeue",
        f"--time={tournament.walltime_s // 60}:00",
    ):
        assert f"#SBATCH {words}\n" in script
    assert script.count("on_all_nodes 1") + script.count("on_all_nodes_mpi 1") == 2, "one step for agents, one for ranks"
    content = json.loads((tmp_path / "g" / "job.json").read_text())
    assert len(content["steps"]) == len(tournament.steps)


def test_a_launcher_written_for_two_starts_one_rank_a_node() -> None:
    assert counted(("mpirun", "-np", "2", "--host", "{nodes}")) == ("mpirun", "-np", "{count}", "--host", "{nodes}")
    assert counted(("srun", "--mpi=pmix")) == ("srun", "--mpi=pmix")


# -- ledger and spool --------------------------------------------------------------------------------------------------


def line(job: str, test_no: int, rep: int, *, rc: int = 0, result: Any = None, reason: str | None = None) -> str:
    head = {"format": 1, "job": job, "test": test_no, "repetition": rep}
    rest = {"round": 1, "at_once": 2, "rc": rc, "started_utc": None, "reason": reason, "evidence": None, "result": result}
    return json.dumps({**head, **rest}, separators=(",", ":"))


def test_the_ledger_knows_what_each_pair_still_misses(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 4, "pairs: {rounds: 1}\nallocation: whole\n")
    tag = "hpcq-c-1-alpha-g00001-1"
    nodes = names(4)
    attempt = {
        "event": "attempt",
        "tag": tag,
        "job": "g00001",
        "attempt_no": 1,
        "nodes": nodes,
        "pairs": ["j00001", "j00002"],
    }
    ledger = ClusterState.replay(plan, [attempt])
    assert (list(ledger.pending), ledger.tournament_count, ledger.attempts[tag].pairs) == ([], 1, (0, 1))
    of_first = {"j00001": [[1, 1], [1, 2], [2, 1], [2, 2]], "j00002": [[1, 1]]}
    end = {"event": "ended", "tag": tag, "outcome": "failed", "reason": "conductor_lost", "nodes": nodes, "measured": []}
    ledger.apply({**end, "measured_of": of_first})
    assert list(ledger.pending) == [1]
    assert ledger.missing(1) == {(1, 2), (2, 1), (2, 2)}
    assert ledger.measured_count == 5


def test_a_node_that_failed_with_three_good_partners_is_decided(tmp_path: Path, cluster: Cluster) -> None:
    plan = plan_of(tmp_path, cluster, 6, "pairs: all\ndecided_after: 3\n")
    state = ClusterState(plan)
    whole = sorted(all_steps(plan, 0))

    def job(client: str, server: str, outcome: str, measured: list[tuple[int, int]]) -> None:
        index = next(place for place, pair in enumerate(plan.pairs) if set(pair) == {client, server})
        tag, nodes = f"hpcq-{client}-{server}", [client, server]
        state.apply({"event": "attempt", "tag": tag, "job": f"j{index + 1:05d}", "attempt_no": 1, "nodes": nodes})
        end = {"event": "ended", "tag": tag, "outcome": outcome, "reason": "", "nodes": nodes, "rc": 0}
        state.apply({**end, "measured": [list(step) for step in measured]})

    one, *others = names(6)
    job(one, others[0], "completed", [step for step in whole if step[0] != 1])
    job(one, others[1], "timed_out", [])
    assert state.failed_pairs() == {("eth0", frozenset((one, others[0]))), ("eth0", frozenset((one, others[1])))}
    job(one, others[2], "node_failed", [])
    assert state.decided() == {}, "two partners, and nothing is known of them"
    job(others[0], others[1], "completed", whole)
    job(one, others[3], "completed", [])
    assert state.decided() == {}, "the third one may be bad itself"
    job(others[3], others[4], "completed", whole)
    assert state.decided() == {("eth0", one): sorted((others[0], others[1], others[3]))}


def test_the_spool_is_read_up_to_where_it_was_torn(tmp_path: Path) -> None:
    begun = '{"format":1,"job":"j00002","test":2,"repetition":1,"begun_utc":"2026-01-01T00:00:00Z"}'
    lines = [line("j00001", 1, 1), line("j00001", 1, 2, rc=1), line("j00002", 1, 1, rc=3, reason="n3: lost"), begun]
    (tmp_path / "spool.jsonl").write_text("\n".join(lines) + "\n" + line("j00009", 1, 1)[:40])
    assert spooled_steps(tmp_path) == {"j00001": [(1, 1), (1, 2)]}
    assert spooled_steps(tmp_path / "nowhere") == {}
    spool = Spool(tmp_path / "spool.jsonl")
    assert (spool.steps("j00001"), spool.steps("j00002"), spool.steps("j00009")) == ([(1, 1), (1, 2)], [(1, 1)], [])
    read = read_line(spool.read_all("j00002", (1, 1))[0], tmp_path / "x", own_kernels(), "tcp_pingpong", {})
    assert (read.outcome, read.reason, read.exit_code) == (Outcome.FAILED, "n3: lost", 3)


def test_a_line_that_was_torn_while_the_conductor_wrote_on_costs_itself_alone(tmp_path: Path) -> None:
    torn, next_one = line("j00001", 1, 1), line("j00002", 1, 1, result={"format": 1})
    (tmp_path / "spool.jsonl").write_text(torn[: len(torn) // 2] + next_one + "\n")
    assert spooled_steps(tmp_path) == {"j00002": [(1, 1)]}
    spool = Spool(tmp_path / "spool.jsonl")
    assert (spool.steps("j00001"), spool.steps("j00002")) == ([], [(1, 1)])
    assert json.loads(spool.read_all("j00002", (1, 1))[0].content or b"") == {"format": 1}


def test_a_spooled_result_says_how_many_measured_at_once(tmp_path: Path) -> None:
    (tmp_path / "spool.jsonl").write_text(line("j00001", 1, 1, result={"format": 1, "granted": {"a": 1}}) + "\n")
    raw = Spool(tmp_path / "spool.jsonl").read_all("j00001", (1, 1))[0]
    assert json.loads(raw.content or b"")["granted"] == {"a": 1, "pairs_at_once_count": 2}
    assert json.loads(raw.status or b"")["rc"] == 0


def test_pairs_of_a_tournament_have_attempts_of_their_own() -> None:
    def attempt(job_id: str, pairs: list[str], number: int) -> dict[str, Any]:
        tag = f"t-{job_id}-1"
        more = {"pairs": pairs} if pairs else {}
        moment = f"2026-01-01T00:00:0{number}Z"
        return {"utc": moment, "event": "attempt", "tag": tag, "job": job_id, "attempt_no": 1, "nodes": ["a", "b"], **more}

    shared = fold([attempt("g00001", ["j00001", "j00002"], 1), attempt("g00002", ["j00002"], 2)])
    assert {one.tag: (one.job, one.attempt_no, one.place) for one in of_pairs(shared.attempts.values())} == {
        "t-g00001-1/j00001": ("j00001", 1, ("g00001", 1)),
        "t-g00001-1/j00002": ("j00002", 1, ("g00001", 1)),
        "t-g00002-1/j00002": ("j00002", 2, ("g00002", 1)),
    }
    plain = list(fold([attempt("j00001", [], 1)]).attempts.values())
    assert of_pairs(plain) == plain
