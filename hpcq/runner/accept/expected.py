"""What is expected of each test of each pair, before anybody is called slow. Pure.

    with a baseline      the pair's own values there; too few of them: those of its class in the baseline
    without one          its class among the cluster's results: earlier ones of this cluster and those of now

A class is a test, inside leaves or across them, since crossing may cost something by design. Without a baseline nobody has
said that the earlier results were good ones, and what was always broken must not be its own measure: only pairs near the top
count, with all their values, so that a network that scatters is held against its own scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

import numpy as np

from hpcq.analysis.pair_values import ARRIVED
from hpcq.kernels import Better
from hpcq.localisation.levels import top_level

#: client, server, test
Key = tuple[str, str, str]
#: better, values in time order
Values = tuple[str, list[float]]

_TINY = 1e-300
#: Fewer values of the pair itself are too few to stand for it; its class does then.
OWN_VALUES_MIN = 5
#: A pair must be slower by this share before anybody is asked to act, or lose so much more of its packets.
EFFECT_RATIO_MIN = 0.05
LOSS_RATIO_MIN = 0.005


def effect_of(test: str) -> float:
    """The smallest difference that matters; a pair whose median is below the top level by more does not stand for its class."""
    return LOSS_RATIO_MIN if test.endswith(ARRIVED) else EFFECT_RATIO_MIN


@dataclass(slots=True)
class Expected:
    """What is known of pairs and of their classes. own: values of a baseline; trusted: whether there is a baseline."""

    leaf_of: Mapping[str, str]
    own: Mapping[Key, Values]
    trusted: bool
    pools: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, reference: Mapping[Key, Values], now: Iterable[Mapping[Key, Values]], leaf_of: Mapping[str, str], *, trusted: bool
    ) -> Expected:
        """reference: results to be held against. now: those of each run in question, which are their own peers."""
        made = cls(leaf_of, reference if trusted else {}, trusted)
        by_class: dict[tuple[str, str], list[Values]] = {}
        for found in [reference] if trusted and reference else [reference, *now]:
            for key, values in found.items():
                by_class.setdefault(made.class_of(key), []).append(values)
        made.pools = {name: _pool(several, effect_of(name[0]), trusted=trusted) for name, several in by_class.items()}
        return made

    def known(self, key: Key) -> Sequence[float]:
        """The values that this test of this pair is held against; empty where nothing is known."""
        own = self.own.get(key, ("", []))[1]
        if len(own) >= OWN_VALUES_MIN:
            return own
        test, crossing = self.class_of(key)
        others = [self.pools[name] for name in self.pools if name[0] == test]
        return self.pools.get((test, crossing)) or (others[0] if others else [])

    def class_of(self, key: Key) -> tuple[str, str]:
        """The test, and whether it stays inside a leaf."""
        client, server, test = key
        one, other = self.leaf_of.get(client), self.leaf_of.get(server)
        return test, "" if one is None or other is None else "inside" if one == other else "across"


def _pool(several: Sequence[Values], effect: float, *, trusted: bool) -> list[float]:
    """All values of a class, as they lay in time; without a baseline those of pairs near the top level only."""
    filled = [values for _, values in several if values]
    everything = _in_turn(filled)
    if trusted or not everything:
        return everything
    sign = 1.0 if several[0][0] == Better.HIGHER.value else -1.0
    logs = sign * np.log(np.maximum(np.array(everything), _TINY))
    level, _ = top_level(logs)
    near = level + float(np.log(1 - effect))
    kept = [values for values in filled if sign * float(np.log(max(median(values), _TINY))) >= near]
    return _in_turn(kept) or everything


def _in_turn(several: Sequence[Sequence[float]]) -> list[float]:
    """The first value of each pair, then the second: pair after pair would look like a level that wanders."""
    return [value for turn in zip_longest(*several) for value in turn if value is not None]
