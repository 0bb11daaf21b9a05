"""What the kernel programs can do, as they report it with --describe.

Hides the files kernels/describe/*.json. So hpcq needs neither cluster nor binary to report a parameter out of range:

    describe/hpcq-net.json --+--> Kernel(options, metrics) --option_value, complete--> a test's final parameters
    describe/hpcq-fabric.json, hpcq-mpi.json --+

A parameter may be written with a unit ("64KiB"). The result is in the unit of the option's name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcq import assets, units
from hpcq.errors import HpcqError, UserError
from hpcq.nodelist import natural

# ----------------------------------------------------------------------------------------------------------------------
# What a description of a foreign program says, checked: frozen data without YAML.
#
# kernels/described/NAME.yaml --definition.files.kernel_file--> Kernel(described=Described) --described/--> commands, results


class Shape(StrEnum):
    """Which processes a program needs."""

    CLIENT_SERVER = "client and server"
    MPI_PAIR = "MPI of two ranks"
    MPI_RANKS = "MPI of N ranks"
    ONE_NODE = "one node"

    @property
    def over_mpi(self) -> bool:
        """Whether the cluster's MPI launcher starts it."""
        return self in {Shape.MPI_PAIR, Shape.MPI_RANKS}


class ReadySign(StrEnum):
    """How a server shows that it is ready."""

    WORDS = "words"
    LISTENING = "listening"
    AT_ONCE = "at_once"


class Steps(StrEnum):
    """Which sizes a table has between its first and its last."""

    DOUBLES = "doubles"
    DOUBLES_AND_HALVES = "doubles and halves"


@dataclass(frozen=True, slots=True)
class Server:
    """The program's server: its command as a template, and how it shows that it is ready. program: None: the client's."""

    command: str
    ready: ReadySign
    ready_words: str
    ready_s: float
    ends: bool
    program: str | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """One run of the program measures many sizes: which, as templates over the options.

    zero: a row of size 0 comes before them.
    """

    option: str
    first: str
    last: str
    steps: Steps
    zero: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of numbers: after the one line that `head` matches, up to the first line that `end` matches.

    head None: from the first line on. A column `-` is not read. headings: of columns that are found by what `head`'s line
    calls them, the name and the expression of each, from left to right; there may be other columns between them. Otherwise
    `columns` are all columns, by position. units: what the line below `head` must match. must_be: of columns with words, which
    need not be there, the expression that each word of them matches in full.
    """

    head: str | None
    columns: tuple[str, ...]
    end: str | None
    headings: tuple[tuple[str, str], ...] = ()
    units: str | None = None
    must_be: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that metrics may refer to."""
        return tuple(name for name, _ in self.headings) or self.columns


@dataclass(frozen=True, slots=True)
class Peer:
    """The metric of a kernel of hpcq that measures the same, and the factor that makes both one quantity."""

    kernel: str
    metric: str
    times: float


@dataclass(frozen=True, slots=True)
class Reading:
    """How one metric is read: exactly one of `json`, `column` and `regex`; then multiplied, then checked.

    units: what the second group of the regular expression may be, and the factor of each. minimum, maximum: in the
    metric's own unit. comma_separates: a comma beside the number is between two fields, not a part of it.
    """

    metric: str
    json: str | None
    column: str | None
    regex: str | None
    times: float
    units: tuple[tuple[str, float], ...]
    minimum: float | None
    maximum: float | None
    required: bool
    peer: Peer | None
    comma_separates: bool = False
    #: Expressions of which one matches in the output, and the factor that each means: of versions with other units.
    times_where: tuple[tuple[str, float], ...] = ()
    #: What stands in its place where the program did not measure it.
    not_measured: tuple[str, ...] = ()
    #: 0 of it is no measurement.
    above_zero: bool = False


