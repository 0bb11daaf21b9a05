"""Descriptions for tests, of the program in foreign.py."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "described" / "foreign.py"
RATE = """
name: foreign_rate
summary: A rate that a test makes up.
shape: client and server
program: PYTHON
version: "{{ program }} PEER --version"
options:
  mode: {type: choice, default: good, choices: [good, nan, exit, words, hang, table], help: what the client does}
  word: {type: choice, default: plain, choices: [plain, "a b; $(c) 'd'"], help: one argument}
server:
  command: "{{ program }} PEER server {{ port }}"
  ready: {words: listening, within_s: 7}
command: "{{ program }} PEER client {{ address }} {{ port }} {{ mode }} {{ word }}"
limit_s: "{{ 3 if mode == 'hang' else 60 }}"
failure: {words: [FAILED]}
metrics:
  rate_bps:
    better: higher
    regex: 'rate = (\\S+) Mbit/s'
    times: 1.0e6
    maximum: 1.0e9
    same_as: {kernel: tcp_stream, metric: throughput_bps}
    help: the rate
"""
TABLE = """
name: foreign_table
summary: Rates that a test makes up, one per size.
shape: client and server
program: PYTHON
options:
  message_bytes_max: {type: integer, default: 4, minimum: 1, maximum: 1024, help: the largest size}
server:
  command: "{{ program }} PEER server {{ port }}"
  ready: {listening: true, within_s: 7}
command: "{{ program }} PEER client {{ address }} {{ port }} table plain"
limit_s: 60
sizes: {first: 1, last: "{{ message_bytes_max }}"}
table: {head: '^# Size', columns: [message_bytes, rate]}
metrics:
  rate_bps: {better: higher, column: rate, times: 1.0e6, help: the rate}
"""

#: A server of another program with two ports; a folder with a file; options that a campaign adds.
FOLDER = """
name: foreign_folder
summary: A rate that stands in a file.
shape: client and server
program: /usr/bin/env
version: "sleep 60"
options:
  rate_count: {type: integer, default: 7, minimum: 1, maximum: 9, help: the rate in the file}
server:
  program: PYTHON
  command: "{{ program }} PEER server {{ port }} {{ second_port }}"
  ready: {listening: true, within_s: 7}
command: "{{ program }} PYTHON PEER folder {{ address }} {{ port }} {{ second_port }} input.txt {{ arguments }} --last"
files:
  input.txt: |
    a file of {{ program }}

    rate = {{ rate_count }}.5 Mbit/s
output_file: result-*.txt
limit_s: 60
metrics:
  rate_bps: {better: higher, regex: 'rate = (\\S+) Mbit/s', times: 1.0e6, help: the rate}
"""
#: On one node alone: nothing crosses an interface.
ALONE = """
name: foreign_alone
summary: A rate that a test makes up, of one node.
shape: one node
program: /bin/echo
command: "{{ program }} rate = 9.5 Mbit/s"
limit_s: 60
metrics:
  rate_bps: {better: higher, regex: 'rate = (\\S+) Mbit/s', times: 1.0e6, help: the rate}
"""


def write(folder: Path, text: str) -> Path:
    """Write a description into `folder`/kernels and return its path."""
    filled = text.replace("PYTHON", sys.executable).replace("PEER", str(PROGRAM))
    path = folder / "kernels" / f"{filled.split('name: ', 1)[1].splitlines()[0]}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(filled)
    return path
