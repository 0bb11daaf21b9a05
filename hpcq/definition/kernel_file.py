"""The description of a foreign program (kernels/described/NAME.yaml): its keys, their checks, and its `Kernel`.

read_document -> types of every key (pydantic) -> options, sizes, metrics against each other -> templates tried -> Kernel
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from hpcq import assets, units
from hpcq.definition.checking import (
    QUANTITY,
    Document,
    Line,
    Place,
    Seconds,
    Section,
    Text,
    check,
    is_stored,
    listed,
    parse_document,
    read_document,
    refuse,
    shown,
)
from hpcq.definition.model import NODE_COUNT, RANKS_PER_NODE_MAX, ParameterValue, Test
from hpcq.described import (
    IN_THE_JOB,
    INDEX,
    LIMIT_MAX_S,
    OVERHEAD_S,
    check_limit,
    check_sent,
    check_sizes,
    holds,
    index_text,
    is_path,
    limit_s,
    names_held,
    programs_text,
    sent_at_least,
    sizes,
)
from hpcq.errors import UserError
from hpcq.kernels import (
    ARGUMENTS,
    PER_THING,
    RANKS_PER_NODE,
    SERVER_ARGUMENTS,
    SIZE_OPTION,
    Better,
    Described,
    Kernel,
    Kernels,
    Metric,
    Option,
    OptionSaid,
    OptionType,
    Peer,
    Reading,
    ReadySign,
    Server,
    Shape,
    Sizes,
    Steps,
    Table,
    complete,
    option_value,
    own_kernels,
)

# ----------------------------------------------------------------------------------------------------------------------
# The keys of a description of a foreign program (kernels/described/NAME.yaml), each with its check and its meaning.


_NAME = r"[a-z][a-z0-9_]{0,40}"


def _small_name(value: str) -> str:
    if not re.fullmatch(_NAME, value):
        raise refuse(f"{shown(value)} is not a name: must be a-z, 0-9 and _, 41 at most, a letter first")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise refuse(f"{shown(value)}: {error}: must be a regular expression") from None
    return value


def _some(value: str, info: ValidationInfo) -> str:
    if not value.strip() and not is_stored(info):
        raise refuse("nothing: must be a text")
    return value


def _module(value: str, info: ValidationInfo) -> str:
    if (value.startswith("-") or len(value.split()) != 1) and not is_stored(info):
        raise refuse(f"{shown(value)}: must be the name of one module, without blanks and no dash first")
    return value


def _finite(value: float, info: ValidationInfo) -> float:
    if not math.isfinite(value) and not is_stored(info):
        raise refuse(f"{value:g}: must be a finite number")
    return value


def _above_0(value: float, info: ValidationInfo) -> float:
    if not value > 0 and not is_stored(info):
        raise refuse(f"{value:g} is not above 0")
    return value


def _program(value: str, info: ValidationInfo) -> str:
    if ("{{" in value or "{%" in value) and not is_stored(info):
        raise refuse(f"{shown(value)} is no template: must be a name that PATH finds on the nodes, or a path")
    return value


def _file_name(value: str, info: ValidationInfo) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", value) and not is_stored(info):
        raise refuse(f"{shown(value)}: must be the name of a file: letters, digits, _, and . or - (not first), 64 at most")
    return value


def _file_pattern(value: str, info: ValidationInfo) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_*][A-Za-z0-9_.*-]{0,63}", value) and not is_stored(info):
        raise refuse(f"{shown(value)}: must be the name of a file, * for a part of it, 64 characters at most")
    return value


def _as_text(value: object) -> object:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _column(value: str) -> str:
    return value if value == "-" else _small_name(value)


def _each_once(columns: list[str], info: ValidationInfo) -> list[str]:
    twice = next((name for name in columns if name != "-" and columns.count(name) > 1), None)
    if twice is not None and not is_stored(info):
        raise refuse(f"the column {twice} stands twice: must stand there once; - is a column that is not read")
    return columns


SmallName = Annotated[str, AfterValidator(_small_name)]
FileName = Annotated[str, AfterValidator(_file_name)]
FilePattern = Annotated[str, AfterValidator(_file_pattern)]
Column = Annotated[str, AfterValidator(_column)]
Pattern = Annotated[Line, AfterValidator(_pattern)]
Some = Annotated[Line, AfterValidator(_some)]
_ONE_OR_MORE = {"type": ["string", "array"], "items": {"type": "string"}}
Somes = Annotated[list[Some], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Modules = Annotated[list[Annotated[Line, AfterValidator(_module)]], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Finite = Annotated[float | int, AfterValidator(_finite)]
Factor = Annotated[float | int, AfterValidator(_finite), AfterValidator(_above_0)]
Template = Annotated[Line, BeforeValidator(_as_text), WithJsonSchema(QUANTITY)]


class SaidSection(Section):
    """Where the program's output says the value that it ran with."""

    json_path: Line | None = Field(default=None, alias="json", description="Where it stands in the JSON.")
    regex: Pattern | None = Field(default=None, description="Its first group is the value; k, m and g are of bytes then.")
    words: dict[str, Line] = Field(default={}, description="The value for each word that stands there.")


