"""`hpcq cluster new`: look at a cluster that has no cluster file yet, ask what nobody but a person knows, write the file.

    head        scheduler, its name, partitions, accounts          -> which partition, which account
    one node    a job of a second: interfaces; which folders it sees -> which interface, which work directory
    head        compilers and modules of MPI                       -> how MPI programs are started

Everything that was seen stands as a comment beside what was chosen. Nothing is overwritten.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcq.definition.model import NOBODY_ELSE
from hpcq.errors import HpcqError, UserError
from hpcq.own_folder import entering
from hpcq.render import render
from hpcq.scheduler.base import Scheduler, SiteSurvey
from hpcq.scheduler.kinds import DESCRIPTIONS, commands_environment, describe, make
from hpcq.scheduler.types import SchedulerSettings
from hpcq.transport import Here, Ssh, Transport, quote
from hpcq.units import human, utc_now

# ----------------------------------------------------------------------------------------------------------------------
# What a person may say beforehand, and how hpcq asks for the rest.


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says; None: hpcq looks, and asks where it cannot know."""

    name: str | None = None
    ssh_host: str | None = None
    ssh_config: Path | None = None
    scheduler: str | None = None
    partition: str | None = None
    account: str | None = None
    interface: str | None = None
    work_directory: str | None = None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that may stand in the file, and what is known of it."""

    value: str
    words: str


#: (what is asked for, the option that answers it, the choices, the best one first) -> the value.
Ask = Callable[[str, str, Sequence[Choice]], str]


# ----------------------------------------------------------------------------------------------------------------------
# What the node says of its interfaces. Sources: Documentation/ABI/testing/sysfs-class-net, sysfs-class-infiniband.


_NETWORK_LOOK = r"""
echo "@node $(uname -n)"
named=$(getent ahosts "$(uname -n)" 2>/dev/null | awk '{print $1}' | sort -u | tr '\n' ' ')
for d in /sys/class/net/*; do
    i=${d##*/}
    [ "$i" != lo ] && [ ! -d "$d/bridge" ] && [ ! -e "$d/tun_flags" ] && [ ! -d "$d/bonding_slave" ] || continue
    addresses=$(ip -o addr show dev "$i" 2>/dev/null | awk '$3 ~ /^inet/ && $4 !~ /^fe80/ {print $4}' | tr '\n' ' ')
    is_named=no
    for a in $addresses; do case " $named" in *" ${a%/*} "*) is_named=yes ;; esac; done
    rdma=; rate=
    for port in "$d"/device/infiniband/*/ports/*; do
        [ -e "$port/rate" ] || continue
        device=${port%/ports/*}
        rdma=${device##*/}:${port##*/} rate=$(cat "$port/rate" 2>/dev/null)
        break
    done
    driver=$(readlink "$d/device/driver" 2>/dev/null)
    printf '@interface\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$i" \
        "$(cat "$d/type" 2>/dev/null)" "$(cat "$d/operstate" 2>/dev/null)" "$(cat "$d/speed" 2>/dev/null)" \
        "${driver##*/}" "$rdma" "$rate" "$is_named" "$addresses"
done
"""
#: ARPHRD_INFINIBAND of <linux/if_arp.h>.
_INFINIBAND_TYPE = "32"


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a node. rdma: the RDMA device and port behind it, as in mlx5_0:1; "" without one."""

    name: str
    kind: str
    speed_bps: float | None
    addresses: tuple[str, ...]
    is_up: bool
    is_named: bool
    rdma: str

    @property
    def words(self) -> str:
        """Return it as text for a person."""
        speed = [human(self.speed_bps, "bps")] if self.speed_bps else []
        named = ["the node's name leads here"] if self.is_named else []
        return ", ".join([self.kind, *speed, *self.addresses, *([self.rdma] if self.rdma else []), *named])

    @property
    def rank(self) -> tuple[bool, float, bool]:
        """Sort key, the most likely network under test last: a fabric, then the fastest, then not the control network."""
        return self.kind != "Ethernet", self.speed_bps or 0.0, not self.is_named


def read_interfaces(text: str) -> list[Interface]:
    """Return those interfaces that are up and have an address, the most likely one first."""
    found = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 10 or fields[0] != "@interface":
            continue
        _, name, kind, state, speed, driver, rdma, rate, named, addresses = fields
        is_slingshot = driver.startswith("cxi") or name.startswith("hsn")
        what = "InfiniBand" if kind == _INFINIBAND_TYPE else "Slingshot" if is_slingshot else "Ethernet"
        gigabits = re.match(r"([\d.]+) Gb/sec", rate)  # "100 Gb/sec (4X EDR)"
        mbps = int(speed) if speed.isdecimal() else 0
        speed_bps = float(gigabits[1]) * 1e9 if gigabits else mbps * 1e6 or None
        found.append(
            Interface(name, what, speed_bps, tuple(addresses.split()), state in {"up", "unknown"}, named == "yes", rdma)
        )
    return sorted((one for one in found if one.is_up and one.addresses), key=lambda one: one.rank, reverse=True)


# ----------------------------------------------------------------------------------------------------------------------
# Folders that the head writes safely. Which of them a node sees, the node says.


_SHARED_TYPES = "(fuse[.])?(nfs4?|lustre|gpfs|beegfs|beegfs_nodev|ceph|wekafs|pvfs2|orangefs|panfs|glusterfs|afs)"
#: Prints what may be a shared folder of this user, one a line, the more likely ones first. Variables that a login shell
#: sets count: the shell that reads this may be none.
_FOLDERS_LOOK = rf"""
user=$(id -un)
{{
    timeout 10 "${{SHELL:-/bin/sh}}" -lc \
        'printf "@folder %s\n" "$SCRATCH" "$WORK" "$GLOBALSCRATCH" "$WORKDIR"' </dev/null 2>/dev/null | sed -n 's/^@folder //p'
    for d in /scratch /work /lustre /gpfs /beegfs; do printf '%s\n' "$d/$user" "$d"; done
    awk '$3 ~ /^({_SHARED_TYPES})$/ {{print $2}}' /proc/mounts 2>/dev/null |
        while read -r d; do printf '%s\n' "$d/$user" "$d"; done
    printf '%s\n' "$HOME"
}} | while IFS= read -r d; do
    case $d in /*) ;; *) continue ;; esac
    d=$(cd "$d" 2>/dev/null && pwd -P) && [ -w "$d" ] || continue
    case $d in /|/tmp|/var/tmp|/dev/shm) continue ;; esac
    case " $seen " in *" $d "*) continue ;; esac
    seen="$seen $d"
    if words=$( (enter "$d" above) 2>&1 ); then
        {{ : >"$d/.hpcq-new-TOKEN"; }} 2>/dev/null || continue
        printf '@safe\t%s\n' "$d"
    else
        printf '@unsafe\t%s\t%s\n' "$d" "$words"
    fi
done
"""


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders of the head where hpcq could work. safe: of those, the ones that nobody else can change."""

    safe: tuple[str, ...]
    unsafe: tuple[str, ...]


def _folders(transport: Transport, token: str) -> Folders:
    look = f"{entering(NOBODY_ELSE)}\n{_FOLDERS_LOOK}".replace("TOKEN", token)
    rows = [line.split("\t") for line in transport.sh(look).text.splitlines()]
    safe = tuple(row[1] for row in rows if row[0] == "@safe" and len(row) == 2)
    return Folders(safe, tuple(": ".join(row[2:]) for row in rows if row[0] == "@unsafe"))


# ----------------------------------------------------------------------------------------------------------------------
# MPI on the head: a compiler wrapper, whose library decides which launcher starts its programs.


_MPI_LOOK = r"""
PROFILE
for m in MODULES; do module load "$m" >/dev/null 2>&1; done
for c in mpicc mpicc.openmpi mpicc.mpich mpiicx mpiicc; do
    command -v $c >/dev/null 2>&1 && printf '@compiler\t%s\t%s\n' "$c" \
        "$( { $c --showme:version || $c -show; } 2>/dev/null | head -n 1)"
done
[ -z "${CRAYPE_VERSION-}" ] || printf '@compiler\tcc\tCray MPICH\n'
"""
_MODULES_LOOK = r"""
command -v module >/dev/null 2>&1 || . /etc/profile
command -v module >/dev/null 2>&1 || exit 0
module -t avail 2>&1 | sed 's/([^)]*)//g; s/[[:space:]]*$//' | grep -iE \
    '(^|/)(openmpi|open-mpi|ompi|cray-mpich|mpich|mvapich2?|intel-?mpi|impi|hpcx|hmpt|mpt)([/-]|$)' | sort -u
"""
#: How many modules hpcq loads to see whether one brings MPI.
_MODULES_TRIED_MAX = 8


@dataclass(frozen=True, slots=True)
class MpiFound:
    """One way to build and start MPI programs. library: the wrapper's own words."""

    compiler: str
    launch: str
    library: str
    modules: tuple[str, ...] = ()


def _mpi(transport: Transport, kind: str, survey: SiteSurvey, wanted: Sequence[str]) -> tuple[list[MpiFound], list[str]]:
    """Return the ways to start MPI, the best first, and the names of modules that may bring one."""
    modules = transport.sh(_MODULES_LOOK, timeout_s=60).text.split()
    attempts: list[tuple[str, ...]] = [tuple(wanted)] if wanted else [(), *((one,) for one in modules[:_MODULES_TRIED_MAX])]
    for loaded in attempts:
        profile = "command -v module >/dev/null 2>&1 || . /etc/profile" if loaded else ""
        script = _MPI_LOOK.replace("PROFILE", profile).replace("MODULES", " ".join(map(quote, loaded)))
        rows = [line.split("\t") for line in transport.sh(script, timeout_s=60).text.splitlines()]
        found = [
            MpiFound(row[1], _launch(kind, row[2], survey), row[2], loaded)
            for row in rows
            if len(row) == 3 and row[0] == "@compiler"
        ]
        if found:
            return found, modules
    return [], modules


def _launch(kind: str, library: str, survey: SiteSurvey) -> str:
    """Return how programs of a library are started, as the scheduler says; else as its package does by default."""
    own = next((launch for name, launch in survey.mpi_launches.items() if name in library), None)
    default = describe(kind).default_mpi_launch if "Open MPI" in library else ("mpiexec", "-n", "{count}", "-f", "{hostfile}")
    return own or " ".join(default)


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewCluster:
    """What was found of a cluster and chosen for its file."""

    name: str
    kind: str
    head: str
    version: str
    ssh_host: str | None
    ssh_config: Path | None
    survey: SiteSurvey
    partition: str | None
    account: str | None
    node: str
    interfaces: tuple[Interface, ...]
    interface: str | None
    folders: tuple[str, ...]
    unsafe: tuple[str, ...]
    work_directory: str | None
    mpi: tuple[MpiFound, ...]
    modules: tuple[str, ...]
    wanted_modules: tuple[str, ...]
    missing: tuple[str, ...] = field(default=())

    @property
    def network(self) -> Interface | None:
        """Return what is known of the interface under test."""
        return next((one for one in self.interfaces if one.name == self.interface), None)

    @property
    def node_count(self) -> int:
        """Return how many nodes the chosen partitions have; 0 where that is unknown."""
        chosen = (self.partition or "").split(",")
        return sum(one.node_count for one in self.survey.partitions if one.name in chosen)

    def cluster_text(self) -> str:
        """Return the cluster file."""
        description = describe(self.kind)
        context = {
            "one": self,
            "title": description.title,
            "partition_key": next((key.name for key in description.keys if key.fills == "partition"), "partition"),
            "written": utc_now()[:10],
        }
        return render("new_cluster.yaml.j2", context)

    def campaign_text(self) -> str:
        """Return a first campaign, with what each result is expected to be."""
        return render("new_campaign.yaml.j2", {"one": self})


def look_around(wishes: Wishes, ask: Ask, free: Callable[[str], None]) -> NewCluster:
    """Look at a cluster and choose what its file says. Writes nothing but files of a second in candidate folders there.

    free: called with the cluster's name as soon as it is known; raises if its files exist.
    Raises HpcqError if the cluster cannot be reached or asked, UserError for a wish that it cannot meet.
    """
    kind, survey = _first_that_answers(wishes)
    transport = _reach(wishes, kind)
    head = transport.sh("uname -n").text.strip()
    asking = make(kind, transport, SchedulerSettings(nodes=describe(kind).default_nodes))
    version = next((line for line in asking.versions().splitlines() if line.strip()), describe(kind).title)
    name = wishes.name or _name_of(survey.name, head)
    free(name)
    account = wishes.account
    if account is None and len(survey.accounts) > 1:
        account = ask("account to charge", "--account", [Choice(one, "") for one in survey.accounts])
        survey = _survey(asking, account)
    partition = _partition(survey, wishes.partition, ask)
    missing: list[str] = []
    node, interfaces, folders, unsafe = "", list[Interface](), list[str](), tuple[str, ...]()
    here_only = describe(kind).here_only
    if not here_only:
        settings = SchedulerSettings(partition=partition, account=account)
        node, interfaces, folders, unsafe = _ask_node(make(kind, transport, settings), transport, missing)
    mpi, modules = _mpi(transport, kind, survey, wishes.modules)
    return NewCluster(
        name=name,
        kind=kind,
        head=head,
        version=version,
        ssh_host=wishes.ssh_host,
        ssh_config=wishes.ssh_config.absolute() if wishes.ssh_config else None,
        survey=survey,
        partition=partition,
        account=account,
        node=node,
        interfaces=tuple(interfaces),
        interface=describe(kind).default_interface or _interface(interfaces, node, wishes.interface, ask),
        folders=tuple(folders),
        unsafe=unsafe,
        work_directory=wishes.work_directory if here_only else _work_directory(folders, unsafe, wishes, ask),
        mpi=tuple(mpi),
        modules=tuple(modules),
        wanted_modules=wishes.modules or (mpi[0].modules if mpi else ()),
        missing=tuple(missing),
    )


def write_files(texts: dict[Path, str]) -> None:
    """Write these files. Raises UserError if one of them exists; then none is written."""
    for path in texts:
        refuse_existing(path)
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            refuse_existing(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}", "--to names another folder") from error


def refuse_existing(path: Path) -> None:
    """Raise UserError if something is there."""
    if path.exists() or path.is_symlink():
        raise UserError(f"{path}: exists: hpcq overwrites no file", "give the cluster another NAME, or --to another folder")


def _reach(wishes: Wishes, kind: str | None) -> Transport:
    environment = commands_environment(kind or next(iter(DESCRIPTIONS)), {})
    return Ssh(wishes.ssh_host, wishes.ssh_config, environment) if wishes.ssh_host else Here(environment)


def _first_that_answers(wishes: Wishes) -> tuple[str, SiteSurvey]:
    """Return a kind of scheduler and what it says of its site.

    Where several kinds have their commands, the first that answers; where none has, the local queue.
    """
    plain = _reach(wishes, None)
    tests = {kind: one.found_by for kind, one in DESCRIPTIONS.items() if one.found_by}
    script = "\n".join(f"if {test}; then echo {kind}; fi" for kind, test in tests.items())
    found = [wishes.scheduler] if wishes.scheduler else plain.sh(f"{script}\ntrue").text.split()
    failures = []
    for kind in found:
        transport = _reach(wishes, kind)
        try:
            return kind, _survey(make(kind, transport, SchedulerSettings(nodes=describe(kind).default_nodes)), wishes.account)
        except HpcqError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    kind = next(kind for kind, one in DESCRIPTIONS.items() if not one.found_by)
    if not isinstance(plain, Here):
        known = " or ".join(DESCRIPTIONS[one].title for one in tests)
        raise HpcqError(f"{plain.where}: no command of {known} is there", "name a login node of the cluster after --ssh")
    return kind, SiteSurvey()


def _survey(scheduler: Scheduler, account: str | None) -> SiteSurvey:
    command = scheduler.survey_command()
    if command is None:
        return SiteSurvey()
    done = scheduler.transport.sh(command, timeout_s=60)
    if done.returncode != 0:
        words = done.stderr.strip() or f"exit code {done.returncode}"
        hint = "is the scheduler up, and may this user ask it? --scheduler local plays nodes on this machine"
        raise HpcqError(f"{scheduler.transport.where}: {words}", hint)
    return scheduler.read_survey(done.text, account)


def _name_of(cluster: str, head: str) -> str:
    """Return a name for the file: the scheduler's for its cluster, else the machine's."""
    text = re.sub(r"[^a-z0-9_-]+", "-", (cluster or head.partition(".")[0]).lower()).strip("-_")
    return text if text[:1].isalpha() else f"cluster-{text}".rstrip("-")


def _partition(survey: SiteSurvey, wanted: str | None, ask: Ask) -> str | None:
    if not survey.partitions:
        return wanted
    names = [one.name for one in survey.partitions]
    if wanted is not None:
        unknown = [one for one in wanted.split(",") if one not in names]
        if unknown:
            raise UserError(f"--partition: {unknown[0]!r}: must be one of {', '.join(names)}")
        return wanted
    taking = [one for one in survey.partitions if one.takes_pairs]
    if not taking:
        said = "; ".join(f"{one.name}: {one.words()}" for one in survey.partitions)
        raise HpcqError(f"no partition takes jobs of two nodes of this user: {said}", "--partition or --account names another")
    taking.sort(key=lambda one: (one.is_default, one.idle_count), reverse=True)
    if len(taking) == 1:
        return taking[0].name
    choices = [Choice(one.name, f"{one.words()}{' (the default)' if one.is_default else ''}") for one in taking]
    return ask("partition of the jobs", "--partition", choices)


def _ask_node(
    scheduler: Scheduler, transport: Transport, missing: list[str]
) -> tuple[str, list[Interface], list[str], tuple[str, ...]]:
    """Return a node's name, its interfaces, the folders of the head that it sees, and those that are not safe."""
    token = secrets.token_hex(8)
    found = _folders(transport, token)
    marks = " ".join(quote(f"{one}/.hpcq-new-{token}") for one in found.safe)
    look = f'{_NETWORK_LOOK}\nfor f in {marks or "/dev/null/none"}; do [ ! -e "$f" ] || echo "@seen ${{f%/*}}"; done'
    words = ""
    try:
        done = scheduler.probe(look)
        text = done.text
        words = "" if "@node " in text else " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    except HpcqError as error:
        text, words = "", error.message
    finally:
        if marks:
            transport.sh(f"rm -f -- {marks}")
    if words:
        missing.append(f"no node could be asked: {words}")
    node = next((line.removeprefix("@node ") for line in text.splitlines() if line.startswith("@node ")), "")
    seen = [line.removeprefix("@seen ") for line in text.splitlines() if line.startswith("@seen ")]
    return node, read_interfaces(text), [one for one in found.safe if one in seen], found.unsafe


def _interface(interfaces: Sequence[Interface], node: str, wanted: str | None, ask: Ask) -> str:
    if wanted is not None:
        if interfaces and wanted not in [one.name for one in interfaces]:
            there = ", ".join(one.name for one in interfaces)
            raise UserError(f"--interface: {wanted!r}: {node} has no such interface with an address: there are {there}")
        return wanted
    if not interfaces:
        return ask("interface under test, as in `ip addr` on a node", "--interface", [])
    choices = [Choice(one.name, one.words) for one in interfaces]
    return choices[0].value if len(choices) == 1 else ask("interface under test", "--interface", choices)


def _work_directory(folders: Sequence[str], unsafe: Sequence[str], wishes: Wishes, ask: Ask) -> str:
    if wishes.work_directory is not None:
        if not wishes.work_directory.startswith("/"):
            raise UserError(f"--work-directory: {wishes.work_directory!r}: must be written out from / on")
        return wishes.work_directory
    choices = [Choice(one, "") for one in folders]
    if len(choices) == 1:
        return choices[0].value
    what = "folder that the login node and all nodes share"
    if not choices and unsafe:
        what += f" (not {unsafe[0]})"
    return ask(what, "--work-directory", choices)
