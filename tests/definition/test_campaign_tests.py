"""Tests, sweeps and gates of a campaign file: what is read, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.definition import read_campaign
from hpcq.definition.described import list_described
from hpcq.definition.model import Pattern
from hpcq.errors import UserError
from hpcq.gate_kinds.base import GateAgainst
from hpcq.gate_kinds.registry import gate_kinds
from hpcq.kernels import kernel, own_kernels
from tests.definition.definition_texts import (
    GOOD,
    NAMES,
    RATES,
    SIZES,
    TESTS,
    campaign_says,
    here,
    refused,
)
from tests.definition.test_campaign_files import FORMS

FIXTURES = (here,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


@pytest.mark.promise("A campaign without `pairs` and links lets each node meet two others.")
def test_pairs_have_a_default(here: Path) -> None:
    (here / "c.yaml").write_text("name: c\nclusters: [a]\ntests: [{kernel: tcp_stream}]\n")
    found = read_campaign(here / "c.yaml")
    assert (found.pairs.pattern, found.pairs.round_count, found.pairs_of_links) == (Pattern.ROUNDS, 2, False)


@pytest.mark.promise("A complaint about a missing key says what may be written there.")
def test_a_missing_key_says_what_may_be_written(here: Path) -> None:
    (here / "c.yaml").write_text("name: c\ntests: [{kernel: tcp_stream}]\n")
    with pytest.raises(UserError) as caught:
        read_campaign(here / "c.yaml")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("clusters: The clusters to measure: names of cluster files.")


def test_missing_keys_and_empty_lists(here: Path) -> None:
    assert campaign_says("description: x\n") == [
        f"c.yaml:1: {key}: missing: this key is required" for key in ("name", "clusters", "tests")
    ]
    assert campaign_says("name: c\nclusters: []\npairs: all\ntests: []\n") == [
        "c.yaml:2: clusters: 0 given: at least 1 needed",
        "c.yaml:4: tests: 0 given: at least 1 needed",
    ]
    assert campaign_says("name: c\nclusters: [a, b, a]\npairs: all\n" + TESTS) == [
        "c.yaml:2: clusters: 'a' stands twice: each cluster may stand once"
    ]


def test_the_message_of_the_style_page(here: Path) -> None:
    text = GOOD + "tests:\n  - kernel: udp_pingpong\n    matrix:\n      message_bytes:\n        - 16\n        - 65536\n"
    error = refused(read_campaign, "c.yaml", text)
    assert error.message == "c.yaml:9: message_bytes: 65536 is above udp_pingpong's maximum 65507"
    assert error.hint == "split the sweep, or use tcp_pingpong above 65507 bytes"


OPTIONS = f"valid are {', '.join(option.name for option in kernel('tcp_stream').options)}"


#: Of hpcq itself, then the described ones that come with it.
VALID_KERNELS = f"valid are {', '.join([*own_kernels(), *list_described()])}"


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ("kernel: tcp_strem", "kernel: 'tcp_strem' is not a kernel: the nearest is tcp_stream",
         VALID_KERNELS),
        ("parameters: {}", "kernel: missing: this key is required",
         "kernel: The kernel to run; `hpcq kernels` lists them."),
        ("kernel: tcp_stream\n    parameters: {mesage_bytes: 1}",
         "mesage_bytes: not a parameter of tcp_stream: the nearest is message_bytes", OPTIONS),
        ("kernel: tcp_stream\n    parameters: {message_bytes: [1, 2]}",
         "message_bytes: a list: must be a whole number in bytes", "several values belong under matrix, or under zip"),
        ("kernel: tcp_stream\n    parameters: {message_bytes: 64 sheep}",
         "message_bytes: '64 sheep' is not a quantity in bytes: must be a number and one of " + SIZES, None),
        ("kernel: tcp_stream\n    parameters: {no_delay: maybe}", "no_delay: 'maybe': must be true or false", None),
        ("kernel: tcp_stream\n    parameters: {direction: up}",
         "direction: 'up': must be one of client_to_server, server_to_client, both", None),
        ("kernel: udp_stream\n    parameters: {message_bytes: 64KiB}",
         "message_bytes: '64KiB' (65536) is above udp_stream's maximum 65507", "use tcp_stream above 65507 bytes"),
        ("kernel: tcp_stream\n    matrix: {message_bytes: 7}", "message_bytes: 7: must be a list", None),
        ("kernel: tcp_stream\n    matrix: {message_bytes: []}", "message_bytes: 0 given: at least 1 needed", None),
        ("kernel: tcp_stream\n    matrix: {message_bytes: [1, 1KiB, 1024]}",
         "message_bytes: 1024 stands twice: each value may stand once", None),
        ("kernel: tcp_stream\n    zip: {message_bytes: [1, 2], duration_s: [1]}",
         "zip: lists of different lengths (message_bytes 2, duration_s 1): all lists of a zip are equally long", None),
        ("kernel: tcp_stream\n    timeout_s: 2", "timeout_s: 2 s, but the test itself takes 2.2 s: must be more", None),
        ("kernel: tcp_stream\n    timeout: 2", "timeout: not a key here: the nearest is timeout_s",
         "valid are kernel, parameters, matrix, zip, exclude, on, timeout_s"),
        ("kernel: tcp_stream\n    matrix: {message_bytes: [1, 2]}\n    exclude: [{message_bytes: 3}]",
         "exclude: matches no combination of the sweep: correct it or leave it out", None),
        ("kernel: tcp_stream\n    matrix: {message_bytes: [1, 2]}\n    exclude: [{message_bytes: [1, 2]}]",
         "exclude: nothing is left of the sweep: at least one combination must remain", None),
        ("kernel: tcp_stream\n    matrix: {message_bytes: [1, 2]}\n    exclude: [{duration_s: 2}]",
         "duration_s: not swept here: must be message_bytes", None),
    ],
)  # fmt: skip
def test_refused_tests(here: Path, entry: str, message: str, hint: str | None) -> None:
    error = refused(read_campaign, "c.yaml", f"{GOOD}tests:\n  - {entry}\n")
    assert error.message == f"c.yaml:{4 + len(entry.splitlines())}: {message}"
    assert error.hint == hint


def test_a_parameter_stands_in_one_place(here: Path) -> None:
    text = TESTS + "    parameters: {message_bytes: 1}\n    matrix: {message_bytes: [2, 3]}\n    zip: {message_bytes: [4]}\n"
    assert campaign_says(GOOD + text) == [
        "c.yaml:7: message_bytes: given already under parameters on line 6: once is allowed",
        "c.yaml:8: message_bytes: given already under parameters on line 6: once is allowed",
    ]


def test_the_same_test_twice_and_too_large_a_sweep(here: Path) -> None:
    text = GOOD + TESTS + "  - {kernel: tcp_stream, parameters: {message_bytes: 128KiB}}\n"
    same = "the same tcp_stream with the same parameters as on line 5: raise repetitions instead"
    assert campaign_says(text) == [f"c.yaml:6: tests: {same}"]
    many = ", ".join(str(number) for number in range(1, 102))
    text = GOOD + TESTS + f"    matrix: {{message_bytes: [{many}], send_buffer_bytes: [{many}]}}\n"
    assert campaign_says(text) == ["c.yaml:5: tests: sweeps to 10201 tests: 10000 at most"]


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("{metric: throughputbps, minimum: 1}",
         "metric: 'throughputbps' is not a metric of tcp_stream: the nearest is throughput_bps"),
        ("{metric: throughput_bps}", "gates: a gate needs a bound: give minimum, maximum or both"),
        ("{metric: throughput_bps, minimum: 2, maximum: 1}", "minimum: 2 is above the maximum 1 of the same gate"),
        ("{metric: throughput_bps, minimum: 1 sheep}",
         "minimum: '1 sheep' is not a quantity in bps: must be a number and one of " + RATES),
        ("{metric: throughput_bps, minimum: 1, kernel: udp_stream}",
         "kernel: 'udp_stream' is not a kernel that this campaign tests: the nearest is tcp_stream"),
        ("{metric: throughput_bps, minimum: 1, where: {mesage_bytes: 1}}",
         "mesage_bytes: not a parameter of tcp_stream: the nearest is message_bytes"),
        ("{metric: throughput_bps, minimum: 1, where: {message_bytes: 1}}",
         "where: no test of this campaign has these parameters: correct them or the tests"),
        ("{metric: throughput_bps, minimum: 1, statistic: mean}", "statistic: 'mean': must be 'median' or 'worst'"),
        ("{metric: throughput_bps, minimum: [1]}", "minimum: a list: must be a number in bps"),
        ("{metric: throughput_bps, minimum: .nan}", "minimum: nan: must be a number in bps"),
        ("{minimum: 1}", "metric: missing: this key is required"),
        ("{metric: throughput_bps, minimum: 90%, against: peer}",
         "against: 'peer': must be baseline:NAME, link, memory, peers or reverse"),
        ("{metric: throughput_bps, minimum: 90%, against: 'baseline:'}",
         "against: 'baseline:': must be baseline:NAME, link, memory, peers or reverse"),
        ("{metric: throughput_bps, minimum: 90%, against: link:eth0}",
         "against: 'link:eth0': must be baseline:NAME, link, memory, peers or reverse"),
        ("{metric: retransmit_count, maximum: 90%, against: memory}",
         "against: memory: retransmit_count is not in bps: must be a metric in bps"),
        ("{metric: throughput_bps, minimum: 95, against: peers}",
         "minimum: 95 is 9500 % of the reference: must be a share above 0, up to 20"),
        ("{metric: throughput_bps, minimum: 1gbit, against: peers}",
         "minimum: '1gbit' is not a quantity in ratio: must be a number and one of %"),
        ("{metric: throughput_bps, minimum: 0, against: peers}",
         "minimum: 0 is 0 % of the reference: must be a share above 0, up to 20"),
        ("{metric: throughput_bps, minimum: 1, at_least: 5}", "at_least: belongs to gates against baseline:NAME or peers"),
        ("{metric: throughput_bps, minimum: 1, at_least: 5, against: link}",
         "at_least: belongs to gates against baseline:NAME or peers"),
        ("{metric: throughput_bps, minimum: 1, at_least: 2, against: peers}", "at_least: 2 is below the minimum 3"),
        ("{metric: throughput_bps, minimum: 1, history: 30d, against: link}", "history: belongs to gates against peers"),
        ("{metric: throughput_bps, against: peers}", "gates: a gate needs a bound: give minimum, maximum or both"),
    ],
)  # fmt: skip
def test_refused_gates(here: Path, gate: str, message: str) -> None:
    assert campaign_says(GOOD + TESTS + f"gates:\n  - {gate}\n") == [f"c.yaml:7: {message}"]


def test_relative_gates(here: Path) -> None:
    text = """gates:
  - {metric: throughput_bps, against: "baseline:good", minimum: 95%}
  - {metric: throughput_bps, against: peers, minimum: 0.9, at_least: 8, history: 2d}
  - {metric: throughput_bps, against: link, minimum: 90 %, maximum: 100%}
