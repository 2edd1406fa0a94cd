"""Reads operations and events of the purgatory: frames of user columns in, rows for the purgatory's step out.

Works as :mod:`wheel_udf.commands.parse`: columns are found by name in any case, read and checked
(:mod:`wheel_udf.commands.operation_reader`), and a row that breaks a rule does not raise: it gets a ``reject``. The
rules: :mod:`wheel_udf.commands.operation_rules`.

==================  ================================================================================================
operations          accepted types, and meaning
==================  ================================================================================================
``op_id``           string or a whole number; 1 to 512 bytes of UTF-8 without NUL; an operation's name in its group
``group``           as ``op_id``; shared by an operation and its events
``keys``            array of strings, or a string for one key; each as an id; repeats count once
``rule``            ``any`` (also null), ``all``, ``n:3``, ``sum>=100`` (of amounts), ``beat``
``deadline``        timestamp, date, ISO 8601 text, or a duration counted from ``event_time``
``limit``           as ``deadline``: makes it a join, whose deadline is extended up to here; null: none
``event_time``      as in commands; null: the time of the batch
``destination``     string: where the outcome goes; may be missing where outcomes are not delivered
``key``, ``value``  binary or string; passed through
``headers``         array of structs (key, value) or map; passed through
==================  ================================================================================================

==================  ================================================================================================
events              accepted types, and meaning
==================  ================================================================================================
``group``           as above
``key``             as an id: the key of the event, or (CANCEL) to cancel; of CANCEL_OPERATION the operation's id
``op``              string: EVENT (also null), CANCEL, CANCEL_OPERATION; case and outer blanks ignored
``amount``          a number, not negative; null: 0; for rules that sum
``event_time``      as above
==================  ================================================================================================

Both may have ``source_coordinates`` and ``_corrupt_record``, like commands.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from wheel_udf.commands.arrow_stage import through_arrow
from wheel_udf.commands.contract import EVENT_COLUMNS, OPERATION_COLUMNS, Contract
from wheel_udf.commands.inputs import places_of
from wheel_udf.commands.operation_reader import EventReader, OperationReader
from wheel_udf.commands.rules import MISREAD, SOURCE, UNREADABLE

_OPERATION_NAMES: Final = (*OPERATION_COLUMNS, SOURCE, UNREADABLE, MISREAD)
_EVENT_NAMES: Final = (*EVENT_COLUMNS, SOURCE, UNREADABLE, MISREAD)


def parse_operations(operations: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks operations.

    Args:
        operations: A batch or streaming frame with the columns above.
        contract: ``max_delay_ms`` (of deadlines), ``max_value_bytes``, ``max_ahead_ms`` and destinations
            apply here, too.

    Returns:
        A row for each: ``what`` int (:data:`OPERATION`), ``group``, ``name`` (the id), ``keys`` (joined by
        NUL), ``need`` int, ``amount`` double (a sum's threshold), ``event_time_ms``, ``deadline_ms``,
        ``limit_ms`` long, ``destination``, ``key``, ``value``, ``headers`` (JSON), ``source``, and of
        rejected ones ``reject`` (JSON of code, message and record).

    Raises:
        ContractError: ``op_id``, ``group``, ``keys`` or ``deadline`` is missing, two columns have one name,
            or a type can hold no valid value.
    """
    needed = ("op_id", "group", "keys", "deadline")
    places = places_of(operations.columns, _OPERATION_NAMES, required=needed, what="operations")
    reader = OperationReader(tuple(operations.columns), places, contract)
    return through_arrow(operations, reader, "operations")


def parse_events(events: DataFrame, contract: Contract) -> DataFrame:
    """Reads and checks events, as :func:`parse_operations`; ``what`` is the kind of event, ``name`` its key or id."""
    places = places_of(events.columns, _EVENT_NAMES, required=("group", "key"), what="events")
    return through_arrow(events, EventReader(tuple(events.columns), places, contract), "events")
