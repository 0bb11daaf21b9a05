"""The cluster file: its keys, their checks, and how it becomes a `Cluster`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, create_model, model_validator

from hpcq import assets, plugins
from hpcq.definition.checking import (
    BudgetSection,
    Document,
    Features,
    Line,
    Lines,
    Name,
    NodeName,
    Place,
    Seconds,
    Section,
    Text,
    Word,
    Words,
    check,
    read_document,
    refuse,
    shown,
)
from hpcq.definition.files.campaign import budget
from hpcq.definition.model import RANKS_PER_NODE_MAX, Cluster, Compiler, Connection, Mpi, Ports, Toolchain, Trusted
from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey
from hpcq.scheduler.kinds import DESCRIPTIONS

# ----------------------------------------------------------------------------------------------------------------------
# The keys of a cluster file that depend on its scheduler, and the check that this scheduler takes them.
#
# hpcq.scheduler.kinds.DESCRIPTIONS  ->  fields of the cluster file (all kinds together), and checks for the kind that it names


def _joined(value: object) -> object:
    """A YAML list of words as the scheduler writes it, joined by commas."""
    if not isinstance(value, list):
        return value
    bad = next((one for one in value if not isinstance(one, str) or not one or "," in one), None)
    if bad is not None or not value:
        raise refuse(f"{shown(value)}: must be one word, or a list of words")
    return ",".join(value)


def _no_gaps(value: str) -> str:
    if not all(value.split(",")):
        raise refuse(f"{shown(value)}: must be one word, or words joined by commas, none of them empty")
    return value


_ONE_OR_MORE: Any = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
_FORMS: dict[KeyForm, Any] = {
    KeyForm.WORD: Word,
    KeyForm.WORDS: Annotated[Word, AfterValidator(_no_gaps), BeforeValidator(_joined), _ONE_OR_MORE],
    KeyForm.FEATURES: Features,
}


def scheduler_fields() -> dict[str, Any]:
    """The fields that pydantic adds to the cluster file: name -> (type, field)."""
    by_name: dict[str, list[tuple[Description, Key]]] = {}
    for description in DESCRIPTIONS.values():
        for key in description.keys:
            by_name.setdefault(key.name, []).append((description, key))
    titles = [f"{one.kind} ({one.title})" for one in DESCRIPTIONS.values()]
    fields: dict[str, Any] = {
        "scheduler": (Literal[tuple(DESCRIPTIONS)], Field(description=f"{', '.join(titles)}.")),
    }
    for name, users in by_name.items():
        helps = dict.fromkeys(key.help for _, key in users)
        kinds = ", ".join(description.kind for description, _ in users)
        fields[name] = (_FORMS[users[0][1].form] | None, Field(default=None, description=f"{' '.join(helps)} With {kinds}."))
    variables = ", ".join(name for one in DESCRIPTIONS.values() for name in one.instance_variables)
    fields["instance"] = (
        dict[str, Line],
        Field(default={}, description=f"Variables that select which instance the scheduler's commands talk to: {variables}."),
    )
    return fields


def filled(file: Any, description: Description) -> dict[str, Any]:
    """Values of this scheduler's own keys, by fields of `Cluster`; the others are None."""
    given: dict[str, Any] = dict.fromkeys(("partition", "account", "qos", "reservation", "constraint"))
    values = {key.name: getattr(file, key.name) for key in description.keys}
    named = {key.fills: values[key.name] for key in description.keys if key.fills is not None}
    extra = {key.name: values[key.name] for key in description.keys if key.fills is None and values[key.name] is not None}
    return {**given, **named, "extra": extra}


