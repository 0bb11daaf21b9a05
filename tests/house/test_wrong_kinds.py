"""A value of a wrong kind, at each place of each file that comes with hpcq: refused as any other, never a defect of hpcq."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hpcq.cli.main import run
from hpcq.definition.files.reference import campaign_schema, cluster_schema

pytestmark = [pytest.mark.fast, pytest.mark.heavy]

ROOT = Path(__file__).resolve().parents[2]
#: Of a kind that no place takes. Python cannot look them up in a set, either.
WRONG: tuple[Any, ...] = ([[1]], {"a": [1]})
#: Some places take these.
PERHAPS_WRONG: tuple[Any, ...] = (None, 5)
#: What checks the files of a folder, and further keys that they may have.
FILES = {
    "campaigns": (("check",), tuple(campaign_schema()["properties"])),
    "campaigns/clusters": (("check",), tuple(cluster_schema()["properties"])),
    "kernels/described": (("kernels", "check"), ()),
}

Place = tuple[str | int, ...]


def _places(value: object, before: Place = ()) -> Iterator[Place]:
    """Every place in a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*before, key)
        yield from _places(inner, (*before, key))


def _scenes(folder: str) -> Iterator[tuple[str, dict[str, Any], Place]]:
    """Each place that the files of a folder have or may have, in one of them. Members of lists are one place."""
    seen = set()
    document: dict[str, Any] = {}
    for path in sorted((ROOT / folder).glob("*.yaml")):
        document = YAML(typ="safe").load(path)
        for place in _places(document):
            shape = tuple("*" if isinstance(part, int) else part for part in place)
            if shape not in seen:
                seen.add(shape)
                yield path.name, document, place
    yield from ((path.name, document, (key,)) for key in FILES[folder][1] if (key,) not in seen)


def _with(document: dict[str, Any], place: Place, value: object) -> dict[str, Any]:
    made = copy.deepcopy(document)
    at: Any = made
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    return made


@pytest.mark.promise("A value of a wrong kind is refused at each place of each file that comes with hpcq.")
@pytest.mark.parametrize("folder", FILES)
def test_a_value_of_a_wrong_kind_is_refused(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenes = list(_scenes(folder))
    assert len(scenes) > 20
    faults = []
    for name, document, place in scenes:
        for value in (*WRONG, *PERHAPS_WRONG):
            path = tmp_path / name
            path.write_text(json.dumps(_with(document, place, value)), "utf-8")  # YAML too
            code = run([*FILES[folder][0], str(path)])
            said = capsys.readouterr().err
            refused = code == 2 and "error: " in said
            if not refused and not (code == 0 and value in PERHAPS_WRONG):
                faults.append(f"{name}: {place}: {value!r}: exit code {code}: {said}")
    assert not faults
