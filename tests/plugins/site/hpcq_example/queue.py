"""A scheduler: the local queue under another name, with a head of job scripts of its own beside this file."""

from __future__ import annotations

from dataclasses import replace

from hpcq.scheduler.local import DESCRIPTION, Local

SCHEDULER = (replace(DESCRIPTION, kind="example", title="the example queue", head_template="example.directives.j2"), Local)
