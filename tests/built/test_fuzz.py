"""libFuzzer over what strangers, peers, command lines and old files hand to the programs (tests/fuzz/fuzz.c)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.kernels.kernel_programs import made_once, session_folder

FUZZ = REPOSITORY / "tests" / "fuzz"
#: Each letter of fuzz.c that an input may begin with.
READERS = set("hrmoatsj")


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hpcq-fuzz, built with clang (Debian: clang, libclang-rt-dev)."""
    folder = session_folder(tmp_path_factory) / "kernels-fuzz"
    said = made_once(folder, "fuzz")
    assert "warning" not in said, said
    return folder / "fuzz" / "hpcq-fuzz"


def fuzz(fuzzer: Path, folder: Path, *words: str, limit_s: float) -> str:
    """Run the fuzzer over the seeds; returns what it said. New inputs, and a finding, land in the folder."""
    kept = folder / "corpus"
    kept.mkdir()
    command = [str(fuzzer), f"-dict={FUZZ / 'words.dict'}", "-print_final_stats=1", *words, str(kept), str(FUZZ / "seeds")]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=limit_s, check=False)
    said = done.stderr.decode("utf-8", "replace")  # it prints bytes of its inputs
    found = [path for path in folder.iterdir() if path.name.startswith(("crash-", "leak-", "timeout-", "oom-"))]
    assert done.returncode == 0, f"{found}: a finding; put it into tests/fuzz/seeds once it is mended\n{said[-6000:]}"
    assert not found
    return said


def runs(said: str) -> int:
    """How many inputs were tried."""
    found = re.search(r"stat::number_of_executed_units: (\d+)", said)
    assert found, said
    return int(found[1])


@pytest.mark.promise("Each part of the fuzzer has an input to begin with.")
def test_every_reader_has_a_seed() -> None:
    cases = set(re.findall(r"case '(\w)':", (FUZZ / "fuzz.c").read_text()))
    assert cases == READERS == {chr(path.read_bytes()[0]) for path in (FUZZ / "seeds").iterdir()}


@pytest.mark.long
@pytest.mark.promise("A stranger, a peer, a command line or a damaged file breaks no parser: libFuzzer tries for a minute.")
def test_fuzzing_with_a_fixed_seed_finds_nothing(fuzzer: Path, tmp_path: Path) -> None:
    said = fuzz(fuzzer, tmp_path, "-seed=12", "-runs=8000", limit_s=300)
    assert runs(said) >= 8000
    covered = re.findall(r"cov: (\d+)", said)
    assert int(covered[-1]) > int(covered[0]) > 300, "coverage guides it"


@pytest.mark.long
def test_fuzzing_for_a_minute_finds_nothing(fuzzer: Path, tmp_path: Path) -> None:
    """Another start each time; what is found is found by whoever runs the tests that day."""
    said = fuzz(fuzzer, tmp_path, "-max_total_time=60", limit_s=300)
    assert runs(said) > 20000, "a minute of a busy core is enough for ten times that"