def check_scheduler_keys(document: Document, description: Description) -> None:
    """Report keys of other kinds that this one lacks, and check its directives and variables."""
    data, kind = document.data, description.kind
    taken = set(description.key_names())
    known = {key.name for one in DESCRIPTIONS.values() for key in one.keys} | {one.value for one in SharedKey}
    for name in data:
        if name in known - taken:
            others = [one.kind for one in DESCRIPTIONS.values() if name in one.key_names()]
            who = f"{', '.join(others[:-1])} and {others[-1]} have" if len(others) > 1 else f"{others[0]} has"
            has = ", ".join(description.key_names()) or "none of its own"
            words = f"scheduler {kind} has no such key, {who}: the keys that {kind} has are {has}"
            document.complain((name,), words, at_key=True)
    for key in description.keys:
        value = data.get(key.name)
        if key.allowed and isinstance(value, str) and value not in key.allowed:
            document.complain((key.name,), f"{shown(value)}: must be one of {', '.join(key.allowed)}")
        given = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
        for one in given if key.check is not None else ():
            against = key.check(one) if key.check is not None and isinstance(one, str) else None
            if against is not None:
                document.complain((key.name,), f"{shown(one)}: {against}")
    lines = data.get("extra_directives") if SharedKey.EXTRA_DIRECTIVES in description.takes else None
    for place, line in enumerate(lines if isinstance(lines, list) else ()):
        words_against = description.check_directive(line) if isinstance(line, str) else None
        if words_against is not None:
            document.complain(("extra_directives", place), f"{shown(line)}: {words_against}")
    for name, said in description.check_keys(data):
        document.complain((name,), said)
    instance = data.get("instance") if SharedKey.INSTANCE in description.takes else None
    for name in instance if isinstance(instance, dict) else ():
        if name not in description.instance_variables:
            allowed = ", ".join(description.instance_variables)
            document.complain(("instance", name), f"must be one of {allowed}", at_key=True)


# ----------------------------------------------------------------------------------------------------------------------


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOCAL_NODE_COUNT_MAX = 64
_LAUNCH_DEFAULTS = ", ".join(f"{' '.join(one.default_mpi_launch)} with {one.kind}" for one in DESCRIPTIONS.values())
_LAUNCH_WORDS = ("{count}", "{nodes}", "{hostfile}", "{client}", "{server}")


def _host(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9._@:%-]*)", value) or value.endswith("\n"):
        raise refuse(f"{shown(value)} is not a host: must be a name as in `ssh NAME`, best one of your ssh configuration")
    return value


def _interface(value: str) -> str:
    if not re.fullmatch(r"[^\s/:\x00-\x1f\x7f'\"\\$`]{1,15}", value) or value in {".", ".."} or value.startswith("-"):
        raise refuse(f"{shown(value)} is not an interface: must be a name like eth0, ib0, bond0.7, at most 15 characters")
    return value


def _folder(value: str) -> str:
    if not value.startswith("/"):
        raise refuse(f"{shown(value)}: must be a folder on the cluster written out from / on")
    return value.replace("{user}", assets.user_name(os.getuid()))


def _config(value: str) -> str:
    if not value.startswith(("/", "~/")):
        raise refuse(f"{shown(value)}: must be a file on this machine written out from / or ~/ on")
    return str(Path(value).expanduser())


def _ports(value: object) -> object:
    match = re.fullmatch(r"(\d{1,6})\s*-\s*(\d{1,6})", value) if isinstance(value, str) else None
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise refuse(f"{shown(value)}: must be FIRST-LAST within 1024-65535, like 20000-20999")
    return value


