"""A process that has imported pytest and what hpcq builds on, and runs pytest in a child per request.

Starting Python and importing the same packages is most of what a short test takes. Nothing of a project is imported here:
each child imports it from the tree of its request. `Forks` starts this file as a program and talks to it.

A request is one JSON line {"cwd", "argv", "env", "out", "err"}; its answer is the exit code of pytest on a line.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: No plugin of pytest: pytest rewrites their assertions, so it wants to import them itself.
_PACKAGES = (
    *("pytest", "_pytest.pytester", "_pytest.doctest", "_pytest.junitxml", "_pytest.logging", "_pytest.pastebin"),
    *("click.testing", "execnet", "jinja2", "numpy", "numpy.random", "pydantic", "pydantic.deprecated", "ruamel.yaml"),
    *("concurrent.futures", "csv", "fcntl", "html", "sqlite3", "statistics", "tempfile", "xml.etree.ElementTree"),
)


class Forks:
    """Runs pytest for one tree after the other; a with-statement ends the process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def run(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """As subprocess.run for `python -m pytest *argv`; a return code below zero is a signal that ended it."""
        out, err = Path(f"{cwd}.out"), Path(f"{cwd}.err")
        request = {"cwd": str(cwd), "argv": list(argv), "env": dict(env), "out": str(out), "err": str(err)}
        answer = self._ask(json.dumps(request))
        try:
            said, words = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
        finally:
            for path in (out, err):
                path.unlink(missing_ok=True)
        return subprocess.CompletedProcess(list(argv), answer, said, words)

    def _ask(self, request: str) -> int:
        if self._process is None:
            argv = [sys.executable, str(Path(__file__).resolve())]
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(request, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._end()
            raise RuntimeError("the process that runs pytest in children ended before it answered")
        return int(answer)

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def _to_file(number: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, number)
    os.close(opened)


def _begin(request: Mapping[str, object]) -> list[str]:
    """Make this child what a new `python -m pytest` in that folder would be; returns pytest's arguments."""
    _to_file(0, os.devnull, os.O_RDONLY)
    _to_file(1, str(request["out"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    _to_file(2, str(request["err"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    # The folder first, then PYTHONPATH: `python -m` does so.
    sys.path[:0] = [str(request["cwd"]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    argv = [str(one) for one in request["argv"]]  # type: ignore[attr-defined]
    sys.argv = [str(Path(sys.modules["pytest"].__file__ or "").with_name("__main__.py")), *argv]
    return argv


def _requested() -> list[str] | None:
    """Answer requests until there are none: None. In a child: pytest's arguments."""
    with os.fdopen(os.dup(0), encoding="utf-8") as requests, os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        for line in requests:
            child = os.fork()
            if child == 0:
                return _begin(json.loads(line))
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


def main() -> int:
    """What `Forks` starts."""
    del sys.path[0]  # this file's folder
    for name in _PACKAGES:
        with contextlib.suppress(ImportError):  # a module that another version of a package lacks only costs time
            importlib.import_module(name)
    foreign = {"hpcq", "tests", "tools", "lab", "bench"} & set(sys.modules)
    if foreign:
        raise SystemExit(f"error: {', '.join(sorted(foreign))} is imported: a child could not import its own")
    gc.collect()
    gc.freeze()  # no child walks or copies what it shares with the others
    argv = _requested()
    return 0 if argv is None else int(sys.modules["pytest"].main(argv))


if __name__ == "__main__":
    sys.exit(main())
