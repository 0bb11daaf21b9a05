"""Job scripts: every value is one word whatever it holds, and a name that a template misspells is an error."""

from __future__ import annotations

import datetime as dt
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq import assets
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Hours
from hpcq.errors import HpcqError, UserError
from hpcq.kernels import own_kernels
from hpcq.planning.make_plan import make_plan
from hpcq.render import directive_value, launch_word, render, render_text, shell_word, with_code
from hpcq.runner.queue.run_state import all_steps, make_job, write_job
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.transport import Here

pytestmark = pytest.mark.fast

HOSTILE = ["plain", "two words", "quo'te", 'dou"ble', "$(touch pwned)", "`touch pwned`", "a;b", "*", "back\\slash", "ümlaut"]


@pytest.mark.parametrize("text", [*HOSTILE, "new\nline"])
def test_shell_words_are_one_word(text: str) -> None:
    assert Here().sh(f"printf %s {shell_word(text)}").text == text


@pytest.mark.promise("Text of an evidence rule is escaped on the page.")
def test_on_a_page_backticks_are_code_and_all_else_is_text() -> None:
    assert with_code("set `idle: hold`, <b> & `a<b`") == "set <code>idle: hold</code>, &lt;b&gt; &amp; <code>a&lt;b</code>"
    assert with_code("one ` alone") == "one ` alone"


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


@pytest.mark.promise("A template of a description that would compute for ever is refused before anything runs.")
@pytest.mark.promise("A power in a template is bounded.")
@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(3) %}x{% endfor %}",  # the first: without the bound, later ones fill the memory
        "{{ 9**9**9 }}",
        "{{ 9**(9**9) }}",
        "{{ 2 ** size }}",
        "{{ 'x' * 9999999999 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ [0] * 9999999999 }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        "{% set a = 'xx' %}{% set a = a ~ a %}{{ a }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x'.ljust(9999999999) }}",
        "{{ 'x'|center(9999999999) }}",
        "{{ 'aaaa'|join('aaaaaaaa')|join('aaaaaaaa') }}",
        "{{ range(99999)|list|length }}",
        "{{ " + "(" * 1500 + "1" + ")" * 1500 + " }}",
        "x" * 5000,
    ],
)
def test_a_template_that_computes_too_much_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"(?s)k\.yaml: .*: must be a template over the options"):
        render_text(text, {"size": 10**9}, "k.yaml")


def test_a_template_may_compute_what_commands_need() -> None:
    assert render_text("{{ 2 ** size }}-{{ 10 * size + 15 if size > 3 }}", {"size": 20}, "k.yaml") == "1048576-215"
    assert render_text("{% if name != 'a' %}--{{ name|upper }}{% endif %}", {"name": "b"}, "k.yaml") == "--B"
    assert render_text("{{ [size, 4]|max // 3 % 5 }}", {"size": 2}, "k.yaml") == "1"


def test_a_misspelt_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.j2").write_text("{{ nam }}")
    monkeypatch.setattr(assets, "templates", lambda: tmp_path)
    with pytest.raises(HpcqError, match="'nam' is undefined"):
        render("t.j2", {"name": "x"})


@pytest.mark.promise("A job that still waits at the end of the hours ends by itself, driver or none.")
@pytest.mark.parametrize(("start_within_s", "line"), [(None, None), (600, "#SBATCH --deadline=now+720")])
def test_a_job_script_says_until_when_it_may_start(start_within_s: int | None, line: str | None, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: c\nclusters: [alpha]\npairs: {rounds: 1}\ntests: [{kernel: tcp_pingpong}]\n")
    (tmp_path / "alpha.yaml").write_text("{name: alpha, scheduler: slurm, interface: lo, work_directory: /w}\n")
    cluster = replace(read_cluster(tmp_path / "alpha.yaml"), start_within_s=start_within_s)
    nodes = [NodeState(name, NodeCondition.IDLE, "idle") for name in ("n1", "n2")]
    plan = make_plan(read_campaign(tmp_path / "c.yaml"), cluster, nodes, "c-1", 7)
    job = replace(make_job(plan, 0, 1, all_steps(plan)), walltime_s=90)  # two minutes to the scheduler
    write_job(job, own_kernels(), cluster, "/w", tmp_path / "job")
    lines = (tmp_path / "job" / "job.sh").read_text().splitlines()
    assert [one for one in lines if "--deadline" in one] == ([line] if line else [])


def test_hours_say_how_long_jobs_may_still_start() -> None:
    night = Hours(20 * 60, 6 * 60)
    left = {
        text: night.seconds_left(dt.time.fromisoformat(text))
        for text in ("20:00:00", "23:59:30", "05:59:59", "06:00:00", "12:00")
    }
    assert left == {"20:00:00": 36000, "23:59:30": 21630, "05:59:59": 1, "06:00:00": 0, "12:00": 0}
