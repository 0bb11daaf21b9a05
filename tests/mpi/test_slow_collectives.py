"""What the judging verbs say when a test of N nodes gets worse: no node is named by it, and its pairs are asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.definition.derive import with_pairs
from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import UserError
from hpcq.kernels import own_kernels
from hpcq.nodelist import takes_part
from hpcq.run_folder.paths import write_json
from hpcq.store.load.cluster import load_run
from hpcq.verdict.node_sets import PairsOfSet
from tests import REPOSITORY
from tests.history.histories import Night, json_of
from tests.store.run_folders import START

pytestmark = pytest.mark.fast

STREAM = ("tcp_stream", {"message_bytes": 65536})
SINCE = ("--since", "2026-11-10")


@dataclass
class SetNight(Night):
    """A night whose last job is all nodes together; collective: the time of an operation beside its usual one."""

    collective: float = 1.0
    collective_fails: bool = False
    tests: Any = ()

    @property
    def _of_set(self) -> str:
        return f"j{len(self.pairs):05d}"

    def write_plan(self, **changed: Any) -> None:
        super().write_plan(**changed)
        path = self.folder.plan(self.cluster)
        plan = json_of(path.read_text())
        for test in plan["tests"]:
            test["program"] = self.kernels[test["kernel"]]["program"]
        plan["node_set_count"] = 1
        write_json(path, plan)

    def attempt(self, job_id: str, attempt_no: int = 1, *, steps: Any = None) -> Path:
        together = job_id == self._of_set
        mine = [step for step in self.steps if (self.tests[step[0] - 1][0] == "mpi_collective") == together]
        return super().attempt(job_id, attempt_no, steps=steps or mine)

    def line(self, job_id: str, step: tuple[int, int], **changed: Any) -> dict[str, Any]:
        made = super().line(job_id, step, **changed)
        if job_id == self._of_set:
            made["metrics"] = {"operation_p50_ns": 5e6 * self.collective * (1 + self.random.gauss(0, self.noise))}
            made["series"] = None
            if self.collective_fails:
                made |= {"valid": False, "invalid_reason": "rank 3 died", "metrics": {}, "exit_code": 1}
        return made


@dataclass
class Collectives:
    """A database of nights with all pairs of some nodes, and two collectives on all of them."""

    folder: Path
    node_count: int = 4
    pairs: tuple[tuple[str, str], ...] | None = None

    @property
    def database(self) -> Path:
        return self.folder / "results.db"

    def night(self, day: float, **changed: Any) -> str:
        names = [f"n{number}" for number in range(1, self.node_count + 1)]
        collective = {"node_count": self.node_count, "message_bytes": 65536}
        listed = tuple(combinations(names, 2)) if self.pairs is None else self.pairs
        moment = START + dt.timedelta(days=day)
        made = SetNight(
            self.folder / "runs",
            run=f"nightly-{moment:%Y%m%dT%H%M%SZ}-alph",
            pairs=(*listed, ("n1", f"n[2-{self.node_count}]")),
            tests=(STREAM, ("mpi_collective", {**collective, "operation": "allreduce"}),
                   ("mpi_collective", {**collective, "operation": "alltoall"})),
            repetition_count=1, counter_count=0, seed=int(day * 100) + 1, day=day, bare=True, **changed,
        )  # fmt: skip
        made.seconds = day * 86400
        made.everything()
        load_run(self.database, made.path)
        return made.run

    def nights(self, *, collective: float = 1.0, levels: Mapping[str, float] | None = None) -> Collectives:
        """Fourteen good nights, then six with these levels."""
        for day in range(-20, 0):
            late = day >= -6
            self.night(day, collective=collective if late else 1.0, levels=levels if late and levels else {})
        return self


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    def said(made: Collectives, *words: str) -> tuple[int, str]:
        code = hpcq([*words, "--db", str(made.database)])
        printed = capsys.readouterr()
        return code, printed.out if "--json" in words else printed.out + printed.err

    return said


def blocks(said: str) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["name"]): one for one in json_of(said)["blocks"]}


@pytest.mark.promise("Beside a collective that got worse stand the pairs of its nodes that got worse with it.")
@pytest.mark.heavy
def test_a_slow_node_is_named_by_its_pairs_and_the_collective_tells_them(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights(collective=1.5, levels={"n3": 0.8})
    code, said = say(made, "regressions", *SINCE, "--json")
    found = blocks(said)
    assert (code, set(found)) == (3, {("node", "n3"), ("nodes", "n[1-4]")})
    together = found["nodes", "n[1-4]"]
    assert len(together["series_ids"]) == together["judged_count"] == 2
    assert together["since_utc"][:10] == found["node", "n3"]["since_utc"][:10] == "2026-11-15"
    assert together["pairs"]["slow"] == [["n1", "n3"], ["n2", "n3"], ["n3", "n4"]]
    words = say(made, "regressions", *SINCE)[1]
    assert "worse: nodes alpha/n[1-4]: 2 of 2 series, +50" in words
    assert "its pairs       3 of 6 judged pairs of its nodes got worse with it: n1 - n3, n2 - n3, n3 - n4" in words


@pytest.mark.promise("A collective that got worse while its pairs are fine names nobody, and says what to measure.")
@pytest.mark.promise("The page of a node is not failed by a collective in whose name the node stands first.")
@pytest.mark.promise("A node's list of changes has none of a collective.")
@pytest.mark.promise("`report --node` and `node` say what became of the collectives that a node took part in.")
@pytest.mark.heavy
def test_a_collective_that_is_slow_alone_names_nobody_and_what_to_measure(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights(collective=1.5)
    code, said = say(made, "regressions", *SINCE, "--json")
    assert (code, list(blocks(said))) == (3, [("nodes", "n[1-4]")])
    words = say(made, "regressions", *SINCE)[1]
    assert "none of 6 judged pairs of its nodes got worse with it: measure the pairs all at once (allocation: whole)" in words
    assert "exclude: n1 and so on; node_count: 0" in words
    number = json_of(said)["changes"][0]["series_id"]
    assert "none of 6 judged pairs of its nodes got worse with it" in say(made, "history", str(number))[1]
    page = tmp_path / "page.html"
    code, words = say(made, "report", *SINCE, "--node", "n1", "--to", str(page))
    assert code == 0, "n1 stands first in the set, no more"
    together = "tests of several nodes together, which name none of them: 2 series judged: 2 DEGRADED"
    slow = "nodes alpha/n[1-4] is worse: 2 of 2 series, +"
    assert all(one in words and one in page.read_text() for one in (together, slow)), words
    for node in ("n1", "n4"):
        told = say(made, "nodes", node, "--since", "2026-11-10")[1]
        assert all(f"together      {one}" in told for one in (together, slow)), told
    assert say(made, "report", *SINCE, "--to", str(page))[0] == 3
    assert "its pairs: none of 6 judged pairs" in page.read_text()
    assert say(made, "regressions", *SINCE, "--record")[0] == 3
    told = say(made, "nodes", "n1", "--since", "90d")[1]
    assert "n2" in told
    assert "n[2-4]" not in told


@pytest.mark.promise("Collectives beside one slow node of three make no slow cluster.")
@pytest.mark.heavy
def test_collectives_beside_one_slow_node_make_no_slow_cluster(tmp_path: Path, say: Any) -> None:
    """Three nodes, one slow: two of three pairs, and the collectives would make it more than most series."""
    made = Collectives(tmp_path, node_count=3).nights(collective=1.5, levels={"n3": 0.8})
    assert set(blocks(say(made, "regressions", *SINCE, "--json")[1])) == {("node", "n3"), ("nodes", "n[1-3]")}


@pytest.mark.promise("A cluster that is slower as a whole takes its collectives with it.")
@pytest.mark.heavy
def test_a_slower_cluster_takes_its_collectives_with_it(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights(collective=1.25, levels=dict.fromkeys(("n1", "n2", "n3", "n4"), 0.8))
    [(key, found)] = blocks(say(made, "regressions", *SINCE, "--json")[1]).items()
    assert (key, len(found["series_ids"]), found["judged_count"]) == (("cluster", "alpha"), 8, 8)


@pytest.mark.promise("A collective whose nodes were not all measured in pairs says which pairs are missing.")
@pytest.mark.heavy
def test_a_collective_without_judged_pairs_asks_for_them(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path, pairs=(("n1", "n2"),)).nights(collective=1.5)
    words = say(made, "regressions", *SINCE)[1]
    assert "none of 1 judged pair of its nodes got worse with it, but n[3-4] is in none of them: measure its pairs" in words
    assert say(made, "regressions", *SINCE, "--kernel", "mpi_collective")[1].count("no pair of its nodes was judged") == 1


@pytest.mark.heavy
@pytest.mark.promise("`blame` reports a collective that fails, and names nobody for it.")
def test_blame_tells_a_failed_collective_and_names_nobody(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path)
    for day in range(3):
        made.night(day)
    assert say(made, "blame")[0] == 0
    made.night(3, collective_fails=True)
    code, words = say(made, "blame")
    assert code == 3
    assert "6 of 6 jobs of pairs judged" in words
    assert "on n[1-4] together brings nothing in 1 of 1 job: rank 3 died" in words
    assert "2 tests of several nodes together: no node is named by them, their pairs do" in words
    found = json_of(say(made, "blame", "--json")[1])
    assert (found["nodes"], found["links"], [one["lost_count"] for one in found["sets"]]) == ([], [], [1, 1])


def test_blame_on_collectives_alone_asks_for_pairs(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path, pairs=())
    made.night(0, collective=2.0)
    code, words = say(made, "blame")
    assert (code, "no node is named by them, measure pairs of them" in words) == (4, True)


@pytest.mark.promise(
    "A campaign of other pairs, as acceptance and `blame --campaign` write it, has no collectives and no links."
)
def test_a_campaign_of_other_pairs_leaves_collectives_and_links_out(tmp_path: Path) -> None:
    """What accept and `blame --campaign` run: a collective would take nodes that nobody asked about, and names none."""
    source = (REPOSITORY / "campaigns/mixed.yaml").read_text() + (
        "transport: tcp\ngates:\n  - {metric: throughput_bps, kernel: tcp_stream, minimum: 1}\n"
        "  - {metric: operation_p50_ns, maximum: 1s}\n  - {metric: lost_ratio, kernel: udp_stream, maximum: 1}\n"
    )
    assert with_pairs(source, own_kernels(), tmp_path / "other.yaml", "alpha", [("n3", "n1")], 5) == (
        "udp_stream",
        "mpi_collective",
    )
    made = read_campaign(tmp_path / "other.yaml")
    assert [test.kernel for test in made.tests] == ["tcp_stream", *["tcp_pingpong"] * 2, *["mpi_pingpong"] * 2]
    assert {test.on for test in made.tests} == {("pairs",)}
    assert [(gate.kernel, gate.metric) for gate in made.gates] == [("tcp_stream", "throughput_bps")]
    alone = "name: a\nclusters: [x]\npairs: all\ntests: [{kernel: mpi_collective}]\n"
    with pytest.raises(UserError, match=r"tests: none of them runs on pairs"):
        with_pairs(alone, own_kernels(), tmp_path / "none.yaml", "x", [("n3", "n1")], 5)


@pytest.mark.promise("compare says of a slow collective which pairs of its nodes are slow too.")
@pytest.mark.heavy
def test_compare_tells_of_a_slow_collective_which_pairs_are_slow_too(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights(collective=1.5, levels={"n3": 0.8})
    code, said = say(made, "compare", "2026-11-10..2026-11-14", "2026-11-16..2026-11-20", "--json")
    together = [one for one in json_of(said)["pairs"] if one["kernel"] == "mpi_collective"]
    assert (code, {one["verdict"] for one in together}) == (3, {"worse"})
    assert [one["pairs"]["slow"] for one in together] == [[["n1", "n3"], ["n2", "n3"], ["n3", "n4"]]] * 2
    assert all(one["why"] == one["pairs"]["words"] for one in together)
    assert {"pairs" in one for one in json_of(said)["pairs"] if one["kernel"] == "tcp_stream"} == {False}
    alone = Collectives(tmp_path / "alone").nights(collective=1.5)
    code, words = say(alone, "compare", "2026-11-10..2026-11-14", "2026-11-16..2026-11-20")
    assert code == 3
    assert "none of 6 judged pairs of its nodes got worse with it" in " ".join(words.split())


@pytest.mark.promise("--node selects the tests of sets that the node took part in, wherever it stands in the name.")
@pytest.mark.promise("Results, exports and retractions of a node include those of its sets.")
@pytest.mark.promise("The name of a set of nodes is no node: --node refuses it and names the nodes.")
@pytest.mark.heavy
def test_a_node_selects_every_test_that_it_took_part_in(tmp_path: Path, say: Any) -> None:
    made = Collectives(tmp_path).nights(collective=1.5)
    of_sets = {("n1", "n[2-4]")}

    def places(*words: str, key: str = "") -> set[tuple[str, str]]:
        found = json_of(say(made, *words, "--json")[1])
        return {(one["client"], one["server"]) for one in (found[key] if key else found)}

    for node in ("n1", "n3", "n4"):
        pairs = {pair for pair in combinations(("n1", "n2", "n3", "n4"), 2) if node in pair}
        assert places("history", "--node", node) == pairs | of_sets
        assert places("results", "--each", "--node", node, key="results") == pairs | of_sets
        assert places("regressions", *SINCE, "--node", node, key="changes") == of_sets
    assert say(made, "regressions", *SINCE, "--record")[0] == 3
    assert places("changes", "list", "--node", "n4") == of_sets
    assert say(made, "export", "latest", "--format", "csv", "--node", "n3")[1].count("n[2-4]") == 2
    for verb in (["history"], ["results"], ["changes", "list"], ["event", "list"]):
        code, words = say(made, *verb, "--node", "n[2-4]")
        assert (code, "n4" in words) == (2, True), words
    assert say(made, "retract", "--run", "latest", "--node", "n4", "--why", "it was open")[0] == 0
    assert places("results", "--each", key="results") == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}


@pytest.mark.promise("A node is in no set whose name merely contains its own.")
def test_a_node_is_not_in_a_set_whose_name_contains_its_own() -> None:
    assert takes_part("n3", "n1", "n[2-4]")
    assert takes_part("n3", "n3", "n1")
    assert takes_part("m7", "n1", "n[2-4],m7")
    for client, server in (("n1", "n[30-33]"), ("n31", "n13"), ("n1", "an[2-4]"), ("n1", "n[03-04]"), ("n1", "n[1,4-5]")):
        assert not takes_part("n3", client, server)


def test_large_sets_are_halved() -> None:
    nodes = [f"n{number}" for number in range(1, 9)]
    fine = PairsOfSet.of(nodes, [("n2", "n1"), *combinations(nodes, 2), ("n1", "n99")], [], [])
    assert len(fine.judged) == 28
    assert "(include: n[1-4] and include: n[5-8]; node_count: 0)" in fine.words
    before = PairsOfSet.of(nodes, combinations(nodes, 2), [], [("n4", "n3")])
    assert "(n3 - n4: at another time)" in before.words
