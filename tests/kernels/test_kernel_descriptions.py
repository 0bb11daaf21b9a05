"""hpcq.kernels on the committed descriptions, which test_kernels.py compares with what the programs say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.errors import HpcqError, UserError
from hpcq.kernels import (
    Better,
    OptionType,
    complete,
    expected_s,
    message_bytes,
    option_value,
    own_kernel,
    own_kernels,
    size_option,
)
from tests import REPOSITORY

pytestmark = pytest.mark.fast

NET_KERNELS = [
    *("tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong", "tcp_connect", "udp_oneway", "udp_dispersion"),
    "udp_rate_search",
    "path_probe",
    "memory_copy",
]
FABRIC_KERNELS = ["fabric_pingpong", "fabric_stream", "fabric_write", "fabric_read", "fabric_atomic"]
MPI_KERNELS = [
    "mpi_pingpong",
    "mpi_pingping",
    "mpi_stream",
    "mpi_one_sided",
    "mpi_collective",
    "mpi_matrix_multiply",
    "mpi_sort",
]
DESCRIPTIONS = assets.kernel_descriptions()


def value(name: str, parameter: str, written: object) -> object:
    one = own_kernel(name)
    option = one.option(parameter)
    assert option is not None
    return option_value(one, option, written)


def test_tables_are_read_in_the_programs_order() -> None:
    own = [name for name, one in own_kernels().items() if one.described is None]
    assert own == [*NET_KERNELS, *FABRIC_KERNELS, *MPI_KERNELS]
    one = own_kernel("udp_stream")
    option = one.option("message_bytes")
    assert option is not None
    assert (option.type, option.unit, option.default, option.maximum) == (OptionType.INTEGER, "bytes", 1452, 65507)
    metric = one.metric("lost_ratio")
    assert metric is not None
    assert (metric.unit, metric.better) == ("ratio", Better.LOWER)
    assert one.option("no_such") is None
    assert not one.needs_mpi
    assert own_kernel("mpi_pingpong").needs_mpi


def test_unknown_kernel_names_the_nearest_and_all() -> None:
    with pytest.raises(UserError) as caught:
        own_kernel("tcp_strem")
    assert caught.value.message == "'tcp_strem' is not a kernel: the nearest is tcp_stream"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("valid are " + ", ".join([*NET_KERNELS, *FABRIC_KERNELS, *MPI_KERNELS]))


def test_defaults_are_filled_in_the_kernels_order() -> None:
    one = own_kernel("udp_stream")
    filled = complete(one, {"message_bytes": 1024, "rate_bps": 400_000_000})
    assert list(filled) == [option.name for option in one.options]
    assert filled == {option.name: option.default for option in one.options} | {
        "message_bytes": 1024, "rate_bps": 400_000_000,
    }  # fmt: skip


def test_units_are_read() -> None:
    assert value("udp_stream", "message_bytes", "1KiB") == 1024
    assert value("udp_stream", "rate_bps", "400mbit") == 400_000_000
    assert value("udp_stream", "duration_s", "1.5ms") == 0.0015


@pytest.mark.parametrize("written", ["system", "0-7,16", 8])
def test_lists_of_cpus_are_text(written: object) -> None:
    assert value("tcp_stream", "server_thread_cpus", written) == str(written)


def test_equal_numbers_are_one_parameter() -> None:
    assert {json.dumps(value("tcp_stream", "duration_s", one)) for one in (2, 2.0, "2s", "2000ms")} == {"2"}


@pytest.mark.parametrize(
    ("parameter", "written", "message"),
    [
        ("message_bytes", 65536, "65536 is above udp_stream's maximum 65507"),
        ("message_bytes", "64KiB", "'64KiB' (65536) is above udp_stream's maximum 65507"),
        ("message_bytes", 1, "1 is below udp_stream's minimum 16"),
        ("message_bytes", 20.5, "20.5: must be a whole number in bytes"),
        ("message_bytes", True, "true: must be a whole number in bytes"),
        ("message_bytes", None, "nothing: must be a whole number in bytes"),
        ("message_bytes", [16], "a list: must be a whole number in bytes"),
        (
            "message_bytes",
            "64 sheep",
            "'64 sheep' is not a quantity in bytes: must be a number and one of b, gb, gib, kb, kib, mb, mib",
        ),
        ("rate_bps", float("nan"), "nan: must be a number in bps"),
        ("rate_bps", float("inf"), "inf: must be a number in bps"),
        ("direction", "up", "'up': must be one of client_to_server, server_to_client, both"),
        ("client_thread_cpus", "0-", "'0-': must be system, or CPUs as 0-7,16, 63 characters at most"),
        ("client_thread_cpus", True, "true: must be system, or CPUs as 0-7,16, 63 characters at most"),
    ],
)
def test_refused_values(parameter: str, written: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        value("udp_stream", parameter, written)


def test_booleans() -> None:
    for written in ("yes", 1):
        with pytest.raises(ValueError, match="must be true or false"):
            value("tcp_stream", "no_delay", written)
    assert value("tcp_stream", "no_delay", True) is True


@pytest.mark.promise("Which option is a kernel's size is said by the kernel's description alone.")
def test_a_kernels_size_is_what_its_description_says() -> None:
    for name, one in own_kernels().items():
        assert one.size_option is None or one.option(one.size_option) is not None, name
    assert size_option("tcp_stream") == "message_bytes"
    assert message_bytes("mpi_pingpong", {"message_bytes": 0}) == 0
    assert message_bytes("tcp_stream", {"datagram_bytes": 5}) is None
    # A described kernel whose file is not here: all of them call their size so.
    assert message_bytes("no_such", {"message_bytes": 5}) == 5
    assert message_bytes("no_such", {"datagram_bytes": 5}) is None
    assert message_bytes("", {"message_bytes": 5}) is None


def test_expected_duration_counts_warm_ups() -> None:
    assert expected_s({"duration_s": 2, "warmup_s": 0.5, "message_bytes": 1}) == 2.5
    assert expected_s({"duration_ms": 200, "warmup_ms": 50}) == pytest.approx(0.25)
    assert expected_s({"operation_count_max": 100}) == 1.0
    assert expected_s({"duration_s": 2, "companion": "udp_pingpong", "companion_idle_s": 0.5}) == 3
    assert expected_s({"duration_s": 2, "companion": "none", "companion_idle_s": 0.5}) == 2


def test_broken_descriptions_say_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "kernel_descriptions", lambda: tmp_path)
    with pytest.raises(HpcqError, match="no kernel descriptions found"):
        own_kernels()
    path = tmp_path / "hpcq-net.json"
    path.write_text('{"format": 2, "kernels": []}')
    with pytest.raises(HpcqError, match=r"hpcq-net\.json: format: 2: must be 1"):
        own_kernels()
    path.write_text('{"format": 1')
    with pytest.raises(HpcqError, match=r"hpcq-net\.json: not a kernel description: JSONDecodeError"):
        own_kernels()
    description = (DESCRIPTIONS / "hpcq-net.json").read_text()
    path.write_text(description)
    (tmp_path / "other.json").write_text(description)
    with pytest.raises(HpcqError, match=r"other\.json: kernel tcp_stream is described twice"):
        own_kernels()


def test_committed_defaults_are_allowed() -> None:
    for one in own_kernels().values():
        for option in one.options:
            assert option_value(one, option, option.default) == option.default, f"{one.name} {option.name}"
        assert one.metrics, one.name


@pytest.mark.heavy
def test_imports_of_reading_verbs_stay_light() -> None:
    code = (
        "import sys, hpcq.kernels, hpcq.planning.plan, hpcq.planning.pairs, hpcq.definition\n"
        "print([name for name in ('pydantic', 'ruamel', 'difflib', 'jinja2', 'numpy') if name in sys.modules])"
    )
    root = REPOSITORY
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_architecture_page_names_all_kernels() -> None:
    text = (
        (REPOSITORY / "docs" / "architecture.md")
        .read_text()
        .partition("## Kernel programs")[2]
        .partition("    hpcq-net --describe")[0]
    )
    named = {name for listed in re.findall(r"holds `([^`]*)`", text) for name in listed.split()}
    assert named == {*NET_KERNELS, *FABRIC_KERNELS, *MPI_KERNELS}
