"""Commands: reads what producers send, as Spark ``Column`` expressions: commands of the wheel, operations and
events of the purgatory.

In: a frame of user columns, of Kafka records or of a change data feed, and a
:class:`~wheel_udf.commands.contract.Contract`. Out: one row for each row of the input, valid or with an error
code; no row is dropped, and no data raises an error. All in the JVM: no UDF, no Python for each row.

::

    Kafka record --> kafka_presets --+                 rules (order, conditions, messages)
    Delta changes -> change_feed ----+--> parse ---------> command rows --> wheel
    any frame -----------------------+      |
                                            +- inputs (find columns) - readers, time_readers (read one column)
    operations, events ---------------> operations -----> operation rows --> purgatory
                                                       operation_rules

Other files: ``contract`` (limits and allow-list), ``records`` (the original row of a reject as JSON),
``tier_columns`` (level, slot and delay level of a due time as Column), ``generated_code`` (keeps Spark's
generated methods small enough to be compiled, and the same in each batch).

May import: the rooms ``common``, ``wheel`` and ``purgatory``; pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.commands.change_feed import (
        COMMITTED_AT as COMMITTED_AT,
        change_commands as change_commands,
    )
    from wheel_udf.commands.contract import (
        DEFAULT_PRESET as DEFAULT_PRESET,
        EVENT_COLUMNS as EVENT_COLUMNS,
        OPERATION_COLUMNS as OPERATION_COLUMNS,
        PRESETS as PRESETS,
        Contract as Contract,
        shortened as shortened,
    )
    from wheel_udf.commands.generated_code import (
        of_batch as of_batch,
    )
    from wheel_udf.commands.inputs import (
        meant as meant,
    )
    from wheel_udf.commands.kafka_presets import (
        kafka_commands as kafka_commands,
    )
    from wheel_udf.commands.operations import (
        RECORD as RECORD,
        parse_events as parse_events,
        parse_operations as parse_operations,
    )
    from wheel_udf.commands.parse import (
        parse_commands as parse_commands,
        require_due_column as require_due_column,
    )
    from wheel_udf.commands.readers import (
        LONG_JSON as LONG_JSON,
        batch_ms as batch_ms,
    )
    from wheel_udf.commands.rules import (
        MISREAD as MISREAD,
    )
    from wheel_udf.commands.tier_columns import (
        level_column as level_column,
        slot_column as slot_column,
    )
    from wheel_udf.commands.time_readers import (
        MAX_INSTANT_MS as MAX_INSTANT_MS,
        utc_text as utc_text,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "change_feed": ("COMMITTED_AT", "change_commands"),
            "contract": (
                "Contract",
                "DEFAULT_PRESET",
                "EVENT_COLUMNS",
                "OPERATION_COLUMNS",
                "PRESETS",
                "shortened",
            ),
            "generated_code": ("of_batch",),
            "inputs": ("meant",),
            "kafka_presets": ("kafka_commands",),
            "operations": ("RECORD", "parse_events", "parse_operations"),
            "parse": ("parse_commands", "require_due_column"),
            "readers": ("LONG_JSON", "batch_ms"),
            "rules": ("MISREAD",),
            "tier_columns": ("level_column", "slot_column"),
            "time_readers": ("MAX_INSTANT_MS", "utc_text"),
        },
    )
