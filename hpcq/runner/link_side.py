"""One cluster as one end of a link: idle nodes, submissions, polls, and the few small files of the rendezvous.

Hides which scheduler and transport are there, the pace of asking, and that a connection may break at any of these words.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hpcq.definition.model import Budget
from hpcq.runner import citizen
from hpcq.runner.citizen import Citizen
from hpcq.runner.link_jobs import LinkJob
from hpcq.runner.link_ledger import SideAttempt
from hpcq.runner.outcome import read_object
from hpcq.runner.runs import Place
from hpcq.scheduler.base import JobReport, NodeCondition, NodeState, Question, Submission, Submitted
from hpcq.transport import quote

#: What a side says of itself while it lives; small, fetched at every look.
_SMALL_FILES = ("started.json", "ready.json", "probe.status", "probe.err", "exit.json")


@dataclass(frozen=True, slots=True)
class Ready:
    """A side that runs; port 0: it does not listen."""

    address: str
    port: int


class LinkSide:
    """`folder` is the link's part of the run here, `root` its counterpart on this side's cluster."""

    def __init__(self, name: str, here: Place, budget: Budget, link_name: str) -> None:
        self.name = name
        self.cluster = here.cluster
        self.transport = here.transport
        self.scheduler = here.scheduler
        self.budget = budget
        self.folder: Path = here.run.path / link_name
        self.run_root = here.root
        self.root = f"{here.root}/links/{link_name}"
        local = here.cluster.scheduler == "local"
        #: Seconds between two questions to the scheduler; what the time between two looks may grow to; and how long files
        #: on a shared file system may take to be seen.
        self.query_s, self.grace_s = (0.1, 1.0) if local else (1.0, 10.0)
        self.poll_max_s = here.cluster.poll_interval_s
        self.failures = 0
        #: Why nothing of ours may start there now, as the last look at the nodes showed.
        self.paused: str | None = None
        self._citizen = Citizen(budget, here.cluster.patience_s)
        self._last_query = -1e9

    # -- the scheduler ----------------------------------------------------------------------------------------------

    def nodes(self, held: Set[str]) -> dict[str, NodeState]:
        """The cluster's nodes as they are now; held: those that have a job of ours. Also finds out whether users wait."""
        self._keep_pace()
        survey = self.scheduler.look(Question(nodes=True, others=self.budget.gives_way))
        self.paused = self._citizen.paused(survey, citizen.local_time(), held)
        return {state.node: state for state in survey.nodes or ()}

    @staticmethod
    def idle(states: Mapping[str, NodeState]) -> set[str]:
        """Those of them that are idle."""
        return {node for node, state in states.items() if state.condition is NodeCondition.IDLE}

    def push(self, job: LinkJob) -> None:
        """Bring a job's folder to the cluster."""
        self.transport.push(self.folder, self.root, [job.folder])

    def expected_wait_s(self, job: LinkJob) -> float | None:
        """In how many seconds the job would start; None where the scheduler does not say."""
        self._keep_pace()
        return self.scheduler.expected_wait_s(self._submission(job.tag, job.folder, job.nodes, job.walltime_s))

    def submit(self, job: LinkJob) -> Submitted:
        """Hand a job in."""
        return self.scheduler.submit([self._submission(job.tag, job.folder, job.nodes, job.walltime_s)])[0]

    def poll(self, attempts: Sequence[SideAttempt]) -> list[tuple[SideAttempt, JobReport]]:
        """What the scheduler says of attempts that have a native id."""
        asked = {attempt.native_id: attempt for attempt in attempts if attempt.native_id}
        if not asked:
            return []
        self._keep_pace()
        return [(asked[native_id], report) for native_id, report in self.scheduler.poll(list(asked)).items()]

    def cancel(self, attempt: SideAttempt) -> None:
        """End an attempt, queued or running."""
        if attempt.native_id:
            self.scheduler.cancel([attempt.native_id])

    def find(self, attempts: Sequence[SideAttempt]) -> dict[str, str]:
        """Native ids, by tag, of attempts whose submission nobody saw the end of."""
        script = "\n".join(
            f"printf '%s\\t' {quote(one.tag)}; cat {quote(f'{self.root}/{one.folder}/submitted')} 2>/dev/null || echo"
            for one in attempts
        )
        known: dict[str, str] = {}
        for line in self.transport.sh(script).text.splitlines():
            tag, _, answer = line.partition("\t")
            if answer.strip():
                known[tag] = self.scheduler.read_native_id(answer)
        unknown = [one.tag for one in attempts if one.tag not in known]
        if unknown:
            self._keep_pace()
            known.update(self.scheduler.find(unknown))
        return known

    def claim(self, attempt: SideAttempt) -> bool:
        """Take an attempt that no scheduler knows, so that it measures nothing if it starts after all."""
        folder = quote(f"{self.root}/{attempt.folder}")
        return self.transport.sh(f"[ -d {folder} ] || exit 0; mkdir {folder}/claim").returncode == 0

    # -- files ------------------------------------------------------------------------------------------------------

    def fetch_small(self, attempts: Sequence[SideAttempt]) -> None:
        """Bring what live attempts say of themselves."""
        names = [f"{attempt.folder}/{name}" for attempt in attempts for name in _SMALL_FILES]
        if names:
            self.transport.pull(self.root, names, self.folder)

    def fetch_all(self, attempt: SideAttempt) -> None:
        """Bring an attempt's whole folder."""
        self.transport.pull(self.root, [attempt.folder], self.folder)

    def tell(self, attempt: SideAttempt, name: str, text: str) -> None:
        """Put a file of one line into an attempt's folder, whole or not at all."""
        path = quote(f"{self.root}/{attempt.folder}/{name}")
        self.transport.sh(f"printf '%s\\n' {quote(text)} >{path}.part && mv {path}.part {path}")

    def ready(self, attempt: SideAttempt) -> Ready | None:
        """Where an attempt listens, as far as its files have come; None while it has not said so."""
        said = read_object(self.folder / attempt.folder / "ready.json")
        return Ready(str(said.get("address") or "-"), int(said.get("port") or 0)) if said else None

    def reached(self, attempt: SideAttempt) -> bool | None:
        """Whether an attempt could connect to the other side; None while it has not said so."""
        said = read_object(self.folder / attempt.folder / "probe.status")
        return said.get("rc") == 0 if said else None

    def probe_words(self, attempt: SideAttempt) -> str:
        """What the kernel said when it could not."""
        try:
            text = (self.folder / attempt.folder / "probe.err").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return " ".join(text.split()).removeprefix("error: ")[:200]

    def _submission(self, tag: str, folder: str, nodes: tuple[str, ...], walltime_s: int) -> Submission:
        return Submission(tag, f"{self.root}/{folder}/job.sh", nodes, walltime_s)

    def _keep_pace(self) -> None:
        """Keep `query_s` between two questions to the scheduler."""
        wait_s = self._last_query + self.query_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self._last_query = time.monotonic()
