"""The description of a foreign program (kernels/described/NAME.yaml): its keys, their checks, and its `Kernel`.

read_document -> types of every key (pydantic) -> options, sizes, metrics against each other -> templates tried -> Kernel
"""

from __future__ import annotations

import re
from pathlib import Path

from hpcq import units
from hpcq.definition.checking import check
from hpcq.definition.foreign.command_words import check_commands
from hpcq.definition.foreign.sections import KernelFile, MetricSection, OptionSection, ReadySection
from hpcq.definition.running import NODE_COUNT
from hpcq.definition.yamlfile import Document, Place, parse_document, read_document, shown
from hpcq.described.commands import check_limit, check_sent, check_sizes, limit_s, programs_text, sent_at_least, sizes
from hpcq.described.output import is_path
from hpcq.described_kernel import Described, Peer, Reading, Ready, Server, Shape, Sizes, Steps, Table
from hpcq.errors import UserError
from hpcq.kernels import SIZE_OPTION, Better, Kernel, Metric, Option, OptionType, complete, option_value

#: As of hpcq's own collective operations.
_RANKS_MAX = 65536
#: Metrics that hpcq-net takes of every program, with their help; the reader of a description adds them.
COMMON_METRICS = (
    ("client_cpu_ratio", Better.LOWER, "CPU time of the program at the client over its run (1.0: one core)"),
    ("server_cpu_ratio", Better.LOWER, "CPU time of the program at the server over its run (1.0: one core)"),
    ("client_node_cpu_ratio", Better.NONE, "busy share of all CPUs of the client's node between the snapshots"),
    ("server_node_cpu_ratio", Better.NONE, "busy share of all CPUs of the server's node between the snapshots"),
    ("client_cpu_ns", Better.NONE, "CPU time of the program at the client over its run"),
    ("server_cpu_ns", Better.NONE, "CPU time of the program at the server over its run"),
    ("client_node_cpu_ns", Better.NONE, "busy time of all CPUs of the client's node between the snapshots"),
    ("server_node_cpu_ns", Better.NONE, "busy time of all CPUs of the server's node between the snapshots"),
)


def read_kernel(path: Path, own: dict[str, Kernel], *, stored: bool = False) -> Kernel:
    """Read and check a description. own: the kernels of hpcq, whose names are taken.

    stored: it was stored with a run; what hpcq once accepted and now refuses must not make its results unreadable.

    Raises UserError with every complaint, one per line.
    """
    return _read(read_document(path), str(path), own, stored=stored)


def kernel_of(text: str, path: str, own: dict[str, Kernel], *, stored: bool = False) -> Kernel:
    """The same from a text; `path` is what messages call it."""
    return _read(parse_document(text, path), path, own, stored=stored)


def _read(document: Document, path: str, own: dict[str, Kernel], *, stored: bool) -> Kernel:
    file = check(KernelFile, document.data, document, stored=stored)
    if file is None:
        document.raise_complaints()
        raise UserError(f"{path}: not a description of a kernel")
    if file.name in own:
        document.complain(("name",), f"{file.name} is a kernel of hpcq itself: allowed is another name")
    if file.name != Path(path).stem:
        document.complain(("name",), f"{file.name}: allowed is {Path(path).stem}, the name of the file")
    _check(file, document, own)
    if not stored:
        _check_strictly(file, document)
    document.raise_complaints()
    kernel = _kernel(file, path, document)
    document.raise_complaints()
    _try(kernel, document, stored=stored)
    document.raise_complaints()
    return kernel


def _check(file: KernelFile, document: Document, own: dict[str, Kernel]) -> None:
    if (file.server is None) == (file.shape == Shape.CLIENT_SERVER.value):
        allowed = "required with" if file.server is None else "not allowed with"
        document.complain(("shape",), f"{shown(file.shape)}: the key server is {allowed} it")
    if file.of == "server" and file.server is None:
        document.complain(("of",), "'server': allowed is client, since there is no server")
    ready = file.server.ready if file.server else ReadySection()
    if ready.words is not None and ready.listening:
        document.complain(("server", "ready"), "words and listening: allowed is one of them")
    for name in file.metrics:
        _check_metric(file, name, document)
        _check_peer(file, name, document, own)
    if file.sizes is not None and (file.table is None or SIZE_OPTION not in file.table.columns):
        document.complain(("sizes",), f"without a table that has the column {SIZE_OPTION}: allowed is one with it")
    if file.sizes is not None and SIZE_OPTION in file.options:
        document.complain(("options", SIZE_OPTION), "the rows of the table have this size: allowed are other options")