class OptionSection(Section):
    """One option of the program."""

    type: Literal["integer", "number", "boolean", "choice", "name"] = Field(description="Type of its value.")
    default: Any = Field(description="What it is when a campaign says nothing.")
    minimum: Finite | None = Field(default=None, description="Smallest value, in the unit of the name.")
    maximum: Finite | None = Field(default=None, description="Largest value, in the unit of the name.")
    choices: list[Line] = Field(default=[], description="The values of a choice.")
    help: Line = Field(default="", description="What it does.")
    said: SaidSection | None = Field(default=None, description="Where the output says it, for imports: they know no command.")


ExitCode = Annotated[int, Field(ge=0, le=255)]


class ReadySection(Section):
    """How the server shows that it is ready."""

    words: Some | None = Field(default=None, description="It writes these words.")
    listening: bool = Field(default=False, description="Somebody listens on the port (TCP or UDP).")
    within_s: Seconds = Field(default=5.0, gt=0, le=7, description="Within this time; at most 7 s.")


class ServerSection(Section):
    """The program's server."""

    program: Annotated[Some, AfterValidator(_program)] | None = Field(
        default=None, description="The server's program, where it is another one. Default: `program`."
    )
    command: Some = Field(description="Its command line.")
    ready: ReadySection = Field(default=ReadySection(), description="How it shows that it is ready. Default: at once.")
    ends: bool = Field(default=False, description="It ends by itself after one client. Otherwise hpcq ends it.")


class FailureSection(Section):
    """What means that the program failed."""

    exit_codes_allowed: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default=[0], min_length=1, max_length=16, description="Exit codes of success."
    )
    words: Somes = Field(default=[], description="Words in its output that mean failure, whatever the exit code.")


class TitleSection(Section):
    """What its output says it is: tables of other tests of the same suite may look alike."""

    line: Pattern = Field(description="Matches lines of titles; its first group is the name. None need be there.")
    must_be: Pattern = Field(description="What each of these names must be, as a whole.")


class SizesSection(Section):
    """The sizes that one run measures; each is a result of its own."""

    first: Template = Field(description="The smallest, as a template over the options.")
    last: Template = Field(description="The largest, as a template over the options.")
    steps: Literal["doubles", "doubles and halves"] = Field(
        default="doubles", description="1, 2, 4, 8 ...; or 1, 2, 3, 4, 6, 8, 12 ..."
    )
    zero: bool = Field(default=False, description="A row of size 0 comes before them.")


