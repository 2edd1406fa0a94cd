"""The verb ``explain``: the wheel of a config as a table, with its size and cost at a given rate; without Spark.

The traffic is a model: `rate` commands a second, none of them cancelled, due evenly spread over the next `horizon`::

    pending = rate x horizon / 2                 (each waits half of the horizon on average)
    due within x: a share 2 (x/h) - (x/h)^2      (what is due soon has been coming for longer)

The bytes of an entry are not estimated: some thousand entries with random ids and values are encoded as the state
encodes them. Seconds are those of the benches (``make bench``, ``make bench-store``) on two cores.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.delivery.progress import duration_text
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import SchedulerConfig, TieredConfig
from wheel_udf.recurrence.time_zone_data import time_zone_data_version
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.id_index import INDEX_BYTES
from wheel_udf.shard.rows import ENTRY_SCHEMA
from wheel_udf.shard.state import LARGEST_STATE_BYTES
from wheel_udf.spark.files import local_folder
from wheel_udf.spark.object_stores import is_in_object_store

_SAMPLE: Final = 4_096
_SAMPLE_BYTES: Final = 20_000_000
_BATCH_S: Final = 1.0
_BATCH_S_PER_MILLION: Final = 0.1
_BATCH_S_PER_MILLION_IN_ROW: Final = 1.3
"""Seconds of a batch with commands, and for each million entries in the state: with files of chunks, without."""
_STORE_BYTES: Final = 17
"""Bytes of an entry of the store beyond its value, from 100,000 to 100 million pending."""
_FILES_JOINED: Final = 16


@dataclass(frozen=True)
class Traffic:
    """The traffic of commands.

    Attributes:
        rate: Commands a second.
        horizon_ms: The longest delay; delays are evenly spread.
        value_bytes: Size of a value.
    """

    rate: float
    horizon_ms: int
    value_bytes: int

    @property
    def pending(self) -> float:
        """Entries that wait."""
        return self.rate * self.horizon_ms / 2_000

    def due_within(self, span_ms: float) -> float:
        """The number of entries that are due within a span."""
        share = min(span_ms / self.horizon_ms, 1.0)
        return self.pending * (2 * share - share**2)


@dataclass(frozen=True)
class Level:
    """A level of the wheel: its bucket and span, where its entries are, and how many it holds."""

    number: int
    bucket_ms: int
    span_ms: int
    place: str
    entries: float


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: Callable[[str], None]) -> None:
    """Prints the wheel and what it will cost, as text or as a mermaid diagram.

    Raises:
        ConfigError: A number is out of range.
    """
    traffic = traffic_of(asked.rate, asked.horizon, asked.bytes)
    levels = levels_of(config, traffic)
    for line in mermaid(levels) if asked.mermaid else report(config, traffic, levels):
        print_line(line)


def traffic_of(rate: float, horizon: str, value_bytes: int) -> Traffic:
    """The traffic that the arguments describe.

    Raises:
        ConfigError: One of them is out of range.
    """
    horizon_ms = parse_duration_ms(horizon)
    if not 0 < rate < 10**9:
        raise ConfigError("not a rate", field="--rate", value=rate, rule="above 0, commands a second")
    if horizon_ms <= 0:
        raise ConfigError("not a horizon", field="--horizon", value=horizon, rule="above 0")
    if not 0 <= value_bytes <= 10_000_000:
        raise ConfigError("not a size", field="--bytes", value=value_bytes, rule="0 to 10,000,000")
    return Traffic(rate, horizon_ms, value_bytes)


def levels_of(config: AnyConfig, traffic: Traffic) -> list[Level]:
    """The levels of the wheel, lowest first."""
    wheel, found, below = config.wheel.wheel(), [], 0.0
    in_state = config.wheel.layout().state_levels if isinstance(config, TieredConfig) else wheel.levels
    for number in range(1, wheel.levels + 1):
        span_ms = wheel.interval_of(number)
        within = traffic.pending if number == wheel.levels else traffic.due_within(span_ms)
        place = "state" if number <= in_state else "store"
        found.append(Level(number, wheel.tick_of(number), span_ms, place, within - below))
        below = within
    return found


def bytes_of_entry(value_bytes: int) -> float:
    """Bytes of an entry in the state: random ids, values that do not compress, no key and no headers."""
    rng = random.Random(4)  # noqa: S311  # no secret: the same figure at each call
    # Of large values fewer: they do not compress, and each takes thirty times its size while it is made.
    count = max(64, min(_SAMPLE, _SAMPLE_BYTES // max(value_bytes, 1)))
    rows = [
        {
            "schedule_id": f"order-{rng.randrange(10**12):012}",
            "seq": rng.randrange(2**41),
            "amend": 0,
            "deliver_at_ms": 1_767_225_600_000 + rng.randrange(400_000),
            "destination": "reminders",
            "value": rng.randbytes(value_bytes),
        }
        for _ in range(count)
    ]
    entries = pa.Table.from_pylist(rows, schema=ENTRY_SCHEMA).sort_by("deliver_at_ms")
    return Chunk.of_entries(1, 0, entries).size / count + INDEX_BYTES


# ---- text ----------------------------------------------------------------------------------------


def report(config: AnyConfig, traffic: Traffic, levels: list[Level]) -> Iterator[str]:
    """The lines of the report."""
    wheel = config.wheel.wheel()
    levels_text = f"{wheel.levels} levels of {wheel.size} buckets"
    yield f"wheel of {config.name}: {levels_text}, in each of {config.wheel.shards} shards"
    yield from _table(levels)
    yield (
        "an entry waits on the level whose span covers its due time; "
        "when the clock reaches its bucket, it moves down a level"
    )
    yield ""
    yield (
        f"at {traffic.rate:,g} commands a second, due evenly spread over {duration_text(traffic.horizon_ms)}, "
        f"values of {traffic.value_bytes:,} bytes:"
    )
    for name, text in facts(config, traffic, levels):
        yield f"  {name:<10} {text}"
    if isinstance(config, SchedulerConfig):
        zone = (
            f"{config.contract.time_zone} unless a command names another one; data {time_zone_data_version()}"
        )
        yield f"  {'time zone':<10} {zone}"
    yield ""
    yield "limits, the nearest first:"
    for share, text in sorted(limits(config, traffic), reverse=True):
        yield f"  {share:>7.1%}  {text}" + ("   <-- reached" if share > 1 else "")


def _table(levels: list[Level]) -> Iterator[str]:
    yield f"  {'level':>5}  {'bucket':>12}  {'span':>12}  {'place':<6}  {'entries':>14}"
    for each in levels:
        end = " and beyond" if each is levels[-1] else ""
        bucket, span = duration_text(each.bucket_ms), duration_text(each.span_ms)
        yield f"  {each.number:>5}  {bucket:>12}  {span:>12}  {each.place:<6}  {each.entries:>14,.0f}{end}"


def facts(config: AnyConfig, traffic: Traffic, levels: list[Level]) -> Iterator[tuple[str, str]]:
    """The consequences of the traffic: pending, state, store, batches, moves, lateness."""
    near = _near(config, traffic)
    size = bytes_of_entry(traffic.value_bytes)
    yield (
        "pending",
        f"{traffic.pending:,.0f}"
        + ("" if near == traffic.pending else f": {near:,.0f} near, {traffic.pending - near:,.0f} far"),
    )
    yield (
        "state",
        (
            f"{_mb(near * size)} in {config.wheel.shards} shards ({size:,.0f} bytes an entry)"
            + ("" if _has_chunk_files(config) else ", moved whole by a batch with commands")
        ),
    )
    if isinstance(config, TieredConfig):
        yield "store", _store_text(config, traffic, near)
    yield "batches", _batches_text(config, traffic, near)
    moves = sum(each.entries * (each.number - 1) for each in levels) / traffic.pending
    yield "moves", f"an entry moves down {moves:.1f} levels on average, at most {len(levels) - 1}"
    yield "lateness", _lateness_text(config, near)


def _near(config: AnyConfig, traffic: Traffic) -> float:
    """Entries in the state. Tiered: those due before the cursor, at most a window and its lead ahead of the clock."""
    if not isinstance(config, TieredConfig):
        return traffic.pending
    layout = config.wheel.layout()
    return traffic.due_within(layout.window_ms + layout.lead_ms)


def _store_text(config: TieredConfig, traffic: Traffic, near: float) -> str:
    layout = config.wheel.layout()
    partitions = sum(
        min(traffic.horizon_ms // layout.width_ms(level) + 1, layout.wheel.size)
        for level in layout.far_levels
        if level == layout.far_levels[0] or layout.width_ms(level) < traffic.horizon_ms
    )
    size = (traffic.pending - near) * (_STORE_BYTES + traffic.value_bytes)
    return (
        f"{_mb(size)} in about {partitions:,} far partitions, "
        f"each of up to {_FILES_JOINED} small files before they are joined; "
        f"a hand-over each {duration_text(layout.window_ms)}"
    )


def _batches_text(config: AnyConfig, traffic: Traffic, near: float) -> str:
    if config.trigger_ms is None:
        return "as many as the input needs, then the run ends (available-now)"
    every_s = max(config.trigger_ms / 1_000, _batch_s(config, near))
    return (
        f"one each {every_s:.1f} s while commands come or fall due, {traffic.rate * every_s:,.0f} commands in each; "
        f"an idle wheel runs one each {duration_text(_heartbeat_ms(config))}"
    )


def _heartbeat_ms(config: AnyConfig) -> int:
    return int(getattr(config.clock, "heartbeat_ms", 60_000))


def _has_chunk_files(config: AnyConfig) -> bool:
    """Whether long parts of the state are files: in an object store, and on a local disk if the master is local."""
    return local_folder(config.checkpoint) is not None or is_in_object_store(config.checkpoint)


def _batch_s(config: AnyConfig, near: float) -> float:
    more = _BATCH_S_PER_MILLION if _has_chunk_files(config) else _BATCH_S_PER_MILLION_IN_ROW
    return _BATCH_S + more * near / 1_000_000


def _lateness_text(config: AnyConfig, near: float) -> str:
    if config.trigger_ms is None:
        return "a run ends when its input is read: what falls due later waits for the next run"
    worst_s = config.trigger_ms / 1_000 + _batch_s(config, near)
    return f"at worst about {worst_s:.1f} s: a trigger and a batch of {_batch_s(config, near):.1f} s; never early"


def limits(config: AnyConfig, traffic: Traffic) -> Iterator[tuple[float, str]]:
    """The limits that this traffic comes near to: the used share of each, and what happens there."""
    near, batch_s = _near(config, traffic), _batch_s(config, _near(config, traffic))
    room = config.wheel.shards * LARGEST_STATE_BYTES / bytes_of_entry(traffic.value_bytes)
    fewer = "fewer wheel.state_levels" if isinstance(config, TieredConfig) else "mode: tiered"
    if not _has_chunk_files(config):
        yield (
            near / room,
            f"the state of a shard holds 1.5 GB: {room:,.0f} entries in all; remedy: more shards, or {fewer}",
        )
    if longest_ms := config.contract.max_delay_ms:
        longest = duration_text(longest_ms)
        yield (
            traffic.horizon_ms / longest_ms,
            f"contract.max_delay {longest}: commands beyond it are rejected",
        )
    if config.trigger_ms:
        yield (
            batch_s * 1_000 / config.trigger_ms,
            (
                f"trigger {duration_text(config.trigger_ms)}: a batch of {batch_s:.1f} s; "
                f"a longer one is followed at once; remedy: {fewer}"
            ),
        )
    if not isinstance(config, SchedulerConfig):
        return
    if (most := config.limits.fired_per_batch) is not None:
        in_batch = traffic.rate * max((config.trigger_ms or 0) / 1_000, batch_s)
        yield in_batch / most, f"limits.fired_per_batch {most:,}: the rest is released by the next batches"
    for bound, most in config.limits.bounds.items():
        held = _fullest_slot(config.wheel.wheel(), traffic) if bound == "per_slot" else traffic.pending
        yield held / most, f"limits.{bound} {most:,}; at the limit: {config.limits.on_limit}"


def _fullest_slot(wheel: Wheel, traffic: Traffic) -> float:
    """Entries of the slot that is due next."""
    return traffic.due_within(wheel.tick_ms)


def _mb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


# ---- a picture -----------------------------------------------------------------------------------


def mermaid(levels: list[Level]) -> Iterator[str]:
    """The wheel as a mermaid flow chart: commands enter at the level of their due time and move down."""
    yield "flowchart TD"
    yield "  commands([commands])"
    for place in dict.fromkeys(each.place for each in reversed(levels)):
        yield f"  subgraph {place}[in the {place}]"
        for each in reversed(levels):
            if each.place == place:
                yield (
                    f'    level{each.number}["level {each.number}: buckets of {duration_text(each.bucket_ms)}, '
                    f'span {duration_text(each.span_ms)}<br/>{each.entries:,.0f} entries"]'
                )
        yield "  end"
    for each in levels:
        yield f"  commands -.-> level{each.number}"
    for each in reversed(levels[1:]):
        yield f"  level{each.number} -->|its bucket is reached| level{each.number - 1}"
    yield "  level1 ==>|due| destinations([destinations])"
