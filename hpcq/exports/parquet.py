"""Parquet: the rows of the other tables with types. The only user of pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from hpcq import units
from hpcq.errors import HpcqError
from hpcq.exports.collect import COLUMNS

#: Rows of one row group. A reader needs one of them in memory, and so does hpcq.
_GROUP_ROWS = 50_000
_INTEGERS = {"message_bytes", "test_no", "repetition_no", "series_id", "result_id", "attempt_no"}
_YES_OR_NO = {"disturbed", "crossed_interface"}
_TIMES = {"started_utc"}


class _Pipe:
    """What pyarrow writes to: it keeps only what was not fetched yet."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written_bytes = 0

    def write(self, piece: Any) -> int:
        data = bytes(piece)
        self._pieces.append(data)
        self._written_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written_bytes

    def flush(self) -> None:
        """Nothing waits elsewhere."""

    def close(self) -> None:
        """pyarrow closes what it was given; the pieces stay."""

    def fetch(self) -> Iterator[bytes]:
        """Hand out what was written since."""
        pieces, self._pieces = self._pieces, []
        yield from pieces


def parquet_pieces(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the file in pieces. Raises HpcqError if pyarrow is not installed.

    Whole numbers are int64, yes or no is boolean, times are microseconds in UTC, `value` is a double; `parameters` is JSON
    as text. What is unknown is null.
    """
    arrow = _arrow()
    import pyarrow.parquet as pq

    schema = arrow.schema([(name, _type(arrow, name)) for name in COLUMNS])
    pipe, remaining = _Pipe(), iter(rows)
    with pq.ParquetWriter(arrow.PythonFile(pipe, mode="w"), schema, compression="zstd") as writer:
        while group := list(islice(remaining, _GROUP_ROWS)):
            columns = [arrow.array([_value(name, row[name]) for row in group], type=_type(arrow, name)) for name in COLUMNS]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
            yield from pipe.fetch()
    yield from pipe.fetch()


def _arrow() -> Any:
    try:
        import pyarrow as arrow
    except ImportError:
        raise HpcqError(
            "--format parquet: pyarrow is not installed", "pip install pyarrow; csv and jsonl need nothing more"
        ) from None
    return arrow


def _type(arrow: Any, name: str) -> Any:
    if name in _INTEGERS:
        return arrow.int64()
    if name in _YES_OR_NO:
        return arrow.bool_()
    if name in _TIMES:
        return arrow.timestamp("us", tz="UTC")
    return arrow.float64() if name == "value" else arrow.string()


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _YES_OR_NO:
        return bool(value)
    return units.parse_utc(value) if name in _TIMES else value