class TableSection(Section):
    """A table in the output: rows of numbers."""

    head: Pattern | None = Field(
        default=None, description="The line above the rows; exactly one line matches. Default: the rows begin at once."
    )
    columns: Annotated[list[Column], AfterValidator(_each_once)] = Field(
        default=[], description=f"Names of all columns; {SIZE_OPTION} is the size of the row, `-` is not read."
    )
    headings: dict[SmallName, Pattern] = Field(
        default={},
        description="Instead of `columns`: names of those that are read, each with its heading in the line of `head`, from"
        " left to right.",
    )
    units: Pattern | None = Field(default=None, description="The line below `head` matches this.")
    must_be: dict[SmallName, Pattern] = Field(
        default={},
        description="Columns of words that need not be there, and what each word must be: of the program's own check.",
    )
    end: Pattern | None = Field(default=None, description="The line after the rows. Default: the end of the output.")


class PeerSection(Section):
    """What a metric is held against on the page."""

    kernel: SmallName = Field(description="A kernel of hpcq.")
    metric: SmallName = Field(description="Its metric, in the same unit.")
    times: Factor = Field(default=1.0, gt=0, description="Factor: 2 where the program reports half a round trip.")


class MetricSection(Section):
    """One metric and how it is read."""

    better: Literal["higher", "lower", "none"] = Field(description="Which direction is good.")
    same_as: PeerSection | None = Field(default=None, description="The metric of a kernel of hpcq that measures the same.")
    help: Line = Field(default="", description="What it is.")
    json_path: Line | None = Field(default=None, alias="json", description="Where it stands in the JSON: end.streams[0].rtt.")
    column: SmallName | None = Field(default=None, description="A column of the table.")
    regex: Pattern | None = Field(default=None, description="Matches once in the output; its first group is the number.")
    times: Factor = Field(default=1.0, gt=0, description="Factor to the unit of the metric's name.")
    units: dict[str, Factor] = Field(default={}, description="Factor by the second group of `regex`.")
    times_where: dict[Pattern, Factor] = Field(
        default={}, description="Another factor, by the one expression that matches in the output: of other versions or units."
    )
    comma_separates: bool = Field(default=False, description="With `regex`: commas separate fields, as in CSV.")
    minimum: Finite | None = Field(
        default=0, description="Less is refused. Default: 0, and of rates and times that have a better direction more than 0."
    )
    maximum: Finite | None = Field(default=None, description="More is refused.")
    required: bool = Field(default=True, description="Without it, the result is invalid.")
    not_measured: list[Line] = Field(
        default=[], description="What stands in its place where the program did not measure it: N/A, 0.00. It is no value then."
    )


class SendsSection(Section):
    """What each end sends at least over the whole run, in bytes; size_sum is the sum of all sizes."""

    client: Template = Field(description="The client; of MPI, rank 0. A template over the options and size_sum.")
    server: Template = Field(description="The server; of MPI, rank 1.")


class KernelFile(Section):
    """A kernel that is somebody else's program."""

    name: SmallName = Field(description="Its name in campaigns; also the name of the file.")
    summary: Some = Field(description="What it measures, in one sentence.")
    method: Text = Field(default="", description="What is timed, from which moment to which.")
    shape: Literal["client and server", "MPI of two ranks", "MPI of N ranks", "one node"] = Field(
        description="Which processes it needs."
    )
    program: Annotated[Some, AfterValidator(_program)] = Field(
        description="The program: a name that PATH finds on the nodes, or a path."
    )
    modules: Modules = Field(default=[], description="Modules to load before it, as in a cluster file.")
    version: Line = Field(default="", description="Command that prints its version; its output is stored with each result.")
    options: dict[SmallName, OptionSection] = Field(default={}, description="The options of the program, by name.")
    server: ServerSection | None = Field(default=None, description="The server of a client and server.")
    command: Some = Field(description="The command line of the client, or of each rank.")
    limit_s: Template = Field(description="How long it may run, as a template over the options.")
    files: dict[FileName, Text] = Field(
        default={},
        max_length=16,
        description="Input files, by name: templates of their texts. It starts in a new folder that holds them.",
    )
    failure: FailureSection = Field(default=FailureSection(), description="What means that it failed.")
    output: Literal["output", "errors"] = Field(default="output", description="Standard output or standard error.")
    of: Literal["client", "server"] = Field(default="client", description="Whose output is read.")
    output_file: FilePattern | None = Field(
        default=None,
        description="A file that it writes into the folder it starts in, * for the rest of a name: read after its output.",
    )
    title: TitleSection | None = Field(default=None, description="How its output says which test it is of.")
    arguments_said: SaidSection | None = Field(
        default=None, description="Where the output says which words a campaign would add as `arguments`, such as -d cuda."
    )
    part: Pattern | None = Field(
        default=None,
        description="Where a result begins: a saved file may hold several, each read by itself. What stands before the first"
        " belongs to all.",
    )
    preamble: Pattern | None = Field(
        default=None, description="With `part`: where the program begins what belongs to all results that follow."
    )
    finished: Pattern | None = Field(
        default=None, description="Matches where it finished, or its own check passed. Without it, the result is invalid."
    )
    sizes: SizesSection | None = Field(default=None, description="With a table: one result per size.")
    table: TableSection | None = Field(default=None, description="The table that columns refer to.")
    sends_at_least_bytes: SendsSection | None = Field(
        default=None, description="For the proof of crossing, where no metric tells what was moved."
    )
    metrics: dict[SmallName, MetricSection] = Field(
        min_length=1, description="What is read, by name; the first is the main one."
    )
    must_hold: dict[Some, Template] = Field(
        default={},
        description="What the numbers say of each other: in words, and as a template over metrics and message_bytes that is"
        " True then. Else the whole output is refused.",
    )


