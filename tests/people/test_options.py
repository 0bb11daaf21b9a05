"""No option is ignored: each pair of options of a verb with several views is obeyed, or refused with exit code 2."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from hpcq.cli.main import run
from tests.history.histories import History

pytestmark = pytest.mark.fast

#: Verb -> module with `_USED`, and by view what a person types for it.
VIEWS = {
    "results": (
        "read.results",
        {
            "--each": ["--each"],
            "--findings": ["--findings"],
            "--group-by": ["--group-by", "driver"],
            "--links": ["--links"],
            "--toolchains": ["--toolchains"],
            "--json": ["--json"],
            "the table of medians": [],
        },
    ),
    "nodes": ("read.nodes", {"NODE": ["n2"], "--verdicts": ["--verdicts"], "the list of nodes": []}),
    "runs": ("read.query", {"--cost": ["--cost"], "the list of runs": []}),
    "history": ("judge.history", {"SERIES": ["tcp_stream/n1/n2"], "the list of series": []}),
}
#: A value that every option with a value takes here.
VALUES = {
    "kernel": "tcp_stream", "cluster": "alpha", "node": "n2", "client": "n1", "server": "n2", "since": "365d",
    "stretch": "365d", "metric": "throughput_bps", "sort": "median", "limit": "1", "age": "14d", "campaign": "nightly",
    "last": "1", "group": "leaf1", "network": "eth0", "where": "message_bytes=131072",
    "fact": "sysctl.net.core.rmem_max=212992", "by": "driver",
}  # fmt: skip


def options_of(verb: str, module: str) -> list[click.Option]:
    command = getattr(importlib.import_module(f"hpcq.cli.{module}"), verb)
    return [one for one in command.params if isinstance(one, click.Option) and one.name not in {"database", "as_json"}]


@pytest.mark.promise("No option is ignored: what a view does not use is refused.")
@pytest.mark.parametrize("verb", VIEWS)
def test_what_a_view_does_not_use_is_refused(
    verb: str, nights: History, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    module, views = VIEWS[verb]
    used = importlib.import_module(f"hpcq.cli.{module}")._USED
    assert used.keys() == views.keys()
    options = options_of(verb, module)
    unknown = set().union(*used.values()) - {one.name for one in options} - {"run", "name"}
    assert unknown == set()
    for view, typed in views.items():
        for one in options:
            if one.name in used[view] or one.opts[0] in typed:
                continue
            value = [] if one.is_flag else [VALUES[str(one.name)]]
            code = run([verb, *typed, one.opts[0], *value, "--db", str(nights.database)])
            said = capsys.readouterr()
            switches = one.opts[0] in views or {"judging", "each"} & {one.name}  # it asks for another view by itself
            assert code == 2 or switches, (view, one.opts[0])
            if code == 2:
                assert one.opts[0] in said.err or view in said.err, (view, one.opts[0], said.err)
                assert said.out == ""


@pytest.mark.promise("Each view obeys every option that it takes.")
def test_rows_and_order_are_obeyed_by_every_table_of_results(nights: History, capsys: pytest.CaptureFixture[str]) -> None:
    def lines(*words: str) -> list[str]:
        run(["results", *words, "--db", str(nights.database)])
        return capsys.readouterr().out.splitlines()

    for view in (["--each"], ["--group-by", "driver"], []):
        all_rows = lines(*view)
        assert len(lines(*view, "--limit", "1")) == 2 < len(all_rows), view
    for view in (["--each"], []):
        name = "value" if view else "median"
        up, down = lines(*view, "--sort", name), lines(*view, "--sort", f"-{name}")
        assert sorted(up) == sorted(down) and up != down, view  # noqa: PT018 - the same rows in another order