def _local_nodes(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 2 <= value <= _LOCAL_NODE_COUNT_MAX:
            raise refuse(f"{value}: must be 2 to {_LOCAL_NODE_COUNT_MAX} nodes, or a list of names")
        return [f"local-{number}" for number in range(1, value + 1)]
    return value


def _environment(value: object) -> object:
    for name in value if isinstance(value, dict) else ():
        if not _VARIABLE.fullmatch(name):
            raise refuse(f"{shown(name)} is not a variable's name: must be letters, digits and _, no digit first")
    return value


def _local(value: object) -> object:
    return None if value == "local" else value


class ConnectionSection(Section):
    """How commands reach the cluster: `connection: local`, or ssh with your own configuration."""

    ssh: Annotated[str, AfterValidator(_host)] = Field(description="Host as you would type it after ssh.")
    ssh_config: Annotated[Line, AfterValidator(_config)] | None = Field(
        default=None, description="An ssh configuration file other than your own; begins with / or ~/."
    )

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "ssh" not in value:
            raise refuse(f"{shown(value)}: must be local or {{ssh: HOST, ssh_config: FILE}}")
        return value


class MpiSection(Section):
    """How MPI programs are compiled and started there."""

    compiler: Line = Field(default="mpicc", description="The compiler wrapper.")
    launch: Words | None = Field(
        default=None,
        min_length=1,
        description="The launcher's command; {count}, {nodes} (by comma), {hostfile} (one per line), {client} and {server} may"
        f" stand in them. Default: {_LAUNCH_DEFAULTS}.",
    )


class CompilerSection(Section):
    """How the socket kernels are compiled there."""

    cc: Line = Field(default="cc", min_length=1, description="The C compiler.")
    cflags: Words = Field(default=["-O2"], description="Its flags.")


class ToolchainSection(Section):
    """A compiler with an MPI, for campaigns that compare several."""

    cc: Line = Field(default="cc", min_length=1, description="The C compiler, also behind the wrapper.")
    cflags: Words = Field(default=["-O2"], description="Its flags.")
    mpi: MpiSection = Field(default=MpiSection(), description="How MPI is compiled and started with it.")
    modules: Lines = Field(default=[], description="Modules to load for it, after those of the cluster.")
    environment: Annotated[dict[str, Text], BeforeValidator(_environment)] = Field(
        default={},
        description="Variables to set for it, before building, for its launcher and for every rank, after those of the"
        " cluster, with the values exactly as written.",
    )


class _ClusterFile(Section):
    """What every cluster file may say; the keys of its scheduler are added below."""

    name: Name = Field(description="Name of the cluster; the file is called NAME.yaml.")
    connection: Annotated[ConnectionSection | None, BeforeValidator(_local)] = Field(
        default=None, description="here, or {ssh: HOST, ssh_config: FILE}. Default: here."
    )
    nodes: (
        Annotated[
            list[NodeName],
            BeforeValidator(_local_nodes),
            WithJsonSchema({"type": ["integer", "array"], "items": {"type": "string"}}),
        ]
        | None
    ) = Field(default=None, description="Scheduler local only: the number of simulated nodes, or their names. Default: 2.")
    modules: Lines = Field(default=[], description="Modules to load before building and in every job.")
    environment: Annotated[dict[str, Text], BeforeValidator(_environment)] = Field(
        default={}, description="Variables to set before building and in every job, with the values exactly as written."
    )
    launcher: Words | None = Field(
        default=None, description="Command that starts a process on the node {node}. Default: the scheduler's own way."
    )
    mpi: MpiSection | None = Field(
        default=None, description="How MPI is compiled and started. Default: the cluster has no MPI."
    )
    toolchains: dict[Name, ToolchainSection] = Field(
        default={}, description="Compilers with an MPI, by the name that `toolchains` of a campaign gives."
    )
    interface: Annotated[str, AfterValidator(_interface)] | None = Field(
        default=None, description="Network interface under test; hpcq reads its address on the node. Default with local: lo."
    )
    networks: dict[Name, Annotated[str, AfterValidator(_interface)]] = Field(
        default={}, description="Interfaces of several networks, by the name that `network` of a campaign gives."
    )
    interfaces: dict[
        Line, Annotated[str, AfterValidator(_interface)] | dict[Name, Annotated[str, AfterValidator(_interface)]]
    ] = Field(
        default={},
        description="Interfaces of nodes that differ, by a feature or a pattern: {gpu: ib1}, or by network: {gpu: {ib: ib1}}."
        " Others: interface.",
    )
    ports: Annotated[str, BeforeValidator(_ports)] | None = Field(
        default=None, description="Ports that are open between nodes, FIRST-LAST. Default: any."
    )
    compiler: CompilerSection = Field(default=CompilerSection(), description="How the socket kernels are compiled.")
    extra_directives: list[Line] = Field(
        default=[], description="More options of the submit command, one per item, like --licenses=fs."
    )
    work_directory: Annotated[Line, AfterValidator(_folder)] | None = Field(
        default=None,
        description="Folder on the cluster that all its nodes see; {user} is your name."
        " Default with connection local: the run's own folder.",
    )
    trusted_users: list[Word] = Field(
        default=[],
        description="Users besides you and root who may own folders above hpcq's own. Each could run programs as you.",
    )
    trusted_groups: list[Word] = Field(
        default=[],
        description="Groups that may write folders above hpcq's own. Each member could run programs as you.",
    )
    budget: BudgetSection = Field(default=BudgetSection(), description="What campaigns may take of the cluster.")
    max_wait_s: Seconds = Field(
        default=600.0, ge=0, description="How long to wait for idle nodes before giving up the pairs that are left."
    )
    filesystem_delay_s: Seconds | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="How long the shared file system may take to show what a job wrote last. Default: 90 s, with local 1 s.",
    )
    poll_interval_s: Seconds | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Longest time between two polls of the scheduler. Default: 5 s; with local 0.5 s.",
    )
    per_node: dict[Literal["core", "numa", "nic", "gpu"], Annotated[int, Field(ge=1, le=RANKS_PER_NODE_MAX)]] = Field(
        default={}, description="What each node has, for `ranks_per_node: per_gpu`: {core: 64, numa: 2, gpu: 4}."
    )
    run_folders_kept_s: Seconds | None = Field(
        default=None,
        ge=86400,
        description="A new run removes folders of runs that ended and that nothing changed for this long, like 30d, from"
        " the cluster. Default: they stay until hpcq clean.",
    )


