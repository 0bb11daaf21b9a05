"""PBS as plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables."""

from __future__ import annotations

from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey, directive_check

#: Options that hpcq writes into every job. A second one would win or lose silently.
_OWN_OPTIONS = ("-N", "-o", "-e", "-j", "-r", "-k", "-J", "-v", "-V", "-a", "-C", "-S", "-u")
_KEY_OPTIONS = {"-q": "queue", "-A": "account", "-P": "project"}
_HELD = "a held job never starts: hpcq would wait for it in vain"
_REFUSED = {
    "-h": _HELD,
    "-I": "an interactive job has no script",
    "-X": "an interactive job has no script",
    "-f": "hpcq sets how qsub ends",
    "-z": "hpcq reads the id that qsub prints",
    "-W block": "qsub would wait for the job, and hpcq for qsub",
    "-W umask": "hpcq keeps what its jobs write to their user",
    "-W tolerate_node_failures": "the key tolerate_node_failures of this file says it",
    "-l select": "the key select of this file says it",
    "-l place": "the key place of this file says it",
    "-l nodes": "hpcq names the hosts of every job: use the key select of this file",
    "-l walltime": "hpcq sets the walltime of every job",
    "-l": "the key resources of this file says it, like resources: filesystems=home:eagle",
}
#: What `-l` sets otherwise in jobs of hpcq, and what PBS takes in a chunk of select only.
_NOT_JOB_WIDE = {
    "select": "is the key select of this file",
    "place": "is the key place of this file",
    "walltime": "is set by hpcq for every job",
    "nodes": "cannot go with select, by which hpcq names the hosts of every job",
    **dict.fromkeys(("ncpus", "mem", "vmem", "mpiprocs", "ompthreads"), "belongs to each chunk: the key select of this file"),
}


def _check_resource(word: str) -> str | None:
    name, sign, _ = word.partition("=")
    if not sign or not name:
        return "must be a resource and its value, like filesystems=home:eagle"
    return f"{name} {_NOT_JOB_WIDE[name]}" if name in _NOT_JOB_WIDE else None


#: qstat alone may be another program's: Grid Engine has one, too.
_FOUND_BY = (
    "{ command -v qstat && qstat --version 2>&1 | grep -q pbs_version; } >/dev/null"
    ' || [ -x "$(sed -n \'s/^PBS_EXEC=//p\' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin/qstat" ]'
)

DESCRIPTION = Description(
    kind="pbs",
    title="PBS",
    keys=(
        Key("queue", "partition", "Queue of the jobs. Default: the server's."),
        Key("account", "account", "Account that is charged (qsub -A)."),
        Key("project", None, "Project that is charged (qsub -P)."),
        Key("reservation", "reservation", "Reservation to run in: its id, like R12, or its name."),
        Key("select", None, "What each chunk of select gets beside its host, like ncpus=64:mpiprocs=1."),
        Key(
            "resources",
            None,
            "Resources of the job as a whole, each a qsub -l: filesystems=home:eagle, storage=scratch/ab1.",
            KeyForm.WORDS,
            check=_check_resource,
        ),
        Key("place", None, "How a job is placed. Default: scatter:exclhost, whole hosts of its own."),
        Key(
            "tolerate_node_failures",
            None,
            "Whether a tournament outlives a node that is lost: all, or none. Default: all; none where PBS is older than 18.",
        ),
        Key(
            "task_starter",
            None,
            "What starts processes on a job's other nodes: pbs_tmrsh, or pbsdsh. Default: pbs_tmrsh.",
            allowed=("pbs_tmrsh", "pbsdsh"),
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by=_FOUND_BY,
    head_template="pbs.directives.j2",
    # seq: rank 0 on the first line of the file. Mapping by node puts it on the node of mpirun itself.
    default_mpi_launch=("mpirun", "-np", "{count}", "--hostfile", "{hostfile}", "--map-by", "seq"),
    scrubbed_prefixes=("PBS_", "QSUB_"),
    kept_variables=frozenset({"PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC"}),
    instance_variables=("PBS_CONF_FILE", "PBS_SERVER"),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED),
)
