"""What a library really writes beside a kernel's result: UCX writes its log to standard output."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from hpcq.kernels import own_kernels
from hpcq.run_folder.lines import Outcome, RawLine, printed, read_line
from tests.kernels.kernel_programs import LIMIT_S
from tests.kernels.test_kernels_mpi import MPICH, MPIS, YIELD
from tests.mpi.mpi_programs import Launched
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

SWEEP = {"message_bytes": 8, "sweep_to_bytes": 64, "duration_s": 20, "warmup_s": 0, "operation_count_max": 20}


@pytest.mark.promise("A result of hpcq-mpi counts among what UCX logs to standard output.")
@pytest.mark.promise("A result names the transports that UCX or Intel MPI say they send over, where they log it.")
@pytest.mark.parametrize("launched", [MPICH], ids=["mpich"], indirect=True)
@pytest.mark.parametrize("sweeps", [False, True], ids=["one", "sweep"])
def test_a_result_among_what_ucx_logs_counts(launched: Launched, sweeps: bool) -> None:
    given = SWEEP if sweeps else {**SWEEP, "sweep_to_bytes": 0}
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    command = [*launched.mpi.launcher, "2", str(launched.program), "mpi_pingpong", "--interface", "lo", *options]
    environment = {**os.environ, "UCX_LOG_LEVEL": "info", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    content, said = printed(done.stdout)
    assert any("UCX  INFO" in one for one in said), done.stdout
    assert not any('{"format"' in one for one in said)
    first = content["sizes"][0] if sweeps else content
    raw = RawLine(done.stdout, json.dumps({"rc": done.returncode}).encode(), b"")
    line = read_line(raw, Path("t1-r1.json"), own_kernels(), "mpi_pingpong", first["options"])
    assert (line.outcome, line.reason) == (Outcome.MEASURED, None)
    assert dict(line.warnings)["library_said"].splitlines()[0] == said[0]
    assert line.content["granted"]["mpi_transport_said"] == "tcp/lo"
    if sweeps:
        assert [one["options"]["message_bytes"] for one in content["sizes"]] == [8, 16, 32, 64]


@pytest.mark.promise("A result names the transports that Open MPI says it sends over, where it is asked to say so.")
@pytest.mark.parametrize("launched", [one for one in MPIS if one is not MPICH], ids=["open-mpi"], indirect=True)
@pytest.mark.parametrize("transport", ["tcp", "vader"])
def test_what_open_mpi_says_on_standard_error(launched: Launched, transport: str) -> None:
    given = {**SWEEP, "sweep_to_bytes": 0}
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    command = [*launched.mpi.launcher, "2", str(launched.program), "mpi_pingpong", *options]
    wanted = {"OMPI_MCA_btl": f"{transport},self", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_base_verbose": "1"}
    environment = {**os.environ, **YIELD, **wanted}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    raw = RawLine(done.stdout, json.dumps({"rc": done.returncode}).encode(), b"", words=done.stderr.decode())
    line = read_line(raw, Path("t1-r1.json"), own_kernels(), "mpi_pingpong", json.loads(done.stdout)["options"])
    assert (line.outcome, line.reason) == (Outcome.MEASURED, None), done.stderr
    assert line.content["granted"]["mpi_transport_said"] == transport
