"""What the exit code of a PBS command means: the server's error number modulo 256, or the command's own complaint.

Source: src/include/pbs_error.h of OpenPBS 23.06, for licences that of 20.0; docs/pbs.md lists those that a live server showed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """What the exit code of a command means for hpcq."""

    DONE = "done"
    #: The server does not know the id, queue, reservation or node.
    UNKNOWN_JOB = "unknown job"
    FINISHED_JOB = "finished job"
    NO_HISTORY = "no history"
    UNKNOWN_QUEUE = "unknown queue"
    UNKNOWN_RESERVATION = "unknown reservation"
    #: This user may not have more at present.
    USER_LIMIT = "user limit"
    #: The job asks for more than its queue or server allows.
    JOB_LIMIT = "job limit"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"
    #: The state of the job or the node does not allow it.
    WRONG_STATE = "wrong state"
    #: The server did not answer: nothing has happened.
    SERVER_DOWN = "server down"
    NODE_UNREACHABLE = "node unreachable"
    USAGE = "usage"
    #: The command was killed: hpcq cannot know what it did before.
    KILLED = "killed"
    UNKNOWN = "unknown"


_OUTCOMES: Final = {
    0: Outcome.DONE,
    1: Outcome.USAGE,
    2: Outcome.USAGE,
    3: Outcome.JOB_LIMIT,  # array too large
    **dict.fromkeys((4, 5, 6, 7, 8, 9, 12), Outcome.REFUSED),  # resources that do not go together
    13: Outcome.SERVER_DOWN,  # the server's connection table is full
    17: Outcome.SERVER_DOWN,  # PBS Professional: its licence server is down
    32: Outcome.REFUSED,  # a hook's
    35: Outcome.FINISHED_JOB,
    36: Outcome.NO_HISTORY,
    38: Outcome.USER_LIMIT,  # number of jobs
    39: Outcome.USER_LIMIT,  # sum of a resource
    40: Outcome.REFUSED,
    54: Outcome.FINISHED_JOB,
    **dict.fromkeys((64, 65, 69, 71), Outcome.REFUSED),
    73: Outcome.WRONG_STATE,  # the other word for resuming is needed
    104: Outcome.SERVER_DOWN,  # try again later
    123: Outcome.WRONG_STATE,  # node is busy
    153: Outcome.UNKNOWN_JOB,
    **dict.fromkeys((154, 155, 156, 157), Outcome.REFUSED),
    159: Outcome.FORBIDDEN,
    160: Outcome.SERVER_DOWN,  # unknown server host
    162: Outcome.SERVER_DOWN,  # connection refused
    163: Outcome.UNKNOWN,  # internal error of the server
    166: Outcome.REFUSED,
    167: Outcome.WRONG_STATE,
    168: Outcome.WRONG_STATE,
    170: Outcome.UNKNOWN_QUEUE,
    171: Outcome.FORBIDDEN,
    172: Outcome.FORBIDDEN,
    173: Outcome.REFUSED,  # queue disabled
    174: Outcome.FORBIDDEN,
    175: Outcome.FORBIDDEN,
    184: Outcome.REFUSED,
    185: Outcome.SERVER_DOWN,  # no free connections
    186: Outcome.SERVER_DOWN,  # no server
    187: Outcome.REFUSED,  # unknown resource
    188: Outcome.JOB_LIMIT,
    189: Outcome.REFUSED,  # no default queue
    190: Outcome.WRONG_STATE,
    191: Outcome.REFUSED,
    194: Outcome.REFUSED,
    196: Outcome.WRONG_STATE,
    197: Outcome.REFUSED,
    198: Outcome.USER_LIMIT,  # number of jobs in a queue
    201: Outcome.REFUSED,  # account
    202: Outcome.WRONG_STATE,
    206: Outcome.REFUSED,
    212: Outcome.SERVER_DOWN,  # shutting down
    214: Outcome.REFUSED,  # unknown node
    222: Outcome.NODE_UNREACHABLE,
    **dict.fromkeys((229, 233), Outcome.WRONG_STATE),
    235: Outcome.USAGE,
    236: Outcome.UNKNOWN_RESERVATION,
    238: Outcome.REFUSED,  # bad time
    242: Outcome.SERVER_DOWN,  # PBS Professional: more processors than licences now
    **dict.fromkeys((244, 245, 246), Outcome.FORBIDDEN),
    250: Outcome.SERVER_DOWN,  # PBS Professional: no licence is free
    251: Outcome.SERVER_DOWN,  # no scheduler
    255: Outcome.SERVER_DOWN,  # qstat, of a server that does not answer
}
#: 128 plus a signal: a shell reports a killed command this way. The server's numbers begin above.
_SIGNALS = range(129, 152)


def outcome(code: int) -> Outcome:
    """Return what an exit code means. For an unknown code it says so."""
    if code in _SIGNALS or code < 0:
        return Outcome.KILLED
    return _OUTCOMES.get(code, Outcome.UNKNOWN)
