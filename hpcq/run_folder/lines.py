"""Judge the files of one measurement: do they hold a number to believe, and if not, why not.

Hides everything that can be wrong with a file: absent, empty, torn, two lines, not JSON, NaN, of another kernel,
with parameters other than planned. Pure apart from reading the three files.

    t1-r1.json  t1-r1.status  t1-r1.err  --read_line-->  Line(outcome, reason, metrics, the whole JSON object)
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hpcq.clock import DriverTimes, off_words, utc_or_none
from hpcq.described import Read, UnreadableError, commands, read_output, same_command, sent_at_least, sizes
from hpcq.kernels import SIZE_OPTION, Described, Kernel, Kernels, Shape
from hpcq.run_folder.paths import parse_json, read_job_file
from hpcq.visible import one_line

# ----------------------------------------------------------------------------------------------------------------------
# Find out how a program died, from its standard error: the signal, and known crashes of libraries.
#
# A crash that a second try hides is still a crash. hpcq reports it beside the result of that second try.


#: MPI libraries and launchers name the signal; a shell gives 128 plus the signal's number.
_SIGNAL_WORDS = re.compile(r"Signal: ([A-Z][A-Za-z ]+) \((\d+)\)|exited on signal (\d+)|\b(Segmentation fault|Bus error)\b")
_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
_NUMBERS = {"Segmentation fault": 11, "Bus error": 7}


@dataclass(frozen=True, slots=True)
class KnownCrash:
    """A known crash of a library. pattern: matches what the program wrote to its standard error."""

    name: str
    pattern: re.Pattern[str]
    meaning: str
    source: str


KNOWN_CRASHES = (
    KnownCrash(
        "open_mpi_early_message",
        re.compile(r"mca_pml_ob1_recv_frag_callback_match"),
        "Open MPI 5 crashed in MPI_Init: a message came before its communicator stood; another try usually works"
        " (hpcq-mpi waits 0.1 s after MPI_Init to avoid it)",
        "open-mpi/ompi issues 11438 and 12495",
    ),
    KnownCrash(
        "open_mpi_no_handler",
        # The only frame that Open MPI can name is that of the signal: the program had jumped to address 0.
        re.compile(r"Failing at address: \(nil\)\s+(?:\[\S+\] )?\[ 0\] \S+\s+(?:\[\S+\] )?\*\*\* End of error message"),
        "Open MPI 4 crashed, most likely in MPI_Init: a message came over TCP before its handler was set; another try"
        " usually works (hpcq-mpi waits 0.1 s after MPI_Init to avoid it)",
        "seen with Open MPI 4.1.4 and osu_mbw_mr",
    ),
)


def known_crash(said: str) -> KnownCrash | None:
    """Return the known crash that a program's standard error shows, if any."""
    return next((one for one in KNOWN_CRASHES if one.pattern.search(said)), None)


def crash_words(said: str, return_code: int | None) -> str:
    """Return `died of SIGSEGV: MEANING (SOURCE)`, or "" if nothing shows that a signal ended the program.

    said: everything on standard error. return_code: of the program or its launcher; None if unknown.
    """
    known = known_crash(said)
    signal = _signal_of(said, return_code)
    if signal is None and known is None:
        return ""
    died = f"died of {_NAMES.get(signal, f'signal {signal}')}" if signal is not None else "died"
    return died if known is None else f"{died}: {known.meaning} ({known.source})"


def _signal_of(said: str, return_code: int | None) -> int | None:
    match = _SIGNAL_WORDS.search(said)
    if match is not None:
        return int(match[2] or match[3] or _NUMBERS[match[4]])
    number = (return_code or 0) - 128
    return number if number in _NAMES else None


# ----------------------------------------------------------------------------------------------------------------------
# The result line of a foreign program: from what the program wrote to what a kernel of hpcq would have said.
#
# hpcq-net hands on the program's output as it is. Here it becomes options, metrics and warnings, as the description in
# the run's folder says, so that everything after it need not know that the program is foreign.