@dataclass(frozen=True, slots=True)
class OptionSaid:
    """Where an output says with which value of an option it was made: one of json and regex.

    words: the value of each word that stands there; empty: what stands there is the value.
    """

    option: str
    json: str | None
    regex: str | None
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A foreign program: its commands, its limits, and how to read what it writes."""

    program: str
    shape: Shape
    modules: tuple[str, ...]
    version: str
    server: Server | None
    command: str
    limit_s: str
    exit_codes: tuple[int, ...]
    failure_words: tuple[str, ...]
    stream: str
    end: str
    table: Table | None
    sizes: Sizes | None
    readings: tuple[Reading, ...]
    #: Templates: bytes that the client and the server send at least over the whole run. Empty: nobody knows.
    sends_at_least: tuple[str, ...]
    #: Where the description was read, for messages and for the copy in a run's folder.
    path: str
    #: Files that lie in the folder where it starts: names, and templates of their texts.
    files: tuple[tuple[str, str], ...] = ()
    #: Files that it writes into this folder, as a pattern: read after its standard output. Empty: none.
    output_file: str = ""
    #: An expression for lines of titles, and one for what its first group must be. Empty: any output is this program's.
    title: tuple[str, ...] = ()
    #: An expression that matches in whole outputs only. Empty: every one counts as whole.
    finished: str = ""
    said: tuple[OptionSaid, ...] = ()
    #: An expression for where a result begins in a file that holds several. Empty: a file holds one.
    part: str = ""
    #: An expression for where such a file's common beginning is, which belongs to each result after it. Empty: the file's.
    preamble: str = ""
    #: What the numbers of each row say of each other, in words, and as a template over metrics and size that is True then.
    must_hold: tuple[tuple[str, str], ...] = ()


# ----------------------------------------------------------------------------------------------------------------------


ParameterValue = int | float | bool | str

#: The duration of a test whose options give none: connecting, and a fixed number of operations.
_UNTIMED_TEST_S = 1.0
#: What described kernels call their size.
SIZE_OPTION = "message_bytes"
#: The option of MPI kernels of N ranks: how many on each node. It may also be one of these words: the count of the cluster
#: file's `per_node` that each means.
RANKS_PER_NODE = "ranks_per_node"
PER_THING = {"per_core": "core", "per_numa": "numa", "per_nic": "nic", "per_gpu": "gpu"}
#: What every described kernel has besides its options: words that a campaign adds to its commands.
ARGUMENTS, SERVER_ARGUMENTS = "arguments", "server_arguments"
#: What makes a kernel of hpcq measure many sizes in one run.
_PORT_LAST = 65535
_SWEEP_TO, _SWEEP_BY = "sweep_to_bytes", "sweep_perturbation_bytes"
#: The names that the kernels accept: TCP_CA_NAME_MAX of linux/tcp.h less the NUL.
NAME_PATTERN = "[a-z0-9_][a-z0-9_.-]{0,14}"
#: Words of a command that a campaign adds: none of a shell, no quotes, nothing that is filled in later.
WORDS_PATTERN = r"([A-Za-z0-9_.,:=+/@%^~#*-]+( [A-Za-z0-9_.,:=+/@%^~#*-]+)*)?"
_WORDS_MAX = 400
CPUS_PATTERN = r"system|\d+(-\d+)?(,\d+(-\d+)?)*"
_CPUS_MAX = 63
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class OptionType(StrEnum):
    """The types of a kernel's option."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    NAME = "name"
    CPUS = "cpus"
    WORDS = "words"


class Better(StrEnum):
    """Which direction of a metric is the good one."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a kernel's option table."""

    name: str
    type: OptionType
    unit: str | None
    default: ParameterValue
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a kernel's metric table."""

    name: str
    unit: str | None
    better: Better
    help: str


@dataclass(frozen=True, slots=True)
class Relation:
    """What an option must be to the others (kernels/c/describe/relations.h): `help` says it.

    kind: at_most, at_least, product, multiple, one_of, count_of_ports.
    """

    option: str
    kind: str
    other: str | None
    last: str | None
    factor: int
    words: tuple[str, ...]
    when: str | None
    when_words: tuple[str, ...]
    help: str

    def refused(self, parameters: Mapping[str, ParameterValue]) -> str | None:
        """`FOUND: ALLOWED` where these parameters, all of the kernel's, break the rule."""
        if self.when is not None and _plain(parameters[self.when]) not in self.when_words:
            return None
        value = parameters[self.option]
        bound = self._allowed_words(value) if self.kind == "one_of" else self._allowed_number(value, parameters)
        where = f" where {self.when} is {_plain(parameters[self.when])}" if self.when is not None else ""
        return None if bound is None else f"{_plain(value)}: must be {bound}{where}"

    def _allowed_words(self, value: ParameterValue) -> str | None:
        several = "one of " if len(self.words) > 1 else ""
        return None if _plain(value) in self.words else several + ", ".join(self.words)

    def _allowed_number(self, value: ParameterValue, parameters: Mapping[str, ParameterValue]) -> str | None:
        number, other = float(value), float(parameters[self.other]) if self.other else 0.0
        if self.kind == "multiple":
            return f"a multiple of {self.factor}" if number % self.factor else None
        if self.kind == "at_least":
            least, because = (other * self.factor, f" ({self.other})") if self.other else (float(self.factor), "")
            return f"0, or {_plain(least)} and more{because}" if 0 < number < least else None
        last = float(parameters[self.last]) if self.last else 0.0
        most = {
            "at_most": other,
            "product": self.factor // other if other else math.inf,
            "count_of_ports": (last or _PORT_LAST) - other + 1 if other else math.inf,
        }[self.kind]
        beside = f" to {_plain(last or _PORT_LAST)}" if self.last else ""
        return f"{_plain(most)} at most ({self.other} {_plain(other)}{beside})" if number > most else None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: what it measures, its options and metrics, and which program contains it."""

    name: str
    program: str
    version: str
    summary: str
    method: str
    options: tuple[Option, ...]
    metrics: tuple[Metric, ...]
    #: The option that is the size on the x axis of curves; None: the kernel has no size.
    size_option: str | None
    relations: tuple[Relation, ...] = ()
    #: Somebody else's program, which hpcq-net starts; None: a kernel of our own.
    described: Described | None = None

    @property
    def needs_mpi(self) -> bool:
        """Whether the cluster's MPI launcher starts it."""
        return self.program == "hpcq-mpi" or (self.described is not None and self.described.shape.over_mpi)

    def option(self, name: str) -> Option | None:
        """The option with this name, or None."""
        return next((option for option in self.options if option.name == name), None)

    def metric(self, name: str) -> Metric | None:
        """The metric with this name, or None."""
        return next((metric for metric in self.metrics if metric.name == name), None)


