"""Facts and helpers that every room uses. Each fact is declared here once.

::

    errors       WheelError and its children: what is wrong, field, value, rule, hint
    names        the rule of destination and topic names; the match of an allow-list
    durations    text such as "10 minutes" or PT10M to ms
    instants     ISO text to UTC epoch ms, and back
    records      a dataclass from JSON that may be damaged
    paths        whether one folder is inside another
    outcomes     the words of the account: fired, superseded, applied, expired, ...
    progress     a bar or lines that show how far long work is
    interrupts   Ctrl-C: its exit code, and work that it does not cut in two
    secrets      ${env:NAME} and ${file:/path} in a config, and *** in their place in every text
    command_facts  sizes, header names and bounds of the command contract
    extras       the error for an optional package that is not installed
    arrays       runs of equal neighbours in numpy arrays
    exports      the lazy exports of a room's __init__

In: texts and numbers. Out: values, or a WheelError. No module here depends on commands, on Spark or on a file
format of this package.

May import: the standard library; ``arrays`` also numpy, ``progress`` tqdm when it draws. So ``python -m wheel_udf.platform.jars`` runs before
the packages are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel_udf.common.exports import exports

if TYPE_CHECKING:
    from wheel_udf.common import errors as errors
    from wheel_udf.common.arrays import (
        Bools as Bools,
        Int64s as Int64s,
        before_in_run as before_in_run,
        is_last as is_last,
        repeats as repeats,
        runs_of as runs_of,
    )
    from wheel_udf.common.command_facts import (
        COMMAND_HEADERS as COMMAND_HEADERS,
        FIRE_ID_HEADER as FIRE_ID_HEADER,
        FIRST_DUE as FIRST_DUE,
        FIRST_DUE_MS as FIRST_DUE_MS,
        ID_RULE as ID_RULE,
        MAX_ID_BYTES as MAX_ID_BYTES,
        OUR_PREFIX as OUR_PREFIX,
    )
    from wheel_udf.common.durations import (
        BLANKS as BLANKS,
        DURATION_PATTERN as DURATION_PATTERN,
        DURATION_RULE as DURATION_RULE,
        LONGEST_TEXT as LONGEST_TEXT,
        TOO_LONG_MS as TOO_LONG_MS,
        UNITS_MS as UNITS_MS,
        parse_duration_ms as parse_duration_ms,
    )
    from wheel_udf.common.errors import (
        ActError as ActError,
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        ConfigErrors as ConfigErrors,
        ContractError as ContractError,
        GeometryChangedError as GeometryChangedError,
        GeometryError as GeometryError,
        LeaseError as LeaseError,
        SessionError as SessionError,
        SinkError as SinkError,
        SourceLostError as SourceLostError,
        StateTooLargeError as StateTooLargeError,
        StopError as StopError,
        StoreError as StoreError,
        StoreMovedError as StoreMovedError,
        TransferError as TransferError,
        UnsupportedVersionError as UnsupportedVersionError,
        WheelError as WheelError,
    )
    from wheel_udf.common.extras import (
        missing_package as missing_package,
    )
    from wheel_udf.common.instants import (
        INSTANT_RULE as INSTANT_RULE,
        instant_text as instant_text,
        instant_text_ms as instant_text_ms,
        parse_instant_ms as parse_instant_ms,
    )
    from wheel_udf.common.interrupts import (
        INTERRUPTED as INTERRUPTED,
        is_interrupt as is_interrupt,
        uninterrupted as uninterrupted,
    )
    from wheel_udf.common.names import (
        KAFKA_SERVERS as KAFKA_SERVERS,
        NAME_PATTERN as NAME_PATTERN,
        NAME_RULE as NAME_RULE,
        NOT_NAMES as NOT_NAMES,
        PATTERN_RULE as PATTERN_RULE,
        AllowList as AllowList,
        is_destination_name as is_destination_name,
        is_destination_pattern as is_destination_pattern,
        shares_a_folder as shares_a_folder,
    )
    from wheel_udf.common.outcomes import (
        CANCEL_OUTCOMES as CANCEL_OUTCOMES,
        CANCELLED as CANCELLED,
        COMPLETED as COMPLETED,
        DECIDED as DECIDED,
        EVENT_COUNTS as EVENT_COUNTS,
        EXPIRED as EXPIRED,
        OPERATION_OUTCOMES as OPERATION_OUTCOMES,
        SCHEDULE_OUTCOMES as SCHEDULE_OUTCOMES,
        WATCH_COUNTS as WATCH_COUNTS,
        WHEEL_COUNTS as WHEEL_COUNTS,
        Decided as Decided,
    )
    from wheel_udf.common.paths import (
        inside as inside,
    )
    from wheel_udf.common.progress import (
        Progress as Progress,
        Step as Step,
        no_steps as no_steps,
    )
    from wheel_udf.common.records import (
        typed_record as typed_record,
    )
    from wheel_udf.common.secrets import (
        HIDDEN as HIDDEN,
        hide as hide,
        is_secret_name as is_secret_name,
        redacted as redacted,
        remember as remember,
        remember_options as remember_options,
        resolve as resolve,
    )
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "arrays": ("Bools", "Int64s", "before_in_run", "is_last", "repeats", "runs_of"),
            "command_facts": (
                "COMMAND_HEADERS",
                "FIRE_ID_HEADER",
                "FIRST_DUE",
                "FIRST_DUE_MS",
                "ID_RULE",
                "MAX_ID_BYTES",
                "OUR_PREFIX",
            ),
            "durations": (
                "BLANKS",
                "LONGEST_TEXT",
                "DURATION_PATTERN",
                "DURATION_RULE",
                "TOO_LONG_MS",
                "UNITS_MS",
                "parse_duration_ms",
            ),
            "errors": (
                "ActError",
                "CheckpointError",
                "ConfigError",
                "ConfigErrors",
                "ContractError",
                "GeometryChangedError",
                "GeometryError",
                "LeaseError",
                "SessionError",
                "SinkError",
                "SourceLostError",
                "StateTooLargeError",
                "StopError",
                "StoreError",
                "StoreMovedError",
                "TransferError",
                "UnsupportedVersionError",
                "WheelError",
            ),
            "extras": ("missing_package",),
            "instants": ("INSTANT_RULE", "instant_text", "instant_text_ms", "parse_instant_ms"),
            "interrupts": ("INTERRUPTED", "is_interrupt", "uninterrupted"),
            "names": (
                "KAFKA_SERVERS",
                "NAME_PATTERN",
                "NAME_RULE",
                "NOT_NAMES",
                "PATTERN_RULE",
                "AllowList",
                "is_destination_name",
                "is_destination_pattern",
                "shares_a_folder",
            ),
            "outcomes": (
                "CANCELLED",
                "CANCEL_OUTCOMES",
                "COMPLETED",
                "DECIDED",
                "EVENT_COUNTS",
                "EXPIRED",
                "OPERATION_OUTCOMES",
                "SCHEDULE_OUTCOMES",
                "WATCH_COUNTS",
                "WHEEL_COUNTS",
                "Decided",
            ),
            "paths": ("inside",),
            "records": ("typed_record",),
            "progress": ("Progress", "Step", "no_steps"),
            "secrets": (
                "HIDDEN",
                "hide",
                "is_secret_name",
                "redacted",
                "remember",
                "remember_options",
                "resolve",
            ),
        },
        modules=("errors",),
    )
