"""What the rest of hpcq sees of a campaign file and a cluster file: frozen, checked, every value final.

    campaign.yaml --campaign.py--> Campaign --+
                                              +--> plan
    clusters/x.yaml --cluster.py--> Cluster --+

Nothing here knows YAML or pydantic, so that any module may import these types at its start.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from math import floor
from typing import TypeVar

from hpcq.errors import UserError
from hpcq.gate_kinds import GateAgainst
from hpcq.kernels import Better, Kernels

# ----------------------------------------------------------------------------------------------------------------------
# What a campaign may use of a cluster: jobs, nodes, node-seconds, hours of the day.

#: Jobs queued and running at once if no budget says otherwise: enough to keep a scheduler busy.
JOBS_AT_MOST = 32


_Limit = TypeVar("_Limit", int | None, float | None)
#: What nodes of one class have: an interface, several, or one by network.
_Interfaces = TypeVar("_Interfaces", str, tuple[str, ...], Mapping[str, str])


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day in this machine's local time, as minutes since midnight; the end may be on the next day."""

    first_min: int
    last_min: int

    def open_at(self, moment: dt.time) -> bool:
        """Whether jobs may start then."""
        now_min = 60 * moment.hour + moment.minute
        if self.first_min <= self.last_min:
            return self.first_min <= now_min < self.last_min
        return now_min >= self.first_min or now_min < self.last_min

    def seconds_left(self, moment: dt.time) -> int:
        """How long jobs may still start at that time of day; 0 if they may not."""
        if not self.open_at(moment):
            return 0
        now_s = 3600 * moment.hour + 60 * moment.minute + moment.second
        return (60 * self.last_min - now_s) % 86400 or 86400

    def __str__(self) -> str:
        return "-".join(f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in (self.first_min, self.last_min))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a campaign may use of a cluster at any time; None means no limit."""

    max_jobs: int | None = None
    max_nodes: int | None = None
    max_node_ratio: float = 1.0
    max_node_seconds: float | None = None
    max_walltime_s: int | None = None
    max_confirmation_jobs: int | None = None
    hours: tuple[Hours, ...] = ()
    gives_way: bool = False
    #: Nodes that other runs of this user have or ask for; they count in the share.
    elsewhere_count: int = 0

    def tightest(self, other: Budget) -> Budget:
        """Combine two budgets: the tighter limit wins."""
        return Budget(
            max_jobs=_smaller(self.max_jobs, other.max_jobs),
            max_nodes=_smaller(self.max_nodes, other.max_nodes),
            max_node_ratio=min(self.max_node_ratio, other.max_node_ratio),
            max_node_seconds=_smaller(self.max_node_seconds, other.max_node_seconds),
            max_walltime_s=_smaller(self.max_walltime_s, other.max_walltime_s),
            max_confirmation_jobs=_smaller(self.max_confirmation_jobs, other.max_confirmation_jobs),
            hours=tuple(dict.fromkeys((*self.hours, *other.hours))),
            gives_way=self.gives_way or other.gives_way,
            elsewhere_count=self.elsewhere_count + other.elsewhere_count,
        )

    def node_limit(self, node_count: int) -> int:
        """How many of `node_count` nodes, idle or ours, may be in use or requested at once."""
        ours_or_idle = node_count + self.elsewhere_count
        share = max(0, floor(self.max_node_ratio * ours_or_idle + 1e-9) - self.elsewhere_count)
        return share if self.max_nodes is None else min(share, self.max_nodes)


def _smaller(one: _Limit, other: _Limit) -> _Limit:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


# ----------------------------------------------------------------------------------------------------------------------
# What a cluster compiles the kernels with, and starts MPI programs with.


@dataclass(frozen=True, slots=True)
class Mpi:
    """How MPI programs are compiled and started; `launch` is argument words, the template adds "one rank per node"."""

    compiler: str
    launch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compiler:
    """How the socket kernels are compiled."""

    cc: str
    cflags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler with an MPI, and the modules and variables of both, by the name that a campaign calls."""

    compiler: Compiler
    mpi: Mpi
    modules: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------------------------
