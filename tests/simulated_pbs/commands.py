"""The words of PBS's commands, their exit codes, and which of their answers are not what one would think."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulated_pbs import printing, suspension, torque
from tests.simulated_pbs.administration import pbs_ralter, pbs_rdel, pbs_rstat, pbs_rsub, pbsnodes, qmgr
from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.records import SERVER, Job, Queue
from tests.simulated_pbs.requests import Answer, Refused, Request, moment, options_of
from tests.simulated_pbs.submission import qsub

_NO_SERVER = f"Connection refused\n{{program}}: cannot connect to server {SERVER} (errno=15010)"
_DOWN_CODES = {"qstat": 255, "pbsnodes": 1, "qmgr": 3}


def answer(machine: Machine, request: Request) -> Answer:
    """Carry out one command."""
    machine.calls[request.program] = machine.calls.get(request.program, 0) + 1
    if machine.settings.down:
        machine.settings.down -= machine.settings.down > 0
        words = _NO_SERVER.format(program=request.program)
        return Answer("", words, _DOWN_CODES.get(request.program, 162))
    if "--version" in request.words:
        return torque.VERSION if machine.settings.torque else Answer("pbs_version = 23.06.06")
    machine.tick()
    try:
        known = _COMMANDS | (_OF_TORQUE if machine.settings.torque else {})
        found = known[request.program](machine, torque.before(request) if machine.settings.torque else request)
    except Refused as refused:
        found = refused.answer
    machine.tick()
    return found


# -- jobs -----------------------------------------------------------------------------------------------------------------


def _job_of(machine: Machine, program: str, text: str, *, ended: bool) -> Job:
    """The job of an id. Raises Refused as PBS does: malformed, unknown, or finished."""
    match = re.fullmatch(rf"(\d+)(\.{SERVER})?", text)
    if match is None:
        raise Refused(1, f"{program}: illegally formed job identifier: {text}")
    job = machine.jobs.get(int(match[1]))
    if job is None:
        raise Refused(153, f"{program}: Unknown Job Id {match[1]}.{SERVER}")
    if job.over and not ended:
        words = "Job has finished, use -x or -H to obtain historical job information"
        raise Refused(
            35,
            f"{program}: {job.scheduler_job_id} {words}"
            if program == "qstat"
            else f"{program}: Job has finished {job.scheduler_job_id}",
        )
    return job


def _qstat(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, "fxwBQtEHasn1iT", "FDu")
    form = given.get("F", ["text"])[-1]
    if "F" in given and "f" not in given:
        raise Refused(2, "qstat: conflicting options.\nusage: ")
    if form not in {"text", "dsv", "json"}:
        raise Refused(2, "usage: ")
    separator = given.get("D", ["|"])[-1]
    if "B" in given:
        return Answer(_shown("Server", [(SERVER, printing.server_attributes(machine))], form, separator, wide="w" in given))
    if "Q" in given:
        return _qstat_queues(machine, plain, form, separator)
    ended = "x" in given or "H" in given
    if ended and not machine.settings.history:
        return Answer("", "qstat: PBS is not configured to maintain job history " + " ".join(plain))
    jobs, complaints = [], []
    for text in plain:
        if not text[:1].isdigit():
            raise Refused(170, f"qstat: Unknown queue destination {text}")
        try:
            jobs.append(_job_of(machine, "qstat", text, ended=ended))
        except Refused as refused:
            complaints.append(refused.answer)
    if not plain:
        jobs = [job for job in machine.jobs.values() if ended or not job.over]
    error, code = "\n".join(one.error for one in complaints), complaints[-1].code if complaints else 0
    if "f" not in given:
        rows = [
            f"{job.scheduler_job_id:<17.17} {job.name:<16.16} {job.user:<16.16} {0:>8} {job.state} {job.queue:<16}"
            for job in jobs
        ]
        head = ["Job id            Name             User              Time Use S Queue", "-" * 16] if rows else []
        return Answer("\n".join([*head, *rows]), error, code)
    if form == "json" and plain:
        jobs = jobs[:1]  # only the first id's: the bug is PBS's
    shown = [(job.scheduler_job_id, printing.job_attributes(job)) for job in jobs]
    return Answer(_shown("Job Id", shown, form, separator, wide="w" in given), error, code)


def _qstat_queues(machine: Machine, names: list[str], form: str, separator: str) -> Answer:
    queues = dict(machine.queues)
    for one in machine.reservations.values():
        queues[one.queue] = Queue(one.queue, started=one.state == "RUNNING", settings={"acl_user_enable": "True"})
        queues[one.queue].settings["acl_users"] = ",".join(one.users)
    unknown = [name for name in names if name not in queues]
    if unknown:
        raise Refused(170, f"qstat: Unknown queue {unknown[0]}")
    shown = [(name, printing.queue_attributes(machine, queue)) for name, queue in queues.items() if not names or name in names]
    return Answer(_shown("Queue", shown, form, separator, wide=False))


def _shown(kind: str, objects: list[tuple[str, printing.Attributes]], form: str, separator: str, *, wide: bool) -> str:
    if form == "json":
        return printing.as_json({"Job Id": "Jobs"}.get(kind, kind), objects)
    if form == "dsv":
        return "\n".join(printing.dsv(f"{kind}: {name}", attributes, separator) for name, attributes in objects)
    return "\n\n".join(printing.plain(f"{kind}: {name}", attributes, wide=wide) for name, attributes in objects)


def _qselect(machine: Machine, request: Request) -> Answer:
    given, _ = options_of(request.words, "xHJT", "uNsqaAcehlprP")
    if "x" in given and not machine.settings.history:
        return Answer("", "qselect: PBS is not configured to maintain job history")
    found = []
    for job in machine.jobs.values():
        fits = "x" in given or not job.over or (machine.settings.torque and machine.settings.history)
        fits = fits and job.user == given.get("u", [job.user])[-1] and job.name == given.get("N", [job.name])[-1]
        fits = fits and job.queue == given.get("q", [job.queue])[-1] and job.state in given.get("s", [job.state])[-1]
        if fits:
            found.append(job.scheduler_job_id)
    return Answer("\n".join(found))


def _each(machine: Machine, request: Request, ids: list[str], act: Callable[[Job], None]) -> Answer:
    """Do it for every job; of what goes wrong only the first is told."""
    if not ids:
        raise Refused(2, "usage:")
    first: Answer | None = None
    for text in ids:
        try:
            job = _job_of(machine, request.program, text, ended=False)
            _owned(request, job)
            act(job)
        except Refused as refused:
            first = first or refused.answer
    return first or Answer()


def _owned(request: Request, job: Job) -> None:
    if request.user not in {job.user, "root"}:
        raise Refused(159, f"{request.program}: Unauthorized Request  {job.scheduler_job_id}")


def _qdel(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "x", "W")
    force = "force" in given.get("W", [""])

    def delete(job: Job) -> None:
        if any(machine.nodes[name].down for name in job.hosts) and not force:
            raise Refused(222, f"qdel: Server could not connect to MOM {job.scheduler_job_id}")
        if job.state == "R" and job.process is None and not force:
            return  # a signal goes to daemons that wait for each other
        if force and job.substate == 41:
            job.substate = 42  # nobody is waited for, so nobody's word comes later
        machine.delete(job, request.user)

    return _each(machine, request, ids, delete)


def _qalter(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "", "aAlNWPhq")

    def alter(job: Job) -> None:
        if "l" in given and job.process is not None:
            raise Refused(167, f"qalter: Cannot modify attribute while job running  Resource_List {job.scheduler_job_id}")
        if "a" in given and job.process is None:
            job.start_after, job.state = moment(given["a"][-1]), "W"
        job.name = given.get("N", [job.name])[-1]
        for words in given.get("W", []):
            if words.startswith("comment="):
                job.comment = words.partition("=")[2]

    return _each(machine, request, ids, alter)


def _qsig(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "", "s")
    word = given.get("s", ["TERM"])[-1]

    def send(job: Job) -> None:
        if word in {"suspend", "resume", "admin-suspend", "admin-resume"}:
            suspension.order(request, job, word)
            return
        if job.process is None:
            raise Refused(168, f"qsig: Request invalid for state of job {job.scheduler_job_id}")
        import os
        import signal

        os.killpg(job.process.pid, getattr(signal, f"SIG{word.removeprefix('SIG')}"))

    return _each(machine, request, ids, send)


_COMMANDS: dict[str, Callable[[Machine, Request], Answer]] = {
    "qsub": qsub,
    "qstat": _qstat,
    "qselect": _qselect,
    "qdel": _qdel,
    "qalter": _qalter,
    "qsig": _qsig,
    "pbsnodes": pbsnodes,
    "pbs_rsub": pbs_rsub,
    "pbs_rstat": pbs_rstat,
    "pbs_rdel": pbs_rdel,
    "pbs_ralter": pbs_ralter,
    "qmgr": qmgr,
}
#: What Torque has in words of its own.
_OF_TORQUE: dict[str, Callable[[Machine, Request], Answer]] = {"qstat": torque.qstat, "pbsnodes": torque.pbsnodes}
