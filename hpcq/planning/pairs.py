"""From nodes to pairs, in rounds where each node occurs at most once.

The circle method: one node stays, the others rotate. After n - 1 rounds (n if n is odd) every two nodes have met once.

    round 1        round 2        round 3
    a - d          a - c          a - b          a stays in its place,
    b - c          d - b          c - d          b, c, d move one place per round

The seed decides the order of the nodes and which of two is the client. Both depend on names only. So two nodes keep
their roles when other nodes come and go, and their series continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import zip_longest
from math import lcm

from hpcq.definition.model import Directions, PairChoice, Pattern
from hpcq.nodelist import natural

#: (client, server)
Pair = tuple[str, str]


def make_pairs(
    choice: PairChoice,
    nodes: Sequence[str],
    seed: int,
    groups: Mapping[str, str] | None = None,
    fabrics: Mapping[str, str] | None = None,
) -> list[Pair]:
    """All pairs of a plan in the order of their rounds.

    nodes: the candidates, each once. Pattern `list` leaves out pairs whose nodes are not candidates. Pattern `star`
    gives no pair if its middle is not a candidate. groups: by node, for `within` and `across`. fabrics: by node; no pair
    has nodes of two of them, and their rounds run at the same time.
    """
    pairs: list[Pair] = []
    apart = [several for several in by_fabric(nodes, fabrics or {}) if len(several) > 1]
    for together in zip_longest(*(_rounds(choice, several, seed, groups or {}) for several in apart), fillvalue=()):
        one_round = [pair for part in together for pair in part]
        pairs += one_round
        if choice.directions is Directions.BOTH:
            pairs += [(server, client) for client, server in one_round]
    return pairs


def by_fabric(nodes: Iterable[str], fabrics: Mapping[str, str]) -> list[list[str]]:
    """The nodes of each fabric, in their order. A node of no fabric, where others have one, stands alone."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(fabrics.get(node, f"node {node}") if fabrics else "", []).append(node)
    return list(found.values())