# ----------------------------------------------------------------------------------------------------------------------
# What a command line of a description may consist of, before any template is filled in.
#
# No shell reads a command: a pipe, a redirection or a quote would reach the program as an argument. Refused here, they
# are no surprise on a node.


_BRACES = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_SHELL_WORD = re.compile(r"[|&;]+|\d*[<>]+(&\d)?")
_SHELL_HINT = "no shell reads it: put pipes, redirections and several commands into a script, and name that as the program"
#: Names in templates that an option would hide, or that would hide an option.
TAKEN = (*IN_THE_JOB, "program", "size_sum", ARGUMENTS, SERVER_ARGUMENTS)


def check_commands(file: KernelFile, document: Document) -> None:
    """Complain about commands that would start something else than their author thinks."""
    _check_command(("command",), file.command, document)
    if file.server is not None:
        _check_command(("server", "command"), file.server.command, document)
    if file.version:
        _check_command(("version",), file.version, document)
    _check_names(("version",), file.version, "no server listens yet", document)
    if file.shape != Shape.CLIENT_SERVER.value:
        _check_names(("command",), file.command, f"of {file.shape} there is no server", document)
    for name in file.options:
        if name in TAKEN:
            said = f"{name} means something in templates already: must be another name"
            document.complain(("options", name), said, at_key=True)


def _check_command(place: Place, command: str, document: Document) -> None:
    plain = _BRACES.sub("x", command)
    if not plain.split():
        document.complain(place, "no words: must be a program and its arguments")
        return
    shell = [word for word in plain.split() if _SHELL_WORD.fullmatch(word)]
    if shell:
        document.complain(place, f"{shell[0]}: must be a program and its arguments", _SHELL_HINT)
    quoted = [word for word in plain.split() if word[0] in "'\"" or word[-1] in "'\""]
    if quoted:
        hint = "hpcq splits at blanks and takes quotes as they are; a value with blanks can be an option, or stand in {{ }}"
        document.complain(place, f"{quoted[0]}: begins or ends with a quote: must be words without quotes", hint)


def _check_names(place: Place, template: str, why: str, document: Document) -> None:
    used = {
        word
        for braces in _BRACES.findall(template)
        for word in re.findall(r"[a-z_]+", re.sub(r"'[^']*'|\"[^\"]*\"", "", braces))
    }
    for name in IN_THE_JOB:
        if name in used:
            document.complain(place, f"{name} is not known here: {why}: must be the options and program")


# ----------------------------------------------------------------------------------------------------------------------


