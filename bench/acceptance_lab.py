"""`hpcq accept` on a real lab: does it stay silent without a fault, and name each fault and nothing else?

    python bench/acceptance_lab.py [--runs 20] [--lab NAME]

Starts a lab of 8 nodes on 4 leaf switches (or uses a running one of the same shape) and measures a baseline of 12
pairs. Then, each time for all nodes and these links in both directions:

    undisturbed    --runs times; a run raises a false alarm if any node, link or group is not PASS
    faults         a node slowed by tbf, a pair that loses packets by nftables, a slow leaf uplink; then all three at once

Node links have 50 Mbit/s and uplinks 100 Mbit/s, so that the network is measured and not the two cores that carry it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from hpcq.definition.find import LAB_FOLDER

SHAPE = ("--nodes", "8", "--leaves", "4", "--node-rate", "50mbit", "--uplink-rate", "100mbit")
#: Each node with the other one of its leaf, and with one of two other leaves: what accept itself would choose.
PAIRS = ("12", "34", "56", "78", "13", "24", "57", "68", "15", "26", "37", "48")
CAMPAIGN = f"""name: accept
clusters: [alpha]
pairs: {{list: [{", ".join(f"[alpha-n0{pair[0]}, alpha-n0{pair[1]}]" for pair in PAIRS)}]}}
allocation: whole
repetitions: 5
tests: [{{kernel: tcp_stream, parameters: {{duration_s: 200ms, warmup_s: 100ms}}}}]
"""
#: fault, how to make it, and what accept must name: nodes, links, groups
FAULTS: tuple[tuple[str, tuple[tuple[str, ...], ...], set[str]], ...] = (
    ("a node at 60 % of its rate", (("slow", "alpha/n06", "--rate", "30mbit"),), {"alpha-n06"}),
    ("a pair that loses 3 % of its packets", (("lossy", "alpha/n02", "n06", "--loss", "3%"),), {"alpha-n02 - alpha-n06"}),
    ("a leaf uplink at 40 % of its rate", (("slow", "alpha/leaf2", "--rate", "40mbit"),), {"leaf2"}),
    (
        "all three at once",
        (
            ("slow", "alpha/n08", "--rate", "30mbit"),
            ("lossy", "alpha/n01", "n05", "--loss", "3%"),
            ("slow", "alpha/leaf2", "--rate", "20mbit"),
        ),
        {"alpha-n08", "alpha-n01 - alpha-n05", "leaf2"},
    ),
)


@contextmanager
def standing_lab(given: str | None) -> Iterator[str]:
    """Yield the running lab, or a new one that is removed afterwards."""
    if given is not None:
        yield given
        return
    name = f"bench-{os.getpid()}"
    try:
        lab("up", "--name", name, *SHAPE)
        yield name
    finally:
        lab("down", "--name", name)


def lab(*words: str) -> None:
    """Run a verb of the lab."""
    subprocess.run([sys.executable, "-m", "hpcq", "lab", *words], check=True, stdout=subprocess.DEVNULL)


def hpcq(name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run hpcq in `folder`."""
    environment = {**os.environ, "HPCQ_CLUSTERS": str(LAB_FOLDER / name / "clusters")}
    command = [sys.executable, "-m", "hpcq", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def accept(name: str, folder: Path) -> tuple[set[str], dict[str, str]]:
    """One acceptance of all nodes: what is at fault (failed or degraded), and everything that is not PASS."""
    done = hpcq(name, folder, "accept", "campaign.yaml", "--against", "good", "--all", "--json")
    if done.returncode not in {0, 3, 4}:
        raise SystemExit(f"error: hpcq accept ended with {done.returncode}: {done.stderr}")
    [cluster] = json.loads(done.stdout)["clusters"]
    judged: list[dict[str, Any]] = [*cluster["nodes"], *cluster["links"], *cluster["groups"]]
    raised = {one["name"]: one["verdict"] for one in judged if one["verdict"] != "pass"}
    return {one for one, verdict in raised.items() if verdict in {"failed", "degraded"}}, raised


def undisturbed(name: str, folder: Path, runs: int) -> int:
    """How many of the runs raised a false alarm."""
    count = 0
    for number in range(1, runs + 1):
        started = time.monotonic()
        _, raised = accept(name, folder)
        count += bool(raised)
        words = ", ".join(f"{one} {verdict}" for one, verdict in raised.items()) or "nothing"
        print(f"undisturbed {number:>2}: {words} ({time.monotonic() - started:.0f} s)", flush=True)
    return count


def faults(name: str, folder: Path) -> list[bool]:
    """Whether each fault was named exactly."""
    exact = []
    for what, how, culprits in FAULTS:
        try:
            for verb, *words in how:
                lab(verb, "--name", name, *words)
            found, _ = accept(name, folder)
        finally:
            lab("mend", "--name", name, "alpha")
        exact.append(found == culprits)
        print(f"{what}: {', '.join(sorted(found)) or 'nobody'}{'' if exact[-1] else ', but it was'}"
              f"{'' if exact[-1] else f' {sorted(culprits)}'}", flush=True)  # fmt: skip
    return exact


def main() -> int:
    """Run all and write bench/results/acceptance_lab.json."""
    words = parser(__doc__ or "", 0)
    words.add_argument("--runs", type=int, default=20, help="undisturbed runs (default: 20)")
    words.add_argument("--lab", help="a lab that is up, of the same shape")
    options = words.parse_args()
    with tempfile.TemporaryDirectory() as kept, standing_lab(options.lab) as name:
        folder = Path(kept)
        (folder / "campaign.yaml").write_text(CAMPAIGN, encoding="utf-8")
        for command in (("run", "campaign.yaml"), ("baseline", "set", "good", "latest", "--why", "undisturbed")):
            done = hpcq(name, folder, *command)
            if done.returncode != 0:
                raise SystemExit(f"error: hpcq {' '.join(command)} ended with {done.returncode}: {done.stderr}")
        exact = faults(name, folder)
        runs = max(1, options.runs // 10) if options.quick else options.runs
        raised = undisturbed(name, folder, runs)
    claims: list[Claim] = [
        claim(f"{what}: accept names it and nobody else", "named exactly", "runs", int(one), goal=">= 1")
        for (what, _, _), one in zip(FAULTS, exact, strict=True)
    ]
    claims.append(
        claim(f"{runs} acceptances of an undisturbed lab of 8 nodes", "raised something", "runs", raised, goal="<= 0")
    )
    return finish("acceptance_lab", claims, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
