"""Campaign files: what is read from them, and every complaint with its exact words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import NETWORK_INSTEAD, read_campaign
from hpcq.definition.model import Budget, Directions, Evidence, Gate, GateStatistic, PairChoice, Pattern
from hpcq.kernels import Better, own_kernel
from tests.definition.definition_texts import (
    GOOD,
    NAMES,
    NODE_LIST,
    TESTS,
    TIMES,
    campaign_says,
    here,
    read,
    refused,
)

FIXTURES = (here,)  # pytest looks for them in this module
pytestmark = pytest.mark.fast


def test_shortest_campaign_is_final(here: Path) -> None:
    campaign = read(GOOD + TESTS)
    assert (campaign.name, campaign.clusters, campaign.pairs) == ("c", ("alpha",), PairChoice(Pattern.ALL))
    assert (campaign.repetition_count, campaign.attempt_count_max, campaign.walltime_s) == (3, 2, None)
    assert (campaign.evidence, campaign.budget, campaign.gates) == (Evidence.SUMMARY, None, ())
    assert campaign.seed == read(GOOD + TESTS).seed
    (test,) = campaign.tests
    assert (test.test_no, test.kernel, test.program, test.timeout_s) == (1, "tcp_stream", "hpcq-net", 30)
    assert test.parameters == {option.name: option.default for option in own_kernel("tcp_stream").options}


def test_full_campaign(here: Path) -> None:
    campaign = read(
        """
name: full.campaign-1
description: "spaces, 'quotes', $(touch /tmp/x)\\nand lines"
clusters: [alpha, beta]
nodes: {state: idle, include: ["n[01-03]", login], exclude: n02, constraint: a & b | c, queue: q1, at_most: 8}
pairs: {pattern: rounds, rounds: 3, directions: both}
repetitions: 5
walltime_s: 0:02:30
retries: 0
seed: 7
evidence: full
budget: {max_jobs: 4, max_nodes: 8, max_node_ratio: 0.5, max_node_seconds: 1h}
tests:
  - kernel: udp_pingpong
    timeout_s: 1min
    parameters: {duration_s: 1500ms}
    matrix: {message_bytes: [16, 1KiB]}
    zip: {send_buffer_bytes: [0, 4MiB], receive_buffer_bytes: [0, 1MiB]}
    exclude: [{message_bytes: [16, 20], send_buffer_bytes: 4MiB}]
  - kernel: tcp_pingpong
gates:
  - {metric: round_trip_p50_ns, maximum: 80us, statistic: worst}
  - {metric: round_trip_p99_ns, kernel: udp_pingpong, where: {message_bytes: 1KiB}, minimum: 1, maximum: 1ms}