#: As of hpcq's own collective operations.
_RANKS_MAX = 65536
#: The option of programs of N ranks that the job script hands to `hpcq-net rank`.
_RANK_BINDING = "rank_binding"
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


def read_kernel(path: Path, own: Kernels, *, stored: bool = False) -> Kernel:
    """Read and check a description. own: the kernels of hpcq, whose names are taken.

    stored: it was stored with a run; what hpcq once accepted and now refuses must not make its results unreadable.

    Raises UserError with every complaint, one per line.
    """
    return _read(read_document(path), str(path), own, stored=stored)


def kernel_of(text: str, path: str, own: Kernels, *, stored: bool = False) -> Kernel:
    """The same from a text; `path` is what messages call it."""
    return _read(parse_document(text, path), path, own, stored=stored)


def _read(document: Document, path: str, own: Kernels, *, stored: bool) -> Kernel:
    file = check(KernelFile, document.data, document, stored=stored)
    if file is None:
        document.raise_complaints()
        raise UserError(f"{path}: not a description of a kernel")
    if file.name in own:
        document.complain(("name",), f"{file.name} is a kernel of hpcq itself: must be another name")
    if file.name != Path(path).stem:
        document.complain(("name",), f"{file.name}: must be {Path(path).stem}, the name of the file")
    _check(file, document, own)
    if not stored:
        _check_strictly(file, document)
    document.raise_complaints()
    kernel = _kernel(file, path, document)
    document.raise_complaints()
    _try(kernel, document, stored=stored)
    document.raise_complaints()
    return kernel


def _check(file: KernelFile, document: Document, own: Kernels) -> None:
    if (file.server is None) == (file.shape == Shape.CLIENT_SERVER.value):
        allowed = "required with" if file.server is None else "not allowed with"
        document.complain(("shape",), f"{shown(file.shape)}: the key server is {allowed} it")
    if file.of == "server" and file.server is None:
        document.complain(("of",), "'server': must be client, since there is no server")
    ready = file.server.ready if file.server else ReadySection()
    if ready.words is not None and ready.listening:
        document.complain(("server", "ready"), "words and listening: must be one of them")
    for name in file.metrics:
        _check_metric(file, name, document)
        _check_peer(file, name, document, own)
    table = file.table
    if table is not None and bool(table.columns) == bool(table.headings):
        document.complain(("table",), "columns and headings: must be one of them")
    if table is not None and table.head is None and (table.headings or table.units):
        document.complain(("table",), "headings or units without head: must have it")
    if file.title is not None and (groups := re.compile(file.title.line).groups) != 1:
        document.complain(("title", "line"), f"{groups} groups: must be one, the name")
    if file.sizes is not None and (table is None or SIZE_OPTION not in (*table.columns, *table.headings)):
        document.complain(("sizes",), f"without a table that has the column {SIZE_OPTION}: must have one")
    if file.sizes is not None and SIZE_OPTION in file.options:
        document.complain(("options", SIZE_OPTION), "the rows of the table have this size: must be left out")


def _check_strictly(file: KernelFile, document: Document) -> None:
    """What would start or store something else than the author thinks, and was accepted once."""
    check_commands(file, document)
    table = file.table or TableSection()
    unread = [name for name in (*table.columns, *table.headings) if all(one.column != name for one in file.metrics.values())]
    for name in table.must_be:
        if name not in unread:
            said = f"{name}: must be a column that no metric reads: one of {', '.join(unread) or 'none'}"
            document.complain(("table", "must_be"), said)
    if (file.files or file.output_file) and "/" in file.program and not file.program.startswith("/"):
        said = f"{shown(file.program)} with files: must be a whole path, since it starts in a folder of its own"
        document.complain(("program",), said)
    for name, metric in file.metrics.items():
        low, high = metric.minimum, metric.maximum
        if low is not None and high is not None and low > high:
            said = f"{high:g} is below the minimum {low:g}: must be {low:g} or more"
            document.complain(("metrics", name, "maximum"), said)
    for name, option in file.options.items():
        _check_fit(name, option, document)
        _check_said(option.said, ("options", name, "said"), document)
    _check_said(file.arguments_said, ("arguments_said",), document)


