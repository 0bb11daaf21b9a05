"""One version everywhere, and a citation file that other programs can read."""

from __future__ import annotations

import json
import re

import pytest
from ruamel.yaml import YAML

from hpcq import __version__
from tests import REPOSITORY

pytestmark = pytest.mark.fast


def test_one_version_in_all_places() -> None:
    header = (REPOSITORY / "kernels/c/describe/program.h").read_text("utf-8")
    entry = re.search(r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert f'#define HPCQ_VERSION "{__version__}"' in header
    assert entry is not None
    assert entry[1] in {__version__, "Unreleased"}
    for path in (REPOSITORY / "kernels/describe").glob("*.json"):
        assert json.loads(path.read_text("utf-8"))["version"] == __version__, "make describe"


def test_the_citation_has_what_its_format_demands() -> None:
    cited = YAML(typ="safe").load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["version"] == __version__
    assert cited["license"] == "Apache-2.0"
