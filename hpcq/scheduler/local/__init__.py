"""The embedded queue for this one machine."""

from hpcq.scheduler.local.description import DESCRIPTION
from hpcq.scheduler.local.scheduler import Local

__all__ = ["DESCRIPTION", "Local"]
