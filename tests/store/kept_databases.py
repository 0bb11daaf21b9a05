"""Make the database that is kept of a released version: small, and with at least one row of what people write.

    python -m tests.store.kept_databases tests/store/kept

It makes <folder>/<version>.db.xz, by the schema's version. Make one with each release that has a new version of the schema,
by the release itself, and never again: tests/store/test_upgrades.py brings each of them to the present version.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import sys
import tempfile
from pathlib import Path

from hpcq.cli.main import run
from hpcq.store.database import SCHEMA_VERSION, transaction, writing
from tests.history.histories import History

KEPT = Path(__file__).parent / "kept"
PAIRS = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"))
NIGHTS = 12
#: From here on n2 is slow.
BAD_NIGHT = 8


def make(folder: Path) -> Path:
    """A database of twelve nights with a slow node, notes, a baseline, an event, a retraction and a recorded change."""
    history = History(folder, pairs=PAIRS)
    for night in range(NIGHTS):
        history.night(night, levels={"n2": 0.6} if night >= BAD_NIGHT else {}, repetitions=2, noise=0.004)
    with writing(history.database) as database, transaction(database):
        database.execute("INSERT INTO node_group SELECT node_id, 'rack', '2026-01-01T00:00:00Z', 'r1' FROM node")
    for words in (
        ("annotate", "run", "latest", "fans were being replaced"),
        ("event", "add", "maintenance", "new firmware", "--at", "2026-11-28T00:00", "--until", "2026-11-28T01:00"),
        ("baseline", "set", "good", "nightly-20261121T020000Z-alph", "nightly-20261122T020000Z-alph", "--why", "accepted"),
        ("retract", "1", "--why", "cable was out"),
        ("regressions", "--since", "2026-11-20", "--record"),
        ("changes", "set", "acknowledged", "1", "--why", "a ticket is open"),
    ):
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
            code = run([*words, "--db", str(history.database)])
        if code not in {0, 3, 4}:
            raise SystemExit(f"hpcq {' '.join(words)}: exit code {code}: {said.getvalue()}")
    with writing(history.database) as database:
        database.execute("VACUUM")
    return history.database


def main() -> int:
    """Make it in the folder that the command line names."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else KEPT) / f"{SCHEMA_VERSION}.db.xz"
    with tempfile.TemporaryDirectory() as folder:
        content = make(Path(folder)).read_bytes()
    target.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    print(f"{target}: {len(content)} bytes, {target.stat().st_size} compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