"""
    (here / "c.yaml").write_text(GOOD + TESTS + text)
    baseline, peers, link = read_campaign(here / "c.yaml").gates
    assert baseline.against == GateAgainst(gate_kinds()["baseline"], "good", 5)
    assert (peers.against, peers.minimum) == (GateAgainst(gate_kinds()["peers"], "", 8, 172800.0), 0.9)
    assert (link.against, link.minimum, link.maximum) == (GateAgainst(gate_kinds()["link"]), 0.9, 1.0)


def test_a_gate_on_the_worst_needs_a_direction(here: Path) -> None:
    text = GOOD + "tests: [{kernel: udp_stream}]\ngates: [{metric: sent_count, maximum: 1, statistic: worst}]\n"
    assert campaign_says(text) == ["c.yaml:5: statistic: 'worst': sent_count has no better direction, must be median"]


def test_all_complaints_together_in_order(here: Path) -> None:
    error = refused(
        read_campaign,
        "c.yaml",
        "name: bad name\ncluster: [alpha]\nclusters: []\nrepetitions: -1\npairs: {round: 3}\nevidence: ful\ntests:\n"
        "  - kernel: udp_pingpong\n    matrix:\n      message_bytes: [16, 65536]\n  - kernel: tcp_strem\n"
        "  - {kernel: tcp_stream, parameters: {mesage_bytes: 1, no_delay: 1}}\n"
        "gates:\n  - {metric: throughputbps, minimum: 1}\n",
    )
    assert error.message.splitlines() == [
        f"c.yaml:1: name: 'bad name' {NAMES}",
        "c.yaml:2: cluster: not a key here: the nearest is clusters",
        "c.yaml:3: clusters: 0 given: at least 1 needed",
        "c.yaml:4: repetitions: -1 is below the minimum 1",
        f"c.yaml:5: pairs: 'round': {FORMS}",
        "c.yaml:6: evidence: 'ful': must be 'summary' or 'full'",
        "c.yaml:10: message_bytes: 65536 is above udp_pingpong's maximum 65507",
        "c.yaml:11: kernel: 'tcp_strem' is not a kernel: the nearest is tcp_stream",
        "c.yaml:12: mesage_bytes: not a parameter of tcp_stream: the nearest is message_bytes",
        "c.yaml:12: no_delay: 1: must be true or false",
        "c.yaml:14: metric: 'throughputbps' is not a metric of udp_pingpong, tcp_stream: the nearest is throughput_bps",
    ]
    hints = str(error.hint).splitlines()
    assert hints[0].startswith("line 2: valid are name, description, clusters, nodes, pairs, tests, repetitions, ")
    assert hints[1] == "line 10: split the sweep, or use tcp_pingpong above 65507 bytes"
