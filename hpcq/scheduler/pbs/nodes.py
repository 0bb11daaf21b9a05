"""Read nodes: vnodes of `pbsnodes -av`, their comma lists of state words, and the state of a host whose vnodes differ.

    vnode pbn1[0]  free           \
    vnode pbn1[1]  job-exclusive  / host pbn1: busy, "free + job-exclusive"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from hpcq.scheduler.types import NodeCondition, NodeState

# ----------------------------------------------------------------------------------------------------------------------
# What PBS prints, as records: an object's kind and name, and its attributes as text.
#
# hpcq reads two forms. It asks for dsv wherever PBS offers it: one object per line. PBS escapes line breaks and
# control characters in values, so a control character as separator never occurs in a value. hpcq reads the plain form
# of reservations, and of a PBS that knows no formats.
#
#     Job Id: 67.pbhead<0x1f>Job_Name=runner<0x1f>...        dsv; pbsnodes begins with Name=pbn1
#     Job Id: 67.pbhead                                      plain; long values continue in lines that begin with a tab
#         Job_Name = runner
#
# hpcq does not ask for JSON: PBS turns values that look like numbers or lists into numbers or lists, passes on bytes
# that are not UTF-8, and shows only the first of several ids (`qstat -f -F json ID ID`).
#
# Values that name hosts (`exec_host`, `exec_vnode`, chunks of a select) are read here, too. Listings have short names,
# node files have full names.


#: The separator that hpcq asks for, and how to type it.
SEPARATOR = "\x1f"
DSV = "-F dsv -D \"$(printf '\\037')\""
_HEAD = re.compile(r"(Job Id|Queue|Server|Sched|Resv ID|Name)(?:: |=)(\S+)\s*")
_PLAIN_VALUE = re.compile(r"\s*([A-Za-z_][\w.-]*) = ?(.*)", re.DOTALL)
#: No number of PBS has more digits; int() refuses very long ones.
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_VARIABLE = re.compile(r"(?<!\\),")
#: host/slot or host/slot*cpus; PBS joins several with +.
_SLOT = re.compile(r"([^/+]+)/\d+(?:\*\d+)?")


@dataclass(frozen=True, slots=True)
class Listed:
    """One job, node, queue, server or reservation. Attributes have PBS's own names: Resource_List.select."""

    kind: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """Return the text of one attribute."""
        return self.attributes.get(name, default)

    def number(self, name: str) -> int | None:
        """Return an attribute that is a whole number; None if it is absent or something else."""
        text = self.get(name)
        return int(text) if _NUMBER.fullmatch(text) else None

    def below(self, prefix: str) -> dict[str, str]:
        """Return all attributes with one prefix: below("resources_available") -> {"host": "pbn1", ...}."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.attributes.items() if name.startswith(start)}

    def variable(self, name: str) -> str:
        """Return one variable of a job's environment. PBS escapes commas in values."""
        for word in _VARIABLE.split(self.get("Variable_List")):
            key, found, value = word.partition("=")
            if found and key == name:
                return value.replace("\\,", ",")
        return ""


def read_dsv(text: str, separator: str = SEPARATOR) -> list[Listed]:
    """Return one record per line that begins a record.

    Other lines continue the one before: a node's comment may have line breaks.
    """
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in text.split("\n"):
        first, *words = line.split(separator)
        head = _HEAD.fullmatch(first)
        if head is not None:
            found.append((head, words))
        elif found and line and found[-1][1]:
            found[-1][1][-1] += f" {first}"
            found[-1][1].extend(words)
    return [_dsv_record(head, words) for head, words in found]


def _dsv_record(head: re.Match[str], words: Sequence[str]) -> Listed:
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            # Of an attribute with several limits, PBS prints each as one of its own: max_queued=[o:PBS_ALL=10].
            several = value.startswith("[") and found.get(name, "").startswith("[")
            found[name] = f"{found[name]},{value}" if several else value
    return Listed(head[1], head[2], found)