# A link as a campaign describes it: two clusters, and how to measure the network between them.


class Directions(StrEnum):
    """Whether a pair is measured from one end only, or once from each end."""

    ONE = "one"
    BOTH = "both"


class Listen(StrEnum):
    """Which side of a link accepts connections."""

    FROM = "from"
    TO = "to"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Link:
    """Two clusters of a campaign and how to measure the network between them.

    If node_pairs is empty, the seed chooses pairs.
    """

    from_cluster: str
    to_cluster: str
    listen: Listen
    pair_count: int
    node_pairs: tuple[tuple[str, str], ...]
    directions: Directions
    compare: bool
    at_once: int
    peer_wait_s: float

    @property
    def name(self) -> str:
        """The name of the link's part of a run. No cluster's name can contain the sign."""
        return f"{self.from_cluster}+{self.to_cluster}"


# ----------------------------------------------------------------------------------------------------------------------


#: A parameter of a kernel, in the unit of its name.
ParameterValue = int | float | bool | str


class Pattern(StrEnum):
    """How candidate nodes become pairs."""

    ALL = "all"
    RING = "ring"
    ROUNDS = "rounds"
    STAR = "star"
    LIST = "list"
    RANDOM = "random"
    WITHIN = "within"
    ACROSS = "across"
    FILE = "file"
    BISECTION = "bisection"


class Evidence(StrEnum):
    """How much of what the kernels observed is stored with each result."""

    SUMMARY = "summary"
    FULL = "full"


class AllocationKind(StrEnum):
    """Which pairs share an allocation."""

    PAIR = "pair"
    GROUP = "group"
    WHOLE = "whole"


class Concurrency(StrEnum):
    """What else uses the network of an allocation while a pair is measured."""

    ROUNDS = "rounds"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Allocation:
    """How pairs share allocations; node_count belongs to groups. Each test is measured under each of `concurrency`."""

    kind: AllocationKind = AllocationKind.PAIR
    node_count: int | None = None
    concurrency: tuple[Concurrency, ...] = (Concurrency.ROUNDS,)


class GateStatistic(StrEnum):
    """Which value of a series a gate checks."""

    MEDIAN = "median"
    WORST = "worst"


