"""`nodes.reservation` of a campaign file: an existing one, or one that hpcq makes for the run.

nodes: {reservation: upkeep-7}
nodes: {reservation: {make: true, otherwise: without}}
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hpcq.definition.checking import Section, Word, refuse


def named_reservation(value: object) -> object:
    """Turn the short form into the long one."""
    return {"name": value} if isinstance(value, str) else value


class ReservationSection(Section):
    """A reservation: the name of one that exists, or {make: true} for one of the run's own."""

    name: Word | None = Field(default=None, description="A reservation that exists.")
    make: bool = Field(default=False, description="hpcq reserves idle nodes, uses them and removes the reservation.")
    otherwise: Literal["stop", "without"] = Field(
        default="stop", description="With make, if you may not make one: stop before anything runs, or go on without."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> ReservationSection:
        if self.make == (self.name is not None):
            found = "a name and make: true" if self.make else "no name and no make: true"
            raise refuse(f"{found}: must be the name of a reservation that exists, or {{make: true}}")
        return self
