"""One call of a PBS command, its answer, and how its words are read."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One command: its words, where and by whom it is given, and what came on its standard input."""

    program: str
    words: list[str]
    cwd: str
    user: str
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints on both outputs, and ends with."""

    text: str = ""
    error: str = ""
    code: int = 0


class Refused(Exception):  # noqa: N818 - it is an answer
    """Ends a command with its words and exit code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.answer = Answer("", words, code)


def options_of(words: list[str], flags: str, valued: str) -> tuple[dict[str, list[str]], list[str]]:
    """getopt: -a -l value; plain words behind them."""
    given: dict[str, list[str]] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word == "--":
            break
        if word.startswith("--"):
            given.setdefault(word[2:], []).append("")
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued:
                if not letters:
                    letters = words[place] if place < len(words) else ""
                    place += 1
                given.setdefault(letter, []).append(letters)
                letters = ""
            elif letter in flags:
                given.setdefault(letter, []).append("")
            else:
                raise Refused(2, f"invalid option -- '{letter}'\nusage:")
    return given, words[place:]


def resources_of(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        for word in line.split(",") if not line.startswith("select") else [line]:
            name, _, value = word.partition("=")
            if name not in {"select", "place", "walltime", "ncpus", "mem", "software", "filesystems", "storage"}:
                raise Refused(187, f"qsub: Unknown resource Resource_List.{name}")
            found[name] = value
    if "select" in found and "ncpus" in found:
        raise Refused(5, 'qsub: "-lresource=" cannot be used with "select" or "place", resource is: ncpus')
    return found


def walltime_s(text: str) -> float:
    if not re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text):
        raise Refused(166, "qsub: Illegal attribute or resource value Resource_List.walltime")
    total = 0.0
    for part in text.split(":"):
        total = 60 * total + float(part)
    return total


def moment(text: str) -> float:
    """[[CC]YY]MMDDhhmm[.SS] in local time."""
    form = "%Y%m%d%H%M.%S" if "." in text else "%Y%m%d%H%M"
    return time.mktime(time.strptime(text, form))