"""
    )
    assert campaign.description == "spaces, 'quotes', $(touch /tmp/x)\nand lines"
    assert campaign.nodes.include == ("n01", "n02", "n03", "login")
    assert (campaign.nodes.exclude, campaign.nodes.constraint) == (("n02",), "a&b|c")
    assert (campaign.nodes.partition, campaign.nodes.at_most) == ("q1", 8)
    assert campaign.pairs == PairChoice(Pattern.ROUNDS, round_count=3, directions=Directions.BOTH)
    assert (campaign.repetition_count, campaign.walltime_s, campaign.attempt_count_max) == (5, 150, 1)
    assert campaign.budget == Budget(4, 8, 0.5, 3600)
    swept = [
        (test.parameters["message_bytes"], test.parameters["send_buffer_bytes"], test.parameters["receive_buffer_bytes"])
        for test in campaign.tests[:-1]
    ]
    assert swept == [(16, 0, 0), (1024, 0, 0), (1024, 4 * 2**20, 2**20)]
    assert [test.test_no for test in campaign.tests] == [1, 2, 3, 4]
    assert {test.timeout_s for test in campaign.tests[:-1]} == {60}
    assert campaign.gates[0] == Gate(
        "round_trip_p50_ns", "udp_pingpong", GateStatistic.WORST, None, 80_000.0, {}, better=Better.LOWER
    )
    assert [gate.kernel for gate in campaign.gates] == ["udp_pingpong", "tcp_pingpong", "udp_pingpong"]
    assert campaign.gates[2].where == {"message_bytes": 1024}


@pytest.mark.parametrize(
    ("pairs", "choice"),
    [
        ("ring", PairChoice(Pattern.RING)),
        ("{pattern: ring}", PairChoice(Pattern.RING)),
        ("{rounds: 3}", PairChoice(Pattern.ROUNDS, round_count=3)),
        ("{star: n1}", PairChoice(Pattern.STAR, node="n1")),
        ("{pattern: star, node: n1}", PairChoice(Pattern.STAR, node="n1")),
        ("{list: [[a, b], [b, a]]}", PairChoice(Pattern.LIST, pairs=(("a", "b"), ("b", "a")))),
    ],
)
def test_ways_to_say_pairs(here: Path, pairs: str, choice: PairChoice) -> None:
    assert read(f"name: c\nclusters: alpha\npairs: {pairs}\n{TESTS}").pairs == choice


def test_seed_of_each_run(here: Path) -> None:
    campaign = read(GOOD + "seed: each_run\n" + TESTS)
    assert campaign.seed is None
    assert campaign.seed_of("a") != campaign.seed_of("b")
    assert read(GOOD + "seed: 0\n" + TESTS).seed == 0


def test_sweep_of_several_zips_is_a_product(here: Path) -> None:
    text = TESTS + "    zip:\n    - {message_bytes: [1, 2], duration_s: [1, 2]}\n    - {no_delay: [true, false]}\n"
    points = [
        (test.parameters["message_bytes"], test.parameters["duration_s"], test.parameters["no_delay"])
        for test in read(GOOD + text).tests
    ]
    assert points == [(1, 1, True), (1, 1, False), (2, 2, True), (2, 2, False)]


RESERVATION = "must be the name of a reservation that exists, or {make: true}"


@pytest.mark.promise("A campaign or test with the key `interface` is told to write `network`.")
@pytest.mark.parametrize(
    "entry",
    [
        "{kernel: mpi_pingpong, interface: eth0}",
        "{kernel: mpi_pingpong, parameters: {interface: eth0}}",
        "{kernel: mpi_pingpong, matrix: {interface: [eth0]}}",
    ],
)
def test_an_interface_in_a_campaign_is_told_as_network(here: Path, entry: str) -> None:
    """`transport: tcp, interface: eth0` is what people write first."""
    error = refused(read_campaign, "c.yaml", f"{GOOD}transport: tcp\ninterface: eth0\ntests:\n  - {entry}\n")
    said = [line.split(": ", 2)[1:] for line in error.message.splitlines()]
    assert [key for key, _ in said] == ["interface", "interface"]
    assert all("must be network: NAME, a key of the campaign" in words for _, words in said)
    assert str(error.hint).count("networks: {NAME: eth0}") == len(said)
    assert error.exit_code == 2


@pytest.mark.promise("A campaign or test that names an address is told to name a network, or a device.")
@pytest.mark.parametrize("key", ["bind", "bind_address", "source_address", "local_address"])
@pytest.mark.parametrize("entry", ["{{kernel: tcp_stream, {0}}}", "{{kernel: tcp_stream, parameters: {{{0}}}}}"])
def test_an_address_in_a_campaign_is_told_as_network(here: Path, key: str, entry: str) -> None:
    text = f"{GOOD}{key}: 10.0.0.1\ntests:\n  - {entry.format(f'{key}: 10.0.0.1')}\n"
    error = refused(read_campaign, "c.yaml", text)
    said = [line.split(": ", 2)[1:] for line in error.message.splitlines()]
    assert [name for name, _ in said] == [key, key]
    assert all("which name no address: must be network: NAME, a key of the campaign" in words for _, words in said)
    assert str(error.hint).count("networks: {NAME: eth0} in the cluster file; bind_device: eth0") == len(said)
    assert error.exit_code == 2


# -- complaints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("repetitions: 0", "repetitions: 0 is below the minimum 1"),
        ("repetitions: '3'", "repetitions: '3': must be a whole number"),
        ("repetitions: 2.5", "repetitions: 2.5: must be a whole number"),
        ("repetitions: true", "repetitions: true: must be a whole number"),
        ("repetitions:", "repetitions: nothing: must be a whole number"),
        ("retries: 11", "retries: 11 is above the maximum 10"),
        ("evidence: ful", "evidence: 'ful': must be 'summary' or 'full'"),
        ("description: 3", "description: 3: must be a text (in quotes)"),
        ('description: "a\\0b"', "description: 'a\\x00b' holds a NUL byte: must be any other text"),
        ("walltime_s: 0", 'walltime_s: 0: must be seconds, "90s", "2min", "1h" or h:mm:ss'),
        ("walltime_s: '120'", 'walltime_s: \'120\': must be seconds, "90s", "2min", "1h" or h:mm:ss'),
        ("walltime_s: 2 sheep", 'walltime_s: \'2 sheep\': must be seconds, "90s", "2min", "1h" or h:mm:ss'),
        ("walltime_s: 40d", "walltime_s: '40d': must be 1s to 30d"),
        ("seed: -1", "seed: -1: must be a whole number from 0 to 9223372036854775807, or each_run"),
        ("seed: often", "seed: 'often': must be a whole number from 0 to 9223372036854775807, or each_run"),
        ("nodes: {state: allocated}", "state: 'allocated': must be 'idle' or 'up'"),
        ("nodes: {reservation: {make: false}}", f"reservation: no name and no make: true: {RESERVATION}"),
        ("nodes: {reservation: {make: true, name: r}}", f"reservation: a name and make: true: {RESERVATION}"),
        ("nodes: {reservation: {make: true, otherwise: cry}}", "otherwise: 'cry': must be 'stop' or 'without'"),
        ("nodes: {at_most: 1}", "at_most: 1 is below the minimum 2"),
        ("nodes: [n1]", "nodes: a list: must be keys with values"),
        (
            "nodes: {include: 'n1; rm -rf /'}",
            f"include: 'n1; rm -rf /' {NODE_LIST}",
        ),
        (
            "nodes: {exclude: ['n[1-']}",
            f"exclude: 'n[1-' {NODE_LIST}",
        ),
        ("nodes: {exclude: ['n[4-1]']}", "exclude: 'n[4-1]': range 4-1 must go upward and hold at most 100000 nodes"),
        (
            "nodes: {constraint: '(a'}",
            "constraint: '(a': must be feature names joined by & (all) or | (any of), like rack1&ib|rack2",
        ),
        (
            "nodes: {partition: 'a b'}",
            "partition: 'a b': must be letters, digits and ._@+:,/%=- (no spaces, quotes or shell signs)",
        ),
        ("nodes: {partition: a, queue: b}", "queue: partition is given too: they are the same, give one"),
        ("qqqqq: [{from: a, to: b}]", "qqqqq: not a key here"),
        ("repetition: 3", "repetition: not a key here: the nearest is repetitions"),
        ("interface: eth0", f"interface: {NETWORK_INSTEAD[0]}"),
        ("nodes: {excluded: n1}", "excluded: not a key here: the nearest is exclude"),
        ("budget: {jobs: 1}", "jobs: not a key here: the nearest is max_jobs"),
        ("budget: {max_jobs: 0}", "max_jobs: 0 is below the minimum 1"),
        ("budget: {max_node_ratio: 0}", "max_node_ratio: 0 is not above 0"),
        (
            "budget: {max_node_seconds: 2 sheep}",
            "max_node_seconds: '2 sheep' is not a quantity in s: must be a number and one of " + TIMES,
        ),
        ("budget: {max_node_seconds: 100000000000000000000e999}", "max_node_seconds: inf: must be a number in s"),
        ("budget: {max_node_seconds: .nan}", "max_node_seconds: nan: must be a number in s"),
    ],
)
def test_refused_keys_of_a_campaign(here: Path, line: str, message: str) -> None:
    assert campaign_says(GOOD + line + "\n" + TESTS) == [f"c.yaml:4: {message}"]


def test_a_reservation_of_its_own_is_not_for_campaigns_with_links(here: Path) -> None:
    linked = GOOD.replace("clusters: [alpha]", "clusters: [alpha, beta]") + "links: [{from: alpha, to: beta}]\n"
    said = campaign_says(linked + "nodes: {reservation: {make: true}}\n" + TESTS)
    assert said == ["c.yaml:5: make: true, and links: allowed with links is the name of a reservation that exists"]


@pytest.mark.promise("Clusters and links of a wrong kind are refused where they stand, and no defect of hpcq.")
@pytest.mark.parametrize(
    ("clusters", "links", "said"),
    [
        ("[alpha, beta]", "5", ["c.yaml:3: links: 5: must be a list"]),
        ("[alpha, [b]]", "[{from: alpha, to: alpha}]", ["c.yaml:2: clusters: a list: must be a text"]),
        ("[alpha, {b: c}]", "[{from: alpha, to: alpha}]", ["c.yaml:2: clusters: keys with values: must be a text"]),
        ("[alpha, beta]", "[{from: [a], to: beta}]", ["c.yaml:3: from: a list: must be a text"]),
    ],
)
def test_clusters_and_links_of_a_wrong_kind_are_no_defect(here: Path, clusters: str, links: str, said: list[str]) -> None:
    found = campaign_says(f"name: c\nclusters: {clusters}\nlinks: {links}\n" + TESTS)
    assert set(said) <= set(found)
    assert not [one for one in found if "is in no link" in one]


FORMS = (
    "must be all, ring, {rounds: K}, {random: K}, {star: NODE}, {within: switch}, {across: switch}, {file: NAME},"
    " {bisection: K} and {list: [[a, b], ...]}"
)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("rings", "pairs: 'rings': must be one of all, ring, rounds, star, list, random, within, across, file, bisection"),
        ("rounds", "pairs: 'rounds': write pairs: {rounds: 3}"),
        ("{round: 3}", f"pairs: 'round': {FORMS}"),
        ("{}", f"pairs: no keys: {FORMS}"),
        ("3", f"pairs: 3: {FORMS}"),
        ("{rounds: 0}", "rounds: 0 is below the minimum 1"),
        ("{pattern: rounds}", "rounds: missing: pattern rounds needs it"),
        ("{pattern: star}", "node: missing: pattern star needs it"),
        ("{pattern: list}", "list: missing: pattern list needs it"),
        ("{pattern: all, rounds: 3}", "rounds: belongs to pattern rounds: found pattern all"),
        ("{star: 'a b'}", "star: 'a b' is not a node name: must be letters, digits and ._-"),
        ("{list: [[a]]}", "list: a list: must be [client, server]"),
        ("{list: [[a, $(id)]]}", "list: '$(id)' is not a node name: must be letters, digits and ._-"),
        ("{list: [[a, a]]}", "list: [a, a]: a pair has two different nodes"),
        ("{list: [[a, b], [a, b]]}", "list: [a, b] stands twice: raise repetitions instead"),
        ("{rounds: 2, directions: all}", "directions: 'all': must be 'one' or 'both'"),
    ],
)
def test_refused_pairs(here: Path, pairs: str, message: str) -> None:
    assert campaign_says(f"name: c\nclusters: [a]\npairs: {pairs}\n{TESTS}") == [f"c.yaml:3: {message}"]


@pytest.mark.parametrize("name", ["two words", "it's", 'a"b', "$(id)", "a\nb", "a\n", "a/b", "..", "", "x" * 65, "ü", "-a"])
def test_refused_names(here: Path, name: str) -> None:
    found = repr(name) if len(repr(name)) <= 60 else repr(name)[:57] + "..."
    assert campaign_says(f"name: {json.dumps(name)}\nclusters: [{json.dumps(name)}]\npairs: all\n{TESTS}") == [
        f"c.yaml:1: name: {found} {NAMES}",
        f"c.yaml:2: clusters: {found} {NAMES}",
    ]
