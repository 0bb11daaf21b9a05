"""Slurm: all code that names its commands, reads their answers, or knows its words."""

from hpcq.scheduler.slurm.scheduler import DESCRIPTION, Slurm

__all__ = ["DESCRIPTION", "Slurm"]
