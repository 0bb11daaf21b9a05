"""PBS on sites whose commands are not as their manual says: wrappers that print, warn, or name things in odd ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import SchedulerError, UserError
from hpcq.scheduler.pbs import Pbs
from hpcq.scheduler.types import JobState, SchedulerSettings
from hpcq.transport import Completed, Here
from tests.local.local_desk import LocalDesk
from tests.pbs.test_pbs_campaign import BRIEF, CLUSTER, measured
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs

BANNER = "echo '*******************'; echo '| Maintenance | on | Friday | 17 | h | all |'; echo 'Welcome to the 3rd cluster'\n"
REAL = '"$REAL" "$@"'
ALL = ("qsub", "qstat", "qdel", "qalter", "qselect", "pbsnodes", "pbs_rstat")
SHORTER = f'set -- "${{@//.example.org/}}"; exec {REAL}'
UNAUTHORIZED = 'echo "qselect: Unauthorized Request" >&2; exit 159'
ODDITIES = {
    "a banner before each answer": dict.fromkeys(ALL, f"{BANNER}exec {REAL}"),
    "a banner behind each answer": dict.fromkeys(ALL, f"{REAL}; code=$?\n{BANNER}exit $code"),
    "a warning with each answer": dict.fromkeys(ALL, f"echo 'warning: pbs.conf differs: error x' >&2\nexec {REAL}"),
    "costs beside the id": {"qsub": f'{REAL} || exit; echo "Your job will cost 3 SU"'},
    "a longer name of the server in ids": {
        "qsub": f'id=$({REAL}) || exit; echo "$id.example.org"',
        **dict.fromkeys(("qstat", "qdel", "qalter"), SHORTER),
    },
    "an id without its server": {"qsub": f'id=$({REAL}) || exit; echo "${{id%%.*}}"'},
    "bytes that are no text": {"pbsnodes": f"{REAL} | sed $'s/state=/comment=bad \\xff\\x01 cable\\037state=/'"},
    "answers with carriage returns": dict.fromkeys(
        ("qstat", "pbsnodes", "qsub", "qselect"), f'{REAL} | sed "s/$/\\r/"; exit ${{PIPESTATUS[0]}}'
    ),
    "no list of others": {"qselect": f'case " $* " in *" -u "*) exec {REAL};; esac; {UNAUTHORIZED}'},
}


def wrap(pbs: SimulatedPbs, program: str, body: str) -> None:
    """Put a script in place of a command; `$REAL` in it is the command itself."""
    path = pbs.folder / "bin" / program
    real = path.rename(path.with_name(f"{program}.real"))
    real.write_text(real.read_text().replace("${0##*/}", program))
    path.write_text(f"#!/bin/bash\nREAL={real}\n{body}\n")
    path.chmod(0o755)


@pytest.mark.long
@pytest.mark.promise("Commands of PBS that print more than their answer, or name jobs in odd ways, cost no result.")
@pytest.mark.parametrize("oddity", ODDITIES)
def test_commands_that_answer_oddly(tmp_path: Path, oddity: str) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        for program, body in ODDITIES[oddity].items():
            wrap(pbs, program, body)
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", f"{CLUSTER}budget: {{{{yield: true}}}}\n")
        desk.campaign(BRIEF)
        desk.hpcq("run", "try.yaml")
        assert measured(desk) == 6
        path = desk.run_folder / "log.txt"
        log = path.read_text() if path.exists() else ""
        assert log.count("other users' jobs are not listed") == (oddity == "no list of others")


WARNED = "qstat: warning: pbs.conf differs: error x\n"
HEAD = "@user me\n@asked 7.head.example.org 8.head.example.org\n"
RUNNING = "Job Id: 7.head\x1fJob_Name=x\x1fJob_Owner=me@head\x1fjob_state=R\x1fsubstate=42\n"
GONE = "qstat: 8.head.example.org Job has finished, use -x or -H to obtain historical job information\n"


@pytest.mark.fast
@pytest.mark.promise("A warning beside an answer about every job is no failed query; where a job lacks its answer it is one.")
def test_a_warning_beside_a_whole_answer() -> None:
    scheduler = Pbs(Here(), SchedulerSettings())
    [report] = scheduler.read_poll(Completed(35, f"{HEAD}{RUNNING}".encode(), f"{WARNED}{GONE}"))
    assert (report.scheduler_job_id, report.state) == ("7.head", JobState.RUNNING)
    for text, errors in ((f"{HEAD}{RUNNING}", WARNED), (HEAD, f"{WARNED}{GONE}"), (RUNNING, WARNED)):
        with pytest.raises(SchedulerError, match="conf differs"):
            scheduler.read_poll(Completed(35, text.encode(), errors))
    for code in (162, 255):
        with pytest.raises(SchedulerError):
            scheduler.read_poll(Completed(code, f"{HEAD}{RUNNING}".encode(), f"{WARNED}{GONE}"))


@pytest.mark.fast
@pytest.mark.promise("A queue of another server is refused with the keys to write instead.")
@pytest.mark.parametrize(("kind", "variable"), [("pbs", "PBS_SERVER"), ("torque", "PBS_DEFAULT")])
def test_a_queue_with_its_server(tmp_path: Path, kind: str, variable: str) -> None:
    (tmp_path / "big.yaml").write_text(
        f"name: big\nscheduler: {kind}\ninterface: ib0\nwork_directory: /scratch\nqueue: workq@pbs2\n"
    )
    with pytest.raises(UserError) as refused:
        read_cluster(tmp_path / "big.yaml")
    assert f"must be a queue of one server: queue: workq, and instance: {{{variable}: pbs2}}" in refused.value.message