class WithoutReservation(StrEnum):
    """What to do if hpcq may not make the reservation that a campaign asks for."""

    STOP = "stop"
    GO_ON = "without"


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Which nodes a campaign may use; it only ever uses idle ones. Ranges are already expanded.

    state: `idle`: nodes that are idle at planning time; `up`: also those that are busy then.
    make_reservation: hpcq makes its own reservation; the value says what to do if it may not. None: make none.
    """

    state: str = "idle"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    constraint: str | None = None
    partition: str | None = None
    reservation: str | None = None
    make_reservation: WithoutReservation | None = None
    at_most: int | None = None
    #: How long to wait for nodes that are down, drained or not responding: at most what a reboot takes. 0: do not wait.
    reboot_within_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PairChoice:
    """How pairs are made.

    round_count belongs to rounds, within and bisection; node to star; pairs (client, server) to list and file;
    per_node_count to random; per_group_pair_count to across. group defines within and across: `switch`, or a pattern of
    features like rack*. switches is the content of a topology file, empty if hpcq asks the scheduler. A goal of 0 is
    none.
    """

    pattern: Pattern
    round_count: int | None = None
    node: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    directions: Directions = Directions.ONE
    per_node_count: int | None = None
    per_group_pair_count: int = 1
    group: str | None = None
    switches: Mapping[str, str] = field(default_factory=dict)
    #: Files that the campaign names: a run keeps copies.
    files: tuple[str, ...] = ()
    node_goal: int = 0
    group_pair_goal: int = 0


@dataclass(frozen=True, slots=True)
class Test:
    """One test with final parameters: one point of a sweep, as in the campaign, plan.json and the database."""

    __test__ = False  # pytest collects classes named Test*: this is not one

    test_no: int
    kernel: str
    program: str
    parameters: Mapping[str, ParameterValue]
    timeout_s: int
    #: Our other traffic meanwhile: see planning/allocations.py. Empty for pairs in allocations of their own.
    load: str = ""
    #: The test that measures this one too: a foreign program with a table measures many sizes at once. 0: itself.
    measured_by: int = 0
    #: How hpcq-net starts a foreign program: `mpi` under the cluster's MPI launcher, `node` on one node, empty as a client
    #: and a server.
    launch: str = ""
    #: Which toolchain of the cluster built it; empty: the cluster's own compiler and MPI.
    toolchain: str = ""
    #: Where it runs: of pairs, links and nodes. Empty: wherever its kernel can, see running.py.
    on: tuple[str, ...] = ()

    @property
    def needs_mpi(self) -> bool:
        """Whether the cluster's MPI launcher starts it."""
        return self.program == "hpcq-mpi" or self.launch == "mpi"

    @property
    def within_cluster(self) -> bool:
        """Whether it needs one batch system for all of its processes, so that it cannot run over a link."""
        return self.needs_mpi or self.launch == "node"

    @property
    def telling(self) -> Mapping[str, ParameterValue]:
        """What distinguishes its results: parameters, and in tournaments the load."""
        return {**self.parameters, "load": self.load} if self.load else self.parameters


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound for values of `metric` in all tests whose parameters contain `where`.

    minimum and maximum are in the metric's own unit, or, with `against`, shares of the reference: 0.95 is 95 % of it.
    expected: it stands for the campaign's `expect`: where there is no reference, it judges nothing.
    """

    metric: str
    kernel: str
    statistic: GateStatistic
    minimum: float | None
    maximum: float | None
    where: Mapping[str, ParameterValue]
    against: GateAgainst | None = None
    expected: bool = False
    #: Which values of the metric are the good ones.
    better: Better = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A checked campaign file. `budget` is None if the file has none; then the cluster's applies."""

    name: str
    description: str
    clusters: tuple[str, ...]
    nodes: NodeChoice
    pairs: PairChoice
    tests: tuple[Test, ...]
    repetition_count: int
    walltime_s: int | None
    attempt_count_max: int
    seed: int | None
    gates: tuple[Gate, ...]
    budget: Budget | None
    evidence: Evidence
    #: Hpcq's own kernels and those described ones that its tests use.
    kernels: Kernels
    links: tuple[Link, ...] = ()
    #: The file names no pairs: linked clusters then measure only between the nodes of their links.
    pairs_of_links: bool = False
    allocation: Allocation = Allocation()
    toolchains: tuple[str, ...] = ()
    #: Which of a cluster's networks to measure, each pair over each of them. Empty: the cluster's `interface`.
    networks: tuple[str, ...] = ()
    #: With so many partners a node must fail before its other pairs are dropped; 0: they never are.
    decided_after: int = 0

    def seed_of(self, run: str) -> int:
        """The seed of one run: the campaign's own, or, with `seed: each_run`, one made from the run's id."""
        return self.seed if self.seed is not None else seed_from(run)

    def narrowed(self, cluster: Cluster) -> Cluster:
        """The cluster with this campaign's choices. Raises UserError for a network that its file does not name."""
        making = self.nodes.make_reservation
        rails = tuple(dict.fromkeys(interface_of(one, cluster, self.name) for one in self.networks))
        at = {
            pattern: tuple(dict.fromkeys(own.get(one, cluster.networks[one]) for one in self.networks))
            for pattern, own in cluster.networks_at.items()
        }
        return replace(
            cluster,
            partition=self.nodes.partition or cluster.partition,
            interface=rails[0] if rails else cluster.interface,
            interfaces={pattern: own[0] for pattern, own in at.items()} if rails else cluster.interfaces,
            rails=rails if len(self.networks) > 1 else (),
            rails_at=at if len(self.networks) > 1 else {},
            reservation=None if making else self.nodes.reservation or cluster.reservation,
            make_reservation=making,
            reboot_within_s=self.nodes.reboot_within_s,
        )

    def budget_on(self, cluster: Cluster) -> Budget:
        """What this campaign may use of that cluster. If neither file limits the jobs, 32 jobs."""
        both = cluster.budget if self.budget is None else cluster.budget.tightest(self.budget)
        return both if both.max_jobs is not None else replace(both, max_jobs=JOBS_AT_MOST)


