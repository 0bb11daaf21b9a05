"""PBS: everything that names its commands, reads their answers, or knows its words.

OpenPBS, and PBS Professional from 14 on.
"""

from hpcq.scheduler.pbs.description import DESCRIPTION
from hpcq.scheduler.pbs.scheduler import Pbs

__all__ = ["DESCRIPTION", "Pbs"]