def _check_strictly(file: KernelFile, document: Document) -> None:
    """What would start or store something else than the author thinks, and was accepted once."""
    check_commands(file, document)
    for name, metric in file.metrics.items():
        low, high = metric.minimum, metric.maximum
        if low is not None and high is not None and low > high:
            said = f"{high:g} is below the minimum {low:g}: allowed is {low:g} or more"
            document.complain(("metrics", name, "maximum"), said)
    for name, option in file.options.items():
        _check_fit(name, option, document)


def _check_fit(name: str, option: OptionSection, document: Document) -> None:
    numeric = option.type in {"integer", "number"}
    bounded = option.minimum is not None or option.maximum is not None
    if (bounded and not numeric) or (option.choices and option.type != "choice"):
        said = "choices" if option.choices and option.type != "choice" else "minimum and maximum"
        fit = "minimum and maximum" if numeric else "choices" if option.type == "choice" else "a default and a help"
        document.complain(("options", name), f"{said} with the type {option.type}: allowed are {fit}")


def _check_metric(file: KernelFile, name: str, document: Document) -> None:
    metric, place = file.metrics[name], ("metrics", name)
    ways = [way for way in ("json", "column", "regex") if getattr(metric, "json_path" if way == "json" else way) is not None]
    if len(ways) != 1:
        document.complain(place, f"{' and '.join(ways) or 'no way to read it'}: allowed is one of json, column and regex")
    if name in {common for common, _, _ in COMMON_METRICS}:
        document.complain(place, "hpcq-net takes this metric itself: allowed is another name")
    if units.unit_of(name) is None:
        allowed = "allowed is a name that ends in its unit, such as _ns, _us, _s, _bps, _bytes, _ratio, _count, _pps"
        document.complain(place, f"{name} has no unit: {allowed}", at_key=True)
    columns = file.table.columns if file.table else []
    if metric.column is not None and metric.column not in columns:
        found = ", ".join(columns) or "none, there is no table"
        document.complain((*place, "column"), f"{shown(metric.column)} is not a column: allowed are {found}")
    if metric.json_path is not None and not is_path(metric.json_path):
        document.complain((*place, "json"), f"{shown(metric.json_path)}: allowed is a path like end.streams[0].rtt")
    groups = re.compile(metric.regex).groups if metric.regex is not None else 0
    if metric.regex is not None and groups != (2 if metric.units else 1):
        wanted = "2 with units" if metric.units else "1"
        document.complain((*place, "regex"), f"{groups} groups: allowed is {wanted}")
    if metric.units and metric.regex is None:
        document.complain((*place, "units"), "without regex: allowed with it only")
    if metric.comma_separates and metric.regex is None:
        document.complain((*place, "comma_separates"), "without regex: allowed with it only")


def _check_peer(file: KernelFile, name: str, document: Document, own: dict[str, Kernel]) -> None:
    peer, place = file.metrics[name].same_as, ("metrics", name, "same_as")
    if peer is None:
        return
    if peer.kernel not in own:
        document.complain((*place, "kernel"), f"{shown(peer.kernel)}: allowed are {', '.join(own)}")
        return
    metric = own[peer.kernel].metric(peer.metric)
    if metric is None or metric.unit != units.unit_of(name):
        same = [one.name for one in own[peer.kernel].metrics if one.unit == units.unit_of(name)]
        allowed = ", ".join(same) or "none, no metric of it has this unit"
        document.complain((*place, "metric"), f"{shown(peer.metric)}: allowed are {allowed}")


def _kernel(file: KernelFile, path: str, document: Document) -> Kernel:
    options = [_option(name, section) for name, section in file.options.items()]
    metrics = [Metric(name, units.unit_of(name), Better(one.better), one.help) for name, one in file.metrics.items()]
    metrics += [Metric(name, units.unit_of(name), better, about) for name, better, about in COMMON_METRICS]
    if file.sizes is not None:
        about = "size of this result: a row of the table; the options say which there are"
        options.append(Option(SIZE_OPTION, OptionType.INTEGER, "bytes", 0, 0, None, (), about))
    if file.shape == Shape.MPI_RANKS.value and NODE_COUNT not in file.options:
        about = "ranks, one per node; 0: as many as there are nodes"
        options.append(Option(NODE_COUNT, OptionType.INTEGER, None, 0, 0, _RANKS_MAX, (), about))
    kernel = Kernel(
        name=file.name,
        program=Path(file.program).name,
        version="",
        summary=file.summary,
        method=file.method,
        options=tuple(options),
        metrics=tuple(metrics),
        size_option=SIZE_OPTION if any(one.name == SIZE_OPTION for one in options) else None,
        described=_described(file, path),
    )
    for option in kernel.options:
        if option.name in file.options:
            _check_default(kernel, option, document)
    return kernel


