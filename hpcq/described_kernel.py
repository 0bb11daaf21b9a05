"""What a description of a foreign program says, checked: frozen data without YAML.

kernels/described/NAME.yaml --definition.files.kernel_file--> Kernel(described=Described) --described/--> commands, results
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


class Ready(StrEnum):
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
    """The program's server: its command as a template, and how it shows that it is ready."""

    command: str
    ready: Ready
    ready_words: str
    ready_s: float
    ends: bool


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

    head None: from the first line on. A column `-` is not read.
    """

    head: str | None
    columns: tuple[str, ...]
    end: str | None


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
