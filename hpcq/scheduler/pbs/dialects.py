"""Which PBS a server is, by what `qstat --version` and `pbs_version` say, and what that release can do: two tables.

    pbs_version = 23.06.06                    OpenPBS
    pbs_version = 2022.1.5.20240213134632     PBS Professional: a year, and when it was built
    pbs_version = 18.2.3.20181206140456       PBS Professional: when it was built
    pbs_version = PBSPro_11.1.0.111761        PBS Professional before 13
    Version: 6.1.1.1                          Torque: hpcq does not know it

hpcq reads the words of all releases at once (states, exit codes, reasons): no release gives one of them another meaning.
This page is about what a release lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """Who makes it. The two PBS are one program, numbered in two ways."""

    OPENPBS = "OpenPBS"
    PROFESSIONAL = "PBS Professional"
    TORQUE = "Torque"
    UNKNOWN = "unknown"


class Ability(StrEnum):
    """What hpcq uses and not every release has."""

    DSV = "qstat -F dsv"
    ALTERED_RESERVATIONS = "pbs_ralter"
    NODE_FAILURES = "tolerate_node_failures"
    MAINTENANCE_RESERVATIONS = "pbs_rsub --hosts"
    USERS_OF_RESERVATIONS = "pbs_ralter -U"
    CODES_OF_LIMITS = "exit codes of limits"


@dataclass(frozen=True, slots=True)
class _Since:
    """The first release that has it, in each family's own numbers; without: what a cluster goes without."""

    openpbs: tuple[int, int]
    professional: tuple[int, int]
    without: str


#: Source of the first column: the sources of the releases 14.1.0 to 23.06.06 of OpenPBS, which was called PBS
#: Professional up to 19.1. Of the second: the first release of PBS Professional that was made after the change had
#: entered those sources (2017-02, 2017-07, 2017-08, 2019-05, 2020-01, 2020-12). No PBS Professional was tried.
_SINCE = {
    Ability.DSV: _Since((18, 1), (18, 2), "hpcq cannot read its listings"),
    Ability.ALTERED_RESERVATIONS: _Since((18, 1), (18, 2), "reservations of a run cannot be prolonged"),
    Ability.NODE_FAILURES: _Since((19, 1), (18, 2), "a lost node ends a tournament: write `tolerate_node_failures: none`"),
    Ability.MAINTENANCE_RESERVATIONS: _Since((20, 0), (2020, 1), "hpcq accept prints no order that releases nodes to the test"),
    Ability.USERS_OF_RESERVATIONS: _Since((20, 0), (2020, 1), "hpcq accept prints no order that admits a user"),
    Ability.CODES_OF_LIMITS: _Since((22, 5), (2021, 1), "a time limit is known by the time that the job used"),
}
#: Without these, nothing is measured, or a directive of the job scripts is refused.
NEEDED = frozenset({Ability.DSV, Ability.NODE_FAILURES})
#: The years in which a release of PBS Professional begins with its year.
_YEARS = range(2020, 2100)
_PBS = re.compile(r"pbs_version\"?\s*[=:]\s*\"?(PBSPro_)?(\d+)\.(\d+)((?:\.\d+)*)")
_TORQUE = re.compile(r"^\s*[Vv]ersion:\s*(\S+)", re.MULTILINE)
#: 20181206140456: a release of PBS Professional says when it was built; before 13 a number of six digits.
_BUILT = re.compile(r"\.\d{14}$")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One release. number: as it says it, `2022.1.5.20240213134632`."""

    family: Family
    number: str
    release: tuple[int, int] = (0, 0)

    @property
    def known(self) -> bool:
        return self.family in {Family.OPENPBS, Family.PROFESSIONAL}

    def has(self, ability: Ability) -> bool:
        """Whether this release has it. One that hpcq cannot place is taken for a new one."""
        since = _SINCE[ability]
        return not self.known or self.release >= (since.professional if self.family is Family.PROFESSIONAL else since.openpbs)

    def lacks(self) -> dict[Ability, str]:
        """What this release has not, and what follows."""
        return {ability: since.without for ability, since in _SINCE.items() if not self.has(ability)}

    def __str__(self) -> str:
        return f"{self.family} {self.number}".strip()


def read_dialect(said: str) -> Dialect:
    """Return the release by what the server or a command says of itself."""
    found = _PBS.search(said)
    if found is None:
        torque = _TORQUE.search(said)
        return Dialect(Family.TORQUE, torque[1]) if torque else Dialect(Family.UNKNOWN, " ".join(said.split())[:60])
    old, major, minor, rest = found[1], int(found[2]), int(found[3]), found[4]
    professional = old or major in _YEARS or _BUILT.search(rest)
    number = f"{found[2]}.{found[3]}{rest}"
    return Dialect(Family.PROFESSIONAL if professional else Family.OPENPBS, number, (major, minor))
