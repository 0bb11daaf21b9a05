"""SuperBench: results-summary.jsonl, one node per line, one key per number: nccl-bw:nvlink/allreduce_8_busbw:0.

Each number is a test of its own, whose metric is `value`: the file says no units. The number behind the last colon is the
rank. `return_code` tells which benchmarks failed. The file has no time: --names says which part of the path it is,
else it is the time of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcq.errors import UserError
from hpcq.imports.others import Maker, direction, files_in, made, number_of, objects
from hpcq.imports.values import Problems, Source, Value, read_bytes

SUFFIXES = (".jsonl",)


def read(paths: Sequence[Path], maker: Maker, problems: Problems) -> Iterator[Source]:
    """The values in these files, and in those below folders. Raises UserError for a file of another kind."""
    for path in files_in(paths, SUFFIXES):
        content, digest = read_bytes(path)
        yield Source(str(path), digest, _values(path, content.decode("utf-8", "replace"), maker, problems))


def _values(path: Path, text: str, maker: Maker, problems: Problems) -> Iterator[Value]:
    said = maker.roles(path)
    time_utc = maker.file_utc(path, said)
    for line, one in objects(str(path), text):
        if not isinstance(one, dict) or not isinstance(one.get("node"), str):
            raise UserError(f"{path}:{line}: no key node: must be a line of SuperBench's results-summary.jsonl")
        try:
            client, server = maker.nodes([one["node"]])
            where = {"time_utc": time_utc, "run": maker.run(said, time_utc), "job": said.get("job", "")}
            where |= {"client": client, "server": server}
            yield from _of_node(line, where, one, maker)
        except ValueError as error:
            problems.add(str(path), line, str(error))


def _of_node(line: int, where: dict[str, Any], one: dict[str, Any], maker: Maker) -> Iterator[Value]:
    for key, number in one.items():
        if key == "node" or number is None:
            continue
        value = number_of(number, key)
        benchmark, _, rest = key.partition("/")
        name, _, rank = rest.rpartition(":")
        name, rank = (name, rank) if name and rank.isdecimal() else (rest, "")
        parameters = {"rank": int(rank)} if rank else {}
        if name.startswith("return_code"):
            if value:
                failed = {**where, "test": maker.test(f"{benchmark}.return_code", parameters), "repetition_no": None}
                yield made(line, failed, None, None, f"{benchmark}: return code {value:g}")
            continue
        of_test = {**where, "test": maker.test(f"{benchmark}.{name or benchmark}", parameters), "repetition_no": None}
        metric, _ = maker.metric("value", "", maker.meaning.better.get(name) or direction(f"{benchmark}_{name}", ""))
        yield made(line, of_test, metric, value, None)