def read_plain(text: str) -> list[Listed]:
    """Return the records of the plain form, with long values folded or not."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for line in _unfolded(text):
        head = _HEAD.fullmatch(line) if not line.startswith((" ", "\t")) else None
        if head is not None and "=" not in line:
            found.append((head[1], head[2], {}))
            continue
        value = _PLAIN_VALUE.fullmatch(line)
        if value is not None and found:
            found[-1][2][value[1]] = value[2]
    return [Listed(*one) for one in found]


def _unfolded(text: str) -> Iterator[str]:
    yield from text.replace("\n\t", "").split("\n")


def exec_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of `pbn1/0*3+pbn2/0*3` in that order, each once. The script runs on the first."""
    return tuple(dict.fromkeys(match[1] for match in _SLOT.finditer(text)))


def vnodes(text: str) -> tuple[str, ...]:
    """Return the vnodes of an exec_vnode or resv_nodes such as `(v[0]:ncpus=2+v[1]:ncpus=1)+(pbn2:ncpus=3)`."""
    inner = re.sub(r"[()]", "", text)
    return tuple(dict.fromkeys(chunk.partition(":")[0] for chunk in inner.split("+") if chunk))


def named_hosts(select: str) -> tuple[str, ...]:
    """Return the hosts that a select names: `1:host=pbn1:ncpus=4+1:vnode=pbn2` -> pbn1, pbn2."""
    words = (word for chunk in select.split("+") for word in chunk.split(":"))
    return tuple(dict.fromkeys(word.partition("=")[2] for word in words if word.startswith(("host=", "vnode="))))


# ----------------------------------------------------------------------------------------------------------------------


#: Source: ND_* of src/include/pbs_internal.h. hpcq reports an unknown word and does not guess.
_STATES = {
    "free": NodeCondition.IDLE,
    "job-busy": NodeCondition.BUSY,
    "job-exclusive": NodeCondition.BUSY,
    "job-sharing": NodeCondition.BUSY,
    "busy": NodeCondition.BUSY,
    "resv-exclusive": NodeCondition.RESERVED,
    "maintenance": NodeCondition.MAINTENANCE,
    "offline": NodeCondition.DRAINED,
    "offline_by_mom": NodeCondition.DRAINED,
    "down": NodeCondition.DOWN,
    "state-unknown": NodeCondition.DOWN,
    "Stale": NodeCondition.DOWN,
    "initializing": NodeCondition.DOWN,
    "unresolvable": NodeCondition.DOWN,
    "provisioning": NodeCondition.DOWN,
    "wait-provisioning": NodeCondition.DOWN,
    "sleep": NodeCondition.POWERED_DOWN,
    "powered-off": NodeCondition.POWERED_DOWN,
    "powered-down": NodeCondition.POWERED_DOWN,
}
#: How long after a job's end its node may become free: a live server writes the same second for both.
_JOB_ENDS_WITHIN_S = 10
#: Of several words, and of several vnodes, the worst determines the host's condition.
_WORST_FIRST = (
    NodeCondition.UNKNOWN,
    NodeCondition.DOWN,
    NodeCondition.POWERED_DOWN,
    NodeCondition.DRAINED,
    NodeCondition.MAINTENANCE,
    NodeCondition.BUSY,
    NodeCondition.RESERVED,
    NodeCondition.PLANNED,
    NodeCondition.IDLE,
)
_FEATURES_LEFT_OUT = {"host", "vnode", "mem", "ncpus", "arch", "vmem", "hbmem", "accelerator_memory", "naccelerators"}


@dataclass(frozen=True, slots=True)
class Vnode:
    """One vnode. reserved_by: ids of the reservations that hold a part of it. jobs: ids without slots, each once."""

    name: str
    host: str
    mom: str
    condition: NodeCondition
    words: str
    comment: str
    jobs: tuple[str, ...]
    reserved_by: tuple[str, ...]
    queue: str
    features: tuple[str, ...]
    state_changed_s: int | None
    #: When a job or a reservation there ended last.
    used_s: int | None = None
    #: Its resources by name, as texts.
    available: Mapping[str, str] = field(default_factory=dict)
    #: Whether jobs that ask for a host of their own get it: PBS ignores that where it says ignore_excl.
    shared_always: bool = False
    #: Of several schedulers of a server, each serves the vnodes and the queues of its partitions.
    partition: str = ""