class _KnownFile(_ClusterFile):
    """A cluster: its scheduler, how to reach it, and what its jobs need."""


#: The cluster file with the keys of all kinds of scheduler. A later check refuses those of other kinds.
ClusterFile: Any = create_model("ClusterFile", __base__=_KnownFile, __doc__=_KnownFile.__doc__, **scheduler_fields())


def read_cluster(path: Path) -> Cluster:
    """Read and check a cluster file. Raises UserError with every complaint, one per line."""
    document = read_document(path)
    hint = "hpcq check FILE and hpcq plan FILE take a campaign"
    document.refuse_other_kind("scheduler", "tests", "this is a campaign: must be a cluster file", hint)
    _environment_as_written(document)
    kind = document.data.get("scheduler")
    reason = plugins.refusal(plugins.SCHEDULERS, kind) if isinstance(kind, str) else ""
    if reason:
        document.complain(("scheduler",), f"{shown(kind)}: plug-in {reason}")
        document.raise_complaints()
    file = check(ClusterFile, document.data, document)
    description = DESCRIPTIONS.get(kind) if isinstance(kind, str) else None
    _check_values(document, path)
    if description is not None:
        check_scheduler_keys(document, description)
        _check_for(document, description, file)
    document.raise_complaints()
    assert file is not None  # noqa: S101 - without complaints there is a file
    assert description is not None  # noqa: S101
    return _cluster(file, description)


def _cluster(file: Any, description: Description) -> Cluster:
    def mpi_of(section: MpiSection) -> Mpi:
        return Mpi(compiler=section.compiler, launch=tuple(section.launch or description.default_mpi_launch))

    ssh = file.connection
    return Cluster(
        name=file.name,
        scheduler=description.kind,
        connection=Connection() if ssh is None else Connection(ssh_host=ssh.ssh, ssh_config=ssh.ssh_config),
        nodes=tuple(file.nodes or description.default_nodes),
        **filled(file, description),
        modules=tuple(file.modules),
        environment=dict(file.environment),
        launcher=None if file.launcher is None else tuple(file.launcher),
        mpi=None if file.mpi is None else mpi_of(file.mpi),
        toolchains={
            name: Toolchain(Compiler(one.cc, tuple(one.cflags)), mpi_of(one.mpi), tuple(one.modules), dict(one.environment))
            for name, one in file.toolchains.items()
        },
        interface=file.interface or next(iter(file.networks.values()), None) or description.default_interface or "",
        networks=dict(file.networks),
        interfaces={pattern: _under_test(one, file) for pattern, one in file.interfaces.items()},
        networks_at={pattern: one for pattern, one in file.interfaces.items() if isinstance(one, dict)},
        ports=_port_range(file.ports),
        compiler=Compiler(cc=file.compiler.cc, cflags=tuple(file.compiler.cflags)),
        extra_directives=tuple(file.extra_directives),
        work_directory=file.work_directory,
        trusted=Trusted(tuple(file.trusted_users), tuple(file.trusted_groups)),
        budget=budget(file.budget),
        max_wait_s=file.max_wait_s,
        filesystem_delay_s=(description.filesystem_delay_s if file.filesystem_delay_s is None else file.filesystem_delay_s),
        poll_interval_s=file.poll_interval_s or description.poll_interval_s,
        run_folders_kept_s=file.run_folders_kept_s,
        per_node=dict(file.per_node),
        instance=dict(file.instance),
    )


def _check_for(document: Document, description: Description, file: Any) -> None:
    """Check what a kind of scheduler demands of keys that every cluster file has."""
    data, least_s = document.data, description.poll_interval_min_s
    if description.default_interface is None and data.get("interface") is None and not data.get("networks"):
        document.complain(("interface",), "missing: name the network interface to measure, like eth0 or ib0")
    if description.here_only and isinstance(data.get("connection"), dict):
        document.complain(("connection",), f"scheduler {description.kind} plays nodes on this machine: must be local")
    interfaces, networks = data.get("interfaces"), data.get("networks") or {}
    for pattern, own in interfaces.items() if isinstance(interfaces, dict) else ():
        for name in own if isinstance(own, dict) and isinstance(networks, dict) else ():
            if name not in networks:
                known = ", ".join(map(str, networks)) or "none"
                document.complain(("interfaces", pattern, name), f"{name}: must be a network of this file: it names {known}")
    if file is not None and file.poll_interval_s is not None and file.poll_interval_s < least_s:
        found = f"{file.poll_interval_s:g} s is below the minimum {least_s:g} s"
        document.complain(("poll_interval_s",), f"{found}: hpcq asks a batch system at most once per second")


