"""The command contract: a frame of user columns in, command rows out.

:func:`parse_commands` finds the known columns by name (in any case), reads and checks them, and returns one row for
each row of its input, on batch and streaming frames. It keeps no state. A row that breaks the contract does not raise:
it gets an ``error_code``.

Rows are read in Spark's Python workers, thousands at a time as Arrow arrays
(:mod:`wheel_udf.commands.command_reader`). As ``Column`` expressions, which came before, the same rules were a plan of
3,200 nodes: planned in each batch, copied to each task, and compiled anew by each JVM. A batch of 2,000 commands took
1.7 times as long.

======================  ==================================================================================
input column            accepted types, and meaning
======================  ==================================================================================
``schedule_id``         string or a whole number (42 is the id ``42``); 1 to 512 bytes of UTF-8 without NUL
``op``                  string: SCHEDULE (also null or empty), REPLACE, CANCEL, FIRE_NOW, RETRY (only beside
                        ``attempt``); case and outer blanks ignored
``seq``                 a whole number, or a float, decimal or text that is one; null: ``event_time`` in ms
``deliver_at``          timestamp, timestamp_ntz, date or ISO 8601 text; no zone = UTC; parts of a ms round up
``delay``               text in the grammar of :mod:`wheel_udf.common.durations`; counts from ``event_time``
``event_time``          as ``deliver_at``, but parts of a ms round down; null: the time of the batch
``destination``         string; null: the contract's default
``key``, ``value``      binary or string
``headers``             array of structs (key, value) or map; their keys and values binary or string
``max_lateness``        as ``delay``, not negative; null: the contract's
``spread``              as ``delay``, not negative: a hash of the id moves the due time within it
``repeat``              string: the rule of a series (:mod:`wheel_udf.recurrence.rule`); then no due time is needed
``time_zone``           string: a name (``Europe/Paris``) or an offset; null: the contract's
``starts_at``           as ``deliver_at``: the series has no occurrence before it; so do ``deliver_at`` and ``delay``
``until``               as ``event_time``: the series has no occurrence after it
``count``               a whole number from 1: how many occurrences there are
``on_missed``           string: ``latest`` (also null), ``all`` or ``none``
``on_gap``              string: ``shift`` (also null) or ``skip``
``on_fold``             string: ``first`` (also null), ``last`` or ``both``
``attempt``             a whole number: of a RETRY, which attempt has failed, from 1; null: 1
``error``               string: of a RETRY, why; its other columns: :mod:`wheel_udf.commands.retry_columns`
``source_coordinates``  string: where the row came from (file and row, partition and offset), for rejects
``source_seq``          long: the version of rows without ``seq``, from a source that has an order (Kafka's offset)
``source_deliver_at``   timestamp: ``deliver_at`` as the source has read it; used instead of its text
``source_event_time``   timestamp: likewise ``event_time``; also the instant of rows without one (Kafka's timestamp)
``_corrupt_record``     string: not null if the row could not be read at all (as in Spark's own readers)
``_misread_columns``    string: the names of columns whose values are not of their types; null for none
======================  ==================================================================================

Every column but ``schedule_id`` may be missing, which is the same as null. With ``source_seq``, good rows carry their
coordinates, too, into the wheel and out again. Strings may be binary, which is read as UTF-8. A column whose type can
hold no valid value (a boolean or a number as ``deliver_at``) raises ``ContractError`` before anything runs; numbers as
durations are refused row by row, since a delay of 0 is valid.

Order of the rules, and which apply to a CANCEL: :mod:`wheel_udf.commands.rules`. An empty text is a value, not a null,
and breaks the rule of its column (except ``op``). A due time that no timestamp can hold is ``beyond_max_delay``,
whatever the contract allows; one before the year 1900 is ``due_too_early``. With delay levels
(:mod:`wheel_udf.commands.delay_levels`) ``deliver_at_ms`` is when the wheel is to release the row, and the requested
time, which ``max_delay`` limits, is ``deliver_at_ms - level_error_ms``.

A series has no ``deliver_at_ms``: the wheel computes its occurrences (:mod:`wheel_udf.policies.series`). Without a
beginning of its own, the first one is the first after ``event_time``; with one, the first that is not before it.

Rejects carry the original row in ``record`` (:mod:`wheel_udf.commands.records`); key, value and headers of more
than ``max_value_bytes`` are in their own columns alone. Their ``op`` is 1 if it was CANCEL, 2 if FIRE_NOW;
``schedule_id`` is cut to 512 characters, and null if it was not UTF-8; ``destination`` is cut to 249 characters;
``deliver_at_ms`` is null outside of the years 1900 to 9999; ``event_time_ms`` is null where it was unusable, so that it
cannot move a clock.

Types that Arrow does not have (intervals, variants) can be in columns that are not of the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from wheel_udf.commands.arrow_stage import through_arrow
from wheel_udf.commands.command_reader import CommandReader
from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, SOURCE_SEQ, meant, places_of
from wheel_udf.commands.json_objects import COMMAND_FIELDS
from wheel_udf.commands.rules import DUE_COLUMNS, MISREAD, SOURCE, UNREADABLE
from wheel_udf.common.errors import ContractError

_NAMES: Final = (
    *COMMAND_FIELDS,
    *(SOURCE, SOURCE_SEQ, SOURCE_DELIVER_AT, SOURCE_EVENT_TIME, UNREADABLE, MISREAD),
)


def require_due_column(names: Sequence[str], *, exact: bool = False) -> None:
    """Refuses commands without a column that a due time can come from: each schedule would be rejected.

    If `exact`, the case of the names counts, as it does for keys of JSON.

    Raises:
        ContractError: None of ``deliver_at``, ``delay`` and ``repeat`` is there; the hint names the closest column.
    """
    found = {name if exact else name.lower() for name in names}
    if found.isdisjoint((*DUE_COLUMNS, "repeat")):
        shown_names = [name for name in names if not name.startswith(("_", "source_"))]
        raise ContractError(
            "the commands have no column with a due time",
            field="columns found",
            value=", ".join(shown_names),
            rule=f"a column {' or '.join(DUE_COLUMNS)}",
            hint=meant(shown_names, DUE_COLUMNS, _NAMES) or "for cancels alone add a column delay of nulls",
        )


def parse_commands(commands: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks commands.

    Args:
        commands: A batch or streaming frame with the columns of the table above.
        contract: The limits to check them against.

    Returns:
        One row for each row of ``commands``: ``schedule_id`` string, ``op`` byte (0 schedule or replace, 1
        cancel, 2 fire now), ``seq`` long, ``seq_given`` boolean, ``deliver_at_ms`` long (UTC epoch ms, null but for a
        schedule; with delay levels, when it is to be released), ``event_time_ms`` long, ``destination`` string, ``key``
        binary, ``value`` binary, ``headers`` string (the JSON of :data:`wheel_udf.commands.readers.HEADERS`),
        ``max_lateness_ms`` long; and for rejected rows alone ``error_code``, ``error_message``, ``record`` and
        ``source``, all string (``source`` of good rows too where the input has ``source_seq``). With delay
        levels also ``delay_level_ms`` long (the span of its level) and ``level_error_ms`` long, both null
        without a level. With ``op`` and ``attempt`` also the columns of
        :data:`wheel_udf.commands.retry_columns.OUTPUT`. Only a schedule has payload and destination. All
        strings are valid UTF-8.

    Raises:
        ContractError: ``schedule_id`` is missing, two columns have one name, or a type can hold no valid value.
    """
    places = places_of(commands.columns, _NAMES, required=("schedule_id",), what="commands")
    return through_arrow(commands, CommandReader(tuple(commands.columns), places, contract), "commands")