#: Kernels by name. A campaign has those that it may use, a run those of its own copies; none is known to all of hpcq but
#: its own.
Kernels = Mapping[str, Kernel]


def own_kernels() -> Kernels:
    """The kernels of hpcq itself, in the order of the programs' own tables. Those described are in definition/find.py."""
    return _read_all(assets.kernel_descriptions())


def own_kernel(name: str) -> Kernel:
    """The kernel of hpcq with this name. Raises UserError that names the nearest and all valid names."""
    known = own_kernels()
    if name not in known:
        raise UserError(*unknown_name("kernel", name, known))
    return known[name]


def complete(kernel: Kernel, parameters: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """Every option of the kernel in its order, with the checked value where one is given, else with the default."""
    return {option.name: parameters.get(option.name, option.default) for option in kernel.options}


def _text_value(kind: OptionType, value: Any) -> str:
    if kind is OptionType.NAME:
        if not isinstance(value, str) or re.fullmatch(NAME_PATTERN, value) is None:
            raise ValueError(f"{_shown(value)}: must be a name of a-z, 0-9, _, and . or - (not first), 15 at most")
        return value
    if kind is OptionType.CPUS:
        listed = "" if isinstance(value, bool) else str(value)
        if len(listed) > _CPUS_MAX or re.fullmatch(CPUS_PATTERN, listed) is None:
            raise ValueError(f"{_shown(value)}: must be system, or CPUs as 0-7,16, {_CPUS_MAX} characters at most")
        return listed
    words = " ".join(value.split()) if isinstance(value, str) else "?"
    if len(words) > _WORDS_MAX or re.fullmatch(WORDS_PATTERN, words) is None:
        allowed = "words of letters, digits and _.,:=+/@%^~#*-, which no shell reads"
        raise ValueError(f"{_shown(value)}: must be {allowed}, {_WORDS_MAX} characters at most")
    return words


def option_value(kernel: Kernel, option: Option, value: Any) -> ParameterValue:
    """One value, converted to the option's type and unit. Raises ValueError `FOUND: ALLOWED`."""
    if option.type is OptionType.BOOLEAN:
        if not isinstance(value, bool):
            raise ValueError(f"{_shown(value)}: must be true or false")
        return value
    if option.type is OptionType.CHOICE:
        if value not in option.choices:
            raise ValueError(f"{_shown(value)}: must be one of {', '.join(option.choices)}")
        return str(value)
    if option.type in {OptionType.NAME, OptionType.CPUS, OptionType.WORDS}:
        return _text_value(option.type, value)
    if isinstance(value, str) and value in option.choices:  # a word that stands for a number of the cluster
        return value
    number = _quantity(option, value)
    if option.minimum is not None and number < option.minimum:
        raise ValueError(f"{_written(value, number)} is below {kernel.name}'s minimum {_plain(option.minimum)}")
    if option.maximum is not None and number > option.maximum:
        raise ValueError(f"{_written(value, number)} is above {kernel.name}'s maximum {_plain(option.maximum)}")
    return number


def related(kernel: Kernel, parameters: Mapping[str, ParameterValue]) -> tuple[Relation, str] | None:
    """The first rule between options that these parameters, all of the kernel's, break, and `FOUND: ALLOWED`."""
    found = ((relation, relation.refused(parameters)) for relation in kernel.relations)
    return next(((relation, message) for relation, message in found if message is not None), None)


def message_bytes(name: str, parameters: Mapping[str, Any]) -> int | None:
    """The size that these parameters give a test of this kernel; None if the kernel has no size."""
    return size_of(size_option(name), parameters)


def size_of(option: str | None, parameters: Mapping[str, Any]) -> int | None:
    """The size that parameters give, if `option` is the one of the size."""
    size = parameters.get(option or "")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def size_option(name: str) -> str | None:
    """The option that is the size of this kernel: its description says it of our own, and all described ones call it so."""
    own = own_kernels().get(name)
    return own.size_option if own is not None else SIZE_OPTION if name else None


def sweep_sizes(kernel: Kernel, parameters: Mapping[str, ParameterValue]) -> tuple[int, ...]:
    """The sizes that one run of a kernel of hpcq measures, that of the parameters first; empty without a sweep.

    The same rule as in kernels/c/engine/sweep.c. Raises ValueError `NAME: FOUND: ALLOWED`.
    """
    to, by = (parameters.get(name, 0) for name in (_SWEEP_TO, _SWEEP_BY))
    size = kernel.option(SIZE_OPTION)
    if kernel.described is not None or size is None or size.minimum is None or size.maximum is None:
        return ()
    first = parameters[SIZE_OPTION]
    if not (isinstance(to, int) and isinstance(by, int) and isinstance(first, int)) or not (to or by):
        return ()
    if not to:
        raise ValueError(f"{_SWEEP_BY}: {by} without {_SWEEP_TO}: must be 0")
    if not first <= to <= size.maximum:
        raise ValueError(f"{_SWEEP_TO}: {to}: must be 0, or {first} ({SIZE_OPTION}) to {size.maximum:.12g}")
    found = {one for middle in _doubled(first, to) for one in (middle - by, middle, middle + by)}
    return first, *sorted(one for one in found - {first} if size.minimum <= one <= size.maximum)


def _doubled(first: int, last: int) -> list[int]:
    found = [first]
    while (following := 2 * found[-1] or 1) <= last:
        found.append(following)
    return found


def expected_s(parameters: Mapping[str, ParameterValue]) -> float:
    """How long one measurement takes by its parameters: all durations and warm-ups, or a second if there are none.

    Of a sweep, all sizes.
    """
    to, first = parameters.get(_SWEEP_TO), parameters.get(SIZE_OPTION)
    if isinstance(to, int) and isinstance(first, int) and to >= first:
        count = len(_doubled(first, to)) * (3 if parameters.get(_SWEEP_BY) else 1)
        return count * expected_s({name: value for name, value in parameters.items() if name != _SWEEP_TO})
    total = 0.0
    timed = False
    for name, value in parameters.items():
        seconds = _SECONDS.get(units.unit_of(name) or "")
        stem = name.rpartition("_")[0]
        if seconds is None or isinstance(value, (bool, str)):
            continue
        if stem == "duration" or stem.endswith("_duration"):
            total += value * seconds
            timed = True
        elif stem in {"warmup", "warm_up", "settle"}:
            total += value * seconds
        elif stem == "companion_idle" and parameters.get("companion") != "none":
            total += 2 * value * seconds  # before and after
    return total if timed else total + _UNTIMED_TEST_S


def read_quantity(value: object, unit: str, wanted: str = "a number") -> float:
    """A number in `unit`, given bare or with its unit. Raises ValueError `FOUND: ALLOWED`, also if it is infinite."""
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            number = units.parse(value, unit)
            if math.isfinite(number):
                return number
    except OverflowError:
        pass
    raise ValueError(f"{_shown(value)}: must be {wanted}{_in(unit)}")


def unknown_name(what: str, name: str, valid: Iterable[str]) -> tuple[str, str]:
    """Message and hint for a name that is not among the valid ones."""
    from difflib import get_close_matches

    names = list(valid)
    near = [one for one in names if one.casefold() == name.casefold()]
    near = near or get_close_matches(name, names, n=1, cutoff=0.6)  # below it, the nearest misleads
    near = near or [one for one in names if len(name) > 2 and one.startswith(name)]
    article = "an" if what[0] in "aeiou" else "a"
    message = f"{_shown(name)} is not {article} {what}" + (f": the nearest is {near[0]}" if near else "")
    return message, f"valid are {', '.join(names)}" if names else "there are none"


@lru_cache(maxsize=4)  # asked for each result that is loaded
def _read_all(folder: Path) -> dict[str, Kernel]:
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stem != "hpcq-net", path.stem))  # sockets first
    if not paths:
        raise HpcqError(f"{folder}: no kernel descriptions found", hint="`make describe` writes them from the programs")
    found: dict[str, Kernel] = {}
    for path in paths:
        for one in _read_program(path):
            if one.name in found:
                raise HpcqError(f"{path}: kernel {one.name} is described twice, also by {found[one.name].program}")
            found[one.name] = one
    return found