def _under_test(own: str | dict[str, str], file: Any) -> str:
    """The interface of nodes that differ, for campaigns that name no network: that of the network which is `interface`."""
    if isinstance(own, str):
        return own
    main = next(
        (name for name, interface in file.networks.items() if interface == file.interface), next(iter(file.networks), "")
    )
    return str(own.get(main) or file.interface or file.networks.get(main) or next(iter(own.values())))


def _port_range(text: str | None) -> Ports | None:
    if text is None:
        return None
    first, last = text.split("-")
    return Ports(int(first), int(last))


def _environment_as_written(document: Document) -> None:
    """`OMP_NUM_THREADS: 08` means the text 08: restore numbers and truth values to what was written."""
    toolchains = document.data.get("toolchains")
    named = toolchains.items() if isinstance(toolchains, dict) else ()
    owners: list[tuple[Place, Any]] = [(("toolchains", name), one) for name, one in named]
    owners.append(((), document.data))
    for place, owner in owners:
        written = owner.get("environment") if isinstance(owner, dict) else None
        environment: dict[Any, Any] = written if isinstance(written, dict) else {}
        for name, value in environment.items():
            if isinstance(value, (bool, int, float)):
                environment[name] = document.text((*place, "environment", name)) or str(value)


def _check_values(document: Document, path: Path) -> None:
    """Checks beyond one key's type: keys that need or exclude each other."""
    data = document.data
    name = data.get("name")
    if isinstance(name, str) and document.clean(("name",)) and name != path.stem:
        document.complain(("name",), f"{shown(name)}, but the file is {path.name}: it must be called {name}.yaml")
    connection = data.get("connection")
    if isinstance(connection, dict) and document.clean(("connection",)) and data.get("work_directory") is None:
        document.complain(("work_directory",), "missing: with connection ssh, name a folder there that all nodes see")
    _check_placeholders(document, ("launcher",), data.get("launcher"), ("{node}",))
    launch = data["mpi"].get("launch") if isinstance(data.get("mpi"), dict) else None
    _check_placeholders(document, ("mpi", "launch"), launch, _LAUNCH_WORDS)
    toolchains = data.get("toolchains")
    for name, one in toolchains.items() if isinstance(toolchains, dict) else ():
        own = one.get("mpi") if isinstance(one, dict) else None
        place = ("toolchains", name, "mpi", "launch")
        _check_placeholders(document, place, own.get("launch") if isinstance(own, dict) else None, _LAUNCH_WORDS)
    nodes = data.get("nodes")
    if isinstance(nodes, list) and document.clean(("nodes",)) and (len(nodes) < 2 or len(set(nodes)) < len(nodes)):
        document.complain(("nodes",), f"{', '.join(nodes) or 'none'}: at least two different names are needed")


def _check_placeholders(document: Document, place: Place, value: object, allowed: tuple[str, ...]) -> None:
    if not value or not document.clean(place):
        return
    text = value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
    unknown = [name for name in re.findall(r"\{\w+\}", text) if name not in allowed]
    if unknown:
        document.complain(place, f"{unknown[0]} means nothing here: must be one of {', '.join(allowed)}")
    elif place == ("launcher",) and "{node}" not in text:
        document.complain(place, f"{shown(value)} does not say which node: write {{node}} where its name belongs")


# ----------------------------------------------------------------------------------------------------------------------
# Which kind of file a YAML file is meant to be, from its keys; the readers then say what is wrong with it.


_OF_CLUSTERS = frozenset(
    {"scheduler", "interface", "connection", "work_directory", "partition", "mpi", "compiler", "ports", "networks"}
)
_OF_CAMPAIGNS = frozenset({"tests", "pairs", "clusters", "gates", "repetitions"})


def is_cluster_file(path: Path) -> bool:
    """Whether more of its keys are those of cluster files than of campaigns. Raises UserError for what is no YAML."""
    data = read_document(path).data
    keys = set(data) if isinstance(data, dict) else set()
    return len(keys & _OF_CLUSTERS) > len(keys & _OF_CAMPAIGNS)
