"""Retries: what becomes of an entry that was released and could not be delivered.

::

    released --> sink: HTTP 503 --report--> tick --> attempts left?  yes: pending again, due after a wait (RETRY)
                                                                     no:  a dead letter
    consumer --op: RETRY-----------------------------^

The entry comes back with an ``amend`` raised by one, so the order of versions decides on what came meanwhile: a higher
``seq`` replaces it, a CANCEL of its ``seq`` ends it. Its requested time stays, and with it its fire id.

An occurrence of a series comes back as an entry of its own, because the series waits for the next one: its id is that
of the series, a NUL, and the nominal time (:func:`own_id`);
:func:`wheel_udf.shard.rows.outer_id` takes that off where it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

from wheel_udf.common.arrays import Int64s
from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.policies.by_destination import ByDestination, of_each
from wheel_udf.shard.rows import COMMAND_SCHEMA, ENTRY_SCHEMA, ID_JOINT, RETRY, SCHEDULE

EXPONENTIAL, LINEAR, LIST = KINDS = ("exponential", "linear", "list")
FULL, EQUAL, NONE = JITTERS = ("full", "equal", "none")

MOST_ATTEMPTS: Final = 1000
LONGEST_WAIT_MS: Final = 366 * 86_400_000

RETURNED_SCHEMA = pa.schema(
    [
        *(each for each in ENTRY_SCHEMA if each.name not in ("held_ms", "dead_reason")),
        ("error", pa.string()),
        ("retry_after_ms", pa.int64()),
        ("is_final", pa.bool_()),
        ("is_tried", pa.bool_()),
    ]
)
"""An entry that could not be delivered. ``deliver_at_ms`` is when it was to be released, ``error`` why it was not
delivered, ``retry_after_ms`` how long the receiver asks to wait (null: it does not), ``is_final`` whether no attempt
can succeed, ``is_tried`` whether this was one. An occurrence of a series has its ``occurrence`` and no ``repeat``."""


@dataclass(frozen=True)
class Retry:
    """When a destination is tried again.

    Attributes:
        policy: ``exponential``: ``first_ms`` times ``factor`` to the power of the attempts before; ``linear``:
            ``first_ms`` times the attempts; ``list``: ``waits_ms``, the last of them again and again.
        first_ms: The first wait.
        factor: At least 1.
        cap_ms: The longest wait.
        waits_ms: The waits of ``list``.
        jitter: How much of a wait is chance (by a hash of id, version and attempt): ``full`` all of it, ``equal`` half
            of it, ``none``.
        attempts: The most attempts, the first included.
        max_age_ms: No attempt is later than this after the time of release; None for no bound.
        dead_letters: The destination of what is not tried again; None: it goes to the rejects.
        breaker_failures: After how many failed attempts in a row the destination rests; 0: never.
        breaker_cooldown_ms: How long.

    Raises:
        ConfigErrors: Settings are out of range.
    """

    policy: str = EXPONENTIAL
    first_ms: int = 10_000
    factor: float = 2.0
    cap_ms: int = 3_600_000
    waits_ms: tuple[int, ...] = ()
    jitter: str = EQUAL
    attempts: int = 10
    max_age_ms: int | None = None
    dead_letters: str | None = None
    breaker_failures: int = 5
    breaker_cooldown_ms: int = 30_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "waits_ms", tuple(self.waits_ms))
        checks = [
            ("policy", self.policy, self.policy in KINDS, f"one of {', '.join(KINDS)}"),
            ("jitter", self.jitter, self.jitter in JITTERS, f"one of {', '.join(JITTERS)}"),
            ("first", self.first_ms, 0 <= self.first_ms <= LONGEST_WAIT_MS, "0 to 366 days"),
            ("cap", self.cap_ms, 0 <= self.cap_ms <= LONGEST_WAIT_MS, "0 to 366 days"),
            ("factor", self.factor, 1 <= self.factor <= 100, "1 to 100"),
            ("attempts", self.attempts, 1 <= self.attempts <= MOST_ATTEMPTS, f"1 to {MOST_ATTEMPTS}"),
            ("max_age", self.max_age_ms, self.max_age_ms is None or self.max_age_ms >= 0, "0 or more"),
            ("breaker.failures", self.breaker_failures, self.breaker_failures >= 0, "0 or more"),
            (
                "breaker.cooldown",
                self.breaker_cooldown_ms,
                1 <= self.breaker_cooldown_ms <= LONGEST_WAIT_MS,
                "1 ms to 366 days",
            ),
            (
                "waits",
                self.waits_ms,
                bool(self.waits_ms) == (self.policy == LIST),
                "with policy: list, and only there",
            ),
            (
                "waits",
                self.waits_ms,
                all(0 <= each <= LONGEST_WAIT_MS for each in self.waits_ms),
                "0 to 366 days",
            ),
        ]
        faults = [ConfigError("not a way to try again", field=name, value=value, rule=rule)
                  for name, value, is_good, rule in checks if not is_good]  # fmt: skip
        if faults:
            raise ConfigErrors(faults)

    def waits(self, attempt: Int64s, chance: npt.NDArray[np.float64]) -> Int64s:
        """How long to wait after each of some failed attempts, in ms.

        Args:
            attempt: Their numbers, from 1.
            chance: Numbers from 0 to 1.
        """
        if self.policy == LIST:
            wait_ms = np.array(self.waits_ms, np.float64)[np.minimum(attempt, len(self.waits_ms)) - 1]
        elif self.policy == LINEAR:
            wait_ms = np.minimum(self.first_ms * attempt.astype(np.float64), self.cap_ms)
        else:
            # Beyond any cap a higher power would only overflow.
            power = np.minimum(attempt - 1, 2000).astype(np.float64)
            with np.errstate(over="ignore"):
                wait_ms = np.minimum(self.first_ms * np.power(float(self.factor), power), self.cap_ms)
        part = {FULL: chance, EQUAL: 0.5 + chance / 2, NONE: np.ones(len(attempt))}[self.jitter]
        return np.asarray(np.ceil(wait_ms * part), np.int64)


class Retries(ByDestination[Retry]):
    """Which destinations are tried again, and how."""

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Retries:
        """The inverse of ``dataclasses.asdict``, also through JSON."""
        return Retries(
            {name: Retry(**each) for name, each in found["by_pattern"].items()}, tuple(found["among"])
        )

    def dead_letters_of(self, names: pa.ChunkedArray) -> pa.Array:
        """Where the dead letters of some destinations go; null: to the rejects."""
        return of_each(names, self._dead_letters_of, pa.string())

    def _dead_letters_of(self, name: str | None) -> str | None:
        retry = self.of(name)
        return None if retry is None else retry.dead_letters


NO_RETRIES: Final = Retries()


def come_back(returned: pa.Table, retries: Retries, clock_ms: int) -> pa.Table:
    """Turns entries that could not be delivered into commands (``COMMAND_SCHEMA``).

    Args:
        returned: ``RETURNED_SCHEMA``.
        retries: Which destinations are tried again.
        clock_ms: The clock of the batch.
    """
    wake_ms, reasons = _decided(returned, retries, clock_ms)
    tried = returned["is_tried"].combine_chunks()
    columns = {
        "schedule_id": own_id(returned),
        "amend": pc.add(returned["amend"], 1).cast(pa.int32()),
        "deliver_at_ms": pa.array(wake_ms),
        "held_ms": pc.subtract(pa.array(wake_ms), returned["deliver_at_ms"]),
        "attempt": _attempts(returned),
        "first_amend": pc.coalesce(returned["first_amend"], returned["amend"]),
        "failed_at_ms": pc.coalesce(returned["failed_at_ms"], pa.scalar(clock_ms)),
        "first_error": pc.coalesce(returned["first_error"], returned["error"]),
        "last_error": pc.if_else(
            tried, returned["error"], pc.coalesce(returned["last_error"], returned["error"])
        ),
        "dead_reason": reasons,
    }
    same = {"op": SCHEDULE, "seq_given": True, "act": RETRY}
    columns |= {
        name: pa.repeat(pa.scalar(value, COMMAND_SCHEMA.field(name).type), returned.num_rows)
        for name, value in same.items()
    }
    arrays = [columns[each.name] if each.name in columns else returned[each.name] for each in COMMAND_SCHEMA]
    return pa.table(arrays, schema=COMMAND_SCHEMA)


def _attempts(returned: pa.Table) -> pa.ChunkedArray:
    """How many attempts have failed, with the present one."""
    return pc.add(returned["attempt"].fill_null(0), pc.cast(returned["is_tried"], pa.int64()))


def _decided(returned: pa.Table, retries: Retries, clock_ms: int) -> tuple[Int64s, pa.Array]:
    """When each entry is tried again, and why it is not (null if it is)."""
    size = returned.num_rows
    wake_ms = np.full(size, clock_ms, np.int64)
    attempt, since_ms = _attempts(returned).to_numpy(), returned["deliver_at_ms"].to_numpy()
    tried, chance = returned["is_tried"].to_numpy(), _chance(returned, attempt)
    asked_ms = np.minimum(returned["retry_after_ms"].fill_null(0).to_numpy(), LONGEST_WAIT_MS)
    reasons = np.full(size, None, object)
    for name in pc.unique(returned["destination"]).to_pylist():
        mine = np.flatnonzero(pc.equal(returned["destination"], name).to_numpy())
        retry = retries.of(name)
        if retry is None:
            reasons[mine] = "this destination is not tried again"
            continue
        waits_ms = retry.waits(np.maximum(attempt[mine], 1), chance[mine])
        wake_ms[mine] += np.maximum(np.where(tried[mine], waits_ms, 0), asked_ms[mine])
        reasons[mine[tried[mine] & (attempt[mine] >= retry.attempts)]] = f"after {retry.attempts} attempts"
        if retry.max_age_ms is not None:
            too_old = wake_ms[mine] - since_ms[mine] > retry.max_age_ms
            reasons[mine[too_old]] = f"the next attempt would be later than max_age, {retry.max_age_ms} ms"
    reasons[returned["is_final"].to_numpy()] = "no attempt can succeed"
    return wake_ms, pa.array(reasons, pa.string())


def _chance(returned: pa.Table, attempt: Int64s) -> npt.NDArray[np.float64]:
    """A number from 0 to 1 for each entry, by a hash of id, seq and attempt (the finalizer of splitmix64)."""
    ids = returned["schedule_id"].to_numpy().astype(object)
    mixed = hash_array(ids, categorize=False) ^ returned["seq"].to_numpy().astype(np.uint64)
    mixed = mixed + np.uint64(0x9E3779B97F4A7C15) * attempt.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) / 2.0**64, np.float64)


def own_id(rows: pa.Table) -> pa.ChunkedArray:
    """The ids under which entries come back: of occurrences of series, one of their own."""
    ids = rows["schedule_id"]
    is_new = pc.and_(rows["occurrence"].is_valid(), pc.invert(pc.match_substring(ids, ID_JOINT)))
    if not pc.any(is_new).as_py():
        return ids
    nominal = pc.subtract(rows["deliver_at_ms"], rows["level_error_ms"].fill_null(0)).cast(pa.string())
    return pc.if_else(is_new, pc.binary_join_element_wise(ids, nominal, ID_JOINT), ids)
