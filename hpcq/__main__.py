"""`python -m hpcq` and the `hpcq` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Only here do errors become text and exit codes."""
    from hpcq.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
