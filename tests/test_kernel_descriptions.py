"""hpcq.kernels on descriptions of the programs' own form, and on those that are committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.errors import HpcqError, UserError
from hpcq.kernels import Better, OptionType, check_parameters, expected_s, kernel, kernels

pytestmark = pytest.mark.fast

DESCRIPTIONS = Path(__file__).parent / "kernel_descriptions"


@pytest.fixture(autouse=True)
def _descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "kernel_descriptions", lambda: DESCRIPTIONS)


def complaints(name: str, **parameters: object) -> list[str]:
    return [f"{one.name}: {one.message}" for one in check_parameters(kernel(name), parameters).complaints]


def test_tables_are_read_in_the_programs_order() -> None:
    assert list(kernels()) == ["tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong", "mpi_pingpong"]
    one = kernel("udp_stream")
    option = one.option("message_bytes")
    assert option is not None
    assert (option.type, option.unit, option.default, option.maximum) == (OptionType.INTEGER, "bytes", 1472, 65507)
    metric = one.metric("lost_ratio")
    assert metric is not None
    assert (metric.unit, metric.better) == ("ratio", Better.LOWER)
    assert one.option("no_such") is None
    assert not one.needs_mpi
    assert kernel("mpi_pingpong").needs_mpi


def test_unknown_kernel_names_the_nearest_and_all() -> None:
    with pytest.raises(UserError) as caught:
        kernel("tcp_strem")
    assert caught.value.message == "'tcp_strem' is not a kernel: the nearest is tcp_stream"
    assert caught.value.hint == "valid are tcp_stream, tcp_pingpong, udp_stream, udp_pingpong, mpi_pingpong"


def test_defaults_are_filled_in_and_units_are_read() -> None:
    checked = check_parameters(kernel("udp_stream"), {"message_bytes": "1KiB", "rate_bps": "400mbit", "duration_s": "1.5ms"})
    assert not checked.complaints
    assert checked.parameters == {
        "message_bytes": 1024,
        "duration_s": 0.0015,
        "warmup_s": 0.2,
        "operation_count_max": 0,
        "send_buffer_bytes": 0,
        "receive_buffer_bytes": 0,
        "rate_bps": 400_000_000,
    }


def test_equal_numbers_are_one_parameter() -> None:
    values = [check_parameters(kernel("tcp_stream"), {"duration_s": value}).parameters for value in (2, 2.0, "2s", "2000ms")]
    assert {json.dumps(one) for one in values} == {json.dumps(values[0])}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"message_bytes": 65536}, "message_bytes: 65536 is above udp_stream's maximum 65507"),
        ({"message_bytes": "64KiB"}, "message_bytes: '64KiB' (65536) is above udp_stream's maximum 65507"),
        ({"message_bytes": 1}, "message_bytes: 1 is below udp_stream's minimum 16"),
        ({"message_bytes": 20.5}, "message_bytes: 20.5: allowed is a whole number in bytes"),
        ({"message_bytes": True}, "message_bytes: true: allowed is a whole number in bytes"),
        ({"message_bytes": None}, "message_bytes: nothing: allowed is a whole number in bytes"),
        ({"message_bytes": [16]}, "message_bytes: a list: allowed is a whole number in bytes"),
        (
            {"message_bytes": "64 sheep"},
            (
                "message_bytes: '64 sheep' is not a quantity in bytes: "
                "allowed are a number and one of b, gb, gib, kb, kib, mb, mib"
            ),
        ),
        ({"rate_bps": float("nan")}, "rate_bps: nan: allowed is a number in bps"),
        ({"rate_bps": float("inf")}, "rate_bps: inf: allowed is a number in bps"),
        ({"mesage_bytes": 20}, "mesage_bytes: 'mesage_bytes' is not a parameter of udp_stream: the nearest is message_bytes"),
    ],
)
def test_refused_values(parameters: dict[str, object], message: str) -> None:
    assert complaints("udp_stream", **parameters) == [message]


def test_choices_and_booleans() -> None:
    assert complaints("tcp_stream", congestion_control="vegas") == [
        "congestion_control: 'vegas': allowed are system, cubic, reno, bbr"
    ]
    assert complaints("tcp_stream", no_delay="yes") == ["no_delay: 'yes': allowed are true and false"]
    assert complaints("tcp_stream", no_delay=1) == ["no_delay: 1: allowed are true and false"]
    assert not complaints("tcp_stream", no_delay=True, congestion_control="bbr")


def test_all_complaints_at_once() -> None:
    assert len(complaints("udp_stream", message_bytes=0, rate_bps=-1, other=1)) == 3


def test_expected_duration_counts_warm_ups() -> None:
    assert expected_s({"duration_s": 2, "warmup_s": 0.5, "message_bytes": 1}) == 2.5
    assert expected_s({"duration_ms": 200, "warmup_ms": 50}) == pytest.approx(0.25)
    assert expected_s({"operation_count_max": 100}) == 1.0


def test_broken_descriptions_say_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "kernel_descriptions", lambda: tmp_path)
    with pytest.raises(HpcqError, match="no kernel descriptions found"):
        kernels()
    path = tmp_path / "hpcq-net.json"
    path.write_text('{"format": 2, "kernels": []}')
    with pytest.raises(HpcqError, match=r"hpcq-net\.json: format: 2: allowed is 1"):
        kernels()
    path.write_text('{"format": 1')
    with pytest.raises(HpcqError, match=r"hpcq-net\.json: not a kernel description: JSONDecodeError"):
        kernels()
    description = (DESCRIPTIONS / "hpcq-net.json").read_text()
    path.write_text(description)
    (tmp_path / "other.json").write_text(description)
    with pytest.raises(HpcqError, match=r"other\.json: kernel tcp_stream is described twice"):
        kernels()


def test_committed_descriptions_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for one in kernels().values():
        checked = check_parameters(one, {option.name: option.default for option in one.options})
        assert not checked.complaints, one.name
        assert one.metrics, one.name


def test_imports_of_reading_verbs_stay_light() -> None:
    code = (
        "import sys, hpcq.kernels, hpcq.planning.plan, hpcq.planning.pairs, hpcq.definition\n"
        "print([name for name in ('pydantic', 'ruamel', 'difflib', 'jinja2', 'numpy') if name in sys.modules])"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
