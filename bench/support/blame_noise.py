"""Blame on small tables and on noise that differs from its model; and the rounds that all tables of the bench have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench import harness
from hpcq.localisation import PairTable, blame

Pair = tuple[int, int]
Row = tuple[int, str, str, float]
Generator = np.random.Generator

# Noise of results without a fault, with 3 % of passing dips in each.
NOISES = ("gauss 1 %", "gauss 2 %", "t3 2 %", "two modes 4 % apart", "long tail 2 %", "long tail 5 %")


def name(node: int) -> str:
    return f"n{node:04d}"


def circle_rounds(nodes: int, random: Generator, count: int) -> list[list[Pair]]:
    """`count` of the rounds of a round-robin tournament over shuffled nodes, in random order; nodes is even."""
    ring = random.permutation(nodes)
    fixed, others = ring[0], ring[1:]
    chosen = random.permutation(nodes - 1)[:count]
    rounds = []
    for turn in chosen:
        line = np.concatenate([[fixed], np.roll(others, int(turn))])
        rounds.append([(int(line[i]), int(line[nodes - 1 - i])) for i in range(nodes // 2)])
    return rounds


def unsteady(seed: int, trials: int) -> Iterator[harness.Claim]:
    """Healthy networks whose noise differs from the model: how often is somebody wrongly named?"""
    for nodes, rounds in ((64, 5), (16, 4), (8, 7), (8, 3)):
        for number, label in enumerate(NOISES):
            random = np.random.default_rng([seed, 8, nodes, rounds, number])
            false = []
            for _ in range(trials * (3 if nodes == 64 else 10)):
                found = blame(PairTable.from_rows(_unsteady_rows(random, label, nodes, rounds)))
                false.append(bool(found.nodes or found.links))
            text = f"healthy network of {nodes}, {rounds} rounds, noise: {label}"
            yield harness.claim(text, "runs that accuse somebody", "share", float(np.mean(false)), "<= 0.02")


def small(seed: int, trials: int) -> Iterator[harness.Claim]:
    """One of eight nodes slower by 10 %, after three rounds: named, or asked for, and nobody else named."""
    for number, label in enumerate(NOISES):
        random = np.random.default_rng([seed, 9, number])
        named, answered, wrong = [], [], []
        for _ in range(trials * 5):
            bad = int(random.integers(8))
            found = blame(PairTable.from_rows(_unsteady_rows(random, label, 8, 3, bad)))
            names = {one.names[0] for one in found.nodes}
            asked = found.undecided and any(name(bad) in pair for pair in found.next_pairs)
            wrong.append(bool(names - {name(bad)} or found.links))
            named.append(names == {name(bad)} and not found.links)
            answered.append(named[-1] or (asked and not wrong[-1]))
        text = f"1 of 8 slower by 10 %, 3 rounds, noise: {label}"
        # A tail of 5 % is as deep as this fault: then blame says that it did not look for so little.
        goal = None if label == "long tail 5 %" else ">= 0.95"
        yield harness.claim(text, "named, and nobody else", "share", float(np.mean(named)))
        yield harness.claim(text, "named, or open and asked for", "share", float(np.mean(answered)), goal)
        yield harness.claim(text, "runs that accuse somebody else", "share", float(np.mean(wrong)), "<= 0.02")


def _unsteady_rows(random: Generator, label: str, nodes: int, rounds: int, bad: int = -1) -> list[Row]:
    """Rows of `rounds` rounds; node `bad` is slower by 10 %."""
    return [
        (number, name(a), name(b), _unsteady_value(random, label) * (0.9 if bad in (a, b) else 1.0))
        for number, pairs in enumerate(circle_rounds(nodes, random, rounds))
        for a, b in pairs
    ]


def _unsteady_value(random: Generator, label: str) -> float:
    if label.startswith("gauss"):
        deviation = (0.01 if label == "gauss 1 %" else 0.02) * random.standard_normal()
    elif label == "t3 2 %":
        deviation = 0.02 * random.standard_t(3) / np.sqrt(3)
    elif label == "two modes 4 % apart":
        deviation = (0.0 if random.random() < 0.7 else -0.041) + 0.007 * random.standard_normal()
    else:
        deviation = -(0.02 if label == "long tail 2 %" else 0.05) * random.exponential()
    return 100.0 * float(1 + deviation) * (float(random.uniform(0.6, 0.9)) if random.random() < 0.03 else 1.0)
