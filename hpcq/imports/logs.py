"""Saved outputs of programs that hpcq has a description of: iperf3, OSU, IMB, nccl-tests, and what a site describes itself.

The description's own reader reads them, so numbers mean what they mean in a run of hpcq. Of several descriptions, the one that
can read an output is its; of an output that none can read, the one whose title it has, or of which only numbers are out of
bounds. A file may hold several results, of one
program or more: each is read by itself. Hosts and time are in the output of iperf3 only; else --names says which parts of the
path they are, and the time may be that of the file. An output that cannot be read is an invalid result with its reason.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcq import units
from hpcq.described import UnreadableError, failure_said, has_title, options_said, parts, read_output, sizes_in, titles
from hpcq.errors import UserError
from hpcq.imports.others import Maker, files_in, made
from hpcq.imports.values import Problems, Source, Value, metric_of, read_bytes
from hpcq.kernels import Described, Kernel
from hpcq.nodelist import expand

_OF_THE_PROOF = frozenset({"sent_bytes", "received_bytes"})


def read(paths: Sequence[Path], kernels: Sequence[Kernel], maker: Maker, problems: Problems) -> Iterator[Source]:
    """The values in these outputs of one of the kernels each, and in all files below folders."""
    for path in files_in(paths, ("",)):
        content, digest = read_bytes(path)
        found = _results(path, content.decode("utf-8", "replace"), kernels, maker)
        if found:
            values = (_values(path, text, kernel, maker, problems) for text, kernel in found)
            yield Source(str(path), digest, itertools.chain.from_iterable(values))


def _results(path: Path, text: str, kernels: Sequence[Kernel], maker: Maker) -> list[tuple[str, Kernel]]:
    """The results in one file, each with the kernel that wrote it."""
    texts = parts([kernel.described for kernel in kernels if kernel.described is not None], text)
    if len(texts) == 1 or any(_runs_others(kernel, text) for kernel in kernels):
        kernel = kernels[0] if len(kernels) == 1 else _kernel_of(path, text, kernels, maker)
        return [] if kernel is None else [(text, kernel)]
    found = []
    for number, part in enumerate(texts, start=1):
        kernel = _kernel_of(path, part, kernels, maker, f" (result {number} of {len(texts)})")
        found += [] if kernel is None else [(part, kernel)]
    return found


def _runs_others(kernel: Kernel, text: str) -> bool:
    """Whether this is the one output of a program that runs others within, as HPC Challenge does, and prints their titles."""
    described = kernel.described
    return described is not None and not described.part and has_title(described, text) and _can_read(kernel, text)


def _kernel_of(path: Path, text: str, kernels: Sequence[Kernel], maker: Maker, which: str = "") -> Kernel | None:
    """The kernel that wrote this output; None with a note if no description knows it. Raises UserError for two of them."""
    able = [kernel for kernel in kernels if _can_read(kernel, text)]
    titled = [kernel for kernel in kernels if kernel.described is not None and has_title(kernel.described, text)]
    found = [kernel for kernel in able if kernel in titled] or able or titled
    found = found or [kernel for kernel in kernels if _can_read(kernel, text, within_bounds=False)]
    if len(found) > 1:
        names = " and ".join(kernel.name for kernel in found)
        message = f"{path}{which}: may be an output of {names}: must be of one"
        raise UserError(message, "--format NAME says which, for one folder each")
    if not found:
        reader = "no description" if len(kernels) > 1 else f"not {kernels[0].name}"
        suites = [kernel.described for kernel in kernels if kernel.described is not None and kernel.described.part]
        title = next((title for one in suites for title in titles(one, text)), "")
        maker.notes[f"{path}{which}: left out: {reader} reads it{title and f'; it is of {title}'}"] = None
    return found[0] if found else None


def _can_read(kernel: Kernel, text: str, *, within_bounds: bool = True) -> bool:
    """within_bounds: not if a number is one that its description refuses, as a count of wrong values is."""
    described = _as_imported(kernel, text)
    if not within_bounds:
        boundless = [replace(one, minimum=None, maximum=None, above_zero=False) for one in described.readings]
        described = replace(described, readings=tuple(boundless))
    try:
        return bool(read_output(described, text, sizes_in(described, text)).metrics)
    except UnreadableError:
        return False


def _as_imported(kernel: Kernel, text: str) -> Described:
    """Its description, where bytes sent and received need not be told by an output that says what it is of.

    A run of hpcq proves with them that the test crossed its interface, and no import can; by default, few programs print them.
    """
    described = kernel.described
    assert described is not None  # noqa: S101 - the caller takes described kernels only
    if not has_title(described, text):
        return described
    readings = [replace(one, required=False) if one.metric in _OF_THE_PROOF else one for one in described.readings]
    return replace(described, readings=tuple(readings))


def _values(path: Path, text: str, kernel: Kernel, maker: Maker, problems: Problems) -> Iterator[Value]:
    described = _as_imported(kernel, text)
    told = {**_of_iperf3(text), **maker.roles(path)}
    if not told.get("client"):
        hint = "--names '{run}/{client}_{server}.txt' says which parts of the path they are"
        raise UserError(f"{path}: its hosts are not known: the output of {kernel.name} does not name them", hint)
    try:
        client, server = maker.nodes([told["client"], *(expand(told["server"]) if told.get("server") else [])])
        time_utc = maker.file_utc(path, told)
        where = {
            "time_utc": time_utc,
            "run": maker.run(told, time_utc),
            "job": told.get("job", ""),
            "client": client,
            "server": server,
            "repetition_no": int(told["repetition"]) if told.get("repetition", "").isdecimal() else None,
        }
    except ValueError as error:
        problems.add(str(path), None, str(error))
        return
    said = failure_said(described, text)
    failed = told.pop("error", None) or (said and f"it said: {said}")
    by_size: Mapping[int | None, Mapping[str, float]] = {}
    reasons: dict[int | None, str] = {} if failed is None else {None: failed}
    parameters: dict[str, Any] = {}
    try:
        parameters = options_said(kernel, text)
        if failed is None:
            sizes = sizes_in(described, text)
            parameters |= {"message_bytes": sizes[0]} if described.sizes is None and sizes else {}
            found = read_output(described, text, sizes)
            by_size, reasons = found.metrics, dict(found.complaints)
            if found.misfit:
                maker.notes[f"{path}: left out: {found.misfit}"] = None
    except UnreadableError as error:
        reasons = reasons or {None: str(error)}
    for size, metrics in by_size.items():
        test = maker.test(kernel.name, parameters if size is None else {**parameters, "message_bytes": size}, kernel)
        for name, value in metrics.items():
            known = kernel.metric(name)
            better = known.better.value if known is not None else "none"
            yield made(1, {**where, "test": test}, metric_of(None, name, units.unit_of(name) or "number", better), value, None)
    for size, reason in reasons.items():
        test = maker.test(kernel.name, parameters if size is None else {**parameters, "message_bytes": size}, kernel)
        maker.notes[f"{path}: {reason}"] = None
        outcome = "invalid" if failed is None else "failed"
        yield made(1, {**where, "test": test}, None, None, f"{kernel.name}: {reason}"[:400])._replace(outcome=outcome)


def _of_iperf3(text: str) -> dict[str, str]:
    """Hosts, time and what went wrong in the JSON of iperf3; nothing of other outputs."""
    if not text.lstrip().startswith("{"):
        return {}
    try:
        whole: Any = json.loads(text)
        start = whole.get("start", {})
        system = re.match(r"\S+ (\S+) ", str(start.get("system_info", "")))
        told = {"client": system[1] if system else "", "server": str(start.get("connecting_to", {}).get("host", ""))}
        told["error"] = f"it said: {whole['error']}" if whole.get("error") else ""
        seconds = start.get("timestamp", {}).get("timesecs")
    except (ValueError, AttributeError):
        return {}
    if isinstance(seconds, (int, float)):
        told["time"] = units.utc_text(dt.datetime.fromtimestamp(seconds, dt.UTC))
    return {role: word for role, word in told.items() if word}
