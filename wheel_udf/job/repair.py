"""The verb repair: finds what is damaged in the checkpoint of a stopped job, and repairs what can be proved harmless.

::

    wheel-udf repair --config FILE [--dry-run]

    checkpoint data/checkpoints/orders: batch 4 is planned, 3 the newest committed one
      table      data/tables/orders_to_close holds batches up to 3
      damaged    state/0/1/4_6b0c.changelog: it does not match its checksum
      repair     batch 3 is repeated with the rows of its plan: tables skip what they have of it
      repair     batch 4 is planned anew: nothing was delivered of it
    repaired: start the job again. What was taken out (6 files) is in data/checkpoints/orders-repaired-2026-01-01...

The decision: :mod:`wheel_udf.checkpoint.repair`. This module brings what is known outside the checkpoint: the newest
transaction of each table, of today's config and of the recorded one; destinations without transactions; options with
which a source leaves out what is gone. If one part of a tiered checkpoint cannot be repaired, the other is left as it
is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from wheel_udf.checkpoint.identity import identity_of, require_checkpoint
from wheel_udf.checkpoint.inspection import Inspection
from wheel_udf.checkpoint.lease import Lease, holding
from wheel_udf.checkpoint.planned_settings import PlannedSettings
from wheel_udf.checkpoint.repair import Decision, Evidence, apply_repair, decide_repair
from wheel_udf.checkpoint.spark_logs import last_committed, last_planned
from wheel_udf.common.instants import instant_text_ms
from wheel_udf.common.names import AllowList
from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.job.compose import SUCCESS
from wheel_udf.job.kafka_options import option
from wheel_udf.job.models.purgatory import AnyConfig
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.named import located
from wheel_udf.job.replay import row_settings
from wheel_udf.job.sessions import session
from wheel_udf.sinks.batch_writer import dead_app_id, rejects_app_id
from wheel_udf.sinks.catalog_sink import CatalogTableSink, last_batch
from wheel_udf.spark.files import local_folder, open_folder
from wheel_udf.spark.places import place_of
from wheel_udf.store.lease import store_lease
from wheel_udf.tables import delta_log
from wheel_udf.tables.table_state import FORGETS, TableState
from wheel_udf.tiered.keeper import intake_app_id

DAMAGED: Final = 1

_SKIPS: Final = {"failOnDataLoss": "false", "ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}

_NAMED = "table"
"""The kind of a place that is the name of a Delta table in a catalog."""

SinkPlace = tuple[str | None, str, str | None]
"""(pattern of destinations, or None for the rejects; kind of sink; path)."""
States = Mapping[tuple[str, str], TableState]


@dataclass(frozen=True)
class Part:
    """The checkpoint of one query, and what is to be done with it."""

    path: str
    found: Inspection
    evidence: Evidence
    decision: Decision


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> int:
    """Executes the verb.

    Returns:
        0 if nothing was damaged or all was repaired (dry run: can be repaired), 1 if something cannot be repaired.

    Raises:
        LeaseError: The job runs.
        CheckpointError: There is no checkpoint, or its identity is damaged.
    """
    paths = _paths(config)
    with session(config.name, config.checkpoint) as spark, ExitStack() as stack:
        config = located(spark, config)
        of_store = [store_lease(config.store.folder)] if isinstance(config, TieredConfig) else []
        leases = [*of_store, *map(Lease, paths)]
        require_leases = stack.enter_context(holding([] if asked.dry_run else leases))
        for lease in leases if asked.dry_run else ():
            lease.require_free()
        parts = [_part(spark, config, path) for path in paths]
        for part in parts:
            for line in lines_of(part):
                print_line(line)
        return report_repair(parts, print_line, require_leases, dry_run=asked.dry_run)


def _paths(config: AnyConfig) -> list[str]:
    """The checkpoints of the queries that were started."""
    require_checkpoint(config.checkpoint)
    if not isinstance(config, TieredConfig):
        return [config.checkpoint]
    return [part for part in config.checkpoints if open_folder(part).names()]


def _part(spark: SparkSession, config: AnyConfig, path: str) -> Part:
    app_id = identity_of(path).app_id
    found = Inspection(path)
    if isinstance(config, TieredConfig) and path == config.checkpoints[0]:
        evidence = Evidence(_held(_states([(config.store.folder, intake_app_id(app_id))])))
    else:
        evidence = _evidence(spark, config, path, app_id)
    return Part(path, found, evidence, decide_repair(found, evidence))


# --- what is known outside the checkpoint ---------------------------------------------------------


def _evidence(spark: SparkSession, config: AnyConfig, path: str, app_id: str) -> Evidence:
    sinks = set(sink_places(row_settings(config, None))) | set(_recorded_places(path))
    tables = {
        (place, series)
        for pattern, kind, root in sinks
        if kind == "delta" and root is not None
        for place in tables_of(pattern, root)
        for series in _series_of(pattern, app_id)
    }
    states = _states(tables)
    held, unknown = _of_names(spark, sinks, app_id)
    others = ((pattern, kind, root) for pattern, kind, root in sinks if kind not in ("delta", _NAMED))
    blind = {f"{kind} {root or pattern or ''}".rstrip() for pattern, kind, root in others} | unknown
    blind |= {place for (place, _), state in states.items() if FORGETS in state.properties()}
    return Evidence(_held(states) | held, sorted(blind), repeat_risk(config))


def _series_of(pattern: str | None, app_id: str) -> list[str]:
    """The app ids of what a query writes to a destination, or to its rejects: the batches, and dead letters."""
    both = [app_id, dead_app_id(app_id)]
    return both if pattern is not None else [*map(rejects_app_id, both)]


def _of_names(
    spark: SparkSession, sinks: Iterable[SinkPlace], app_id: str
) -> tuple[dict[str, int], set[str]]:
    """Of the tables of catalogs: the newest batch that each holds, and those that do not show it."""
    held, unknown = dict[str, int](), set[str]()
    for pattern, kind, root in sinks:
        if kind != _NAMED or root is None:
            continue
        for name, table in CatalogTableSink(root).found(spark, pattern):
            marks = table.state.transactions()
            batches = [last_batch(marks, series) for series in _series_of(pattern, app_id)]
            batch = max((each for each in batches if each is not None), default=None)
            if not table.has_log:
                unknown.add(f"{_NAMED} {name}")
            elif batch is not None:
                held[str(name)] = max(batch, held.get(str(name), batch))
    return held, unknown


def sink_places(settings: Mapping[str, Any]) -> Iterator[SinkPlace]:
    """Yields the places that a job writes to, of settings as a batch is planned with."""
    for pattern, sink in {**settings["destinations"], None: settings["rejects"]}.items():
        if sink["sink"] == "delta" and "table" in sink:
            yield pattern, _NAMED, sink["table"]
        else:
            yield pattern, sink["sink"], sink.get("path", sink.get("table", sink.get("topic")))


def _recorded_places(path: str) -> Iterator[SinkPlace]:
    """Yields the places that the newest batches were planned to write to."""
    for batch in {last_planned(path), last_committed(path)} - {None}:
        try:
            settings = PlannedSettings(path).settings_of(int(batch or 0))
        except Exception:  # noqa: BLE001  # a damaged journal is found by the inspection
            return
        if settings is not None:
            yield from sink_places(settings)


def tables_of(pattern: str | None, root: str) -> Iterable[str]:
    """The places of the tables that exist for a pattern, as far as they can be tables."""
    if pattern is None:
        return [place_of(root, None)]
    allowed = AllowList([pattern])
    return [place_of(root, name) for name in open_folder(root).names() if allowed.first(name) is not None]


def _states(tables: Iterable[tuple[str, str]]) -> States:
    """The state of each table that exists, by its place and the app id of what is written to it."""
    found = {(place, app_id): delta_log.snapshot(place) for place, app_id in sorted(tables)}
    return {table: state for table, state in found.items() if state.version >= 0}


def _held(states: States) -> dict[str, int]:
    """Place of each table to the newest batch that it holds."""
    found: dict[str, int] = {}
    for (place, app_id), state in states.items():
        batch = state.transactions().get(app_id)
        if batch is not None:
            found[place] = max(batch, found.get(place, batch))
    return found


def repeat_risk(config: AnyConfig) -> str | None:
    """Returns why a repeated batch may read fewer rows, as a clause; None if its source would fail instead."""
    for name, source in config.sources.items():
        for key, value in _SKIPS.items():
            if str(option(source.options, key)).lower() == value:
                return f"{name}.options.{key}: {value} lets Spark leave out what is gone from the source"
    return None


# --- lines ----------------------------------------------------------------------------------------


def lines_of(part: Part) -> Iterator[str]:
    """Yields what was found in a part, and what is to be done."""
    found, decision = part.found, part.decision
    yield f"checkpoint {part.path}: {_batches(found)}"
    for place, batch in part.evidence.held.items():
        yield f"  table      {place} holds batches up to {batch}"
    for place in part.evidence.blind:
        yield f"  no batches {place} does not show which batches it holds"
    for each in decision.damage:
        yield f"  damaged    {each.name}: {each.what}"
    for each in decision.harmless:
        yield f"  not needed {each.name}: {each.what}; no start reads it"
    if found.state.unchecked:
        yield f"  unchecked  {found.state.unchecked} files of the state have no checksum"
    for step in decision.steps:
        yield f"  repair     {step}"
    for refusal in decision.refusals:
        yield f"  no repair  {refusal}"


def _batches(found: Inspection) -> str:
    planned, committed = max(found.plans, default=None), max(found.commits, default=None)
    if planned is None and committed is None:
        return "no batch yet"
    if planned == committed:
        return f"batch {planned} is the newest, and committed"
    first, second = ("none" if batch is None else batch for batch in (planned, committed))
    return f"batch {first} is the newest planned one, {second} the newest committed one"


def report_repair(
    parts: list[Part], print_line: PrintLine, require_leases: Callable[[], None], *, dry_run: bool
) -> int:
    """Prints what was done or would be, and returns the exit code."""
    decisions = [part.decision for part in parts]
    if any(each.refusals for each in decisions):
        print_line("not repaired: nothing was changed")
        return DAMAGED
    if all(each.is_sound for each in decisions):
        print_line("nothing to repair")
        return SUCCESS
    if dry_run:
        print_line("dry run: nothing was changed; without --dry-run it is repaired as described")
        return SUCCESS
    stamp = instant_text_ms(wall_clock_ms()).replace(":", "-")
    for part in parts:
        if not part.decision.is_sound:
            aside = f"{local_folder(part.path) or part.path.rstrip('/')}-repaired-{stamp}"
            count = apply_repair(part.path, part.decision, aside, require_leases)
            print_line(
                f"repaired: start the job again. A copy of what was taken out ({count} files) is in {aside}"
            )
    return SUCCESS
