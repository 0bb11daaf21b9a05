"""The two locks: what the program needs, and that with the tools of development. One distribution has one version in both."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests import REPOSITORY

pytestmark = pytest.mark.fast

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def locked(name: str) -> dict[str, str]:
    """Version of each distribution of a lock."""
    found = re.findall(r"^([a-z0-9.-]+)==(\S+)", (REPOSITORY / name).read_text("utf-8"), re.M)
    assert found, name
    return dict(found)


def wanted(requirements: list[str]) -> set[str]:
    """Names as locks write them: `ruamel.yaml` is ruamel-yaml there."""
    return {re.split(r"[<>=!\[ ]", line)[0].replace(".", "-").replace("_", "-").lower() for line in requirements}


def test_the_development_lock_contains_the_other() -> None:
    assert locked("requirements.lock").items() <= locked("requirements-dev.lock").items(), "make lock"


def test_locks_hold_what_the_project_names() -> None:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    assert wanted(PROJECT["dependencies"]) <= locked("requirements.lock").keys()
    assert wanted(extras) <= locked("requirements-dev.lock").keys()


def test_users_install_no_tools_of_development() -> None:
    tools = wanted(PROJECT["optional-dependencies"]["dev"]) - {"jsonschema"}  # Snakemake needs that one
    assert not tools & locked("requirements.lock").keys()


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_has_hashes_and_no_address(name: str) -> None:
    text = (REPOSITORY / name).read_text("utf-8")
    assert "://" not in text
    assert text.count(" \\\n    --hash=sha256:") >= len(locked(name))