def circle_round(order: Sequence[str], round_no: int) -> list[tuple[str, str]]:
    """The disjoint pairs of one round, from 1. Rounds repeat after every two nodes have met. Roles come later."""
    seats: Sequence[str | None] = order if len(order) % 2 == 0 else [*order, None]
    turning = len(seats) - 1
    if turning < 1:
        return []
    turn = (round_no - 1) % turning
    met = [(seats[turning], seats[turn])]
    met += [(seats[(turn + step) % turning], seats[(turn - step) % turning]) for step in range(1, len(seats) // 2)]
    return [(one, other) for one, other in met if one is not None and other is not None]


def lap_length(node_count: int) -> int:
    """The number of rounds until every two nodes have met."""
    return node_count - 1 if node_count % 2 == 0 else node_count


def seeded_order(names: Iterable[str], seed: int) -> list[str]:
    """The names in an order that the seed decides. Leaving out one name does not change the order of the others."""
    return sorted(names, key=lambda name: (blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), name))


def _rounds(choice: PairChoice, nodes: Sequence[str], seed: int, groups: Mapping[str, str]) -> Iterator[list[Pair]]:
    known = set(nodes)
    if choice.pattern is Pattern.RANDOM:
        yield from _random(nodes, choice.per_node_count or 1, seed)
    elif choice.pattern is Pattern.WITHIN:
        yield from _within(_members(nodes, groups, seed), choice.round_count, seed)
    elif choice.pattern is Pattern.ACROSS:
        yield from _across(_members(nodes, groups, seed), choice.per_group_pair_count, seed)
    elif choice.pattern is Pattern.BISECTION:
        yield from _bisection(sorted(nodes, key=natural), choice.round_count or 0, seed)
    elif choice.pattern in {Pattern.LIST, Pattern.FILE}:
        yield from ([pair] for pair in choice.pairs if known.issuperset(pair))
    elif choice.pattern is Pattern.STAR:
        hub = choice.node or ""
        others = [node for node in seeded_order(nodes, seed) if node != hub]
        yield from ([_roles(hub, other, seed)] for other in others if hub in known)
    elif choice.pattern is Pattern.RING:
        yield from _ring(sorted(nodes, key=natural), seed)
    else:
        order = seeded_order(nodes, seed)
        lap = lap_length(len(order))
        count = lap if choice.pattern is Pattern.ALL else choice.round_count or 0
        for round_no in range(1, count + 1):
            swapped = (round_no - 1) // max(lap, 1) % 2 == 1  # the second lap swaps client and server
            met = [_roles(one, other, seed) for one, other in circle_round(order, round_no)]
            yield [(server, client) for client, server in met] if swapped else met


def _random(nodes: Sequence[str], per_node_count: int, seed: int) -> Iterator[list[Pair]]:
    """Rounds of randomly drawn partners until every node has its number of pairs. No two nodes meet twice."""
    wanted = min(per_node_count, len(nodes) - 1)
    counts = dict.fromkeys(nodes, 0)
    met: set[frozenset[str]] = set()
    round_no = 0
    while short := [node for node in nodes if counts[node] < wanted]:
        round_no += 1
        drawn = seeded_order(nodes, seed_of_round(seed, round_no))
        free = dict.fromkeys([*(one for one in drawn if counts[one] < wanted), *drawn])  # first nodes that lack pairs
        pairs: list[Pair] = []
        for one in [one for one in drawn if counts[one] < wanted]:
            if one not in free:
                continue
            other = next((other for other in free if other != one and frozenset((one, other)) not in met), None)
            if other is None:
                continue
            del free[one], free[other]
            met.add(frozenset((one, other)))
            counts[one] += 1
            counts[other] += 1
            pairs.append(_roles(one, other, seed))
        if not pairs:
            raise AssertionError(f"no partner left for {short[0]}")  # impossible: it has met fewer than all other nodes
        yield pairs


def _members(nodes: Sequence[str], groups: Mapping[str, str], seed: int) -> dict[str, list[str]]:
    """The nodes of each group in the seed's order; groups in natural order."""
    found: dict[str, list[str]] = {}
    for node in seeded_order(nodes, seed):
        if node in groups:
            found.setdefault(groups[node], []).append(node)
    return {name: found[name] for name in sorted(found, key=natural)}


def _within(members: Mapping[str, Sequence[str]], round_count: int | None, seed: int) -> Iterator[list[Pair]]:
    """Rounds inside all groups at once: all pairs of each group, or `round_count` rounds of them."""
    laps = {name: lap_length(len(nodes)) for name, nodes in members.items()}
    for round_no in range(1, (round_count or max(laps.values(), default=0)) + 1):
        yield [
            _roles(one, other, seed)
            for name, nodes in members.items()
            if round_no <= laps[name]
            for one, other in circle_round(nodes, round_no)
        ]


def _across(members: Mapping[str, Sequence[str]], each: int, seed: int) -> Iterator[list[Pair]]:
    """`each` pairs of every two groups. A round of groups is disjoint, and their nodes change from round to round."""
    names = list(members)
    for round_no in range(1, lap_length(len(names)) + 1 if len(names) > 1 else 1):
        meeting = circle_round(names, round_no)
        for step in range(each):
            pairs = []
            for one_name, other_name in meeting:
                one, other = members[one_name], members[other_name]
                if step < len(one) * len(other):
                    place = (round_no - 1) * each + step
                    shift = step // lcm(len(one), len(other))
                    pairs.append(_roles(one[place % len(one)], other[(place + shift) % len(other)], seed))
            yield pairs


def seed_of_round(seed: int, round_no: int) -> int:
    """A different seed per round."""
    return int.from_bytes(blake2b(f"{seed} round {round_no}".encode(), digest_size=7).digest(), "big")


def _bisection(order: Sequence[str], round_count: int, seed: int) -> Iterator[list[Pair]]:
    """Each node of the first half with one of the second, a different one each round. Of an odd number one rests."""
    half = len(order) // 2
    first, second = order[:half], order[half:]
    for round_no in range(round_count):
        met = [_roles(one, second[(place + round_no) % len(second)], seed) for place, one in enumerate(first)]
        yield [(server, client) for client, server in met] if round_no // max(len(second), 1) % 2 else met


def _ring(order: Sequence[str], seed: int) -> Iterator[list[Pair]]:
    """Neighbours in natural order: first every second link, then the others, then the one that closes an odd ring."""
    count = len(order)
    if count == 2:
        yield [_roles(order[0], order[1], seed)]
        return
    links = [(order[place], order[(place + 1) % count]) for place in range(count)]
    even = count - count % 2
    for part in (links[0:even:2], links[1:even:2], links[even:]):
        yield [_roles(one, other, seed) for one, other in part]


def _roles(one: str, other: str, seed: int) -> Pair:
    """Client and server of two nodes: a coin flip that depends only on the seed and the two names."""
    low, high = (one, other) if one < other else (other, one)
    heads = blake2b(f"{seed} {low} {high}".encode(), digest_size=1).digest()[0] & 1
    return (low, high) if heads else (high, low)
