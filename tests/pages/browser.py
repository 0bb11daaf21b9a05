"""A headless Chromium, driven over its debugging pipe: windows of any size, what it complained of, pictures.

One browser serves all tests of a module. Every wait is bounded.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Width and height in pixels.
Window = tuple[int, int]
DESK: Window = (1400, 900)
PHONE: Window = (390, 844)
_LIMIT_S = 60.0
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
          "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe")  # fmt: skip


class Browser:
    """Talks to a browser: a command and its answer are JSON objects that end with a zero byte."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._unread = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command and its answer; what the browser says meanwhile is kept in `events`."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        os.write(self._commands, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        until = time.monotonic() + _LIMIT_S
        while True:
            message = self._next(until, method)
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def wait(self, method: str, session: str) -> None:
        """Until the browser has said so in this session."""
        until = time.monotonic() + _LIMIT_S
        while not any(one.get("method") == method and one.get("sessionId") == session for one in self.events):
            self.events.append(self._next(until, method))

    def _next(self, until: float, awaited: str) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser said nothing for {_LIMIT_S:g} s after {awaited}"
            found = os.read(self._answers, 1 << 20)
            assert found, f"the browser ended during {awaited}"
            self._unread += found
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Tab:
    """One page in one window."""

    def __init__(self, browser: Browser, address: str, window: Window = DESK, *, dark: bool = False) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        width, height = window
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.go(address)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this page."""
        return self._browser.call(method, self._session, **params)

    def go(self, address: str) -> None:
        """Another address in the same window, loaded."""
        kept = [one for one in self._browser.events if one.get("method") != "Page.loadEventFired"]
        self._browser.events[:] = kept
        self.call("Page.navigate", url=address)
        self._browser.wait("Page.loadEventFired", self._session)

    def follow(self, selector: str) -> None:
        """Click a link, and wait for the page that it leads to."""
        self._browser.events[:] = [one for one in self._browser.events if one.get("method") != "Page.loadEventFired"]
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        self._browser.wait("Page.loadEventFired", self._session)

    def js(self, expression: str) -> Any:
        """The value of an expression of the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, name: str, code: int) -> None:
        """A key, as from a keyboard: ("Enter", 13), ("Tab", 9)."""
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    @property
    def complaints(self) -> list[str]:
        """Errors and exceptions of this page so far."""
        self.js("1")
        said = []
        for one in self._browser.events:
            params = one.get("params", {})
            if one.get("sessionId") != self._session:
                continue
            if one["method"] == "Runtime.exceptionThrown":
                said.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
            elif one["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                said.append(params["entry"]["text"])
            elif one["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert", "warning"}:
                said.append(str(params["args"]))
        return said

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        """A PNG of the window, or of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def close(self) -> None:
        """The window is gone."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in `folder`."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "no chromium here: tools/packages test installs it"
    there_read, commands = os.pipe()
    answers, there_write = os.pipe()
    # The browser reads commands from 3 and writes answers to 4.
    start = ["bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash", str(there_read), str(there_write)]
    argv = [*start, program, *_FLAGS, f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        argv,
        pass_fds=(there_read, there_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(there_read)
    os.close(there_write)
    try:
        browser = Browser(commands, answers)
        yield browser
        browser.call("Browser.close")
        process.wait(_LIMIT_S)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)