@dataclass(frozen=True, slots=True)
class Connection:
    """How commands reach a cluster: on this machine (`ssh_host` is None), or through OpenSSH."""

    ssh_host: str | None = None
    ssh_config: str | None = None

    @property
    def here(self) -> bool:
        """Whether commands of the cluster run on this machine."""
        return self.ssh_host is None


@dataclass(frozen=True, slots=True)
class Ports:
    """The test ports that the site's firewalls leave open, both ends of the range included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Trusted:
    """Who may change the folders above hpcq's own, by name or number: each of them could run programs as the user."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


#: Root and the user are always trusted.
NOBODY_ELSE = Trusted()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A checked cluster file.

    launcher: words before a command that runs on one node; `{node}` is replaced. None: the scheduler's own way.
    mpi: None if the cluster has no MPI. ports: None is any port. work_directory: None is the run's own folder.
    scheduler: one of hpcq.scheduler.kinds. instance: variables that select the instance of it for our commands.
    partition: several are joined by commas.
    """

    name: str
    scheduler: str
    connection: Connection
    nodes: tuple[str, ...]
    partition: str | None
    account: str | None
    qos: str | None
    reservation: str | None
    constraint: str | None
    modules: tuple[str, ...]
    environment: Mapping[str, str]
    launcher: tuple[str, ...] | None
    mpi: Mpi | None
    interface: str
    ports: Ports | None
    compiler: Compiler
    extra_directives: tuple[str, ...]
    work_directory: str | None
    budget: Budget
    max_wait_s: float
    #: How long the shared file system may take to show a job's last writes.
    filesystem_delay_s: float
    poll_interval_s: float
    instance: Mapping[str, str] = field(default_factory=dict)
    toolchains: Mapping[str, Toolchain] = field(default_factory=dict)
    #: Interfaces of several networks, by name. `interface` is the one under test.
    networks: Mapping[str, str] = field(default_factory=dict)
    #: Interfaces of nodes that differ, by a pattern of their features; the others have `interface`.
    interfaces: Mapping[str, str] = field(default_factory=dict)
    #: Interfaces of networks on nodes that differ: pattern -> network -> interface. The others are those of `networks`.
    networks_at: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Set by a campaign: the interfaces over each of which every pair is measured; empty: over `interface` alone.
    rails: tuple[str, ...] = ()
    #: Those of nodes that differ, by a pattern of their features.
    rails_at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: How many of what each node has: numa, nic, gpu.
    per_node: Mapping[str, int] = field(default_factory=dict)
    #: Keys that only this kind of scheduler has, by name.
    extra: Mapping[str, str] = field(default_factory=dict)
    #: How long folders of ended runs stay on the cluster. None: until `hpcq clean`.
    run_folders_kept_s: float | None = None
    #: Who may change the folders above hpcq's own.
    trusted: Trusted = NOBODY_ELSE
    #: Set by a campaign, see NodeChoice; a cluster file has none.
    make_reservation: WithoutReservation | None = None
    #: Jobs submitted now must start within this time or not at all, because the permitted hours end. None: no limit.
    start_within_s: int | None = None
    #: Also set by a campaign: how long to wait for nodes that are down. 0: do not wait.
    reboot_within_s: float = 0.0


def seed_from(text: str) -> int:
    """A seed (31 bits) derived from a text; always the same for the same text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


