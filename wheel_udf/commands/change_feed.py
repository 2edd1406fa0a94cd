"""Change feed: maps the rows of a Delta table's change data feed to commands.

A table with one row for each ``schedule_id`` is a compacted log: the latest row of an id wins, and an id
without a row is not pending. Its change data feed is that log, commit by commit::

    _change_type        command     version               for version 7
    insert              SCHEDULE    the commit's          7
    update_postimage    SCHEDULE    the commit's          7
    update_preimage     none        -                     -    the row before the update: left out
    delete              CANCEL      the one before it     6    ends the earlier row, not one that the commit writes

So a commit that deletes a row and writes it again (an overwrite, some merges) replaces it, in whatever order
the two are read: Delta may hand out the files of one commit in several batches.

Columns are those of the command contract without ``op`` and ``seq``, which the change determines; the others are kept
in the ``record`` of a reject. Any other kind of change is a reject, ``bad_op``. The first start reads the table as it
is, as inserts of its version (or, with ``startingVersion`` 0, all commits). ``event_time`` is the column of that name,
if there is one, else the time of the commit; for a delete it is that of the deleted row, so that a wheel under the
event clock has one kind of time. See https://docs.delta.io/delta-change-data-feed.

Caveats: of two rows of one id in one commit the wheel keeps one (within a batch the one that is due first)
and counts the other as a duplicate. An update that changes the ``schedule_id`` itself leaves the old id
pending: delete and insert instead. The rules of ``event_time`` apply to a delete, as to any CANCEL. A checkpoint of
the same table read without its feed has versions of another kind (``event_time`` in ms, which is above all commit
numbers): use a new checkpoint.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, functions as F

from wheel_udf.commands.inputs import SOURCE_SEQ
from wheel_udf.common.errors import ContractError

COMMITTED_AT: Final = "_commit_timestamp"
_KIND, _VERSION = "_change_type", "_commit_version"
_SET_BY_THE_CHANGE: Final = ("op", "seq")


def change_commands(changes: DataFrame, table: str) -> DataFrame:
    """Reads the rows of a change feed as commands.

    Args:
        changes: The feed, of a batch or a stream: the table's columns, ``_change_type`` (string),
            ``_commit_version`` (long) and ``_commit_timestamp`` (timestamp).
        table: Its path.

    Returns:
        A row for each row of the feed except ``update_preimage``: its columns, ``op`` (string), ``source_seq`` (long,
        the version above) and ``source_coordinates`` (``orders@v7``, the folder's name and the commit).

    Raises:
        ContractError: The table has a column ``op`` or ``seq``.
    """
    _require_plain(changes.columns, table)
    kind, version = F.col(_KIND), F.col(_VERSION)
    is_delete = kind == "delete"
    return changes.where(~kind.eqNullSafe("update_preimage")).withColumns(
        {
            "op": F.when(is_delete, F.lit("CANCEL"))
            .when(kind.isin("insert", "update_postimage"), F.lit("SCHEDULE"))
            .otherwise(F.coalesce(kind, F.lit("unknown"))),
            SOURCE_SEQ: F.when(is_delete, version - 1).otherwise(version),
            # Every pending row and each delivery to Kafka carries it: the name, not the whole path.
            "source_coordinates": F.concat(F.lit(f"{table.rstrip('/').rpartition('/')[2]}@v"), version),
        }
    )


def _require_plain(names: list[str], table: str) -> None:
    if found := [name for name in names if name.lower() in _SET_BY_THE_CHANGE]:
        raise ContractError(
            "the table has columns that the change feed determines",
            field="source.path",
            value=table,
            rule="a table without columns op and seq",
            hint=f"found: {', '.join(found)}; rename them, "
            "or read the table without readChangeFeed if rows are only added",
        )
