"""What a campaign will do on one cluster, as in plan.json: pure data, final before hpcq submits anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpcq import nodelist
from hpcq.definition.model import Test
from hpcq.definition.running import of_nodes, of_set
from hpcq.errors import CHANGED_HINT, StoreError
from hpcq.planning.candidates import Candidate, Excluded
from hpcq.planning.job_ids import job_id_of
from hpcq.planning.pairs import Pair

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Goals:
    """What exists after a run without failures."""

    pair_count: int
    result_count: int
    node_pair_count_min: int
    #: The pairs that the campaign wants per node and per two groups; 0 means no goal.
    node_pair_count_goal: int = 0
    group_pair_count_goal: int = 0


@dataclass(frozen=True, slots=True)
class AllocationCost:
    """The cost of one way to share allocations: each job waits once in the queue; seconds are of the longest job."""

    allocation: str
    job_count: int
    estimated_job_s: float
    node_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What the plan costs: seconds are estimates; `allocations` are the ways to share allocations."""

    job_count: int
    estimated_job_s: float
    node_seconds: float
    allocations: tuple[AllocationCost, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One planned job: a pair with its place in the plan."""

    job_id: str
    client: str
    server: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes; of a set, the first one and those that `server` lists."""
        return nodes_of_pair((self.client, self.server))


def nodes_of_pair(pair: Pair) -> tuple[str, ...]:
    """The names of a pair's nodes; where the second name is a list (`n[02-08]`), of all that it names.

    A node with itself is one node.
    """
    return nodelist.nodes_of(*pair)


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """A pair that the campaign lists but that cannot run, and why."""

    client: str
    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one cluster, as in plan.json."""

    run_id: str
    campaign: str
    cluster: str
    interface: str
    seed: int
    candidates: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]
    tests: tuple[Test, ...]
    repetition_count: int
    walltime_s: int
    attempt_count_max: int
    pairs: tuple[Pair, ...]
    not_planned: tuple[NotPlanned, ...]
    goals: Goals
    cost: Cost
    evidence: str = "summary"
    #: Which pairs share an allocation: pair, group (of allocation_node_count nodes) or whole.
    allocation: str = "pair"
    allocation_node_count: int | None = None
    #: The group of each candidate that has one: its switch or a feature. Empty when the campaign asks for none.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: What hpcq changed because of the site's limits, one sentence each.
    notes: tuple[str, ...] = ()
    #: So many of the last `pairs` are sets of nodes: the first node, and a list of the others.
    node_set_count: int = 0
    #: Interfaces of the cluster's networks, by the names that its file gives them.
    networks: Mapping[str, str] = field(default_factory=dict)

    @property
    def sets_begin(self) -> int:
        """The place of the first set of nodes among `pairs`."""
        return len(self.pairs) - self.node_set_count

    def nodes_at(self, index: int) -> tuple[str, ...]:
        """The nodes of the pair or set at this place."""
        return nodes_of_pair(self.pairs[index])

    def tests_at(self, index: int) -> list[Test]:
        """The tests that the pair or set at this place runs, those included that another one measures."""
        if index < self.sets_begin:
            return [test for test in self.tests if not of_nodes(test)]
        count = len(self.nodes_at(index))
        return [test for test in self.tests if of_set(test, count)]

    def planned_pairs(self) -> tuple[PlannedPair, ...]:
        """All planned jobs in order; job_id is `j` and five digits (more from 100,000 on)."""
        return tuple(map(self.pair_at, range(len(self.pairs))))

    def pair_at(self, index: int) -> PlannedPair:
        """The planned job of the pair at this place, from 0."""
        return PlannedPair(job_id_of(index), *self.pairs[index])

    def to_json(self) -> str:
        """The text of plan.json: one line per key, so that people can compare two plans by eye."""
        # asdict would copy half a million pairs one by one
        fields = {"format": 1, **asdict(replace(self, pairs=()))}
        fields["pairs"] = self.pairs
        lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, where: str = "plan.json") -> Plan:
        """Read what `to_json` wrote. Raises StoreError if it is anything else; `where` names the file in messages."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != 1:
                raise ValueError("format is not 1")  # noqa: TRY301 - reported with the others below
            return cls(
                **fields
                | {
                    "candidates": tuple(Candidate(**one) for one in fields["candidates"]),
                    "excluded": tuple(Excluded(**one) for one in fields["excluded"]),
                    "tests": tuple(Test(**{**one, "on": tuple(one.get("on", ()))}) for one in fields["tests"]),
                    "pairs": tuple((client, server) for client, server in fields["pairs"]),
                    "not_planned": tuple(NotPlanned(**one) for one in fields.get("not_planned", ())),
                    "notes": tuple(fields.get("notes", ())),
                    "goals": Goals(**fields["goals"]),
                    "cost": Cost(
                        **fields["cost"]
                        | {"allocations": tuple(AllocationCost(**one) for one in fields["cost"].get("allocations", ()))}
                    ),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise StoreError(
                f"{where}: not a plan of this version: {what}",
                CHANGED_HINT,
            ) from None
