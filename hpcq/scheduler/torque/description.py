"""Torque as plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables."""

from __future__ import annotations

from hpcq.scheduler.description import Description, Key, SharedKey, directive_check

_OWN_OPTIONS = ("-N", "-o", "-e", "-j", "-r", "-k", "-t", "-v", "-V", "-a", "-C", "-S", "-u")
_KEY_OPTIONS = {"-q": "queue", "-A": "account", "-W x": "access"}
_REFUSED = {
    "-h": "a held job never starts: hpcq would wait for it in vain",
    "-I": "an interactive job has no script",
    "-X": "an interactive job has no script",
    "-x": "an interactive job has no script",
    "-f": "a job is never started again: hpcq plans its pair anew",
    "-z": "hpcq reads the id that qsub prints",
    "-l nodes": "hpcq names the nodes of every job",
    "-l walltime": "hpcq sets the walltime of every job",
}

DESCRIPTION = Description(
    kind="torque",
    title="Torque",
    keys=(
        Key("queue", "partition", "Queue of the jobs. Default: the server's."),
        Key("account", "account", "Account that is charged (qsub -A)."),
        Key("ppn", None, "Processors of each node that a job gets. Default: all that the node has (np)."),
        Key(
            "access",
            None,
            "What the scheduler is told with qsub -W x=, or none. Default: NACCESSPOLICY:SINGLEJOB, which keeps others away.",
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by="command -v qstat >/dev/null && qstat --version 2>&1 | grep -qi '^ *version:'",
    head_template="torque.directives.j2",
    default_mpi_launch=("mpirun", "-np", "{count}", "--hostfile", "{hostfile}", "--map-by", "seq"),
    scrubbed_prefixes=("PBS_", "QSUB_"),
    kept_variables=frozenset({"PBS_DEFAULT"}),
    instance_variables=("PBS_DEFAULT",),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED),
)