# ----------------------------------------------------------------------------------------------------------------------
# Which tests of a plan start something, and where they run: on pairs, over links, on the nodes of a set together or alone.


#: The option of kernels that all nodes of a set run together: how many nodes.
NODE_COUNT = "node_count"
#: Most ranks per node, the bound of `hpcq-net rank` and of mpi_collective.
RANKS_PER_NODE_MAX = 1024
#: Where a test may run: between two nodes of a cluster, over a link, on the nodes of a set together or on each alone.
PAIRS, LINKS, NODES = PLACES = ("pairs", "links", "nodes")


def running(tests: Iterable[Test]) -> list[Test]:
    """The tests that start something; the others are sizes that one of these measures too."""
    return [test for test in tests if not test.measured_by]


def of_nodes(test: Test) -> bool:
    """Whether all nodes of a set run the test together, or one node alone, not a pair."""
    return test.launch == "node" or (test.needs_mpi and NODE_COUNT in test.parameters)


def launched(test: Test) -> bool:
    """Whether the MPI launcher starts a foreign program of two ranks: in a tournament once per pair."""
    return test.launch == "mpi" and not of_nodes(test)


def node_count(test: Test) -> int:
    """How many nodes run the test together: one, a pair, or what its parameter says. 0: as many as there are."""
    if test.launch == "node":
        return 1
    return int(test.parameters[NODE_COUNT]) if of_nodes(test) else 2


def of_set(test: Test, count: int) -> bool:
    """Whether a set of so many nodes runs the test. MPI needs two nodes, whatever a parameter says."""
    return of_nodes(test) and node_count(test) == count and (count > 1 or test.launch == "node")


def possible_places(test: Test) -> tuple[str, ...]:
    """Where the processes of a test can run; over links only if the campaign has some."""
    if of_nodes(test):
        return (NODES,)
    return (PAIRS,) if test.within_cluster else (PAIRS, LINKS)


def places_of(test: Test) -> tuple[str, ...]:
    """Where a test runs: where it says, else wherever it can."""
    return test.on or possible_places(test)


def runs_on(test: Test, place: str) -> bool:
    """Whether a test runs there."""
    return place in places_of(test)


def within_clusters(tests: Iterable[Test]) -> tuple[Test, ...]:
    """The tests that run within the clusters, numbered anew, because plans number their tests without gaps."""
    kept = [test for test in tests if runs_on(test, PAIRS) or runs_on(test, NODES)]
    numbers = {test.test_no: number for number, test in enumerate(kept, 1)} | {0: 0}
    return tuple(
        replace(
            test,
            test_no=numbers[test.test_no],
            measured_by=numbers[test.measured_by],
            on=tuple(place for place in places_of(test) if place != LINKS),
        )
        for test in kept
    )


# ----------------------------------------------------------------------------------------------------------------------
# Which interface a campaign measures where a cluster has several networks.


def interface_of(network: str, cluster: Cluster, campaign: str) -> str:
    """The interface of a network that a campaign names. Raises UserError for a name that the cluster file does not have."""
    if network not in cluster.networks:
        known = ", ".join(cluster.networks) or "none"
        raise UserError(
            f"{cluster.name}: networks: {network}: {campaign} asks for it: the cluster file names {known}",
            "networks: {ib: ib0, eth: eth0}",
        )
    return cluster.networks[network]


def measured_over(cluster: Cluster, features: Iterable[str]) -> tuple[str, ...]:
    """The interfaces over which a node with these features is measured: several where a campaign names several networks."""
    if cluster.rails:
        return interface_at(features, cluster.rails_at, cluster.rails)
    return (interface_at(features, cluster.interfaces, cluster.interface),)


def interface_at(features: Iterable[str], by_feature: Mapping[str, _Interfaces], otherwise: _Interfaces) -> _Interfaces:
    """What a node with these features has: that of the first pattern in the cluster file that one of them fits."""
    words = list(features)
    return next((name for pattern, name in by_feature.items() if any(fnmatchcase(one, pattern) for one in words)), otherwise)
