"""The keys of a description of a foreign program (kernels/described/NAME.yaml), each with its check and its meaning."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from hpcq.definition.checking import QUANTITY, Line, Seconds, Section, Text, is_stored, listed, refuse
from hpcq.definition.yamlfile import shown
from hpcq.kernels import SIZE_OPTION

_NAME = r"[a-z][a-z0-9_]{0,40}"


def _small_name(value: str) -> str:
    if not re.fullmatch(_NAME, value):
        raise refuse(f"{shown(value)} is not a name: allowed are a-z, 0-9 and _, 41 at most, a letter first")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise refuse(f"{shown(value)}: {error}: allowed is a regular expression") from None
    return value


def _some(value: str, info: ValidationInfo) -> str:
    if not value.strip() and not is_stored(info):
        raise refuse("nothing: allowed is a text")
    return value


def _module(value: str, info: ValidationInfo) -> str:
    if (value.startswith("-") or len(value.split()) != 1) and not is_stored(info):
        raise refuse(f"{shown(value)}: allowed is the name of one module, without blanks and no dash first")
    return value


def _finite(value: float, info: ValidationInfo) -> float:
    if not math.isfinite(value) and not is_stored(info):
        raise refuse(f"{value:g}: allowed is a finite number")
    return value


def _above_0(value: float, info: ValidationInfo) -> float:
    if not value > 0 and not is_stored(info):
        raise refuse(f"{value:g} is not above 0")
    return value


def _program(value: str, info: ValidationInfo) -> str:
    if ("{{" in value or "{%" in value) and not is_stored(info):
        raise refuse(f"{shown(value)} is no template: allowed is a name that PATH finds on the nodes, or a path")
    return value


def _as_text(value: object) -> object:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _column(value: str) -> str:
    return value if value == "-" else _small_name(value)


def _each_once(columns: list[str], info: ValidationInfo) -> list[str]:
    twice = next((name for name in columns if name != "-" and columns.count(name) > 1), None)
    if twice is not None and not is_stored(info):
        raise refuse(f"the column {twice} stands twice: allowed is once; - is a column that is not read")
    return columns


SmallName = Annotated[str, AfterValidator(_small_name)]
Column = Annotated[str, AfterValidator(_column)]
Pattern = Annotated[Line, AfterValidator(_pattern)]
Some = Annotated[Line, AfterValidator(_some)]
_ONE_OR_MORE = {"type": ["string", "array"], "items": {"type": "string"}}
Somes = Annotated[list[Some], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Modules = Annotated[list[Annotated[Line, AfterValidator(_module)]], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Finite = Annotated[float | int, AfterValidator(_finite)]
Factor = Annotated[float | int, AfterValidator(_finite), AfterValidator(_above_0)]
Template = Annotated[Line, BeforeValidator(_as_text), WithJsonSchema(QUANTITY)]


class OptionSection(Section):
    """One option of the program."""

    type: Literal["integer", "number", "boolean", "choice", "name"] = Field(description="Type of its value.")
    default: Any = Field(description="What it is when a campaign says nothing.")
    minimum: Finite | None = Field(default=None, description="Smallest value, in the unit of the name.")
    maximum: Finite | None = Field(default=None, description="Largest value, in the unit of the name.")
    choices: list[Line] = Field(default=[], description="The values of a choice.")
    help: Line = Field(default="", description="What it does.")


ExitCode = Annotated[int, Field(ge=0, le=255)]


class ReadySection(Section):
    """How the server shows that it is ready."""

    words: Some | None = Field(default=None, description="It writes these words.")
    listening: bool = Field(default=False, description="Somebody listens on the port (TCP or UDP).")
    within_s: Seconds = Field(default=5.0, gt=0, le=7, description="Within this time; at most 7 s.")


class ServerSection(Section):
    """The program's server."""

    command: Some = Field(description="Its command line.")
    ready: ReadySection = Field(default=ReadySection(), description="How it shows that it is ready. Default: at once.")
    ends: bool = Field(default=False, description="It ends by itself after one client. Otherwise hpcq ends it.")


class FailureSection(Section):
    """What means that the program failed."""

    exit_codes_allowed: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default=[0], min_length=1, max_length=16, description="Exit codes of success."
    )
    words: Somes = Field(default=[], description="Words in its output that mean failure, whatever the exit code.")


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
        min_length=1, description=f"Names of the columns; {SIZE_OPTION} is the size of the row, `-` is not read."
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
    comma_separates: bool = Field(default=False, description="With `regex`: commas separate fields, as in CSV.")
    minimum: Finite | None = Field(default=0, description="Less is refused. Default: 0.")
    maximum: Finite | None = Field(default=None, description="More is refused.")
    required: bool = Field(default=True, description="Without it, the result is invalid.")


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
    failure: FailureSection = Field(default=FailureSection(), description="What means that it failed.")
    output: Literal["output", "errors"] = Field(default="output", description="Standard output or standard error.")
    of: Literal["client", "server"] = Field(default="client", description="Whose output is read.")
    sizes: SizesSection | None = Field(default=None, description="With a table: one result per size.")
    table: TableSection | None = Field(default=None, description="The table that columns refer to.")
    sends_at_least_bytes: SendsSection | None = Field(
        default=None, description="For the proof of crossing, where no metric tells what was moved."
    )
    metrics: dict[SmallName, MetricSection] = Field(
        min_length=1, description="What is read, by name; the first is the main one."
    )