def _check_fit(name: str, option: OptionSection, document: Document) -> None:
    numeric = option.type in {"integer", "number"}
    bounded = option.minimum is not None or option.maximum is not None
    if (bounded and not numeric) or (option.choices and option.type != "choice"):
        said = "choices" if option.choices and option.type != "choice" else "minimum and maximum"
        fit = "minimum and maximum" if numeric else "choices" if option.type == "choice" else "a default and a help"
        document.complain(("options", name), f"{said} with the type {option.type}: must be {fit}")


def _check_said(said: SaidSection | None, place: tuple[str, ...], document: Document) -> None:
    if said is None:
        return
    if (said.regex is None) == (said.json_path is None):
        document.complain(place, "must be one of json and regex")
    if said.regex is not None and (groups := re.compile(said.regex).groups) != 1:
        document.complain((*place, "regex"), f"{groups} groups: must be one, the value")
    if said.json_path is not None and not is_path(said.json_path):
        document.complain((*place, "json"), f"{shown(said.json_path)}: must be a path like start.test_start.reverse")


def _check_metric(file: KernelFile, name: str, document: Document) -> None:
    metric, place = file.metrics[name], ("metrics", name)
    ways = [way for way in ("json", "column", "regex") if getattr(metric, "json_path" if way == "json" else way) is not None]
    if len(ways) != 1:
        document.complain(place, f"{' and '.join(ways) or 'no way to read it'}: must be one of json, column and regex")
    if name in {common for common, _, _ in COMMON_METRICS}:
        document.complain(place, "hpcq-net takes this metric itself: must be another name")
    if units.unit_of(name) is None:
        allowed = "must be a name that ends in its unit, such as _ns, _us, _s, _bps, _bytes, _ratio, _count, _pps"
        document.complain(place, f"{name} has no unit: {allowed}", at_key=True)
    columns = [*file.table.columns, *file.table.headings] if file.table else []
    if metric.column is not None and metric.column not in columns:
        found = ", ".join(columns) or "none, there is no table"
        document.complain((*place, "column"), f"{shown(metric.column)} is not a column: must be one of {found}")
    if metric.json_path is not None and not is_path(metric.json_path):
        document.complain((*place, "json"), f"{shown(metric.json_path)}: must be a path like end.streams[0].rtt")
    groups = re.compile(metric.regex).groups if metric.regex is not None else 0
    if metric.regex is not None and groups != (2 if metric.units else 1):
        wanted = "2 with units" if metric.units else "1"
        document.complain((*place, "regex"), f"{groups} groups: must be {wanted}")
    if metric.units and metric.regex is None:
        document.complain((*place, "units"), "without regex: allowed with it only")
    if metric.comma_separates and metric.regex is None:
        document.complain((*place, "comma_separates"), "without regex: allowed with it only")


def _check_peer(file: KernelFile, name: str, document: Document, own: Kernels) -> None:
    peer, place = file.metrics[name].same_as, ("metrics", name, "same_as")
    if peer is None:
        return
    if peer.kernel not in own:
        document.complain((*place, "kernel"), f"{shown(peer.kernel)}: must be one of {', '.join(own)}")
        return
    metric = own[peer.kernel].metric(peer.metric)
    if metric is None or metric.unit != units.unit_of(name):
        same = [one.name for one in own[peer.kernel].metrics if one.unit == units.unit_of(name)]
        allowed = ", ".join(same) or "none, no metric of it has this unit"
        document.complain((*place, "metric"), f"{shown(peer.metric)}: must be one of {allowed}")


