"""Patterns of pairs: disjoint rounds, directions, order and scale."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import Counter

import pytest

from hpcq.definition.model import Directions, PairChoice, Pattern
from hpcq.nodelist import natural
from hpcq.planning.pairs import circle_round, make_pairs, seeded_order
from tests.definition.test_plan import ALL, names

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("count", range(2, 14))
def test_rounds_are_disjoint_and_a_lap_meets_everyone_once(count: int) -> None:
    order = names(count)
    lap = count - 1 if count % 2 == 0 else count
    met = [frozenset(pair) for round_no in range(1, lap + 1) for pair in circle_round(order, round_no)]
    assert Counter(met) == Counter(map(frozenset, itertools.combinations(order, 2)))
    for round_no in range(1, lap + 1):
        assert max(Counter(itertools.chain(*circle_round(order, round_no))).values()) == 1
    assert circle_round(order, lap + 1) == circle_round(order, 1)


def test_rounds_cover_each_node_as_often() -> None:
    pairs = make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10), 1)
    assert set(Counter(itertools.chain(*pairs)).values()) == {3}
    assert len(set(map(frozenset, pairs))) == 15
    assert pairs == make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10)[::-1], 1)
    assert pairs != make_pairs(PairChoice(Pattern.ROUNDS, 3), names(10), 2)


def test_rounds_beyond_a_lap_meet_the_other_way_round_and_then_repeat() -> None:
    pairs = make_pairs(PairChoice(Pattern.ROUNDS, 9), names(4), 1)
    first, second, third = pairs[:6], pairs[6:12], pairs[12:]
    assert second == [(server, client) for client, server in first]
    assert third == first


def test_all_pairs_once_in_disjoint_rounds() -> None:
    pairs = make_pairs(ALL, names(7), 3)
    assert Counter(map(frozenset, pairs)) == Counter(map(frozenset, itertools.combinations(names(7), 2)))
    for start in range(0, len(pairs), 3):
        assert len(set(itertools.chain(*pairs[start : start + 3]))) == 6


def test_roles_depend_on_the_two_names_only() -> None:
    few, many = make_pairs(ALL, names(5), 9), make_pairs(ALL, names(40), 9)
    assert set(few) <= set(many)
    clients = Counter(client for client, _ in many)
    assert all(8 < clients[name] < 31 for name in names(40))


def test_both_directions() -> None:
    choice = PairChoice(Pattern.ALL, directions=Directions.BOTH)
    assert set(make_pairs(choice, names(4), 1)) == set(itertools.permutations(names(4), 2))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_ring_joins_neighbours(count: int) -> None:
    pairs = make_pairs(PairChoice(Pattern.RING), names(count)[::-1], 1)
    order = names(count)
    expected = {frozenset((order[place], order[(place + 1) % count])) for place in range(count)}
    assert Counter(map(frozenset, pairs)) == Counter(expected)
    assert len(set(itertools.chain(*pairs[: count // 2]))) == count // 2 * 2


def test_star_and_list() -> None:
    star = make_pairs(PairChoice(Pattern.STAR, node="n2"), names(5), 1)
    assert sorted(map(sorted, star)) == [["n1", "n2"], ["n2", "n3"], ["n2", "n4"], ["n2", "n5"]]
    assert make_pairs(PairChoice(Pattern.STAR, node="n9"), names(5), 1) == []
    listed = PairChoice(Pattern.LIST, pairs=(("n3", "n1"), ("n9", "n1"), ("n1", "n2")))
    assert make_pairs(listed, names(3), 1) == [("n3", "n1"), ("n1", "n2")]


def test_seeded_order_keeps_the_others_in_place() -> None:
    order = seeded_order(names(30), 5)
    assert [name for name in order if name != "n7"] == seeded_order((name for name in names(30) if name != "n7"), 5)
    assert order != seeded_order(names(30), 6)
    assert sorted(["n10", "n2", "a1", "n2b"], key=natural) == ["a1", "n2", "n2b", "n10"]


@pytest.mark.heavy
def test_scale() -> None:
    started = time.process_time()
    pairs = make_pairs(ALL, names(1000), 1)
    assert len(pairs) == 499_500
    assert len(make_pairs(PairChoice(Pattern.ROUNDS, 10), names(5000), 1)) == 25_000
    assert time.process_time() - started < 30


@pytest.mark.heavy
def test_half_a_million_pairs_take_little_memory() -> None:
    """In a process of its own: the most that a process ever had never falls again."""
    code = (
        "import pathlib, re\nfrom hpcq.definition.model import PairChoice, Pattern\n"
        "from hpcq.planning.pairs import make_pairs\n"
        "def most():\n    return int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "before = most()\n"
        "made = make_pairs(PairChoice(Pattern.ALL), [f'n{i}' for i in range(1000)], 1)\nprint(len(made), most() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, more_kib = map(int, done.stdout.split())
    assert count == 499_500
    assert 1_000 < more_kib < 150_000


# -- plans -----------------------------------------------------------------------------------------------------------
