"""Words from elsewhere as a person sees them: a character that would act on a terminal, or hide itself, shows as its number.

    "\\x1b[31mred\\x1b[0m"     ->  \\u001b[31mred\\u001b[0m
    "n1\\u202egnp.exe"        ->  n1\\u202egnp.exe (the six characters \\u202e)

What nodes, programs, schedulers and files say may hold escape sequences (colours of an innocent iperf3, or the title of
your window), C1 controls, and marks that turn or hide text. The database keeps them as they are. Every text that leaves
hpcq for a person passes here: both streams of the command line, files that verbs write, pages, messages. The form is that
of JSON, so a JSON document stays what it was.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

#: Marks above and below letters. A fifth on one letter is of no language: a pile of them covers the lines around it.
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
#: Controls but tab, line feed, and a carriage return before one; marks of direction (Unicode TR 36); separators of lines;
#: what has no width (Default_Ignorable_Code_Point without what joins letters and chooses the form of an emoji); tags; what
#: is no character, at which a reader of XML stops; and halves of surrogate pairs, which stand for bytes that are not UTF-8.
_ACTING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    f"\U000e0000-\U000e0fff\ud800-\udfff]|\r(?!\n)|(?<={_MARK}{{4}}){_MARK}"
)
#: The same for a text in ASCII, as most of a large table is: three times as fast.
_ACTING_ASCII = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")


def visible(text: str) -> str:
    """Return the text with each such character as \\uXXXX; any other text as it is. Twice is the same as once."""
    return (_ACTING_ASCII if text.isascii() else _ACTING).sub(_number, text)


def one_line(text: str, between: str = "; ") -> str:
    """Words from elsewhere as part of a sentence of ours: of several lines, one, so that none begins like one of ours."""
    if "\n" not in text and "\t" not in text:
        return text
    lines = (line.strip() for line in text.replace("\t", " ").split("\n"))
    return between.join(line for line in lines if line)


def visible_pieces(pieces: Iterable[str | bytes]) -> Iterator[str | bytes]:
    """Return the same pieces of a file, texts made visible. Bytes are of a format of their own."""
    for piece in pieces:
        yield visible(piece) if isinstance(piece, str) else piece


def _number(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


class VisibleStream:
    """A text stream that makes visible what is written to it; all else is that of the stream beneath."""

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        if isinstance(beneath, io.TextIOWrapper):
            beneath.reconfigure(errors="backslashreplace")  # an encoding that lacks a character is no reason to fail

    @property
    def encoding(self) -> str:
        """The encoding; Click goes around a stream that says ASCII, and would write what it likes."""
        found = self.beneath.encoding or "utf-8"
        return "utf-8" if codecs.lookup(found).name == "ascii" else found

    def write(self, text: str) -> int:
        """Write it; returns how many characters were given."""
        self.beneath.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Make visible all that is written to standard output and standard error while the block runs."""
    import sys

    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = VisibleStream(out), VisibleStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def beneath(stream: TextIO) -> TextIO:
    """Return the stream that takes escape sequences: for who writes colours, of texts that were made visible before."""
    return stream.beneath if isinstance(stream, VisibleStream) else stream
