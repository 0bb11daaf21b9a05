"""Files that something broke: each is read, or refused with its place; none ends in a traceback or in half a database."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.imports.test_formats import DESCRIBED, HERE, bring, scheduled, site
from tests.store.test_import import HEAD, Importing

pytestmark = pytest.mark.fast

__all__ = ["site"]

_STRANGE = [None, True, [], {}, "", "x", -1, 0, "9" * 400, [1], {"a": 1}, "\ud800", "²", 10**400, 1e308]
_WORDS = ["|", ",", "\n", '"', "\0", "%", "[", "]", "nan", "1e999", "-", "=", " ", "²", "\x85"]
_ARCHIVE = [
    scheduled("throughput", {"summary": {"summary": {"throughput-bits": 9.4e9, "retransmits": 3}}}),
    scheduled("rtt", {"mean": "PT0.0012S", "loss": 0.25}),
    scheduled("latency", {"histogram-latency": {"0.10": 4, "0.30": 5}, "packets-sent": 10, "packets-lost": 1}),
]
#: Format, name, content.
_WHOLE = [
    ("reframe", "a.log", (HERE / "reframe-4.10.4.log").read_text()),
    ("reframe", "a.json", json.loads((HERE / "reframe-4.10.4-report.json").read_text())),
    ("jube", "a.dat", (HERE / "jube-2.5.1-csv.dat").read_text()),
    ("jube", "a.dat", (HERE / "jube-2.5.1-pretty.dat").read_text()),
    ("superbench", "a.jsonl", {"node": "n1", "a/b:0": 1.0, "k/return_code": 1, "c": 2}),
    ("pscheduler", "a.json", _ARCHIVE),
    ("iperf3_tcp", "a.json", json.loads((DESCRIBED / "iperf3_tcp/3.12.json").read_text())),
    ("csv", "a.csv", f"{HEAD}\n2026-11-20,a,t,n1,n2,rate,5,bps,higher\n2026-11-20,a,t,n1,n3,rate,5,bps,higher\n"),
]


def broken_value(value: Any, rng: random.Random) -> Any:
    """The value with one place in it replaced or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            del value[key]
        else:
            value[key] = copy.deepcopy(rng.choice(_STRANGE)) if rng.random() < 0.25 else broken_value(value[key], rng)
        return value
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        value[place] = copy.deepcopy(rng.choice(_STRANGE)) if rng.random() < 0.2 else broken_value(value[place], rng)
        return value
    return copy.deepcopy(rng.choice(_STRANGE))


def broken_text(text: str, rng: random.Random) -> str:
    """The text with some characters removed, added or replaced."""
    cells = list(text)
    for _ in range(rng.randint(1, 4)):
        place, kind = rng.randrange(len(cells) or 1), rng.random()
        if kind < 0.3:
            del cells[place : place + rng.randint(1, 20)]
        elif kind < 0.7 or not cells:
            cells.insert(place, rng.choice(_WORDS))
        else:
            cells[place] = chr(rng.randrange(32, 500))
    return "".join(cells)


@pytest.mark.heavy
@pytest.mark.promise("A broken file of another program is read or refused with its place, and never leaves half a database.")
@pytest.mark.parametrize("seed", range(12))
def test_no_broken_file_ends_in_a_traceback(site: Importing, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(25):
        form, name, content = rng.choice(_WHOLE)
        if isinstance(content, str):
            text = broken_text(content, rng)
        else:
            changed = copy.deepcopy(content)
            for _ in range(rng.randint(1, 3)):
                changed = broken_value(changed, rng)
            text = json.dumps(changed) if rng.random() < 0.8 else broken_text(json.dumps(content), rng)
        path = site.folder / f"{number}-{name}"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        more = ("--better", "round trip=lower") if form == "jube" else ()
        before = site.database.read_bytes() if site.database.exists() else b""
        _read_or_refused(site, form, path, more, before)


def _read_or_refused(site: Importing, form: str, path: Path, more: tuple[str, ...], before: bytes) -> None:
    from hpcq.cli.main import run

    site.capsys.readouterr()
    code = run(["import", str(path), "--cluster", "alpha", "--format", form, *more, "--db", str(site.database)])
    said = site.capsys.readouterr().err
    assert code in {0, 2}, said
    if code == 2:
        assert said.startswith("error: "), said
        assert path.name in said, said
        assert (site.database.read_bytes() if site.database.exists() else b"") == before
    else:
        assert "defect" not in bring(site, form, path, *more), "importing it again is fine too"
