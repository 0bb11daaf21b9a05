"""`hpcq cancel`: nothing of a run stays queued, whether its driver lives or not."""

from __future__ import annotations

import time

from hpcq.errors import HpcqError, StoreError
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.link import link_group
from hpcq.runner.live import status_of

#: A living driver sees the request at its next turn; its longest sleep is a minute.
_DRIVER_ANSWERS_S = 90.0


def cancel_run(run: RunFolder, say: stages.Say) -> None:
    """Ask the drivers of a run to end it, or end it here where none lives.

    Raises HpcqError when a driver that lives somewhere else does not answer.
    """
    (run.path / "cancel").touch()
    deadline = time.monotonic() + _DRIVER_ANSWERS_S
    waiting = [cluster.name for cluster in status_of(run).clusters if cluster.counts]
    while waiting:
        for name in list(waiting):
            if (run.path / name / "driven.json").is_file():
                waiting.remove(name)
                continue
            try:
                link_group.drive(run, name, say)
            except StoreError:
                if time.monotonic() > deadline:
                    raise HpcqError(
                        f"{run.run_id}: the driver of {name} does not answer",
                        "its journal's lock names it; end it and cancel again",
                    ) from None
                time.sleep(1.0)
            else:
                waiting.remove(name)
