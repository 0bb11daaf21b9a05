"""What the readers of other programs' files share: units, hosts, the meaning of paths, and values made of what a file says.

a file's record: time, hosts, test, number with unit  --Maker.value-->  Value in base units
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcq import nodelist, units
from hpcq.errors import UserError
from hpcq.imports.values import ImportedTest, MetricName, Value, metric_of, name_of, test_of, utc_of
from hpcq.kernels import Better, Kernel

#: What a path or a column of a file can say of its values.
ROLES = ("time", "run", "job", "test", "client", "server", "repetition", "message_bytes")
#: What a column can be besides: a name of the nodes, and no parameter of the test.
COLUMN_ROLES = (*ROLES, "nodes")
_FIELD = re.compile(r"\\\{(\w+)\\\}")
#: Units without a prefix to read, by their lower case.
_PLAIN = {
    **dict.fromkeys(("", "1", "-", "none", "null"), ("number", 1.0)),
    **{word: (word, 1.0) for word in ("ns", "us", "ms", "s", "pps", "eps", "ratio", "count")},
    "usec": ("us", 1.0),
    "µs": ("us", 1.0),
    "msec": ("ms", 1.0),
    "sec": ("s", 1.0),
    "seconds": ("s", 1.0),
    "%": ("ratio", 0.01),
}
_PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "p": 1e15,
    "ki": 2.0**10,
    "mi": 2.0**20,
    "gi": 2.0**30,
    "ti": 2.0**40,
}
_RATE = re.compile(r"([kmgtp]i?)?(?:(b)(?:ytes?)?|(bits?|b))(?:/s(?:ec)?|ps)", re.IGNORECASE)
_SIZE = re.compile(r"([KMGTkmgt]i?)?(?:B|bytes?)")
_FLOPS = re.compile(r"([kmgtp])?flop?s?(?:/s(?:ec)?)?", re.IGNORECASE)
#: Words in a metric's name that say which direction is good, where its unit does not.
_LOWER = re.compile(
    r"(?<![a-z])lat(?![a-z])|latency|time|duration|loss|lost|error|retransmit|jitter|wait|rtt|cost|overhead", re.IGNORECASE
)
_HIGHER = re.compile(r"bw|bandwidth|throughput|rate|flops|speed|fps|iops|perf", re.IGNORECASE)
_FOLDED_TIME = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:[T_-]?(\d\d)[-:]?(\d\d)(?:[-:]?(\d\d))?Z?)?")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a person says of files: a pattern of their paths, columns by role, directions by metric, the zone of times.

    names: None: paths mean nothing. columns: role -> column. better: metric -> higher or lower.
    """

    names: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    better: Mapping[str, str] = field(default_factory=dict)
    zone: dt.tzinfo = dt.UTC


@dataclass(slots=True)
class Maker:
    """Makes values of what one program's file says. `program` begins the names of its tests: reframe.stream.

    notes: what a person should know beside the values, each once.
    """

    program: str
    meaning: Meaning
    notes: dict[str, None] = field(default_factory=dict)

    def test(self, name: str, parameters: Mapping[str, Any], kernel: Kernel | None = None) -> ImportedTest:
        """A test by what its program calls it; kernel: the described one whose output it is."""
        parameters = {encodable(key): encodable(one) if isinstance(one, str) else one for key, one in parameters.items()}
        if kernel is not None:
            return test_of(kernel, kernel.name, parameters)
        return test_of(None, f"{self.program}.{plain_name(name)}"[:120], parameters)

    def metric(self, name: str, unit: str, better: str | None = None) -> tuple[MetricName, float]:
        """A metric with the factor that brings its values into base units; a unit that hpcq has not stays in its name."""
        said = self.meaning.better.get(name) or better or direction(name, unit)
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
        base = base_unit(unit)
        if base is None:
            return metric_of(None, _no_suffix(f"{plain}_{re.sub(r'[^A-Za-z0-9]+', '_', unit).strip('_')}"), "number", said), 1.0
        if base[0] != "number" and units.unit_of(plain) not in {None, base[0]}:
            plain += "_value"
        return metric_of(None, plain if base[0] != "number" else _no_suffix(plain), base[0], said), base[1]

    def nodes(self, names: Sequence[str]) -> tuple[str, str]:
        """Client and server of a list of hosts: one node alone, two, or a set that ran together. Raises ValueError."""
        hosts = [one.strip() for one in names if one.strip()]
        if not hosts:
            raise ValueError("hosts: none: must be the names of the nodes")
        for host in hosts:
            if not nodelist.is_node_name(host):
                raise ValueError(f"hosts: {host!r}: must be a node's name, letters, digits and ._-")
        if len(hosts) == 1:
            return hosts[0], hosts[0]
        return hosts[0], hosts[1] if len(hosts) == 2 else ",".join(nodelist.fold(hosts[1:]))

    def utc(self, text: str) -> str:
        """A time of a file; without a zone it is in the one that was said. Raises ValueError."""
        folded = _FOLDED_TIME.fullmatch(text)
        if folded is not None:
            year, month, day, hour, minute, second = folded.groups()
            text = f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{'Z' if text.endswith('Z') else ''}"
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            return utc_of(text)
        if moment.tzinfo is None:
            self.notes[f"times without a zone were read as {self.meaning.zone}: --zone names another"] = None
            text = moment.replace(tzinfo=self.meaning.zone).isoformat()
        return utc_of(text)

    def file_utc(self, path: Path, said: Mapping[str, str]) -> str:
        """The time of all that a file holds: what was said, else when the file was written."""
        if said.get("time"):
            return self.utc(said["time"])
        self.notes["times are those of the files: --names with {time} takes them from the path"] = None
        return units.utc_text(dt.datetime.fromtimestamp(int(path.stat().st_mtime), dt.UTC))

    def run(self, said: Mapping[str, str], time_utc: str) -> str:
        """The run of a value: what was said, else the day."""
        return name_of(said["run"]) if said.get("run") else f"{self.program}-{time_utc[:10].replace('-', '')}"

    def roles(self, path: Path) -> dict[str, str]:
        """What a file's path says, by the pattern of paths. Raises UserError if the pattern does not fit it."""
        if self.meaning.names is None:
            return {}
        pattern = _FIELD.sub(lambda one: f"(?P<{one[1]}>[^/]+?)", re.escape(self.meaning.names))
        found = re.search(rf"(?:^|/){pattern}$", path.as_posix())
        if found is None:
            raise UserError(f"{path}: is not named like {self.meaning.names}", "--names says what the paths mean")
        return found.groupdict()

    def better_of(self, lower: object, upper: object) -> str | None:
        """The direction that bounds show: a lower bound alone means that more is better."""
        if (lower is None) == (upper is None):
            return None
        return Better.LOWER.value if lower is None else Better.HIGHER.value


