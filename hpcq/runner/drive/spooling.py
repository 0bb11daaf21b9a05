"""Read what running tournaments have measured so far: with each poll, the heads of the new lines of their spools.

    spool.jsonl there --tail, heads only--> journal event `spooled` --> state, progress, hpcq status

While a tournament has not begun, each poll also reads the last line of what its agents say: an agent that cannot join
writes why at once, long before the conductor gives it up.

hpcq fetches the whole spool when the job has ended. Until then it only shows the count, and decides nothing by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpcq.run_folder.journal_state import Attempt, StepKey
from hpcq.run_folder.spools import SPOOL, spooled_step
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.scheduler.types import JobState
from hpcq.transport import quote

_SIGN = b"@spool "
_AGENTS_SIGN = b"@agents "
#: Enough of a line to see what was measured and whether it was; and how many lines one poll reads at most.
_HEAD_BYTES = 400
_LINES_MAX = 20_000


class Spools:
    """The offsets in the spools of running tournaments up to which the last poll read."""

    def __init__(self, queue: ClusterQueue) -> None:
        self._queue = queue
        self._read_bytes: dict[str, int] = {}
        #: What was said of the agents of a tournament.
        self._said: dict[str, str] = {}

    def read(self) -> None:
        """Record what was measured since the last poll."""
        queue = self._queue
        playing = [one for one in queue.known() if one.shared and one.state is JobState.RUNNING]
        if not playing:
            return
        done = queue.transport.sh("\n".join(map(self._command, playing)))
        texts = done.stdout.split(_SIGN)[1:]
        self._tell_agents(texts)
        found = (self._steps_of(text) for text in texts)
        queue.record.note_all([{"event": "spooled", "tag": tag, "measured_of": steps} for tag, steps in found if steps])

    def _command(self, attempt: Attempt) -> str:
        """Print, per complete line, its length and its head. A torn line waits until the rest is there."""
        folder = f"{self._queue.root}/{attempt.folder}"
        path = quote(f"{folder}/{SPOOL}")
        start = self._read_bytes.get(attempt.tag, 0) + 1
        program = f"NR > {_LINES_MAX} {{ exit }} /}}$/ {{ print length($0) + 1, substr($0, 1, {_HEAD_BYTES}) }}"
        return (
            f"printf '%s%s\\n' {quote(_SIGN.decode())} {quote(attempt.tag)}; "
            f"[ ! -f {path} ] || tail -c +{start} -- {path} | LC_ALL=C awk {quote(program)}"
            f"; [ -s {path} ] || tail -n 1 -- {quote(f'{folder}/agents.err')} 2>/dev/null | cut -c 1-{_HEAD_BYTES}"
            f" | sed 's/^/{_AGENTS_SIGN.decode()}/'"
        )

    def _tell_agents(self, texts: Iterable[bytes]) -> None:
        """Say once what keeps agents from joining."""
        for text in texts:
            name, *lines = text.splitlines()
            for line in lines:
                words = line.removeprefix(_AGENTS_SIGN).decode(errors="replace").strip()
                if line.startswith(_AGENTS_SIGN) and words and self._said.get(name.decode()) != words:
                    self._said[name.decode()] = words
                    attempt = self._queue.record.state.attempts[name.decode()]
                    self._queue.say(f"{attempt.job_id} has not begun to measure; its agents say: {words}")

    def _steps_of(self, text: bytes) -> tuple[str, dict[str, list[StepKey]]]:
        name, *lines = text.splitlines()
        tag = name.decode()
        steps: dict[str, list[StepKey]] = {}
        for line in lines:
            length, _, head = line.partition(b" ")
            if length.isdigit():
                self._read_bytes[tag] = self._read_bytes.get(tag, 0) + int(length)
                job_id, step = spooled_step(head) or ("", None)
                if step is not None:
                    steps.setdefault(job_id, []).append(step)
        return tag, steps
