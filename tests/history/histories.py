"""Histories: many nights of one campaign in one database, with levels, facts and builds as a test wants them.

nights = History(tmp_path)
nights.night(0, level=1.0)                       one run, its values about 200 Mbit/s
nights.night(1, level=0.9, facts={"n2": {"nic.0.mtu_bytes": 9000}}, build="net-2222")
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.evidence.case import no_judge
from hpcq.evidence.judge import judge
from hpcq.run_folder.paths import write_json, write_text
from hpcq.store.load.cluster import load_run
from tests.store.run_folders import START, RunBuilder, utc

PAIRS = (("n1", "n2"), ("n3", "n4"))
TESTS = (("tcp_stream", {"message_bytes": 65536}),)


@dataclass
class Night(RunBuilder):
    """One run on a day; START is day 0."""

    day: float = 0.0
    levels: Mapping[str, float] = field(default_factory=dict)
    changed_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    boots: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    source_build_id: str = "net-1111"
    noise: float = 0.01
    failing: Sequence[str] = ()
    """Nodes whose every test is invalid that night."""
    failing_repetitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By node, the repetitions that are invalid that night."""
    bare: bool = False
    """Without evidence."""
    not_run: Sequence[tuple[str, str]] = ()
    """Pairs whose job never started that night."""

    def attempt(self, job_id: str, attempt_no: int = 1, *, steps: Any = None) -> Path:
        if self.pairs[int(job_id[1:]) - 1] not in self.not_run:
            return super().attempt(job_id, attempt_no, steps=steps)
        self.submit(job_id, attempt_no)
        self.end(job_id, attempt_no, "cancelled", "the node went away")
        return self.folder.attempt(self.cluster, job_id, attempt_no)

    def line(self, job_id: str, step: tuple[int, int], **changed: Any) -> dict[str, Any]:
        made = super().line(job_id, step, **changed)
        client, server = self.pairs[int(job_id[1:]) - 1]
        level = min(self.levels.get(client, 1.0), self.levels.get(server, 1.0))
        level *= self.levels.get(f"{client}>{server}", 1.0)
        made["metrics"]["throughput_bps"] = 2e8 * level * (1 + self.random.gauss(0, self.noise))
        made["build_id"] = self.source_build_id
        made["warnings"], made["histogram"] = [], None
        made["series"] = {"interval_ms": 100, "throughput_bps": [made["metrics"]["throughput_bps"]] * 10}
        made["evidence"] = None if self.bare else made["evidence"]
        lost = {node for node, numbers in self.failing_repetitions.items() if step[1] in numbers}
        if {client, server} & (set(self.failing) | lost):
            made |= {"valid": False, "invalid_reason": "fewer than two datagrams arrived of 5096 sent", "metrics": {}}
            made["exit_code"] = 1
        return made

    def facts(self, node: str) -> dict[str, Any]:
        facts = super().facts(node)
        facts["boot"]["id"] = self.boots.get(node, f"boot-of-{node}")
        for part, values in self.changed_facts.get(node, {}).items():
            known = facts.get(part)
            facts[part] = {**(known if isinstance(known, dict) else {}), **values}
        return facts

    def evidence(self, node: str, last: int) -> dict[str, Any]:
        made = {**super().evidence(node, last), "boot_id": self.boots.get(node, f"boot-of-{node}")}
        if self.counters:  # judged: no other traffic, and no other process than the test
            quiet = {f"net_dev.{self.interface}.{way}_bytes": 1000 for way in ("rx", "tx")} | {"stat.cpu.user_ticks": 1}
            made["counters"] |= quiet | dict(self.counters.get(node, {}))
        return made

    def _run_json(self, clusters: list[str]) -> dict[str, Any]:
        return {**super()._run_json(clusters), "created_utc": utc(self.day * 86400 - 60)}


class History:
    """A database that grows night by night."""

    def __init__(self, folder: Path, *, pairs: Sequence[tuple[str, str]] = PAIRS, cluster: str = "alpha") -> None:
        self.runs = folder / "runs"
        self.database = folder / "results.db"
        self.pairs = pairs
        self.cluster = cluster

    def night(self, day: float, level: float = 1.0, *, repetitions: int = 1, campaign: str = "nightly", **changed: Any) -> str:
        """Add one run; level is of every node, `levels` of single ones; gates: lines of its campaign; `counters` are judged."""
        moment = START + dt.timedelta(days=day)
        gates = changed.pop("gates", None)
        made = Night(
            self.runs,
            cluster=self.cluster,
            run=f"{campaign}-{moment:%Y%m%dT%H%M%SZ}-{self.cluster[:4]}",
            campaign=campaign,
            pairs=changed.pop("pairs", self.pairs),
            tests=TESTS,
            repetition_count=repetitions,
            counter_count=changed.pop("counter_count", 0),
            seed=changed.pop("seed", int(day * 100) + 1),
            day=day,
            levels={node: level for pair in self.pairs for node in pair} | dict(changed.pop("levels", {})),
            changed_facts=changed.pop("facts", {}),
            boots=changed.pop("boots", {}),
            source_build_id=changed.pop("build", "net-1111"),
            **changed,
        )
        build = made.build_json()
        build["programs"]["hpcq-net"]["build_id"] = made.source_build_id
        write_json(made.folder.build(self.cluster), build)
        if gates is not None:
            write_text(made.folder.campaign_yaml, campaign_text(campaign, gates))
        made.seconds = day * 86400
        made.everything()
        load_run(self.database, made.path, judge=judge if made.counters else no_judge)
        return made.run


def campaign_text(name: str, gates: str) -> str:
    """A campaign with the test of these histories, and gates."""
    tests = "tests: [{kernel: tcp_stream, parameters: {message_bytes: 64KiB}}]"
    return f"name: {name}\nclusters: [alpha]\npairs: all\n{tests}\ngates:\n{gates}\n"


def json_of(text: str) -> Any:
    """What a verb printed with --json."""
    return json.loads(text)


def sayer(capsys: pytest.CaptureFixture[str]) -> Any:
    """What runs a verb on a history: exit code, what it printed for programs (or None), and its words."""

    def said(history: History, *words: str) -> tuple[int, Any, str]:
        code = run([*words, "--db", str(history.database)])
        printed = capsys.readouterr()
        return code, json_of(printed.out) if "--json" in words else None, printed.out + printed.err

    return said
