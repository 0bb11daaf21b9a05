"""Read the outcome of a `qsub`: from its exit code, or from its words if the code leaves it open."""

from __future__ import annotations

from hpcq.scheduler.pbs.exits import Outcome, outcome
from hpcq.scheduler.types import Fate, Submitted
from hpcq.transport import Completed

#: Words of the limits on a user's number of jobs. Source: src/lib/Liblog/pbs_messages.c, msg_et_*.
LIMIT_WORDS = ("would exceed ", "Maximum number of jobs")

_FATES = {
    Outcome.USER_LIMIT: Fate.LIMITED,
    Outcome.JOB_LIMIT: Fate.REFUSED,
    Outcome.FORBIDDEN: Fate.REFUSED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.UNKNOWN_QUEUE: Fate.REFUSED,
    Outcome.WRONG_STATE: Fate.REFUSED,
    Outcome.USAGE: Fate.REFUSED,
    Outcome.SERVER_DOWN: Fate.UNSURE,
    Outcome.KILLED: Fate.UNDETERMINED,
    Outcome.UNKNOWN: Fate.UNDETERMINED,
}
#: With any exit code, these words mean that qsub never reached the server, so it took no job.
_NOT_REACHED = ("cannot connect to server", "Connection refused", "No Permission")
#: Exit codes 1 and 2 come from qsub itself; these words say that it sent nothing.
_OWN_COMPLAINTS = (
    "usage:",
    "illegal",
    "script file",
    "script not a file",
    "name is too long",
    "cannot send environment",
    "conflicting options",
)


def read_submission(tag: str, done: Completed, native_id: str) -> Submitted:
    """Return the fate of a submission; TAKEN only with an id. done: exit code and both outputs of qsub."""
    words = " ".join(f"{done.stderr} {done.text if done.returncode else ''}".split())
    if done.returncode == 0:
        if native_id:
            return Submitted(tag, native_id)
        return Submitted(tag, None, words or f"no id in the answer {done.text.strip()!r}", Fate.UNDETERMINED)
    end = outcome(done.returncode)
    fate = _FATES.get(end, Fate.UNSURE)
    if any(sign in words for sign in _NOT_REACHED):
        fate = Fate.UNSURE
    elif any(sign in words for sign in LIMIT_WORDS):
        fate = Fate.LIMITED
    elif end is Outcome.USAGE and not any(sign in words for sign in _OWN_COMPLAINTS):
        fate = Fate.UNSURE
    return Submitted(tag, None, words or f"qsub ended with {done.returncode}", fate)
