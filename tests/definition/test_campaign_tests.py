"""Tests, sweeps and gates of a campaign file: what is read, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.definition import read_campaign
from hpcq.definition.find import list_described
from hpcq.definition.model import Pattern
from hpcq.errors import UserError
from hpcq.gate_kinds import GateAgainst, gate_kinds
from hpcq.kernels import complete, own_kernel, own_kernels
from tests.definition.definition_texts import (
    GOOD,
    NAMES,
    RATES,
    SIZES,
    TESTS,
    campaign_says,
    here,
    read,
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


#: A kernel, options that do not go together, the one that is named, and what is said of it. The programs refuse the same
#: (tests/kernels/test_kernel_refusals.py).
RELATED = [
    ("tcp_stream", {"thread_count": 8, "flow_count": 2}, "thread_count", "8: must be 2 at most (flow_count 2)"),
    ("udp_stream", {"thread_count": 2}, "thread_count", "2: must be 1 at most (flow_count 1)"),
    ("udp_oneway", {"source_port_last_no": 9}, "source_port_last_no", "9: must be 0 where source_port_first_no is 0"),
    (
        "tcp_connect",
        {"source_port_first_no": 10, "source_port_last_no": 9},
        "source_port_last_no",
        "9: must be 0, or 10 and more (source_port_first_no)",
    ),
    ("tcp_stream", {"mss_bytes": 87}, "mss_bytes", "87: must be 0, or 88 and more"),
    (
        "tcp_pingpong",
        {"source_port_first_no": 10, "source_port_last_no": 12, "flow_count": 4},
        "flow_count",
        "4: must be 3 at most (source_port_first_no 10 to 12)",
    ),
    (
        "udp_pingpong",
        {"source_port_first_no": 65530, "flow_count": 7},
        "flow_count",
        "7: must be 6 at most (source_port_first_no 65530 to 65535)",
    ),
    ("memory_copy", {"array_bytes": 8, "thread_count": 2}, "array_bytes", "8: must be 0, or 16 and more (thread_count)"),
    ("memory_copy", {"buffer_offset_bytes": 4095}, "buffer_offset_bytes", "4095: must be a multiple of 8"),
    (
        "mpi_pingpong",
        {"layout": "strided", "message_bytes": 9},
        "message_bytes",
        "9: must be a multiple of 8 where layout is strided",
    ),
    (
        "mpi_pingping",
        {"call": "persistent", "buffers": "cold"},
        "buffers",
        "cold: must be one of hot, separate where call is persistent",
    ),
    ("mpi_stream", {"call": "persistent"}, "call", "persistent: must be one of blocking, nonblocking, synchronous"),
    (
        "mpi_stream",
        {"direction": "both", "call": "blocking"},
        "call",
        "blocking: must be one of nonblocking, synchronous where direction is both",
    ),
    (
        "mpi_one_sided",
        {"operation": "accumulate", "message_bytes": 6},
        "message_bytes",
        "6: must be a multiple of 4 where operation is accumulate",
    ),
    (
        "mpi_collective",
        {"operation": "iscan", "message_bytes": 3},
        "message_bytes",
        "3: must be a multiple of 4 where operation is iscan",
    ),
    (
        "mpi_collective",
        {"node_count": 64, "message_bytes": "64MiB"},
        "message_bytes",
        "67108864: must be 33554431 at most (node_count 64)",
    ),
    ("mpi_sort", {"node_count": 8, "element_count": 7}, "element_count", "7: must be 0, or 8 and more (node_count)"),
]


@pytest.mark.promise("Options of a kernel that do not go together are refused by `hpcq check`, at their line.")
@pytest.mark.parametrize(("name", "options", "option", "said"), RELATED)
def test_options_that_do_not_go_together(here: Path, name: str, options: dict[str, object], option: str, said: str) -> None:
    lines = "".join(f"      {key}: {value}\n" for key, value in options.items())
    line_no = 7 + list(options).index(option)
    found = campaign_says(GOOD + f"tests:\n  - kernel: {name}\n    parameters:\n{lines}")
    assert found == [f"c.yaml:{line_no}: {option}: {said}"]


def test_a_sweep_of_options_that_do_not_go_together_says_how_to_leave_them_out(here: Path) -> None:
    text = GOOD + "tests:\n  - kernel: tcp_stream\n    matrix:\n      flow_count: [1, 8]\n      thread_count: [1, 4]\n"
    error = refused(read_campaign, "c.yaml", text)
    assert error.message == "c.yaml:8: thread_count: 4: must be 1 at most (flow_count 1)"
    assert error.hint == "an exclude leaves out what does not go together"
    kept = read(text + "    exclude: [{flow_count: 1, thread_count: 4}]\n")
    assert [(test.parameters["flow_count"], test.parameters["thread_count"]) for test in kept.tests] == [(1, 1), (8, 1), (8, 4)]


def test_an_option_that_stands_nowhere_is_named_at_the_one_that_does(here: Path) -> None:
    text = GOOD + "tests:\n  - kernel: tcp_stream\n    parameters:\n      source_port_first_no: 65535\n      flow_count: 2\n"
    assert campaign_says(text) == ["c.yaml:8: flow_count: 2: must be 1 at most (source_port_first_no 65535 to 65535)"]
    text = GOOD + "tests:\n  - kernel: mpi_matrix_multiply\n    parameters: {node_count: 65536}\n"
    rows = complete(own_kernel("mpi_matrix_multiply"), {})["matrix_row_count"]
    said = f"matrix_row_count: {rows}: must be 0, or 65536 and more (node_count)"
    assert campaign_says(text) == [f"c.yaml:6: node_count: {said}"]


def test_every_operation_that_reduces_takes_whole_words() -> None:
    relation = own_kernel("mpi_collective").relations[0]
    operation = own_kernel("mpi_collective").option("operation")
    assert operation is not None
    assert set(relation.when_words) == {one for one in operation.choices if "reduce" in one or one.endswith("scan")}


OPTIONS = f"valid are {', '.join(option.name for option in own_kernel('tcp_stream').options)}"


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