def _kernel(file: KernelFile, path: str, document: Document) -> Kernel:
    options = [_option(name, section) for name, section in file.options.items()]
    metrics = [Metric(name, units.unit_of(name), Better(one.better), one.help) for name, one in file.metrics.items()]
    metrics += [Metric(name, units.unit_of(name), better, about) for name, better, about in COMMON_METRICS]
    if file.sizes is not None:
        about = "size of this result: a row of the table; the options say which there are"
        options.append(Option(SIZE_OPTION, OptionType.INTEGER, "bytes", 0, 0, None, (), about))
    if file.shape == Shape.MPI_RANKS.value and NODE_COUNT not in file.options:
        about = "nodes that run it together; 0: as many as there are"
        options.append(Option(NODE_COUNT, OptionType.INTEGER, None, 0, 0, _RANKS_MAX, (), about))
    if file.shape == Shape.MPI_RANKS.value and RANKS_PER_NODE not in file.options:
        about = f"ranks on each node, which follow each other; or {', '.join(PER_THING)}, by the cluster file's per_node"
        options.append(Option(RANKS_PER_NODE, OptionType.INTEGER, None, 1, 1, RANKS_PER_NODE_MAX, tuple(PER_THING), about))
    if file.shape == Shape.MPI_RANKS.value and _RANK_BINDING not in file.options:
        about = "numa: the ranks of a node run on its NUMA nodes in turn, with their memory; as_is: as the launcher binds them"
        options.append(Option(_RANK_BINDING, OptionType.CHOICE, None, "as_is", None, None, ("as_is", "numa"), about))
    about = "words that {} gets besides: options of the program that the description does not have"
    added = {ARGUMENTS: "the command", **({SERVER_ARGUMENTS: "the server's command"} if file.server is not None else {})}
    options += [
        Option(name, OptionType.WORDS, None, "", None, None, (), about.format(whose))
        for name, whose in added.items()
        if name not in file.options
    ]
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
        document.complain(place[:2], f"{option.type.value} without minimum and maximum: must have both")
        return
    if option.type is OptionType.CHOICE and not option.choices:
        document.complain(place[:2], "choice without choices: must have a list of them")
        return
    try:
        value = option_value(kernel, option, option.default)
    except ValueError as error:
        document.complain(place, str(error))
        return
    if value != option.default or isinstance(value, bool) != isinstance(option.default, bool):
        document.complain(place, f"{shown(option.default)}: must be a number in the unit of the name, without its unit")


def _described(file: KernelFile, path: str) -> Described:
    server = None
    if file.server is not None:
        ready = file.server.ready
        how = ReadySign.WORDS if ready.words is not None else ReadySign.LISTENING if ready.listening else ReadySign.AT_ONCE
        server = Server(file.server.command, how, ready.words or "", ready.within_s, file.server.ends, file.server.program)
    table = None
    if file.table is not None:
        found = file.table
        must_be = tuple(found.must_be.items())
        table = Table(found.head, tuple(found.columns), found.end, tuple(found.headings.items()), found.units, must_be)
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
        files=tuple(file.files.items()),
        output_file=file.output_file or "",
        title=() if file.title is None else (file.title.line, file.title.must_be),
        finished=file.finished or "",
        part=file.part or "",
        preamble=file.preamble or "",
        said=tuple(
            OptionSaid(name, said.json_path, said.regex, tuple(said.words.items()))
            for name, said in [*((name, one.said) for name, one in file.options.items()), (ARGUMENTS, file.arguments_said)]
            if said is not None
        ),
        must_hold=tuple(file.must_hold.items()),
    )


#: Units of rates and times. What really is 0, as a jitter may be, has `minimum: 0` in its description.
_NEVER_ZERO = ("_bps", "_pps", "_eps", "_flops", "_s", "_ns", "_us", "_ms")


