"""The layout of a lab: names, addresses and paths. Pure: nothing is started or written here.

                    10.77.0.0/16                                   10.78.0.0/16
    alpha-n01 --.                                                              .-- beta-n01
    alpha-n02 --+- leaf1 --.                                       .-- leaf1 --+-- beta-n02
    alpha-head -'          +- spine -- wan0 ==== wire ==== wan0 -- spine       '-- beta-head
    alpha-n03 --+- leaf2 --'                                       '-- leaf2 --+-- beta-n03
    alpha-n04 --'                                                              '-- beta-n04

Every machine has eth0 on the network above, which is the one under test, and mgmt0 on a flat network of its cluster
(10.177.0.0/16, 10.178.0.0/16). Its host name resolves to mgmt0's address, and Slurm uses that network.
"""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from faults import UsageError

NODE_COUNT_MAX = 48
LEAF_COUNT_MAX = 16
LABS_FOLDER = Path("/run/hpcq-lab")
CLUSTER_NAMES = ("alpha", "beta")
USERS = {"labuser": 20001, "otheruser": 20002}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")


@dataclass(frozen=True, slots=True)
class Wan:
    """The link between the clusters: one-way delay, and rate and loss of each direction."""

    delay_ns: int
    rate_bps: int
    loss_ratio: float


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a person chose."""

    name: str
    node_count: int
    leaf_count: int
    wan: Wan
    wire: str
    seed: int
    node_rate_bps: int
    uplink_rate_bps: int
    alpha_root: str
    beta_root: str
    alpha_scheduler: str = "slurm"
    beta_scheduler: str = "slurm"
    pbs_history: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A head or a node. `port` names its ends on the switches of its cluster."""

    name: str
    cluster: str
    port: str
    leaf_no: int
    address: str
    mgmt_address: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: a separate site that shares only the link with the other."""

    name: str
    number: int
    head: Machine
    nodes: tuple[Machine, ...]
    root: Path
    folder: Path
    has_accounting: bool
    scheduler: str

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (self.head, *self.nodes)

    @property
    def gateway(self) -> str:
        return f"10.{self.number}.255.254"

    @property
    def network(self) -> str:
        return f"10.{self.number}.0.0/16"

    @property
    def wan_address(self) -> str:
        return f"10.79.0.{self.number - 76}"

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    @property
    def var(self) -> Path:
        return self.folder / "var"

    def pid_file(self, holder: str) -> Path:
        """File in which the first process of a machine, or of the site itself, writes its id as seen from outside."""
        return self.var / "lib/lab" / f"{holder}.pid"

    @property
    def leaf_numbers(self) -> range:
        """The leaf switches, from 1; the head is connected to the first."""
        return range(1, self.nodes[-1].leaf_no + 1)

    def leaf_nodes(self, leaf_no: int) -> list[Machine]:
        return [node for node in self.nodes if node.leaf_no == leaf_no]


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab with all its names. `state` is its only folder on disk."""

    settings: Settings
    state: Path
    clusters: tuple[Cluster, ...]

    @property
    def init_pid_file(self) -> Path:
        return self.state / "init.pid"

    @property
    def wire_socket(self) -> Path:
        return self.state / "wire.socket"

    @property
    def ssh_config(self) -> Path:
        return self.state / "ssh_config"

    def cluster_file(self, cluster: Cluster) -> Path:
        return self.state / "clusters" / f"{cluster.name}.yaml"

    def cluster(self, name: str) -> Cluster:
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise UsageError(f"cluster: {name!r} is not in this lab: {' and '.join(CLUSTER_NAMES)} are")

    def machine(self, where: str) -> Machine:
        """`alpha` -> its head; `alpha/alpha-n02` and `alpha/n02` -> that node."""
        cluster_name, _, short = where.partition("/")
        cluster = self.cluster(cluster_name)
        if not short:
            return cluster.head
        for machine in cluster.machines:
            if short in {machine.name, machine.name.removeprefix(f"{cluster_name}-")}:
                return machine
        first, last = cluster.nodes[0].name, cluster.nodes[-1].name
        raise UsageError(f"node: {short!r} is not in {cluster_name}: head and {first} to {last} are")

    def leaf_no(self, where: str) -> int | None:
        """`alpha/leaf2` -> 2; None for a name that is no leaf switch."""
        cluster_name, _, short = where.partition("/")
        match = re.fullmatch(r"leaf(\d+)", short)
        if match is None:
            return None
        leaf_numbers = self.cluster(cluster_name).leaf_numbers
        if int(match[1]) not in leaf_numbers:
            raise UsageError(f"leaf: {short!r} is not in {cluster_name}: leaf1 to leaf{leaf_numbers[-1]} are")
        return int(match[1])


def lab_of(settings: Settings, state: Path) -> Lab:
    """Every name and address of the lab with these settings."""
    roots = {"alpha": settings.alpha_root, "beta": settings.beta_root}
    clusters = tuple(
        _cluster(name, 77 + index, settings, Path(roots[name]), state / name) for index, name in enumerate(CLUSTER_NAMES)
    )
    return Lab(settings, state, clusters)


def checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name: {name!r} is not a name: up to 24 of a-z, 0-9 and -, beginning with a letter")
    return name


def settings_as_json(settings: Settings) -> dict[str, object]:
    return dataclasses.asdict(settings)


def settings_from_json(found: dict[str, object]) -> Settings:
    """The inverse of settings_as_json. Raises TypeError or KeyError for settings of another release."""
    wan = found["wan"]
    if not isinstance(wan, dict):
        raise TypeError("wan")
    return Settings(**{**found, "wan": Wan(**wan)})  # type: ignore[arg-type]


def _cluster(name: str, number: int, settings: Settings, root: Path, folder: Path) -> Cluster:
    head = Machine(f"{name}-head", name, "head", 1, f"10.{number}.0.1", f"10.{number + 100}.0.1", is_head=True)
    node_count, leaf_count = settings.node_count, min(settings.leaf_count, settings.node_count)
    nodes = []
    for node_no in range(1, node_count + 1):
        leaf_no = 1 + (node_no - 1) * leaf_count // node_count  # the first leaves get the surplus nodes
        nodes.append(
            Machine(
                name=f"{name}-n{node_no:02d}",
                cluster=name,
                port=f"n{node_no:02d}",
                leaf_no=leaf_no,
                address=f"10.{number}.{leaf_no}.{node_no}",
                mgmt_address=f"10.{number + 100}.1.{node_no}",
                is_head=False,
            )
        )
    scheduler = settings.beta_scheduler if name == "beta" else settings.alpha_scheduler
    remembers = settings.pbs_history if scheduler == "pbs" else name == "alpha"
    return Cluster(name, number, head, tuple(nodes), root, folder, has_accounting=remembers, scheduler=scheduler)
