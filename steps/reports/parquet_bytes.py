"""Rows -> a table of Arrow -> a Parquet file in memory, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def make_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The table that ``pa.Table.from_pylist`` makes; a map is given as a dict. What a row lacks is null.

    Arrow reads the rows as JSON: its conversion of Python's own objects loads pandas wherever that is installed, 0.4 s
    of CPU, only to see that a list is no Series. Raises ValueError where a value is not of its column's type.
    """
    import pyarrow as pa
    from pyarrow import json as arrow_json

    try:
        lines = "\n".join(json.dumps(_as_json(row), allow_nan=False) for row in rows).encode()
    except ValueError:  # JSON has neither NaN nor infinity
        return pa.Table.from_pylist(list(rows), schema=schema)
    if not lines:
        return pa.Table.from_batches([], schema)
    read = arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines)),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema([(field.name, _type_in_json(field.type)) for field in schema]),
            unexpected_field_behavior="error",
        ),
    )
    columns = [[chunk.view(field.type) for chunk in read.column(field.name).chunks] for field in schema]
    return pa.Table.from_arrays([pa.chunked_array(chunks) for chunks in columns], schema=schema)


def _as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [{"key": key, "value": item} for key, item in value.items()] if isinstance(value, dict) else value
        for name, value in row.items()
    }


def _type_in_json(kind: pa.DataType) -> pa.DataType:
    """How Arrow's reader of JSON, which knows no maps, can have it: laid out in memory just the same."""
    import pyarrow as pa

    if not pa.types.is_map(kind):
        return kind
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def write_parquet(table: pa.Table) -> bytes:
    """The file's content."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def read_parquet(data: bytes) -> pa.Table:
    """Read it whole. Raises ValueError where it is broken.

    Without Arrow's threads, for a process that ends while they do can be aborted (``terminate called without an active
    exception``), after all its work; and not by ``read_table``, which begins some, and loads pyarrow.dataset in 0.2 s.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            return file.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