def _reading(name: str, one: MetricSection) -> Reading:
    peer = one.same_as
    return Reading(
        metric=name,
        json=one.json_path,
        column=one.column,
        regex=one.regex,
        times=float(one.times),
        units=tuple((unit, float(factor)) for unit, factor in one.units.items()),
        minimum=None if one.minimum is None else float(one.minimum),
        maximum=None if one.maximum is None else float(one.maximum),
        required=one.required,
        peer=None if peer is None else Peer(peer.kernel, peer.metric, float(peer.times)),
        comma_separates=one.comma_separates,
        times_where=tuple((pattern, float(factor)) for pattern, factor in one.times_where.items()),
        not_measured=tuple(one.not_measured),
        above_zero=one.better != "none" and "minimum" not in one.model_fields_set and name.endswith(_NEVER_ZERO),
    )


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
    for words, template in described.must_hold if not stored else ():
        names = names_held(described, template)
        if not names - {SIZE_OPTION}:
            document.complain(("must_hold", words), "names no metric: must be a template over metrics and message_bytes")
            continue
        try:
            holds(described, template, dict.fromkeys(names, 1))
        except UserError as error:
            said = error.message.removeprefix(f"{described.path}: ").removeprefix("must_hold: ")
            document.complain(("must_hold", words), said, error.hint)
    if document.complaints:
        return
    try:
        programs_text([(1, kernel, parameters)])
    except UserError as error:
        document.complain(("command",), error.message.removeprefix(f"{described.path}: "), error.hint)


# ----------------------------------------------------------------------------------------------------------------------
# The tests of a described kernel: one per run of the program, and one more per further size of its table.
#
# The first size is the test that runs; the others name it in `measured_by`.


_LAUNCH = {Shape.MPI_PAIR: "mpi", Shape.MPI_RANKS: "mpi", Shape.ONE_NODE: "node"}
#: What a launcher may take on top to start and end the ranks of many nodes.
_LAUNCH_S = 30.0


def described_tests(
    kernel: Kernel,
    parameters: Mapping[str, ParameterValue],
    first_no: int,
    document: Document,
    place: Place,
    *,
    timeout_s: float | None,
) -> list[Test]:
    """The tests of one point of a sweep, numbered from `first_no`. Complaints go to the document."""
    described = kernel.described
    assert described is not None  # noqa: S101 - the caller has looked
    if described.sizes is not None and _gives_size(document, place, described.sizes.option):
        return []
    try:
        needed_s = limit_s(described, parameters)
        check_sizes(described, parameters)
        found = sizes(described, parameters)
        check_sent(described, parameters)
        programs_text([(first_no, kernel, parameters)])
    except UserError as error:
        document.complain(place, error.message, error.hint)
        return []
    if not 0 < needed_s <= LIMIT_MAX_S:
        document.complain(place, f"{kernel.name} may run for {needed_s:g} s: must be above 0 to {LIMIT_MAX_S:g} s")
    if timeout_s is not None and timeout_s <= needed_s:
        message = f"{timeout_s:g} s, but {kernel.name} may run for {needed_s:g} s: must be more"
        document.complain((*place, "timeout_s"), message)
    launch = _LAUNCH.get(described.shape, "")
    whole_s = math.ceil(timeout_s or needed_s + OVERHEAD_S + (_LAUNCH_S if launch == "mpi" else 0.0))
    points = [{**parameters, described.sizes.option: size} for size in found] if described.sizes else [dict(parameters)]
    return [
        Test(first_no + no, kernel.name, "hpcq-net", point, whole_s, measured_by=first_no if no else 0, launch=launch)
        for no, point in enumerate(points)
    ]


def _gives_size(document: Document, place: Place, option: str) -> bool:
    """Complain about a size that the campaign gives: the program's table has all sizes."""
    entry = document.data["tests"][place[1]]
    given = [key for key in ("parameters", "matrix") if option in (entry.get(key) or {})]
    for key in given:
        said = "the program's table has these sizes: must be the options that say which"
        document.complain((*place, key, option), said, at_key=True)
    return bool(given)


# ----------------------------------------------------------------------------------------------------------------------
# Write kernels/described/index.json from the descriptions beside it: `make docs` does it, a test compares.


def delivered_index(folder: Path) -> str:
    """The index of every description in a folder. Raises UserError for one that cannot be read."""
    own = own_kernels()
    return index_text(read_kernel(path, own) for path in sorted(folder.glob("*.yaml")))


if __name__ == "__main__":
    delivered = assets.described_kernels()
    (delivered / INDEX).write_text(delivered_index(delivered), "utf-8")
