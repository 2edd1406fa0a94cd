"""Arrow tables as text: an IPC stream in base64, compressed if it is large."""

from __future__ import annotations

import binascii

import pyarrow as pa

_COMPRESS_FROM_BYTES = 16_384


def table_to_text(table: pa.Table) -> str:
    """Encodes a table that is not a chunk as base64."""
    return base64_of(encoded(table))


def table_from_text(text: str) -> pa.Table:
    """The inverse of :func:`table_to_text`."""
    return pa.ipc.open_stream(octets_of(text)).read_all()


def encoded(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow IPC stream, compressed if it is large."""
    # zstd has a fixed cost; below the threshold the schema message is most of the bytes anyway.
    compression = "zstd" if table.nbytes >= _COMPRESS_FROM_BYTES else None
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(_without_remains(table.combine_chunks()))
    return sink.getvalue()


def _without_remains(table: pa.Table) -> pa.Table:
    """Writes zeros where a number is null. Arrow leaves there what was in memory before, such as a part of other rows:
    rows that have been forgotten, and other bytes in each repetition.
    """
    for place, kind in enumerate(table.schema):
        column = table.column(place)
        if column.null_count and pa.types.is_primitive(kind.type) and not pa.types.is_boolean(kind.type):
            values = column.fill_null(0).to_numpy()
            zeroed = pa.array(values, kind.type, mask=column.is_null().to_numpy())
            table = table.set_column(place, kind, zeroed)
    return table


def base64_of(octets: bytes | pa.Buffer) -> str:
    """Bytes as base64."""
    return binascii.b2a_base64(octets, newline=False).decode("ascii")


def octets_of(text: str) -> bytes:
    """The inverse of :func:`base64_of`."""
    return binascii.a2b_base64(text)
