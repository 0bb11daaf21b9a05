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
from statistics import median

import numpy as np

from hpcq.kernels import Better
from hpcq.localisation.levels import top_level

#: client, server, test
Key = tuple[str, str, str]
#: better, values in time order
Values = tuple[str, list[float]]

#: Fewer values of the pair itself are too few to stand for it; its class does then.
OWN_VALUES_MIN = 5
#: A pair whose median is below this share of the top level does not stand for its class.
NEAR_TOP_RATIO = 0.95


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
        made.pools = {name: _pool(several, trusted=trusted) for name, several in by_class.items()}
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


def _pool(several: Sequence[Values], *, trusted: bool) -> list[float]:
    """All values of a class; without a baseline those of pairs near the top level only."""
    filled = [values for _, values in several if values]
    everything = [value for values in filled for value in values]
    if trusted or not everything:
        return everything
    sign = 1.0 if several[0][0] == Better.HIGHER.value else -1.0
    logs = sign * np.log(np.maximum(np.array(everything), 1e-300))
    level, _ = top_level(logs)
    near = level + float(np.log(NEAR_TOP_RATIO))
    kept = [values for values in filled if sign * float(np.log(max(median(values), 1e-300))) >= near]
    return [value for values in kept for value in values] or everything
