"""Man pages: written from the command line, and groff has nothing to warn of."""

from __future__ import annotations

import subprocess

import click
import pytest

from hpcq.cli.main import hpcq
from tools.man_pages import FOLDER, pages


@pytest.mark.promise("Man pages come from the command line itself, one for each verb.")
@pytest.mark.fast
def test_the_pages_are_what_the_program_says() -> None:
    made = pages()
    assert {path.name for path in FOLDER.iterdir()} == set(made), "make docs"
    assert {path.name for path in FOLDER.iterdir() if path.read_text() != made[path.name]} == set(), "make docs"


@pytest.mark.fast
def test_each_verb_has_a_page_that_the_first_one_names() -> None:
    made = pages()
    for verb in hpcq.list_commands(click.Context(hpcq)):
        assert f".BR hpcq\\-{verb} (1)" in made["hpcq.1"]
        assert f"hpcq-{verb}.1" in made


def test_groff_warns_of_nothing() -> None:
    """This is what `man --warnings` calls; tools/packages installs it."""
    argv = ["groff", "-man", "-ww", "-z", "-Tutf8", *sorted(map(str, FOLDER.glob("*.1")))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


@pytest.mark.promise("A man page shows lines that begin with a dot, and backslashes.")
def test_a_line_that_begins_with_a_dot_is_shown() -> None:
    from tools.man_pages import _line

    line = ".hpcq/bin -x \\n ~"
    page = f'.TH X 1 "" "x" "x"\n.SH NAME\nx \\- y\n.PP\n{_line(line)}\n'
    argv = ["groff", "-man", "-Tascii", "-P-c"]
    done = subprocess.run(argv, input=page, capture_output=True, text=True, timeout=60, check=True)
    assert line in done.stdout