def _read_program(path: Path) -> list[Kernel]:
    try:
        description = json.loads(path.read_text("utf-8"))
        if description["format"] != 1:
            raise HpcqError(f"{path}: format: {description['format']}: must be 1")
        return [_kernel(description, row) for row in description["kernels"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HpcqError(f"{path}: not a kernel description: {type(error).__name__}: {error}") from None


def _kernel(description: Mapping[str, Any], row: Mapping[str, Any]) -> Kernel:
    return Kernel(
        name=row["name"],
        program=description["program"],
        version=description["version"],
        summary=row["summary"],
        method=row.get("method", ""),
        options=tuple(_option(option) for option in row["options"]),
        metrics=tuple(
            Metric(metric["name"], metric["unit"], Better(metric["better"]), metric.get("help", ""))
            for metric in row["metrics"]
        ),
        size_option=row["size_option"],
        relations=tuple(
            Relation(**one | {"words": tuple(one["words"]), "when_words": tuple(one["when_words"])})
            for one in row.get("relations", ())
        ),
    )


def _option(row: Mapping[str, Any]) -> Option:
    return Option(
        name=row["name"],
        type=OptionType(row["type"]),
        unit=row["unit"],
        default=_one_number(row["default"]),
        minimum=row["minimum"],
        maximum=row["maximum"],
        choices=tuple(row["choices"] or (PER_THING if row["name"] == RANKS_PER_NODE else ())),
        help=row.get("help", ""),
    )


def _quantity(option: Option, value: Any) -> int | float:
    unit = units.unit_of_option(option.name) or option.unit or ""
    whole = option.type is OptionType.INTEGER
    if isinstance(value, str) and option.choices and re.match(r"[a-z]", value):
        raise ValueError(f"{_shown(value)}: must be a number, or one of {', '.join(option.choices)}")
    number: int | float = _one_number(read_quantity(value, unit, "a whole number" if whole else "a number"))
    if whole and isinstance(number, float):
        raise ValueError(f"{_written(value, number)}: must be a whole number{_in(unit)}")
    return number


def _in(unit: str) -> str:
    return f" in {unit}" if unit in {"bytes", "bps", *_SECONDS} else ""


def _one_number(value: Any) -> Any:
    """Return 2 for 2.0: both are one parameter, so they belong to one series."""
    return int(value) if isinstance(value, float) and value == int(value) else value


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "keys with values"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(number: ParameterValue) -> str:
    if isinstance(number, str):
        return number
    if isinstance(number, bool):
        return str(number).lower()
    return str(int(number)) if number == int(number) else repr(number)


def _written(value: object, number: float) -> str:
    return f"{_shown(value)} ({_plain(number)})" if isinstance(value, str) else _plain(number)


# ----------------------------------------------------------------------------------------------------------------------
# What a test is: the columns that every row about one begins with, and the order in which people read such rows.


@dataclass(frozen=True, slots=True)
class KernelTest:
    """A kernel and size on a cluster. message_bytes: None for a test without a size.

    What else its parameters say stands in a row's `variant` or `parameters`.
    """

    cluster: str
    kernel: str
    message_bytes: int | None

    @property
    def size_text(self) -> str:
        """Its size for people; empty if the test has none."""
        return size_text(self.message_bytes)

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts rows as people read them."""
        return self.cluster, self.kernel, self.message_bytes or 0


@dataclass(frozen=True, slots=True)
class PairTest(KernelTest):
    """The same between two nodes over one network; server: a set of nodes where more than two ran it together.

    network: the interface under test; two of them are two measurements.
    """

    client: str
    server: str
    network: str

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts rows as people read them: n2 before n10."""
        return self.cluster, self.kernel, natural(self.client), natural(self.server), self.message_bytes or 0


@dataclass(frozen=True, slots=True)
class MetricOfTest:
    """One metric of a test between two nodes, by all parameters of the test."""

    cluster: str
    client: str
    server: str
    kernel: str
    parameters: Mapping[str, Any]
    metric: str


def size_text(message_bytes: int | None) -> str:
    """A message size for people; empty if the test has none."""
    return "" if message_bytes is None else units.human(message_bytes, "bytes")
