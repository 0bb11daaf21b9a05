"""PBS: all code that names its commands, reads their answers, or knows its words.

For OpenPBS from 18.1, and for PBS Professional from 18.2.
"""

from hpcq.scheduler.pbs.scheduler import DESCRIPTION, Pbs

__all__ = ["DESCRIPTION", "Pbs"]
