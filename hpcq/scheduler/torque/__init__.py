"""Torque: another descendant of the first PBS, whose commands share names and exit codes with PBS's and speak XML."""

from hpcq.scheduler.torque.description import DESCRIPTION
from hpcq.scheduler.torque.scheduler import Torque

__all__ = ["DESCRIPTION", "Torque"]
