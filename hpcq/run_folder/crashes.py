"""Find out how a program died, from its standard error: the signal, and known crashes of libraries.

A crash that a second try hides is still a crash. hpcq reports it beside the result of that second try.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: MPI libraries and launchers name the signal; a shell gives 128 plus the signal's number.
_SIGNAL_WORDS = re.compile(r"Signal: ([A-Z][A-Za-z ]+) \((\d+)\)|exited on signal (\d+)|\b(Segmentation fault|Bus error)\b")
_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
_NUMBERS = {"Segmentation fault": 11, "Bus error": 7}


@dataclass(frozen=True, slots=True)
class KnownCrash:
    """A known crash of a library. pattern: matches what the program wrote to its standard error."""

    name: str
    pattern: re.Pattern[str]
    meaning: str
    source: str


KNOWN_CRASHES = (
    KnownCrash(
        "open_mpi_early_message",
        re.compile(r"mca_pml_ob1_recv_frag_callback_match"),
        "Open MPI 5 crashed in MPI_Init: a message came before its communicator stood; another try usually works"
        " (hpcq-mpi waits 0.1 s after MPI_Init to avoid it)",
        "open-mpi/ompi issues 11438 and 12495",
    ),
    KnownCrash(
        "open_mpi_no_handler",
        # The only frame that Open MPI can name is that of the signal: the program had jumped to address 0.
        re.compile(r"Failing at address: \(nil\)\s+(?:\[\S+\] )?\[ 0\] \S+\s+(?:\[\S+\] )?\*\*\* End of error message"),
        "Open MPI 4 crashed, most likely in MPI_Init: a message came over TCP before its handler was set; another try"
        " usually works (hpcq-mpi waits 0.1 s after MPI_Init to avoid it)",
        "seen with Open MPI 4.1.4 and osu_mbw_mr",
    ),
)


def known_crash(said: str) -> KnownCrash | None:
    """Return the known crash that a program's standard error shows, if any."""
    return next((one for one in KNOWN_CRASHES if one.pattern.search(said)), None)


def crash_words(said: str, return_code: int | None) -> str:
    """Return `died of SIGSEGV: MEANING (SOURCE)`, or "" if nothing shows that a signal ended the program.

    said: everything on standard error. return_code: of the program or its launcher; None if unknown.
    """
    known = known_crash(said)
    signal = _signal_of(said, return_code)
    if signal is None and known is None:
        return ""
    died = f"died of {_NAMES.get(signal, f'signal {signal}')}" if signal is not None else "died"
    return died if known is None else f"{died}: {known.meaning} ({known.source})"


def _signal_of(said: str, return_code: int | None) -> int | None:
    match = _SIGNAL_WORDS.search(said)
    if match is not None:
        return int(match[2] or match[3] or _NUMBERS[match[4]])
    number = (return_code or 0) - 128
    return number if number in _NAMES else None