def read_vnode(record: Listed) -> Vnode:
    """Read one record of pbsnodes. An unknown node has no attributes, and its condition is unknown."""
    available = record.below("resources_available")
    words = record.get("state")
    return Vnode(
        name=record.name,
        host=available.get("host") or record.name,
        mom=record.get("Mom"),
        condition=condition(words),
        words=words,
        comment=record.get("comment"),
        jobs=tuple(dict.fromkeys(one.strip().partition("/")[0] for one in record.get("jobs").split(",") if one.strip())),
        reserved_by=tuple(one.strip() for one in record.get("resv").split(",") if one.strip()),
        queue=record.get("queue"),
        features=tuple(sorted(f"{name}={value}" for name, value in available.items() if name not in _FEATURES_LEFT_OUT)),
        state_changed_s=record.number("last_state_change_time"),
        used_s=record.number("last_used_time"),
        available=available,
        shared_always=record.get("sharing") == "ignore_excl",
        partition=record.get("partition"),
    )


def condition(words: str, more: Mapping[str, NodeCondition] = MappingProxyType({})) -> NodeCondition:
    """Return the condition for a comma list such as `offline,job-busy`: the worst of its words. more: further words."""
    known = {**_STATES, **more}
    return _worst(known.get(word.strip(), NodeCondition.UNKNOWN) for word in words.split(","))


def hosts_of(vnodes: Sequence[Vnode], may_run: Callable[[Vnode], bool] = lambda _: True) -> list[NodeState]:
    """Return the hosts that jobs may use, one entry per host. may_run: whether they may run on a vnode.

    A host that PBS always shares is left out: others would run beside what is measured.
    """
    shared = {vnode.host for vnode in vnodes if vnode.shared_always}
    return list(_hosts(vnode for vnode in vnodes if vnode.host not in shared and may_run(vnode)).values())


def cpus_of(vnodes: Iterable[Vnode]) -> dict[str, int]:
    """Return how many processors each host has, over all its vnodes."""
    found: dict[str, int] = {}
    for vnode in vnodes:
        text = vnode.available.get("ncpus", "")
        found[vnode.host] = found.get(vnode.host, 0) + (int(text) if _NUMBER.fullmatch(text) else 0)
    return {host: count for host, count in found.items() if count > 0}


def reserved_cpus(resv_nodes: str, vnodes: Iterable[Vnode]) -> dict[str, int]:
    """Return how many processors of each host a reservation has: `(v[0]:ncpus=2+v[1]:ncpus=1)+(pbn2:ncpus=3)`."""
    hosts = {vnode.name: vnode.host for vnode in vnodes}
    found: dict[str, int] = {}
    for chunk in re.sub(r"[()]", "", resv_nodes).split("+"):
        name, *words = chunk.split(":")
        count = next((word.partition("=")[2] for word in words if word.startswith("ncpus=")), "")
        if name in hosts and _NUMBER.fullmatch(count):
            found[hosts[name]] = found.get(hosts[name], 0) + int(count)
    return found


def leaves(vnodes: Sequence[Vnode], keys: Sequence[str]) -> dict[str, str]:
    """Return the leaf switch of each host: its word in one of the resources by which PBS makes placement sets.

    keys: node_group_key of the server or queue. Of several, the one with the most sets; one that puts each host in a
    set of its own, or a host in several, tells no switch.
    """
    best: dict[str, str] = {}
    for key in keys:
        words: dict[str, set[str]] = {}
        for vnode in vnodes:
            if vnode.host:
                words.setdefault(vnode.host, set()).update(vnode.available.get(key, "").split(","))
        found = {host: next(iter(one)) for host, one in words.items() if len(one) == 1 and one != {""}}
        sets = set(found.values())
        if len(sets) < len(found) and len(sets) > len(set(best.values())):
            best = found
    return best


