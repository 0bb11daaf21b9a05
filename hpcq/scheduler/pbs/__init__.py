"""PBS: all code that names its commands, reads their answers, or knows its words.

For OpenPBS, and for PBS Professional from version 14 on.
"""

from hpcq.scheduler.pbs.description import DESCRIPTION
from hpcq.scheduler.pbs.scheduler import Pbs

__all__ = ["DESCRIPTION", "Pbs"]
