"""A job without Spark that answers over HTTP, for both ends of its interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from wheel_udf.api.place import Place, announced
from wheel_udf.api.server import ApiServer, Job
from wheel_udf.metrics.meter import Meter


@contextmanager
def served(
    checkpoint: str, verbs: Sequence[str], questions: Any, openapi: Any, job: Meter, page: Any = None
) -> Iterator[Place]:
    """Serves the job `orders`, whose questions the methods ``answer`` and ``arrow`` of an object answer; yields its place."""
    about = {"name": "orders", "checkpoint": checkpoint}
    with closing(ApiServer("127.0.0.1", 0)) as server:
        server.serve(job)
        server.answer(Job(about, verbs, questions.answer, questions.arrow, openapi, page), job)
        place = Place.of_this_process("orders", checkpoint, *server.address, server.token)
        with announced(place):
            yield place


def stream_of(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue())