def sets_apart(vnodes: Sequence[Vnode], keys: Sequence[str], *, explicit: bool) -> dict[str, str]:
    """Return the placement set of each host, of those that no job may span; empty if one holds all hosts.

    keys: the resources that make sets. A host in several sets counts to the largest. explicit: hosts without a word make
    no set of their own (only_explicit_psets).
    """
    members: dict[str, dict[str, None]] = {}
    for key in keys:
        for vnode in vnodes:
            words = [one.strip(" \"'") for one in vnode.available.get(key, "").split(",")]
            for word in words if vnode.host else ():
                if word or not explicit:
                    members.setdefault(f"{key}={word}", {})[vnode.host] = None
    found: dict[str, str] = {}
    while members:
        name = max(members, key=lambda one: len(members[one].keys() - found))
        found.update(dict.fromkeys(members.pop(name).keys() - found, name))
    return found if len(set(found.values())) > 1 or len(found) < len({one.host for one in vnodes if one.host}) else {}


def came_up_s(parts: Sequence[Vnode]) -> int | None:
    """Return when a free host came up, in seconds of the epoch; None if PBS does not show that.

    PBS records when a state changed. Of a free host whose last job or reservation ended long before, that is when its
    daemon was heard of again, after a reboot, a silence, or an order that ended its drain.
    """
    if any(part.words != "free" or part.jobs for part in parts):
        return None
    changed = max((part.state_changed_s or 0 for part in parts), default=0)
    used = max((part.used_s or 0 for part in parts), default=0)
    return changed if changed > used + _JOB_ENDS_WITHIN_S else None


def by_name(vnodes: Sequence[Vnode]) -> dict[str, NodeState]:
    """Return every host of every queue, by its own name and by those of its vnodes: a select may name either."""
    hosts = _hosts(vnodes)
    return {vnode.name: hosts[vnode.host] for vnode in vnodes if vnode.host} | hosts


def _hosts(vnodes: Iterable[Vnode]) -> dict[str, NodeState]:
    found: dict[str, list[Vnode]] = {}
    for vnode in vnodes:
        if vnode.host:
            found.setdefault(vnode.host, []).append(vnode)
    return {host: _host(host, parts) for host, parts in found.items()}


def _host(host: str, parts: Sequence[Vnode]) -> NodeState:
    words = list(dict.fromkeys(part.words for part in parts))
    found = _worst(part.condition for part in parts)
    # A host that is partly in use counts as in use: hpcq takes whole hosts.
    if found is NodeCondition.IDLE and any(part.jobs for part in parts):
        found = NodeCondition.BUSY
    comments = list(dict.fromkeys(part.comment for part in parts if part.comment))
    return NodeState(
        node=host,
        condition=found,
        native_state=" + ".join(words),
        partitions=tuple(dict.fromkeys(part.queue for part in parts if part.queue)),
        features=tuple(sorted({feature for part in parts for feature in part.features})),
        reason="; ".join(comments) or None,
    )


def _worst(conditions: Iterable[NodeCondition]) -> NodeCondition:
    present = set(conditions)
    return next((one for one in _WORST_FIRST if one in present), NodeCondition.UNKNOWN)


# ----------------------------------------------------------------------------------------------------------------------
# Which PBS a server is, by what `qstat --version` and `pbs_version` say, and what that release can do: two tables.
#
#     pbs_version = 23.06.06                    OpenPBS
#     pbs_version = 2022.1.5.20240213134632     PBS Professional: a year, and when it was built
#     pbs_version = 18.2.3.20181206140456       PBS Professional: when it was built
#     pbs_version = PBSPro_11.1.0.111761        PBS Professional before 13
#
# hpcq reads the words of all releases at once (states, exit codes, reasons): no release gives one of them another meaning.
# This page is about what a release lacks.


class Family(StrEnum):
    """Who makes it. The two PBS are one program, numbered in two ways."""

    OPENPBS = "OpenPBS"
    PROFESSIONAL = "PBS Professional"
    UNKNOWN = "unknown"


#: What other batch systems say of themselves, and what hpcq calls them.
_FOREIGN = (
    (re.compile(r"^ *version: *(\S+)", re.IGNORECASE | re.MULTILINE), "Torque"),
    (re.compile(r"^[A-Za-z/ ]*(?:GE|Grid Engine)[ /A-Z]* ([0-9][\w.]*)", re.MULTILINE), "Grid Engine"),
    (re.compile(r"\bLSF\b[^0-9\n]*([0-9][\w.]*)?"), "LSF"),
    (re.compile(r"^flux ([0-9][\w.-]*)", re.MULTILINE), "Flux"),
)


