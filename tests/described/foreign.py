"""A foreign program for tests: a server and a client that behave, or do not, as they are told.

foreign.py server PORT        listens, says so, answers until it is ended
foreign.py client HOST PORT MODE WORD
foreign.py folder HOST PORT SECOND_PORT FILE WORD...    of a server with two ports; copies a file of the folder it starts in
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

TABLE = "# Size  Rate (Mbit/s)\n1  10.5\n2  21\n4  42.25\n"


def main() -> int:
    role, *words = sys.argv[1:]
    if role == "--version":
        print("foreign 1.2")
        return 0
    if role == "folder":
        host, port, second_port, file, *more = words
        for one in (port, second_port):
            socket.create_connection((host, int(one))).close()
        print(f"{Path.cwd()} has {[one.name for one in Path().iterdir()]}\nwords {more}", flush=True)
        Path("result-1.txt").write_text(f"\n{Path(file).read_text()}\n")
        Path("left-behind").mkdir()
        Path("left-behind/file").touch()
        return 0
    if role == "server":
        seconds = [socket.create_server(("", int(word))) for word in words[1:2]]
        assert len({one.getsockname()[1] for one in seconds} | {int(words[0])}) == len(words[:2])
        with socket.create_server(("", int(words[0]))) as listener:
            print("listening", flush=True)
            while True:
                listener.accept()[0].close()
    host, port, mode, word = words
    socket.create_connection((host, int(port))).close()
    print(f"word {word!r}")
    print("rate = nan Mbit/s" if mode == "nan" else "rate = 12.5 Mbit/s")
    if mode == "table":
        print(TABLE)
    if mode == "exit":
        print("cannot do it", file=sys.stderr)
        return 7
    if mode == "words":
        print("FAILED to do it")
    if mode == "hang":
        subprocess.Popen(["sleep", "600"])  # its own child must end too
        time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