def _option(name: str, section: OptionSection) -> Option:
    unit = units.unit_of_option(name)
    bounds = (section.minimum, section.maximum)
    return Option(name, OptionType(section.type), unit, section.default, *bounds, tuple(section.choices), section.help)


def _check_default(kernel: Kernel, option: Option, document: Document) -> None:
    place: Place = ("options", option.name, "default")
    numeric = option.type in {OptionType.INTEGER, OptionType.NUMBER}
    if numeric and (option.minimum is None or option.maximum is None):
        document.complain(place[:2], f"{option.type.value} without minimum and maximum: allowed is with both")
        return
    if option.type is OptionType.CHOICE and not option.choices:
        document.complain(place[:2], "choice without choices: allowed is a list of them")
        return
    try:
        value = option_value(kernel, option, option.default)
    except ValueError as error:
        document.complain(place, str(error))
        return
    if value != option.default or isinstance(value, bool) != isinstance(option.default, bool):
        document.complain(place, f"{shown(option.default)}: allowed is a number in the unit of the name, without its unit")


def _described(file: KernelFile, path: str) -> Described:
    server = None
    if file.server is not None:
        ready = file.server.ready
        how = Ready.WORDS if ready.words is not None else Ready.LISTENING if ready.listening else Ready.AT_ONCE
        server = Server(file.server.command, how, ready.words or "", ready.within_s, file.server.ends)
    table = None if file.table is None else Table(file.table.head, tuple(file.table.columns), file.table.end)
    sizes, sends = file.sizes, file.sends_at_least_bytes
    return Described(
        program=file.program,
        shape=Shape(file.shape),
        modules=tuple(file.modules),
        version=file.version,
        server=server,
        command=file.command,
        limit_s=file.limit_s,
        exit_codes=tuple(file.failure.exit_codes_allowed),
        failure_words=tuple(file.failure.words),
        stream=file.output,
        end=file.of,
        table=table,
        sizes=None if sizes is None else Sizes(SIZE_OPTION, sizes.first, sizes.last, Steps(sizes.steps), sizes.zero),
        readings=tuple(_reading(name, one) for name, one in file.metrics.items()),
        sends_at_least=(sends.client, sends.server) if sends is not None else (),
        path=path,
    )


def _reading(name: str, one: MetricSection) -> Reading:
    factors = tuple((unit, float(factor)) for unit, factor in one.units.items())
    low = None if one.minimum is None else float(one.minimum)
    high = None if one.maximum is None else float(one.maximum)
    peer = None if one.same_as is None else Peer(one.same_as.kernel, one.same_as.metric, float(one.same_as.times))
    where = one.json_path, one.column, one.regex
    return Reading(name, *where, float(one.times), factors, low, high, one.required, peer, one.comma_separates)


def _try(kernel: Kernel, document: Document, *, stored: bool) -> None:
    """Render every template with the defaults: a misspelt option shows here, not in a job."""
    parameters = complete(kernel, {})
    described = kernel.described
    assert described is not None  # noqa: S101 - _kernel has just made it
    attempts = [("limit_s", limit_s), ("sizes", sizes), ("sends_at_least_bytes", sent_at_least)]
    if not stored:
        attempts = [("limit_s", check_limit), ("sizes", check_sizes), *attempts[1:], ("sends_at_least_bytes", check_sent)]
    for key, attempt in attempts:
        if document.complaints:  # what is wrong with the sizes is told once
            return
        try:
            attempt(described, parameters)
        except UserError as error:
            said = error.message.removeprefix(f"{described.path}: ").removeprefix(f"{key}: ")
            document.complain((key,), said, error.hint)
    if document.complaints:
        return
    try:
        programs_text([(1, kernel, parameters)])
    except UserError as error:
        document.complain(("command",), error.message.removeprefix(f"{described.path}: "), error.hint)
