"""The errors that users see, one class for each cause.

Every message has the same form: what is wrong, where, and what to do::

    WheelError("too small", field="limits.fired_per_batch", value=0, rule="at least 1", hint="omit it for no limit")
    -> too small: limits.fired_per_batch = 0; rule: at least 1; hint: omit it for no limit

One root, :class:`WheelError`; callers catch the root or the cause they can act on. Rows that break the
command contract are not errors of this kind: they become rows of the rejects (see
:mod:`wheel_udf.commands.parse`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

_LONGEST_VALUE = 200

REPAIR = "wheel-udf repair --dry-run says whether it can be repaired; else restore the folder from a copy"
"""Advice about a damaged checkpoint."""


class WheelError(Exception):
    """Root of all errors of this package.

    Args:
        what: What is wrong, in one clause.
        field: The setting, column or file that is wrong.
        value: The value found there (its ``repr`` is shortened to 200 characters).
        rule: Which values are allowed.
        hint: What to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        field: str | None = None,
        value: object = None,
        rule: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.field, self.value, self.rule, self.hint = what, field, value, rule, hint
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        parts = []
        if self.field is not None:
            parts.append(self.field if self.value is None else f"{self.field} = {_short(self.value)}")
        if self.rule is not None:
            parts.append(f"rule: {self.rule}")
        if self.hint is not None:
            parts.append(f"hint: {self.hint}")
        return f"{self.what}: {'; '.join(parts)}" if parts else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions travel from Python workers to the driver by pickle; keyword-only arguments need help there.
        kind = type(self)
        made = partial(kind, self.what, field=self.field, value=self.value, rule=self.rule, hint=self.hint)
        return made, ()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


class ConfigError(WheelError):
    """A setting of the job or of a library call is wrong."""


class ConfigErrors(ConfigError):
    """All errors of one config, reported together, one line for each."""

    def __init__(self, faults: Sequence[WheelError]) -> None:
        self.faults = tuple(faults)
        noun = "error" if len(self.faults) == 1 else "errors"
        lines = "".join(f"\n  - {fault}" for fault in self.faults)
        super().__init__(f"the config has {len(self.faults)} {noun}{lines}")

    def __reduce__(self) -> tuple[object, ...]:
        return ConfigErrors, (self.faults,)


class ContractError(WheelError):
    """The frame of commands as a whole (not one of its rows) breaks the command contract."""


class GeometryError(WheelError, ValueError):
    """A wheel cannot be built from these numbers."""


class GeometryChangedError(WheelError):
    """Stored state has another geometry, number of shards or format version."""


class CheckpointError(WheelError):
    """A checkpoint cannot be continued: it is damaged, or belongs to something else."""


class SourceLostError(WheelError):
    """Records of a topic were deleted before they were read, or the topic was created again under its name."""


class LeaseError(WheelError):
    """Another running process holds the checkpoint."""


class SinkError(WheelError):
    """A destination cannot be written at all."""


class StoreError(WheelError):
    """The slot store cannot be used: it is missing, not a slot store, or does not fit what is to be written."""


class ActError(WheelError):
    """An action on pending entries failed."""


class TransferError(WheelError):
    """An export or an import cannot be made."""


class StoreMovedError(StoreError):
    """The slot store has changed since the rows were computed (another cursor, or an act); nothing was written."""


class StopError(WheelError):
    """A part of a run still runs after ``stop``."""


class StateTooLargeError(WheelError):
    """The state of one shard would not fit into a row of Spark's state store."""


class SessionError(WheelError):
    """Spark or Java cannot be started with these settings."""


class UnsupportedVersionError(WheelError):
    """The installed Spark or Delta lacks an internal API that an operation needs."""


def needs_jvm(part: str) -> SessionError:
    """The error of a part of the package that cannot work over Spark Connect.

    Args:
        part: What it is, as the subject of a sentence.
    """
    return SessionError(
        f"{part} needs a Spark session with a JVM, and a client of Spark Connect has none",
        hint="over Spark Connect use wheel_udf.connect (docs/connect.md)",
    )


def missing_spark(fault: ImportError) -> SessionError | None:
    """Returns the error to raise if pyspark or delta-spark is missing; None if another module is."""
    if (fault.name or "").split(".")[0] not in ("pyspark", "delta"):
        return None
    return SessionError(
        "a module of Spark or Delta cannot be imported",
        field=fault.name,
        rule="pyspark 4.0.1 to 4.2 and delta-spark 4.4 in the Python environment that runs this",
        hint="pip install 'pyspark>=4.0.1,<4.4' 'delta-spark>=4.4,<4.5'; on a managed Spark, run with its Python",
    )
