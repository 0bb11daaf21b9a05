"""Campaigns on sites whose commands are not as their manual says: wrappers around the simulated Slurm's commands."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from hpcq.errors import SchedulerError
from tests.driver.test_driver import Bench, bench, outcomes, until

pytestmark = [pytest.mark.fast, pytest.mark.heavy]

__all__ = ["bench"]


def wrap(bench: Bench, program: str, body: str) -> None:
    """Put a script in place of a command; `$REAL` in it is the command itself."""
    path = bench.slurm.folder / "bin" / program
    real = path.rename(path.with_name(f"{program}.real"))
    # the stand-in takes its name from the file's
    real.write_text(real.read_text().replace('"${0##*/}"', program))
    path.write_text(f"#!/bin/bash\nREAL={real}\n{body}\n")
    path.chmod(0o755)


def said_of_others(bench: Bench) -> list[str]:
    return [words for words in bench.said if "other users' jobs are not listed" in words]


OTHERS_ONLY = 'case " $* " in *" --me "*|*" --jobs="*) exec "$REAL" "$@";; esac\n'


@pytest.mark.promise(
    "Where a site refuses the list of other users' jobs, a campaign is measured all the same, and says so once."
)
def test_a_list_of_others_that_is_refused(bench: Bench) -> None:
    wrap(bench, "squeue", f'{OTHERS_ONLY}echo "squeue: error: only your own jobs are shown" >&2; exit 1')
    run = bench.run("pairs: all\nbudget: {yield: true, max_jobs: 1}")  # one after another: the list is asked for twice
    assert outcomes(bench.drive(run)) == ["completed"] * 15
    assert len(said_of_others(bench)) == 1, bench.said
    assert "only your own jobs are shown" in said_of_others(bench)[0]


@pytest.mark.promise("A list of other users' jobs that takes long is bounded, asked for rarely, and said once.")
def test_a_list_of_others_that_takes_too_long(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.scheduler.base.OTHERS_WITHIN_S", 2)
    wrap(bench, "squeue", f"{OTHERS_ONLY}echo >>{tmp_path}/asked; sleep 300")
    run = bench.run("pairs: all\nbudget: {yield: true}")
    begun_s = time.monotonic()
    assert outcomes(bench.drive(run)) == ["completed"] * 15
    assert time.monotonic() - begun_s < 60
    assert (tmp_path / "asked").read_text().count("\n") == 1
    assert said_of_others(bench) == ["sim: other users' jobs are not listed, so hpcq cannot yield to them: no list within 2 s"]


@pytest.mark.promise("A list of other users' jobs that takes seconds is asked for a tenth of the time at most.")
def test_a_list_of_others_that_is_slow(bench: Bench, tmp_path: Path) -> None:
    wrap(bench, "squeue", f'{OTHERS_ONLY}echo >>{tmp_path}/asked; sleep 1.2; exec "$REAL" "$@"')
    run = bench.run("pairs: all\nbudget: {yield: true}")
    begun_s = time.monotonic()
    assert outcomes(bench.drive(run)) == ["completed"] * 15
    took_s = time.monotonic() - begun_s
    assert (tmp_path / "asked").read_text().count("\n") <= 1 + took_s / 9
    assert said_of_others(bench) == []


@pytest.mark.promise("A driver that yields goes on when the list of others is refused from then on.")
def test_a_list_that_is_refused_while_it_yields(bench: Bench, tmp_path: Path) -> None:
    wrap(bench, "squeue", f'{OTHERS_ONLY}[ -e {tmp_path}/refuse ] || exec "$REAL" "$@"\necho "squeue: denied" >&2; exit 1')
    run = bench.run("pairs: {list: [[n0005, n0006]]}\nbudget: {yield: true}")
    for name in ("first", "second"):
        bench.slurm.control(other={"nodes": ["n0001"], "run_s": 3600, "name": name})
    driving = bench.driving(run)
    until(lambda: any("yields: other users wait" in text for text in bench.said))
    (tmp_path / "refuse").touch()
    driving.join(200)
    assert not driving.is_alive(), bench.said
    assert bench.rows(run) == {("measured", ""): 1}
    assert len(said_of_others(bench)) == 1


BANNER = "echo '*******************'; echo '| Maintenance | on | Friday | 17 | h | all |'; echo 'Welcome to the 3rd cluster'\n"


ALL = ("sinfo", "sbatch", "squeue", "sacct", "scontrol", "scancel", "sacctmgr")
BIG = "s/\\|n(0[0-9]{3})/|N\\1.Big.Example.org/g; s/^n(0[0-9]{3})/N\\1.Big.Example.org/"
SMALL = r'sed -i -E "/^#SBATCH --nodelist/s/N(0[0-9]{3}).Big.Example.org/n\1/g" "${@: -1}"; exec "$REAL" "$@"'
ODDITIES = {
    "a banner before each answer": dict.fromkeys(ALL, f'{BANNER}exec "$REAL" "$@"'),
    "a banner behind each answer": dict.fromkeys(ALL, f'"$REAL" "$@"; code=$?\n{BANNER}exit $code'),
    "warnings with each answer": dict.fromkeys(ALL, 'echo "sbatch: INFO: account guessed: error x" >&2; exec "$REAL" "$@"'),
    "the long form of the id": {"sbatch": 'id=$("$REAL" "$@") || exit; echo "Submitted batch job $id"'},
    "costs beside the id": {"sbatch": '"$REAL" "$@" || exit; echo "Your job will cost 3 SU"'},
    "an id with the cluster": {"sbatch": 'id=$("$REAL" "$@") || exit; echo "$id;big"'},
    "no accounting": dict.fromkeys(("sacct", "sacctmgr"), 'echo "Slurm accounting storage is disabled" >&2; exit 1'),
    "bytes that are no text": {"sinfo": '"$REAL" "$@" | sed $\'s/none/bad \\xff\\xfe\\x01 cable/\''},
    "answers with carriage returns": dict.fromkeys(ALL, '"$REAL" "$@" | sed "s/$/\\r/"; exit ${PIPESTATUS[0]}'),
    "full names in capitals": {
        **dict.fromkeys(("sinfo", "squeue"), f'"$REAL" "$@" | sed -E "{BIG}"; exit ${{PIPESTATUS[0]}}'),
        "sbatch": SMALL,
    },
}


@pytest.mark.promise("Commands that print more than their answer, or name nodes and jobs in odd ways, cost no result.")
@pytest.mark.parametrize("oddity", ODDITIES)
def test_commands_that_answer_oddly(bench: Bench, oddity: str) -> None:
    for program, body in ODDITIES[oddity].items():
        wrap(bench, program, body)
    run = bench.run("pairs: {rounds: 1}\nbudget: {yield: true}")
    assert outcomes(bench.drive(run)) == ["completed"] * 3
    assert bench.rows(run) == {("measured", ""): 3}
    assert said_of_others(bench) == []
    names = {name for one in json.loads(run.plan("sim").read_text())["pairs"] for name in one}
    assert all(re.fullmatch(r"n\d{4}" if "names" not in oddity else r"N\d{4}\.Big\.Example\.org", name) for name in names)


@pytest.mark.promise("A controller that is away for a moment when a run is planned costs no run.")
def test_a_controller_that_is_away_while_it_plans(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.runner.stages.AWAY_PAUSES_S", (0.1, 0.1, 0.1))
    bench.slurm.control(set={"broken": {"sinfo": 2}})
    run = bench.run("pairs: {rounds: 1}")
    assert len(json.loads(run.plan("sim").read_text())["pairs"]) == 3
    bench.slurm.control(set={"broken": {"sinfo": 99}})
    with pytest.raises(SchedulerError, match="Unable to contact slurm controller"):
        bench.run("pairs: {rounds: 1}")


@pytest.mark.promise("A wrapper that says in place of the node list that the system is away is not believed to have no nodes.")
def test_words_in_place_of_the_node_list(bench: Bench) -> None:
    wrap(bench, "sinfo", 'echo "The batch system is not available at the moment."')
    with pytest.raises(SchedulerError, match="node list: The batch system is not available at the moment"):
        bench.run("pairs: {rounds: 1}")