def read_foreign(said: str) -> str | None:
    """Return which other batch system's commands answered, like `Torque 6.1.3`; None if it says nothing that is known."""
    for pattern, name in _FOREIGN:
        found = pattern.search(said)
        if found is not None:
            return f"{name} {found[1] or ''}".strip()
    return None


class Ability(StrEnum):
    """What hpcq uses and not every release has."""

    DSV = "qstat -F dsv"
    ALTERED_RESERVATIONS = "pbs_ralter"
    NODE_FAILURES = "tolerate_node_failures"
    MAINTENANCE_RESERVATIONS = "pbs_rsub --hosts"
    USERS_OF_RESERVATIONS = "pbs_ralter -U"
    CODES_OF_LIMITS = "exit codes of limits"


@dataclass(frozen=True, slots=True)
class _Since:
    """The first release that has it, in each family's own numbers; without: what a cluster goes without."""

    openpbs: tuple[int, int]
    professional: tuple[int, int]
    without: str


#: Source of the first column: the sources of the releases 14.1.0 to 23.06.06 of OpenPBS, which was called PBS
#: Professional up to 19.1. Of the second: the first release of PBS Professional that was made after the change had
#: entered those sources (2017-02, 2017-07, 2017-08, 2019-05, 2020-01, 2020-12). No PBS Professional was tried.
_SINCE = {
    Ability.DSV: _Since((18, 1), (18, 2), "hpcq cannot read its listings"),
    Ability.ALTERED_RESERVATIONS: _Since((18, 1), (18, 2), "reservations of a run cannot be prolonged"),
    Ability.NODE_FAILURES: _Since((19, 1), (18, 2), "a lost node ends a tournament: write `tolerate_node_failures: none`"),
    Ability.MAINTENANCE_RESERVATIONS: _Since((20, 0), (2020, 1), "hpcq accept prints no order that releases nodes to the test"),
    Ability.USERS_OF_RESERVATIONS: _Since((20, 0), (2020, 1), "hpcq accept prints no order that admits a user"),
    Ability.CODES_OF_LIMITS: _Since((22, 5), (2021, 1), "a time limit is known by the time that the job used"),
}
#: The years in which a release of PBS Professional begins with its year.
_YEARS = range(2020, 2100)
_PBS = re.compile(r"pbs_version\"?\s*[=:]\s*\"?(PBSPro_)?(\d+)\.(\d+)((?:\.\d+)*)")
#: 20181206140456: a release of PBS Professional says when it was built; before 13 a number of six digits.
_BUILT = re.compile(r"\.\d{14}$")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One release. number: as it says it, `2022.1.5.20240213134632`."""

    family: Family
    number: str
    release: tuple[int, int] = (0, 0)

    @property
    def known(self) -> bool:
        return self.family in {Family.OPENPBS, Family.PROFESSIONAL}

    def has(self, ability: Ability) -> bool:
        """Whether this release has it. One that hpcq cannot place is taken for a new one."""
        since = _SINCE[ability]
        return not self.known or self.release >= (since.professional if self.family is Family.PROFESSIONAL else since.openpbs)

    def lacks(self) -> dict[Ability, str]:
        """What this release has not, and what follows."""
        return {ability: since.without for ability, since in _SINCE.items() if not self.has(ability)}

    def __str__(self) -> str:
        return f"{self.family} {self.number}".strip()


def read_dialect(said: str) -> Dialect:
    """Return the release by what the server or a command says of itself."""
    found = _PBS.search(said)
    if found is None:
        return Dialect(Family.UNKNOWN, " ".join(said.split())[:60])
    old, major, minor, rest = found[1], int(found[2]), int(found[3]), found[4]
    professional = old or major in _YEARS or _BUILT.search(rest)
    number = f"{found[2]}.{found[3]}{rest}"
    return Dialect(Family.PROFESSIONAL if professional else Family.OPENPBS, number, (major, minor))