def check_names(pattern: str) -> None:
    """Raise UserError for a pattern of paths whose fields are no roles."""
    fields = re.findall(r"\{(\w*)\}", pattern)
    for one in fields:
        if one not in ROLES or fields.count(one) > 1:
            raise UserError(
                f"--names: {{{one}}}: must be one of {', '.join(ROLES)}, each once", "for example {run}/{client}-{server}.txt"
            )
    if not fields:
        raise UserError(f"--names: {pattern!r}: names nothing", "for example {run}/{client}-{server}.txt")


def zone_of(text: str) -> dt.tzinfo:
    """A zone by its name or its distance from UTC: Europe/Berlin, +01:00. Raises UserError."""
    if re.fullmatch(r"[+-]\d\d:\d\d", text):
        return dt.datetime.fromisoformat(f"2000-01-01T00:00:00{text}").tzinfo or dt.UTC
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(f"--zone: {text!r}: must be a zone's name and +01:00") from None


def base_unit(text: str) -> tuple[str, float] | None:
    """The base unit of a unit as programs write it, and the factor: MB/s is 8,000,000 bps. None: hpcq has none for it.

    B is a byte and b a bit; `bps` alone is bits.
    """
    word = text.strip()
    if word.lower() in _PLAIN:
        return _PLAIN[word.lower()]
    for pattern, base in ((_RATE, "bps"), (_SIZE, "bytes"), (_FLOPS, "flops")):
        found = pattern.fullmatch(word)
        if found is not None:
            is_rate_of_bytes = base == "bps" and (found[2] == "B" or "byte" in word.lower())
            return base, _PREFIXES[(found[1] or "").lower()] * (8.0 if is_rate_of_bytes else 1.0)
    return None


def direction(name: str, unit: str) -> str:
    """Which direction is good, by the unit and usual words; `none` where neither says so."""
    base = base_unit(unit)
    if base is not None and base[0] in {"bps", "pps", "eps", "flops"}:
        return Better.HIGHER.value
    if base is not None and base[0] in {"ns", "us", "ms", "s"}:
        return Better.LOWER.value
    if _LOWER.search(name):
        return Better.LOWER.value
    return Better.HIGHER.value if _HIGHER.search(name) else Better.NONE.value


def plain_name(text: str) -> str:
    """A name of another program with the characters that names have here."""
    return re.sub(r"[^A-Za-z0-9_.:+=@-]+", "_", text.strip()).strip("_") or "test"


def encodable(text: str) -> str:
    """A text without halves of characters, which JSON can have and no database takes."""
    return text.encode("utf-8", "replace").decode()


def typed(text: str) -> int | str:
    """A parameter of another program: a whole number as one."""
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else text


def files_in(paths: Sequence[Path], suffixes: Sequence[str]) -> Iterator[Path]:
    """The files named, and those below folders that are named: with one of these suffixes, in order; `` takes all."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        below = sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(tuple(suffixes)))
        if not below:
            raise UserError(f"{path}: has no file that ends in {' or '.join(suffixes)}", "name the files themselves")
        yield from below


def objects(path: str, text: str) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file with their lines: one on each line, or one list, or one value. Raises UserError."""
    if not text.strip():
        raise UserError(f"{path}: is empty: must be JSON")
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if whole is not None:
        listed = whole if isinstance(whole, list) else [whole]
        yield from ((number if len(listed) > 1 else 1, one) for number, one in enumerate(listed, start=1))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}:{number}: not JSON: {error}", "nothing was imported") from None


def number_of(value: object, what: str) -> float:
    """A finite number of a JSON file. Raises ValueError `WHAT: FOUND: ALLOWED`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            if math.isfinite(found := float(value)):
                return found
        except OverflowError:
            pass
    raise ValueError(f"{what}: {str(value)[:40]!r}: must be a finite number")


def mapping_of(value: object) -> Mapping[str, Any]:
    """An object of a JSON file; an empty one where there is something else."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """A list of a JSON file; an empty one where there is something else."""
    return value if isinstance(value, list) else []


def made(line: int, where: Mapping[str, Any], metric: MetricName | None, value: float | None, reason: str | None) -> Value:
    """A value with its place; where: time_utc, run, job, test, client, server, repetition_no. A reason means that it failed."""
    outcome = "measured" if reason is None else "failed"
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{'' if metric is None else metric.name}: {value}: must be a finite number in base units")
    return Value(
        line=line, outcome=outcome, reason=None if reason is None else encodable(reason), metric=metric, value=value, **where
    )


def _no_suffix(name: str) -> str:
    """A metric's name that ends in no unit of hpcq."""
    return f"{name}_value" if units.unit_of(name) else name
