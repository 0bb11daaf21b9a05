"""Which PBS a server is, and what follows. No PBS Professional was there to record.

The version words are quoted from public bug reports, documentation and tests of other programs that show real answers; the
names of releases and features, from the sources of OpenPBS 14.1 to 23.06. Those of OpenPBS 23.06.06 were seen live.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hpcq.errors import SchedulerError, UserError
from hpcq.scheduler.pbs.administration import PbsAdministration, release
from hpcq.scheduler.pbs.nodes import Ability, Family, Listed, read_dialect
from hpcq.scheduler.pbs.scheduler import Outcome, Pbs, outcome, read_job, read_wait, short_name
from hpcq.scheduler.types import JobState, SchedulerSettings, Wait
from hpcq.transport import Here

ALL = set(Ability)
OLD = ALL - {Ability.DSV, Ability.ALTERED_RESERVATIONS}
NEW = {Ability.MAINTENANCE_RESERVATIONS, Ability.USERS_OF_RESERVATIONS, Ability.CODES_OF_LIMITS}
RELEASES = [
    # what it says, who it is, its number, what it lacks
    ("pbs_version = 14.1.2", Family.OPENPBS, "14.1.2", ALL),
    ("pbs_version = 18.1.4", Family.OPENPBS, "18.1.4", OLD),
    ("pbs_version = 19.1.2", Family.OPENPBS, "19.1.2", NEW),
    ("pbs_version = 20.0.1", Family.OPENPBS, "20.0.1", {Ability.CODES_OF_LIMITS}),
    ('    "pbs_version":"22.05.11",', Family.OPENPBS, "22.05.11", set()),
    ("pbs_version = 23.06.06", Family.OPENPBS, "23.06.06", set()),
    ("pbs_version = PBSPro_9.2.0.81361", Family.PROFESSIONAL, "9.2.0.81361", ALL),
    ("pbs_version = PBSPro_11.1.0.111761", Family.PROFESSIONAL, "11.1.0.111761", ALL),
    ("pbs_version = 18.2.3.20181206140456", Family.PROFESSIONAL, "18.2.3.20181206140456", NEW),
    ("pbs_version = 2020.1.0.20200720152739", Family.PROFESSIONAL, "2020.1.0.20200720152739", {Ability.CODES_OF_LIMITS}),
    ("    pbs_version = 2021.1.3.20220217134230", Family.PROFESSIONAL, "2021.1.3.20220217134230", set()),
    ("pbs_version = 2022.1", Family.PROFESSIONAL, "2022.1", set()),
    ('{"timestamp":0,"pbs_version":"2024.1.2.20241017100211"}', Family.PROFESSIONAL, "2024.1.2.20241017100211", set()),
    ("qstat: command not found", Family.UNKNOWN, "qstat: command not found", set()),
    ("", Family.UNKNOWN, "", set()),
]


@pytest.mark.promise(
    "A PBS is known by its version words: 18.2.3 with the time of its build is PBS Professional, 19.1.2 is OpenPBS."
)
@pytest.mark.parametrize(("said", "family", "number", "lacks"), RELEASES, ids=[one[0].strip() or "nothing" for one in RELEASES])
def test_a_release_is_known_by_its_words(said: str, family: Family, number: str, lacks: set[Ability]) -> None:
    found = read_dialect(said)
    assert (found.family, found.number, set(found.lacks())) == (family, number, lacks)


@pytest.mark.promise("`hpcq cluster check` names the PBS and its release, and fails where hpcq cannot work with it.")
@pytest.mark.parametrize(
    ("said", "extra", "ok", "words"),
    [
        ("pbs_version = 23.06.06", {}, True, "OpenPBS 23.06.06 / None"),
        ("pbs_version = 2022.1", {}, True, "PBS Professional 2022.1 / None"),
        ("pbs_version = 2020.1.0.20200720152739", {}, True, "a time limit is known by the time that the job used"),
        ("pbs_version = 14.1.2", {"tolerate_node_failures": "none"}, False, "no qstat -F dsv: hpcq cannot read its listings"),
        ("pbs_version = 18.1.4", {}, True, "write `tolerate_node_failures: none`"),
        ("pbs_version = 18.1.4", {"tolerate_node_failures": "none"}, True, "no pbs_rsub --hosts: hpcq accept prints no order"),
        ("hello", {}, True, "not recognised: hello"),
        ("", {}, True, "not recognised: no answer"),
    ],
)
def test_the_check_names_the_release_and_what_it_lacks(said: str, extra: dict[str, str], ok: bool, words: str) -> None:
    found = release(read_dialect(said), SchedulerSettings(extra=extra))
    assert (found.item, found.ok) == ("release", ok)
    assert words in f"{found.found} / {found.advice}"


def fake(folder: Path, **programs: str) -> None:
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


TORQUE = r"""case "$*" in *--version*) printf 'Version: 6.1.3\nCommit: 1dff0b8\n' >&2; exit 0 ;; esac
echo "usage: qstat" >&2; exit 2"""
GRID_ENGINE = """case "$*" in *-help*) echo "SGE 8.1.9"; echo "usage: qstat [options]"; exit 0 ;; esac
echo "error: Unknown option" >&2; exit 1"""


@pytest.mark.promise(
    "Commands of Torque, Grid Engine, LSF or Flux are named to who writes `scheduler: pbs`, and nobody waits for a server."
)
@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"qstat": TORQUE}, "this is Torque 6.1.3: not PBS"),
        ({"qstat": GRID_ENGINE}, "this is Grid Engine 8.1.9: hpcq does not speak it yet"),
        (
            {"qstat": "exit 127", "lsid": 'echo "IBM Spectrum LSF Standard 10.1.0.6, May 25 2018"'},
            "this is LSF 10.1.0.6: hpcq does not speak it yet",
        ),
        (
            {"qstat": "exit 127", "flux": 'echo "commands:    0.66.0"; echo "libflux-core:    0.66.0"'},
            "this is Flux 0.66.0: hpcq does not speak it yet",
        ),
    ],
)
def test_another_batch_system_is_named(
    programs: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, pbsnodes="echo usage >&2; exit 1", **dict.fromkeys(("lsid", "flux"), "exit 127"))
    fake(tmp_path, **programs)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UserError, match=re.escape(words)):
        Pbs(Here(), SchedulerSettings()).nodes()


def test_a_server_that_is_away_is_no_other_batch_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = 'case "$*" in *--version*) echo "pbs_version = 23.06.06"; exit 0 ;; esac; echo "Connection refused" >&2; exit 255'
    fake(tmp_path, pbsnodes="exit 1", qstat=away)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SchedulerError, match=r"^here: node list: Connection refused$"):
        Pbs(Here(), SchedulerSettings()).nodes()


def test_a_name_fits_every_release() -> None:
    """Up to PBS Professional 12 a job's name had 15 characters at most; then 236, from 19.1 on 230."""
    assert {len(short_name(tag)) for tag in ("a", "hpcq-" + "x" * 200)} == {15}


