"""Arguments that several verbs of the lab take, and how wrong ones are reported."""

import argparse
import re
from typing import NoReturn

from faults import UsageError
from other_system import CACHE_FOLDER


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in hpcq's own form."""

    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", message)
        if found:
            message = f"{found[1]}: {found[2]}: must be {found[3].replace(chr(39), '')}"
        raise UsageError(f"{self.prog}: {message}", f"{self.prog} --help")


def add_cache(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--cache-dir", default=str(CACHE_FOLDER), metavar="DIR", help=f"where such a system is kept (default: {CACHE_FOLDER})"
    )


def add_wan(
    verb: argparse.ArgumentParser, *, prefix: str = "--wan-", delay: str | None = None, rate: str | None = None,
    loss: str | None = None,
) -> None:  # fmt: skip
    def default(value: str | None) -> str:
        return f" (default: {value})" if value else ""

    verb.add_argument(
        f"{prefix}delay", dest="delay", default=delay, metavar="TIME", help=f"one way, such as 1.45ms{default(delay)}"
    )
    verb.add_argument(
        f"{prefix}rate", dest="rate", default=rate, metavar="RATE", help=f"of each direction, or none{default(rate)}"
    )
    verb.add_argument(f"{prefix}loss", dest="loss", default=loss, metavar="LOSS", help=f"such as 1%% or 0.01{default(loss)}")
