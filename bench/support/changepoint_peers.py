"""The detectors that bench/changepoint.py compares with: unmodified public packages, and rules that tools use.

ruptures is a development dependency. asv and Apache Otava are used if they can be imported; their pins conflict with
this project's, so install them into a separate folder:

    pip install --target PEERS asv && pip install --no-deps --target PEERS apache-otava
    PYTHONPATH=PEERS python bench/changepoint.py
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Detector = Callable[[Floats], list[int]]


def detectors() -> dict[str, Detector]:
    """Every peer that can run here, by name."""
    found: dict[str, Detector] = {}
    ruptures = _module("ruptures")
    if ruptures is not None:
        found["ruptures KernelCPD rbf, its own gamma, 1.5 ln n"] = lambda values: _kernel_cpd(ruptures, values)
        found["ruptures Pelt l2, 3 sigma^2 ln n"] = lambda values: _pelt(ruptures, values)
    steps = _module("asv.step_detect")
    if steps is not None:
        found["asv detect_steps"] = lambda values: [int(step[0]) for step in steps.detect_steps(list(values))[1:]]
    otava = _module("otava.analysis")
    if otava is not None:
        found["Apache Otava, defaults"] = lambda values: _otava(otava, values, p_value=1e-3, magnitude=0.0)
        found["Apache Otava, p 1e-5, 3 %"] = lambda values: _otava(otava, values, p_value=1e-5, magnitude=0.03)
    found["ratio above 1.10 to the value before"] = lambda values: [
        int(i) + 1 for i in np.flatnonzero(np.abs(values[1:] / values[:-1] - 1) > 0.10)
    ]
    return found


def otava_settings() -> dict[str, Detector]:
    """Apache Otava over a grid of its two settings, if it can be imported."""
    otava = _module("otava.analysis")
    if otava is None:
        return {}
    found: dict[str, Detector] = {}
    for p_value in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        for magnitude in (0.0, 0.05, 0.1, 0.2, 0.3):
            label = f"p {p_value:g}, {100 * magnitude:g} %"
            found[label] = partial(_otava, otava, p_value=p_value, magnitude=magnitude)
    return found


def _kernel_cpd(ruptures: Any, values: Floats) -> list[int]:
    search = ruptures.KernelCPD(kernel="rbf", min_size=3).fit(values)
    return [int(end) for end in search.predict(pen=1.5 * np.log(len(values)))[:-1]]


def _pelt(ruptures: Any, values: Floats) -> list[int]:
    sigma = 1.4826 * float(np.median(np.abs(np.diff(values) - np.median(np.diff(values))))) / np.sqrt(2)
    search = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(values)
    return [int(end) for end in search.predict(pen=3 * sigma**2 * np.log(len(values)))[:-1]]


def _otava(otava: Any, values: Floats, *, p_value: float, magnitude: float) -> list[int]:
    points, _ = otava.compute_change_points(list(values), max_pvalue=p_value, min_magnitude=magnitude)
    return [int(point.index) for point in points]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
