"""Slurm as plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey, TimerTable, directive_check

#: Options that hpcq writes into every job. A second one would win or lose silently.
_OWN_OPTIONS = (
    *("--array", "--chdir", "--ntasks-per-node", "--error", "--job-name", "--no-requeue"),
    *("--nodelist", "--nodes", "--ntasks", "--open-mode", "--output", "--requeue", "--time", "--deadline", "--parsable"),
    *("--nodefile", "-D", "-F", "-J", "-N", "-a", "-e", "-n", "-o", "-t", "-w"),
)
_KEY_OPTIONS = {
    "--account": "account", "-A": "account", "--partition": "partition", "-p": "partition", "--qos": "qos", "-q": "qos",
    "--reservation": "reservation", "--constraint": "constraint", "-C": "constraint", "--mem": "memory",
    "--exclusive": "exclusive",
}  # fmt: skip
_ELSEWHERE = "the job would run where hpcq does not look for it: describe that cluster in a file of its own"
_WAITS = "the submit command would wait for the job, and hpcq for the command"
_HELD = "a held job never starts: hpcq would wait for it in vain"
_TEST = "nothing would be submitted"
_SHARED = "jobs of others would run on the same nodes, so nothing could be measured"
_REFUSED = {
    "--clusters": _ELSEWHERE, "-M": _ELSEWHERE, "--cluster-constraint": _ELSEWHERE,
    "--wait": _WAITS, "-W": _WAITS, "--hold": _HELD, "-H": _HELD, "--test-only": _TEST, "--help": _TEST, "--usage": _TEST,
    "--oversubscribe": _SHARED, "-s": _SHARED, "--share": _SHARED,
    "--time-min": "the scheduler would shorten the time limit, and end the job amid its tests",
    "--wrap": "the script would not be hpcq's",
    "--quiet": "hpcq reads what the submit command says", "-Q": "hpcq reads what the submit command says",
}  # fmt: skip

#: Standing options of every job that a site may not take, and that a job can do without.
_CAN_BE_LEFT_OUT = ("ntasks-per-node", "no-requeue", "no-kill", "deadline", "open-mode")
_MEMORY = re.compile(r"all|none|[1-9]\d*[KMGT]?")
#: Slurm takes one of them and --mem, not both.
_OTHER_MEMORY = ("--mem-per-cpu", "--mem-per-gpu")


def _check_keys(data: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what Slurm itself would refuse at every submission."""
    said = []
    memory, left_out, lines = data.get("memory"), data.get("leave_out"), data.get("extra_directives")
    if isinstance(memory, (str, int)) and not _MEMORY.fullmatch(str(memory)):
        said.append(("memory", f"{memory!r}: must be all, none, or a size per node like 3900M"))
    for line in lines if isinstance(lines, list) else ():
        option = str(line).partition("=")[0].split(" ")[0]
        if option in _OTHER_MEMORY and memory != "none":
            said.append(("extra_directives", f"{option} excludes --mem, which hpcq writes into every job: set memory: none"))
    words = left_out if isinstance(left_out, list) else str(left_out).split(",") if left_out else []
    unknown = [str(word) for word in words if word not in _CAN_BE_LEFT_OUT]
    if unknown:
        said.append(("leave_out", f"{unknown[0]!r}: must be among {', '.join(_CAN_BE_LEFT_OUT)}"))
    return said


DESCRIPTION = Description(
    kind="slurm",
    title="Slurm",
    keys=(
        Key("partition", "partition", "Partition of the jobs; only its nodes are used. Several: a list.", KeyForm.WORDS),
        Key("account", "account", "Account to charge."),
        Key("qos", "qos", "Quality of service."),
        Key("reservation", "reservation", "Reservation to run in."),
        Key("constraint", "constraint", "Features of nodes that jobs ask for, joined by & and |.", KeyForm.FEATURES),
        Key("memory", None, "Memory per node: all (--mem=0), none (no such option), or a size like 3900M. Default: all."),
        Key(
            "exclusive",
            None,
            "How whole nodes are asked for: all (--exclusive), user, mcs, topo, or none (no such option). Default: all.",
            allowed=("all", "user", "mcs", "topo", "none"),
        ),
        Key(
            "leave_out",
            None,
            f"Options of the job script that the site does not take: {', '.join(_CAN_BE_LEFT_OUT)}.",
            KeyForm.WORDS,
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by="command -v sbatch >/dev/null && command -v sinfo >/dev/null",
    head_template="slurm.directives.j2",
    default_mpi_launch=("srun", "--mpi=pmix"),
    scrubbed_prefixes=("SBATCH_", "SLURM_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SALLOC_", "SCANCEL_", "SACCTMGR_"),
    kept_variables=frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SACK_JWKS", "SLURM_SACK_KEY"}),
    # A federation with fed_display lists nodes and jobs of all its clusters, unless told otherwise.
    assigned_variables={"SINFO_LOCAL": "1", "SQUEUE_LOCAL": "1", "SACCT_LOCAL": "1"},
    instance_variables=("SLURM_CONF", "SLURM_CONF_SERVER"),
    timer_table=TimerTable("scrontab", ("#SCRON --time=1-00:00:00",)),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED, long_is_unique_prefix=True),
    check_keys=_check_keys,
    other_forms=(
        {"memory": "none"},
        {"exclusive": "none"},
        {"memory": "none", "exclusive": "none"},
        {"leave_out": "ntasks-per-node,no-requeue,open-mode"},
        {"memory": "none", "exclusive": "none", "leave_out": "ntasks-per-node,no-requeue,open-mode"},
    ),
)
