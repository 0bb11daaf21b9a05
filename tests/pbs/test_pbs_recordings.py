"""Every record of a real PBS is read as expected; one job in three forms reads the same; hostile values harm nobody."""

from __future__ import annotations

import pytest

from hpcq.scheduler.pbs.scheduler import Outcome, outcome, read_job
from tests.pbs.pbs_recorded import FOLDER, Recorded, reading, recordings, records_of

pytestmark = pytest.mark.fast

EXPECTED = dict(line.split("\t", 1) for line in (FOLDER / "readings.tsv").read_text(encoding="utf-8").splitlines())


@pytest.mark.promise("A PBS job without an exit status never counts as completed.")
@pytest.mark.promise("A PBS job that was deleted is cancelled, whatever exit status it has.")
@pytest.mark.promise("An array of PBS that failed in part is failed, although it ends with 0.")
@pytest.mark.promise("What PBS recorded of each submission is read as taken, limited, refused or unsure.")
@pytest.mark.parametrize("one", recordings(), ids=lambda one: one.name)
def test_a_record_is_read_as_expected(one: Recorded) -> None:
    assert reading(one) == EXPECTED[one.name]


def test_no_reading_is_left_over() -> None:
    assert set(EXPECTED) == {one.name for one in recordings()}


def test_one_job_reads_the_same_in_json_text_and_dsv() -> None:
    forms: dict[str, set[str]] = {}
    for one in recordings():
        if one.file.startswith("07") and one.command.startswith("qstat -f") and " | " not in one.command:
            for record in records_of(one):
                report = read_job(record)
                forms.setdefault(record.name, set()).add(f"{report.state} {report.name} {report.wait} {report.nodes}")
    assert len(forms) > 10
    assert [name for name, readings in forms.items() if len(readings) > 1] == []


def test_words_of_refusals_and_exit_codes_agree() -> None:
    """A record with the words of an error has the exit code that hpcq reads as that error."""
    words = {
        "Unknown Job Id": {Outcome.UNKNOWN_JOB},
        "Job has finished": {Outcome.FINISHED_JOB},
        "per-user limit": {Outcome.USER_LIMIT},
        "Job violates queue and/or server resource limits": {Outcome.JOB_LIMIT},
        "Unauthorized Request": {Outcome.FORBIDDEN, Outcome.USAGE},  # pbsnodes ends with 1
        "Unknown queue": {Outcome.UNKNOWN_QUEUE},
        "Queue is not enabled": {Outcome.REFUSED},
        "Connection refused": {Outcome.SERVER_DOWN},
        "could not connect to MOM": {Outcome.NODE_UNREACHABLE},
    }
    seen = set()
    for one in recordings():
        for sign, meant in words.items():
            if sign in one.stderr and one.rc is not None and not one.command.startswith(("pbs_rstat", "timeout")):
                assert outcome(one.rc) in meant, one
                seen.add(sign)
    assert seen == set(words)