#: The kernel of hpcq-net that starts a foreign program.
PROGRAM = "program"
_KEPT_CHARACTERS = 4000


def translated(content: Mapping[str, Any], kernel: Kernel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The line as a kernel's own. What cannot be read makes it invalid, with the reason, and keeps its output.

    A line of a failed program keeps its error and has no metrics.
    """
    described = kernel.described
    assert described is not None  # noqa: S101 - the caller has looked
    warnings = content.get("warnings")
    line = {**content, "warnings": list(warnings) if isinstance(warnings, list) else []}
    if content.get("kernel") != PROGRAM:
        return line
    line |= {"kernel": kernel.name, "options": dict(parameters), **told_of(kernel, parameters)}
    outputs = _mapping(content.get("outputs"))
    reader = _mapping(outputs.get(described.end))
    if content.get("error") is None and content.get("valid") is True:
        try:
            _check_commands(described, outputs, parameters)
            found = _read(described, reader, parameters)
            _fill_described(line, described, found, parameters)
        except UnreadableError as error:
            line |= {"valid": False, "invalid_reason": f"{kernel.name}: {error}", "metrics": {}}
    if line.get("valid") is not True:
        line["metrics"] = {}
        _keep(line, outputs)
    return line


def told_of(kernel: Kernel, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the rules of evidence must know of a described kernel, beside its result: as keys of the line."""
    described = kernel.described
    if described is None:
        return {}
    return {
        "over_mpi": described.shape.over_mpi,
        "one_node": described.shape is Shape.ONE_NODE,
        "many_ranks": described.shape is Shape.MPI_RANKS,
        "sent_at_least_bytes": list(sent_at_least(described, parameters)),
    }


def _read(described: Described, reader: Mapping[str, Any], parameters: Mapping[str, Any]) -> Read:
    if reader.get("cut") is True:
        raise UnreadableError("output: more than 4 MiB: must be less")
    text = reader.get(described.stream)
    return read_output(described, text if isinstance(text, str) else "", sizes(described, parameters))


def _fill_described(line: dict[str, Any], described: Described, found: Read, parameters: Mapping[str, Any]) -> None:
    size = parameters.get(described.sizes.option) if described.sizes else None
    if size in found.complaints:
        raise UnreadableError(found.complaints[size])
    if size not in found.metrics:
        raise UnreadableError(f"no row for size {size}")
    line["metrics"] = {**_mapping(line.get("metrics")), **found.metrics[size]}
    line["warnings"] += [{"name": "program_said", "message": said} for said in found.said]


def _check_commands(described: Described, outputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """The words that were started are those of the plan: a line of another description is no result of this one."""
    for end, expected in commands(described, parameters).items():
        used = _mapping(outputs.get(end)).get("command")
        if end != "version" and not same_command(expected, used):
            words = " ".join(map(str, used)) if isinstance(used, list) else "nothing"
            raise UnreadableError(f"{end}: started {words}: planned {' '.join(expected)}")


def _keep(line: dict[str, Any], outputs: Mapping[str, Any]) -> None:
    """The ends of what the programs wrote, beside the reason why there is no number."""
    for end, written in outputs.items():
        for stream in ("output", "errors"):
            text = _mapping(written).get(stream)
            if isinstance(text, str) and text.strip():
                message = f"{end}: {text.strip()[-_KEPT_CHARACTERS:]}"
                line["warnings"].append({"name": f"program_{stream}", "message": message})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# ----------------------------------------------------------------------------------------------------------------------
# Read what a kernel of hpcq printed: one line, or of a sweep over sizes one line per size. Pure.
#
# A sweep prints each size as soon as it is measured. Whoever kills it takes only the size under way:
#
#     {"format":1,"kernel":"tcp_pingpong","sizes":[
#     RESULT
#     ,RESULT
#     ],"exit_code":0}                the last line of a sweep that ended
#
# Libraries write to the same standard output (I_MPI_DEBUG, UCX_LOG_LEVEL, warnings of UCX), before a result, after it and
# into its line. The last key of a result is its frame: length and SHA-256 of what is before. A framed result counts
# wherever it is, if it is whole; the rest is what the libraries said. Results without a frame, of kernels before
# it, count only where nothing else was printed.
#
#     [0] MPI startup(): Number of NICs: 1{"format":1, … ,"frame":{"length_bytes":812,"sha256":"…"}}


_SIZES_FOLLOW = b'"sizes":['
_LAST = b"]"
_BEGIN = b'{"format":1,'
_FRAME = re.compile(rb',"frame":\{"length_bytes":(\d{1,9}),"sha256":"([0-9a-f]{64})"\}\}')
_SWEEP_HEAD = re.compile(rb'\{"format":1,"kernel":"[^"\n]*",(?:"skipped":\[[\d,]*\],)?"sizes":\[')
_SWEEP_TAIL = re.compile(rb'\],"exit_code":\d{1,3}\}')
#: A line of a library may be cut out of a result that it came into. More of them are not tried.
_CUTS_MAX = 1000


class NothingPrintedError(ValueError):
    """The kernel printed no line. What it wrote for people may say why. said: what is on its standard output instead."""

    def __init__(self, message: str, said: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.said = list(said)


@dataclass(slots=True)
class Framed:
    """What was found on a standard output: results that are proven whole, those that are not, and the rest as words."""

    results: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def framed(content: bytes) -> Framed:
    """Take the framed results out of a standard output. Where a result is not whole, `damaged` says what was found."""
    found, rest, place = Framed(), b"", 0
    for frame in _FRAME.finditer(content):
        length = int(frame[1])
        begin = max(place, frame.start() - length)
        words = b""
        whole = content[begin : frame.start()]
        if not _is_whole(whole, frame):
            begin = content.find(_BEGIN, place, frame.start())
            # Of several beginnings the last is its own, if that is long enough: the others were torn.
            while begin >= 0 and (later := content.find(_BEGIN, begin + 1, frame.start() - length + 1)) > 0:
                begin = later
            if begin < 0:
                found.damaged.append(f"{frame.start() - place} bytes and no beginning: must be {length}")
                place = frame.end()
                continue
            whole, words = _without_words(content[begin : frame.start()], frame)
            if not whole:
                printed_bytes = frame.start() - begin
                found.damaged.append(f"{printed_bytes} bytes, not those of its checksum: must be {length}")
        if whole:
            try:
                found.results.append(parse_json(whole + b"}"))
            except ValueError as error:
                found.damaged.append(str(error))
        rest += content[place:begin] + b"\n" + words + b"\n"
        place = frame.end()
    found.said = _words_in(rest + content[place:])
    return found


def _is_whole(result: bytes, frame: re.Match[bytes]) -> bool:
    return result.startswith(_BEGIN) and hashlib.sha256(result).hexdigest().encode() == frame[2]


def _without_words(torn: bytes, frame: re.Match[bytes]) -> tuple[bytes, bytes]:
    """A result that whole lines of a library came into, and those lines; two times nothing if that is not all."""
    extra = len(torn) - int(frame[1])
    ends = [match.end() for match in re.finditer(rb"\n", torn)][:_CUTS_MAX]
    for end in ends if extra > 0 else []:
        result = torn[: max(0, end - extra)] + torn[end:]
        if end >= extra and _is_whole(result, frame):
            return result, torn[end - extra : end]
    return b"", b""


def _words_in(rest: bytes) -> list[str]:
    """What is not of hpcq: a sweep's own head, commas and end are, and a result that was torn."""
    rest = _SWEEP_HEAD.sub(b"\n", rest, count=1)
    rest = _SWEEP_TAIL.sub(b"\n", rest, count=1)
    lines = (line.strip() for line in rest.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line.lstrip(",") and not line.lstrip(",").startswith(_BEGIN.decode())]


#: Over what a library says that it sends. On standard output: Intel MPI with I_MPI_DEBUG and MPICH with
#: MPIR_CVAR_DEBUG_SUMMARY the provider of libfabric, UCX with UCX_LOG_LEVEL=info the lanes of each kind of endpoint,
#: `transport/device` (before 1.14 `ep_cfg[1]:`, later `cfg#1`). On standard error: Open MPI with OMPI_MCA_btl_base_verbose
#: its component for each peer, with OMPI_MCA_mtl_base_verbose the provider.
_PROVIDER_SAID = re.compile(
    r"(?:\A|MPI startup\(\): )libfabric provider: (\S+)(?: - .*)?\Z"
    r"|\bmca: bml: Using (?!self )(\S+) btl for send to |\bmtl:ofi:provider: (?!none)(\S+)"
)
_LANES_SAID = re.compile(r"\bUCX  INFO .*(?:\bep_cfg\[\d+\]:|\bcfg#\d+) .*?\btag\(([^()]*)\)")


def transport_said(said: Sequence[str]) -> str:
    """Return the providers or lanes that libraries say they send over, each once; empty if none says so.

    The lanes of a rank to itself are left out: no message between ranks takes them.
    """
    found: dict[str, None] = {}
    for line in said:
        if match := _PROVIDER_SAID.search(line.strip()):
            found[match[match.lastindex or 0]] = None
        elif (match := _LANES_SAID.search(line)) and "self/" not in match[1]:
            found.update(dict.fromkeys(match[1].split()))
    return " ".join(found)


def printed(content: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the object that a kernel printed, and what else was on its standard output.

    Of a killed sweep it is the object of its whole sizes, without `exit_code`. Raises ValueError that says what is wrong.
    """
    found, head = framed(content), _SWEEP_HEAD.search(content)
    damaged = {"damaged": f"result line: not whole: {'; '.join(found.damaged)}"} if found.damaged else {}
    if damaged and (head is None or not found.results):
        raise ValueError(damaged["damaged"])
    if len(found.results) == 1 and head is None:
        return found.results[0], found.said
    lines = [line for line in content.split(b"\n") if line.strip()]
    if head is not None and (found.results or not any(line.startswith((b"{", b",{")) for line in lines if head[0] not in line)):
        return {**parse_json(head[0] + b"]}"), "sizes": found.results, **damaged, **_tail_of(content)}, found.said
    if lines and lines[0].endswith(_SIZES_FOLLOW):
        return _sweep(content), []  # of a kernel that printed no frames
    count = len(found.results) or sum(b'{"' in line or b"{}" in line for line in lines)
    if not count and (len(lines) != 1 or not _is_json(lines[0])):
        raise NothingPrintedError("no result line", found.said)
    if count > 1:
        raise ValueError(f"{count} result lines: must be exactly one")
    if len(lines) > 1:
        raise ValueError(f"result line: no frame among {len(lines)} lines proves it whole: must be a line with its frame")
    try:
        return parse_json(lines[0]), []
    except ValueError as error:
        raise ValueError(f"result line: {error}") from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _tail_of(content: bytes) -> dict[str, Any]:
    tails = _SWEEP_TAIL.findall(content)
    return {"exit_code": int(tails[-1][len(b'],"exit_code":') : -1])} if tails else {}


def kept_sizes(content: bytes) -> bytes | None:
    """Return, as one line, the object of the sizes that a player of a tournament kept beside the spool, if any.

    Several players may have added to them, and each may have been killed amid a line: what is whole counts.
    """
    found: dict[object, dict[str, Any]] = {}
    skipped: list[int] = []
    for line in content.split(b"\n")[:-1]:
        skipped = skipped or skipped_sizes(line)
        try:
            one = parse_json(line.removeprefix(b","))
        except ValueError:
            continue
        one.pop("frame", None)  # of the bytes that were here, not of those that are written now
        size = size_of(one)
        if size is not None and (size not in found or found[size].get("error") is not None):
            found[size] = one
    if not found:
        return None
    first = next(iter(found.values()))
    head = {"format": first.get("format"), "kernel": first.get("kernel"), **({"skipped": skipped} if skipped else {})}
    return json.dumps({**head, "sizes": [*found.values()]}).encode()


def measured_sizes(content: bytes) -> list[int]:
    """Return the sizes that a sweep, ended or killed, printed a measurement of; empty for all else."""
    try:
        found = _sizes(printed(content)[0])
    except ValueError:
        return []
    known = ((one, size_of(one)) for one in found)
    return [size for one, size in known if isinstance(size, int) and one.get("error") is None]


def skipped_sizes(content: bytes) -> list[int]:
    """Return the sizes that a sweep left out, since an earlier attempt had measured them."""
    head = _SWEEP_HEAD.search(content)
    try:
        found = parse_json(head[0] + b"]}" if head is not None else content.partition(b"\n")[0]).get("skipped")
    except ValueError:
        return []
    return [size for size in found if isinstance(size, int)] if isinstance(found, list) else []


def of_size(
    content: dict[str, Any], parameters: Mapping[str, Any], return_code: int | None
) -> tuple[dict[str, Any], int | None]:
    """Of a sweep, the line of the planned size, with the exit code that belongs to it; else what was given.

    A sweep ends where a size cannot be measured: what was not reached says so. Raises NothingPrintedError for a size that a
    killed sweep did not get to.
    """
    if "sizes" not in content:
        return content, return_code
    sizes, killed = _sizes(content), "exit_code" not in content
    for one in sizes:
        if size_of(one) == parameters.get(SIZE_OPTION):
            own_code_counts = killed or content["exit_code"] == return_code
            return one, one.get("exit_code") if own_code_counts else return_code
    if "damaged" in content:
        raise ValueError(content["damaged"])
    if killed or not sizes:
        last_words = f"the last size that it measured is {size_of(sizes[-1])} bytes" if sizes else "it had measured no size"
        raise NothingPrintedError(f"the sweep was killed before this size was measured; {last_words}")
    last = sizes[-1]
    error = _mapping_of(last.get("error"))
    words = ": ".join(str(one) for one in (f"the sweep ended at {size_of(last)} bytes", error.get("message")) if one)
    return {**last, "metrics": {}, "error": {"state": error.get("state"), "message": words}}, return_code


def size_of(one: Mapping[str, Any]) -> object:
    """Return the size that a result line of a sweep is about."""
    return _mapping_of(one.get("options")).get(SIZE_OPTION)


def _sweep(content: bytes) -> dict[str, Any]:
    """Each line by itself: the whole may be longer than any one line may be. A torn last line is no line."""
    head, *lines = content.split(b"\n")[:-1]
    found = parse_json(head + b"]}")
    for number, line in enumerate(lines, start=2):
        try:
            if line.startswith(_LAST):
                return {**found, **parse_json(b'{"sizes":[' + line), "sizes": found["sizes"]}
            found["sizes"].append(parse_json(line.removeprefix(b",")))
        except ValueError as error:
            raise ValueError(f"line {number} of the sweep: {error}") from None
    return found


def _sizes(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = content.get("sizes")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _mapping_of(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ----------------------------------------------------------------------------------------------------------------------


#: The largest integer that SQLite can hold.
INTEGER_MAX = 2**63 - 1
_ERROR_TEXT_MAX = 300
#: A line comes from a node that somebody else may hold. What a line of ours never has so much of is left out, with a
#: warning; the rest of the line counts.
WARNINGS_MAX = 100
#: Metrics of a kernel that no description names; others have as many as their description.
_UNDESCRIBED_MAX = 200
_WORDS_MAX = 4000
#: How Intel MPI, MPICH, Open MPI, UCX, libfabric and launchers begin to say that they give up.
_ERROR_WORDS = re.compile(r"\b(?:error|fatal|abort(?:ed|ing)?|assert(?:ion)? failed|failed|unable to|cannot)\b", re.IGNORECASE)


class Outcome(StrEnum):
    """The words of result.outcome."""

    MEASURED = "measured"
    INVALID = "invalid"
    FAILED = "failed"
    NOT_MEASURED = "not_measured"


@dataclass(slots=True)
class Line:
    """What one measurement left. `content` is the kernel's object, empty if there is none to believe."""

    outcome: Outcome
    reason: str | None
    exit_code: int | None
    started_utc: str | None
    duration_ns: int | None
    metrics: dict[str, float] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawLine:
    """The bytes of one measurement, as they are in the attempt's folder."""

    content: bytes | None
    status: bytes | None
    sha256: bytes
    #: Why there is no result line, if the record gives a reason.
    said: str = ""
    #: What the launcher and the program wrote for people, if the record has it; otherwise a file beside it may.
    words: str = ""


def read_raw(path: Path) -> RawLine | None:
    """Return the bytes of `t<n>-r<n>.json` and its .status; None when neither exists.

    If the script was killed with its kernel, what a sweep had measured by then is in the file that it was about to name so.
    """
    content, status = _bytes(path), _bytes(path.with_suffix(".status"))
    if content is None and status is None:
        under_way = _bytes(path.with_name(path.name + ".part")) or b""
        content = under_way if measured_sizes(under_way) else None
    if content is None and status is None:
        return None
    digest = hashlib.sha256(content or b"")
    digest.update(b"\0" + (status or b""))
    return RawLine(content, status, digest.digest())


def sizes_measured_before(attempts: Path, step_name: str) -> tuple[int, ...]:
    """Return the sizes of a sweep that some attempt of a job measured. attempts: the folder of the job's attempts."""
    names = (f"{step_name}.json", f"{step_name}.json.part")
    found = [path for name in names for depth in ("*", "*/*") for path in attempts.glob(f"{depth}/{name}")]
    raws = (read_raw(path.with_name(names[0])) for path in found)
    return tuple(sorted({size for raw in raws if raw is not None for size in measured_sizes(raw.content or b"")}))


def read_line(  # noqa: PLR0917 - what stands there, and what was planned
    raw: RawLine, path: Path, kernels: Kernels, kernel: str, parameters: Mapping[str, Any], times: DriverTimes | None = None
) -> Line:
    """Judge the bytes of one measurement against what was planned. times: what the driver's clock says about it.

    `started_utc` is what the kernel's node said if that can be true, else what the script's node said, else when the driver
    saw the end; a warning says so. What brought nothing and says no time has none.
    """
    line = _read_line(raw, path, kernels, kernel, parameters)
    line.reason = line.reason and one_line(line.reason)[:_WORDS_MAX]
    claims = (line.content.get("started_utc"), _object(raw.status).get("started_utc"))
    claims = tuple(one for one in claims if one is not None)
    if times is None or not (claims or line.content):
        return line
    known = (utc_or_none(one) for one in claims)
    line.started_utc = next((one for one in known if one is not None and not times.off_s(one)), times.latest_utc)
    if not claims:
        line.warnings.append(("clock_off", f"it does not say when it began: {line.started_utc} orders it"))
    elif line.started_utc != claims[0]:
        claimed_utc = utc_or_none(claims[0])
        found = "no time" if claimed_utc is None else f"at least {off_words(times.off_s(claimed_utc))} by the driver's clock"
        line.warnings.append(("clock_off", f"started_utc {_shown(claims[0])} is {found}: {line.started_utc} orders it"))
    return line


def _read_line(raw: RawLine, path: Path, kernels: Kernels, kernel: str, parameters: Mapping[str, Any]) -> Line:
    status = _object(raw.status)
    return_code = whole(status.get("rc"))
    started_utc = utc_or_none(status.get("started_utc"))
    if not (raw.content or b"").strip() and raw.said:
        return Line(Outcome.FAILED, raw.said, return_code, started_utc, None)
    said: list[str] = []
    try:
        all_sizes, said = printed(raw.content or b"")
        content, return_code = of_size(all_sizes, parameters, return_code)
    except ValueError as error:
        silent = isinstance(error, NothingPrintedError)
        said = said or (error.said if isinstance(error, NothingPrintedError) else framed(raw.content or b"").said)
        return _without_content(str(error), return_code, started_utc, raw.words or _words(path), said, silent=silent)
    return_code = whole(return_code)
    described = kernels.get(kernel)
    if described is not None and described.described is not None:
        content = translated(content, described, parameters)
    line = Line(
        Outcome.MEASURED,
        None,
        return_code if return_code is not None else whole(content.get("exit_code")),
        utc_or_none(content.get("started_utc")) or started_utc,
        whole(content.get("duration_ns")),
        content=content,
    )
    _fill(line, described)
    if said:
        line.warnings.append(("library_said", "\n".join(said)[:_KEPT_CHARACTERS]))
    if sends_over := transport_said([*said, *_words_of_libraries(content, raw, path)]):
        granted = {**mapping(content.get("granted")), "mpi_transport_said": sends_over[:_KEPT_CHARACTERS]}
        line.content = {**content, "granted": granted}
    _judge(line, return_code, kernel, parameters)
    return line


def echo_complaint(planned: Mapping[str, Any], echoed: object) -> str | None:
    """Say how the parameters that a kernel used differ from the planned ones; None when they do not."""
    if not isinstance(echoed, dict):
        return "echo: the line has no options"
    for name, value in planned.items():
        if name not in echoed:
            return f"echo: {name}: planned {_shown(value)}, the kernel does not mention it"
        if not _same(value, echoed[name]):
            return f"echo: {name}: planned {_shown(value)}, the kernel used {_shown(echoed[name])}"
    unplanned = sorted(echoed.keys() - planned.keys())
    if unplanned:
        return f"echo: {unplanned[0]}: not in the plan, the kernel used {_shown(echoed[unplanned[0]])}"
    return None


def elsewhere(content: Mapping[str, Any], pair: Sequence[str]) -> str | None:
    """Say that an end of a result measured on a node other than the planned one; None when it did not.

    pair: the planned client and server, of a set of nodes each of them. The scheduler's name of the node counts: a host
    may call itself otherwise.
    """
    ends = mapping(content.get("evidence"))
    for number, planned in enumerate(pair):
        end = ("client", "server", f"rank{number}")[min(2, number)]
        node = mapping(ends.get(end)).get("scheduler_node")
        if isinstance(node, str) and node not in {"", planned}:
            return f"elsewhere: its {end} ran on {_shown(node)}, planned was {_shown(planned)}"
    return None


def whole(value: object) -> int | None:
    """Return an integer that the database can hold, or None."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INTEGER_MAX:
        return None
    return value


def finite(value: object) -> float | None:
    """Return a finite number as float, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def mapping(value: object) -> dict[str, Any]:
    """Return an object of a line, or an empty one if the value is something else."""
    return value if isinstance(value, dict) else {}


def _judge(line: Line, return_code: int | None, kernel: str, parameters: Mapping[str, Any]) -> None:
    content = line.content
    said = whole(content.get("exit_code"))
    if content.get("format") != 1:
        line.outcome, line.reason = Outcome.INVALID, f"format {_shown(content.get('format'))}: must be 1"
        line.metrics.clear()
        return
    error = mapping(content.get("error"))
    worst = return_code if return_code not in {0, 1, None} else said
    if worst not in {0, 1, None}:
        words = ": ".join(str(error[key]) for key in ("state", "message") if error.get(key))
        line.outcome, line.reason = Outcome.FAILED, words or f"exit code {worst}"
        return
    complaints = [
        complaint
        for complaint in (_kernel_complaint(content, kernel), echo_complaint(parameters, content.get("options")))
        if complaint
    ]
    if content.get("valid") is not True:
        complaints.append(str(content.get("invalid_reason") or "the kernel calls it invalid and does not say why"))
    elif said is not None and return_code is not None and said != return_code:
        complaints.append(f"exit code {return_code}, but the line says {said}")
    complaints += [message for name, message in line.warnings if name == "metric_unusable"]
    if not complaints and not line.metrics:
        complaints.append("no metrics in the line")
    if complaints:
        line.outcome, line.reason = Outcome.INVALID, "; ".join(complaints)


def _kernel_complaint(content: Mapping[str, Any], kernel: str) -> str | None:
    found = content.get("kernel")
    return None if found == kernel else f"kernel {_shown(found)}: planned {kernel}"


def _fill(line: Line, described: Kernel | None) -> None:
    found = mapping(line.content.get("metrics"))
    named = found.keys() if described is None else {one.name for one in described.metrics}
    known = [name for name in found if name in named]
    kept = known if described is not None else known[:_UNDESCRIBED_MAX]
    if len(kept) < len(found):
        first = next(name for name in found if name not in named or (described is None and name not in kept))
        why = "the kernel's description lacks them" if described is not None else f"more than {_UNDESCRIBED_MAX}"
        line.warnings.append(("metrics_left_out", f"{len(found) - len(kept)} metrics, first {_shown(first)}: {why}"))
    for name in kept:
        value = found[name]
        if value is None:
            continue
        number = finite(value)
        if number is None:
            line.warnings.append(("metric_unusable", f"metric {name}: {_shown(value)} is not a finite number"))
        else:
            line.metrics[name] = number
    warnings = line.content.get("warnings")
    said = [one for one in warnings if isinstance(one, dict)] if isinstance(warnings, list) else []
    for one in said[:WARNINGS_MAX]:
        name, message = (one_line(str(one.get(key, default))) for key, default in (("name", "unnamed"), ("message", "")))
        line.warnings.append((name[:_WORDS_MAX], message[:_WORDS_MAX]))
    if len(said) > WARNINGS_MAX:
        line.warnings.append(("warnings_left_out", f"{len(said) - WARNINGS_MAX} warnings beyond {WARNINGS_MAX}"))


def _without_content(
    found: str, return_code: int | None, started_utc: str | None, errors: str, said: Sequence[str], *, silent: bool = False
) -> Line:
    """Return a line without content. errors: its standard error. said: words of libraries on its standard output.

    The kernel failed if it said so or printed nothing. A line that cannot be read is invalid.
    """
    failed = silent or return_code not in {0, 1, None}
    exit_text = f"exit code {return_code}" if return_code is not None else "exit code unknown"
    everything = "\n".join([*said, errors])
    words = [found, exit_text, crash_words(everything, return_code), _library_error(said), _last_words(errors)]
    reason = "; ".join(one for one in words if one)
    warnings = [("library_said", "\n".join(said)[-_KEPT_CHARACTERS:])] if said else []
    outcome = Outcome.FAILED if failed else Outcome.INVALID
    return Line(outcome, reason, return_code, started_utc, None, warnings=warnings)


def _library_error(said: Sequence[str]) -> str:
    """Return the first line that calls itself an error, else the last one."""
    return next((line for line in said if _ERROR_WORDS.search(line)), said[-1] if said else "")[:_ERROR_TEXT_MAX]


def _words_of_libraries(content: Mapping[str, Any], raw: RawLine, path: Path) -> list[str]:
    """What may be words of an MPI library besides standard output: of our MPI kernels, and of a foreign program."""
    ours = [raw.words or _words(path)] if content.get("program") == "hpcq-mpi" else []
    ends = mapping(content.get("outputs")).values()
    texts = [*ours, *(mapping(one).get(stream) for one in ends for stream in ("output", "errors"))]
    return [line for text in texts if isinstance(text, str) for line in text.splitlines()]


def _words(path: Path) -> str:
    """Return what the kernel wrote for people, from the file beside its line."""
    return (_bytes(path.with_suffix(".err")) or b"").decode("utf-8", "replace")


def _last_words(said: str) -> str:
    """Return the last line that the kernel wrote for people."""
    return said.strip().rpartition("\n")[2].strip()[:_ERROR_TEXT_MAX]


def _object(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {}
    try:
        return parse_json(content)
    except ValueError:
        return {}


def _bytes(path: Path) -> bytes | None:
    try:
        return read_job_file(path)
    except FileNotFoundError:
        return None


def _same(planned: object, echoed: object) -> bool:
    if isinstance(planned, bool) or isinstance(echoed, bool):
        return planned is echoed
    if isinstance(planned, (int, float)) and isinstance(echoed, (int, float)):
        return planned == echoed or math.isclose(planned, echoed, rel_tol=1e-12)
    return planned == echoed


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value) if value is not None else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."
