"""The logs of sources in a checkpoint: ``sources/N/...``, what source N of the query has noted for itself.

A source of files notes there which files belong to which of its offsets; without this log its offset means nothing,
and all files would be read again. Kafka and Delta note nothing that a later start needs: their offsets are enough.

Caveat: the layout of the folder is Spark's own; see ``spark/private_api.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wheel_udf.spark.files import open_folder


def source_log(path: str, number: int) -> Iterator[tuple[str, bytes]]:
    """Yields the files in the log of a source: name and content.

    Args:
        path: The checkpoint folder.
        number: Position of the source in the query, from 0.
    """
    folder = open_folder(f"{path}/sources/{number}")
    for name in sorted(folder.names()):
        content = None if name.startswith(".") else folder.read(name)
        if content is not None:
            yield name, content


def write_source_log(path: str, number: int, log: Mapping[str, bytes]) -> None:
    """Writes the log of a source, as :func:`source_log` gives it, into a checkpoint that has no batches yet."""
    folder = open_folder(f"{path}/sources/{number}")
    for name, content in log.items():
        folder.replace(name, content)