@pytest.mark.promise(
    "On a PBS without an exit code for the time limit, a killed job that used all its time counts as timed out."
)
@pytest.mark.parametrize(
    ("code", "used", "asked", "state"),
    [
        ("271", "00:01:04", "00:01:00", JobState.TIMED_OUT),
        ("265", "00:01:00", "00:01:00", JobState.TIMED_OUT),
        ("271", "00:00:30", "00:01:00", JobState.FAILED),
        ("267", "00:01:04", "00:01:00", JobState.FAILED),
        ("271", "", "00:01:00", JobState.FAILED),
    ],
)
def test_a_release_without_codes_of_limits_tells_a_time_limit_by_the_time_used(
    code: str, used: str, asked: str, state: JobState
) -> None:
    """As the sources of 19.1 have it: TERM at the limit, no -29. Not recorded: nobody here has such a release."""
    attributes = {"job_state": "F", "Exit_status": code, "substate": "93", "Resource_List.walltime": asked}
    attributes |= {"resources_used.walltime": used} if used else {}
    assert read_job(Listed("Job Id", "7.old", attributes)).state is state


@pytest.mark.promise("A licence of PBS Professional that is not free now refuses no job.")
@pytest.mark.parametrize("code", [17, 242, 250])
def test_a_licence_that_is_not_free_is_no_refusal(code: int) -> None:
    """PBSE_LICENSE_SERVER_DOWN, PBSE_LICENSECPU and PBSE_LICENSEUNAV of 20.0, modulo 256: it may be free later."""
    assert outcome(code) is Outcome.SERVER_DOWN


@pytest.mark.promise("A job that waits for licences waits for a limit.")
def test_a_job_that_waits_for_licences_waits_for_a_limit() -> None:
    """The comment as src/scheduler/check.c of 20.0 writes it."""
    words = "Not Running: Could not run job - nodes are not licensed or unable to obtain 4 cpu licenses. avail_licenses=0"
    assert read_wait("Q", "n", words) is Wait.LIMIT


@pytest.mark.promise("An old PBS without maintenance reservations gets no order that makes one.")
@pytest.mark.parametrize(("said", "there"), [("pbs_version = 19.1.2", False), ("pbs_version = 20.0.1", True)])
def test_a_release_without_maintenance_reservations_gets_no_order_for_one(
    said: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("pbsnodes", "Name=n1"), ("pbs_rstat", ""), ("qstat", said)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    administration = PbsAdministration(Here())
    administration.look()
    assert (administration.reserve(["n1"], "anna", None) is not None) is there
    assert (administration.admit("R1", "anna") is not None) is there
