"""Job scripts: every value is one word whatever it holds, and a name that a template misspells is an error."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.errors import HpcqError, UserError
from hpcq.render import directive_value, launch_word, render, shell_word
from hpcq.transport import Here

pytestmark = pytest.mark.fast

HOSTILE = ["plain", "two words", "quo'te", 'dou"ble', "$(touch pwned)", "`touch pwned`", "a;b", "*", "back\\slash", "ümlaut"]


@pytest.mark.parametrize("text", [*HOSTILE, "new\nline"])
def test_shell_words_are_one_word(text: str) -> None:
    assert Here().sh(f"printf %s {shell_word(text)}").text == text


def test_numbers_and_booleans_are_written_as_json() -> None:
    assert [shell_word(value) for value in (5, 0.25, True)] == ["5", "0.25", "true"]


@pytest.mark.parametrize("text", HOSTILE)
def test_directives_keep_the_value_on_their_line(text: str) -> None:
    value = directive_value(text)
    assert "\n" not in value
    assert shlex.split(value) == [text]


def test_a_directive_with_a_line_break_is_refused() -> None:
    with pytest.raises(UserError, match="a line break: a directive is one line"):
        directive_value("main\n#SBATCH --uid=root")


def test_launch_words_open_only_their_placeholders() -> None:
    assert launch_word("--nodelist={node}") == '--nodelist="$node"'
    assert launch_word("{nodes}") == '"$LIST"'
    assert launch_word("$(touch pwned)") == "'$(touch pwned)'"
    assert launch_word("{other}") == "'{other}'"


def test_a_misspelt_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.j2").write_text("{{ nam }}")
    monkeypatch.setattr(assets, "templates", lambda: tmp_path)
    with pytest.raises(HpcqError, match="'nam' is undefined"):
        render("t.j2", {"name": "x"})
