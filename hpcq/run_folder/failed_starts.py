"""Why no program of a job could start, in the words of the node: the causes that every job of a run shares, with remedies.

exit.json, t1-r1.json, t1-r1.err  --words_of-->  "interface ib0: no such interface"  --cause_of-->  Cause
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hpcq.run_folder.lines import crash_words, mapping, whole
from hpcq.run_folder.paths import job_text, read_json_or_none


@dataclass(frozen=True, slots=True)
class StartTrouble:
    """One reason why programs do not start.

    everywhere: it is no property of a node, so one job proves it for all. may_pass: another attempt may succeed. stays: it
    is a property of a node that only a person changes, so no attempt on that node succeeds.
    """

    pattern: re.Pattern[str]
    remedy: str
    everywhere: bool = False
    may_pass: bool = False
    stays: bool = False


def _cause(pattern: str, remedy: str, *, everywhere: bool = False, may_pass: bool = False, stays: bool = False) -> StartTrouble:
    return StartTrouble(re.compile(pattern, re.IGNORECASE), remedy, everywhere, may_pass, stays)


_FILE = "of the cluster file"
#: The first that matches counts. Words of shells, of the dynamic linker (ld.so(8)), of errno(3), of the schedulers' own
#: tables of errors, of OpenSSH and Open MPI.
CAUSES = (
    _cause(r"interface \S+: no such interface", f"`interface` {_FILE} must have an address on each node; see `ip addr` there",
           stays=True),
    _cause(r"module_not_loaded", f"`modules` {_FILE} must be there on the nodes, too: ask `module avail` in a job"),
    _cause(r"host key verification failed|permission denied \(|too many authentication failures",
           f"`launcher` {_FILE} goes by ssh: nodes must admit a user who has a job there, without a password"),
    _cause(r"invalid account|account or account/partition|not authorized.*account|invalid.*account",
           f"`account` {_FILE} must be one that you may charge in this partition", everywhere=True),
    _cause(r"invalid qos|invalid quality of service", f"`qos` {_FILE} must be one that you may use", everywhere=True),
    _cause(r"invalid partition|unknown queue|queue is not enabled|unauthorized request",
           f"`partition` or `queue` {_FILE} must be one that takes your jobs", everywhere=True),
    _cause(r"time limit is invalid|exceeds? .*(time|walltime) limit|exceeds queue",
           "a job takes longer than the partition allows: fewer tests or repetitions, or another partition", everywhere=True),
    _cause(r"invalid (feature|constraint|generic resource|license)", f"`constraint` or `extra_directives` {_FILE} ask for what"
           " this site does not have", everywhere=True),
    _cause(r"mpi/pmi2: .*(not properly terminated|invalid client request)",
           "the scheduler's plugin pmi2 takes 1,024 bytes of a request, and MPICH 5 over UCX sends more, if nodes have"
           f" long addresses: MPIR_CVAR_CH4_NETMOD: ofi in `environment` {_FILE}, or mpiexec -n {{count}} -f {{hostfile}}"
           " as `mpi.launch`"),
    _cause(r"invalid mpi (type|plugin)|plugin name for mpi|unable to (load|find) .*mpi|mpi plugin|(pmix|pmi2?) plugin",
           "--mpi= in `mpi.launch` must be one of those that its launcher lists: hpcq cluster check NAME", everywhere=True),
    _cause(r"GLIBC(XX)?_[\d.]+|exec format error|cannot execute binary",
           "kernels are built where `connection` leads to: let it lead to a machine with the nodes' processor and C library",
           stays=True),
    _cause(r"error while loading shared libraries|cannot open shared object",
           f"`modules` {_FILE} must load this library on the nodes, or LD_LIBRARY_PATH in `environment` name its folder"),
    _cause(r"illegal instruction|SIGILL\b", f"`compiler: {{cflags: ...}}` {_FILE} must fit the nodes' processors", stays=True),
    _cause(r"disk quota exceeded|no space left|file too large",
           "make room in `work_directory`, or name another one", may_pass=True),
    _cause(r"read-only file system", f"`work_directory` {_FILE} must be one that nodes may write"),
    _cause(r"can't cd to|cd: .*no such file|not seen there", f"`work_directory` {_FILE} must be a folder that all nodes see"),
    _cause(r"memlock|locked memory|ulimit -l|cannot allocate memory|resource temporarily unavailable",
           "raise the limits of jobs on the nodes (`ulimit -l` for RDMA, `ulimit -u`): hpcq cluster check NAME shows them"),
    _cause(r"bind: found", f"`interface` {_FILE} must have an address on each node; see `ip addr` there"),
    _cause(r"found ports? .*: allowed: \d+ and more", f"`ports` {_FILE} must be ones that a user's programs may open"),
    _cause(r"address already in use|cannot bind|bind: |port that is not taken",
           f"`ports` {_FILE} must leave room: other programs hold these ports"),
    _cause(r"connection (refused|timed out)|no route to host|unreachable|no answer for",
           f"a firewall between the nodes: `ports` {_FILE} must be those that it lets through"),
    _cause(r"not enough slots", f"`mpi.launch` {_FILE} must allow one rank on each node, for example by --oversubscribe"),
    _cause(r"permission denied|operation not permitted",
           "nodes must be allowed to run programs in `work_directory` (mounted noexec?), and the launcher be yours to run"),
    _cause(r"command not found|no such file or directory|: not found|failed to run command|execve",
           f"`launcher` and `mpi.launch` {_FILE} must name a program that is on PATH in jobs: load its module"),
)  # fmt: skip


def cause_of(words: str) -> StartTrouble | None:
    """Return the cause that these words tell; None for words that may be a passing trouble or one node's own."""
    return next((one for one in CAUSES if one.pattern.search(words)), None)


@dataclass(frozen=True, slots=True)
class StartWords:
    """What a job left about its start. on_each_node: the other node was tried as well, and failed in the same way."""

    text: str
    on_each_node: bool = False


#: What launchers add after the words of the program that they started.
_LAUNCHERS_OWN = re.compile(r"^(\w+: (error: \S+: task|launch/|Terminating )|\w+: .*\bSTEP \d|-{5,})")
#: Characters of what a script or a kernel says of its end: they stand in the journal, in rows and on terminals.
WORDS_MAX = 1000
_ERRORS = re.compile(r"\b(error|fatal|cannot|can't|no such|not found|denied|invalid|unable|fail(ed)?)\b", re.IGNORECASE)


def words_of(folder: Path) -> StartWords:
    """Return why nothing started in a job, from its folder; empty words if nothing there says so."""
    exit_file = read_json_or_none(folder / "exit.json") or {}
    reason = str(exit_file.get("reason", ""))
    if reason not in {"", "done"}:
        return StartWords(reason[:WORDS_MAX], exit_file.get("on_each_node") is True)
    for status in sorted(folder.glob("t*-r*.status")):
        line = mapping(read_json_or_none(status.with_suffix(".json")))
        error = mapping(line.get("error")).get("message")
        code = whole((read_json_or_none(status) or {}).get("rc"))
        said = str(error)[:WORDS_MAX] if error else first_error(job_text(status.with_suffix(".err"))) or crash_words("", code)
        if said:
            return StartWords(said)
    return StartWords("")


def first_error(text: str) -> str:
    """Return the first line that calls itself an error, without what launchers add; else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _LAUNCHERS_OWN.search(line)]
    return next((line for line in lines if _ERRORS.search(line)), lines[-1] if lines else "")[:300]
