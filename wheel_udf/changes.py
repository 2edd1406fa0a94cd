"""Changes: what a row of a Delta table's change data feed says as a command.

A table that holds one row for each ``schedule_id`` is a compacted log: its latest row of an id wins, and an id that is not there is not
pending. Its feed is that log, commit by commit::

    _change_type        command     version               of version 7
    insert              SCHEDULE    the commit's          7
    update_postimage    SCHEDULE    the commit's          7
    update_preimage     none        -                     -    what was there before: no event, and the one thing that is left out
    delete              CANCEL      the one before it     6    it ends what stood before the commit, and not what the commit writes

So a commit that deletes a row and writes it anew (an overwrite, some merges) replaces it, whichever of the two is read first: Delta may
hand out the files of one commit in several batches. The columns are those of the command contract, but for ``op`` and ``seq``: the
change itself says both, and a table that has such a column is refused rather than read half. The table's other columns, ``_change_type``,
``_commit_version`` and ``_commit_timestamp`` are kept in the ``record`` of a reject. A kind of change that is not in the table above
is a reject, ``bad_op``.

A first start reads the table as it stands, as inserts of its version (or, with ``startingVersion`` 0, all commits): the log, compacted.
``event_time`` is the column of that name, if there is one, else the time of the commit; of a delete it is that of the row that was deleted, lest
a wheel under the event clock meets two kinds of time. See https://docs.delta.io/delta-change-data-feed.

Caveats: of two rows of one id in one commit the wheel keeps one (of a batch the one that is due first) and counts the other as a duplicate.
An update that changes the ``schedule_id`` itself leaves the old id pending, for no row of the feed says that it is gone: delete and insert instead.
A delete is held to the rules of ``event_time``, as any CANCEL is. A checkpoint of the same table read without its feed has versions of another
kind (``event_time`` in ms, above all numbers of commits): take a new one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wheel_udf.errors import ContractError

COMMITTED_AT: Final = "_commit_timestamp"
_KIND, _VERSION = "_change_type", "_commit_version"
_SAID_BY_THE_CHANGE: Final = ("op", "seq")


def change_commands(changes: DataFrame, table: str) -> DataFrame:
    """Reads the rows of a change feed as commands.

    Args:
        changes: The feed, of a batch or a stream: the table's columns, ``_change_type`` (string), ``_commit_version`` (long) and
            ``_commit_timestamp`` (timestamp).
        table: Its path.

    Returns:
        One row for each row of the feed but the ``update_preimage`` ones: its columns, ``op`` (string), ``source_seq``
        (long, the version of the table above) and ``source_coordinates`` (``orders@v7``, the folder's name and the commit, as in Delta's time travel).

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
            "source_seq": F.when(is_delete, version - 1).otherwise(version),
            # Every pending row bears it, and so does each delivery to Kafka: the name, and not the whole path.
            "source_coordinates": F.concat(F.lit(f"{table.rstrip('/').rpartition('/')[2]}@v"), version),
        }
    )


def _require_plain(names: list[str], table: str) -> None:
    if found := [name for name in names if name.lower() in _SAID_BY_THE_CHANGE]:
        raise ContractError(
            "a change feed says itself what is done and in which version",
            field="source.path",
            value=table,
            rule="a table without columns op and seq",
            hint=f"found: {', '.join(found)}; rename them, or read the table without readChangeFeed if rows are only ever added",
        )
