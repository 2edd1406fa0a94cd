"""The verbs export and import: a job at rest leaves its checkpoint and store, and begins in new ones.

::

    wheel-udf export --config OLD.yml --to FOLDER [--keep]
    wheel-udf import --config NEW.yml --from FOLDER [--anew TOPIC]

The config of the export names the old checkpoint (and store), that of the import the new one, with the geometry,
shards, mode, clock and paths that the job is to have. See :mod:`wheel_udf.transfer`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from wheel_udf.common.errors import TransferError
from wheel_udf.common.instants import instant_text
from wheel_udf.common.paths import require_path
from wheel_udf.common.progress import PrintLine, Step, no_steps
from wheel_udf.job.compose import clock_of, pending_work_of, tiered_wheel_of
from wheel_udf.job.models.purgatory import AnyConfig, PurgatoryConfig
from wheel_udf.job.models.scheduler import TieredConfig
from wheel_udf.job.named import located
from wheel_udf.job.progress import progress_of
from wheel_udf.job.sessions import session
from wheel_udf.job.source_topics import begun_anew
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.importing import import_direct, import_watch
from wheel_udf.transfer.into_store import import_tiered
from wheel_udf.transfer.manifest import Manifest, read_manifest


def execute(config: AnyConfig, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Executes ``export`` or ``import``.

    Raises:
        WheelError: The job cannot be moved; see :mod:`wheel_udf.transfer`.
    """
    require_path(asked.folder, field="--to" if asked.verb == "export" else "--from")
    # With the session that a run has: the first batch of a checkpoint fixes some of its settings.
    with session(config.name, config.checkpoint) as spark, progress_of(spark, asked.verb) as progress:
        print_line = progress.around(print_line)
        if asked.verb == "export":
            work = pending_work_of(spark, config)
            manifest = export_job(spark, work, asked.folder, keep=asked.keep, on_step=progress.step)
            _say_export(manifest, asked.folder, print_line, keep=asked.keep)
        else:
            there = read_manifest(asked.folder, purgatory=isinstance(config, PurgatoryConfig))
            require_same_sources(config, there, asked.folder)
            positions = begun_anew(config, there.positions, asked.anew)
            manifest = imported(spark, config, asked.folder, progress.step, positions)
            print_line(f"imported {asked.folder} into {config.checkpoint}")
            say_content(manifest, print_line)


def _say_export(manifest: Manifest, folder: str, print_line: PrintLine, *, keep: bool) -> None:
    print_line(f"exported {folder}")
    say_content(manifest, print_line)
    print_line(
        "the old checkpoint is left as it is: do not run both jobs"
        if keep
        else "the old checkpoint does not start any more"
    )


def imported(
    spark: SparkSession,
    config: AnyConfig,
    folder: str,
    on_step: Step = no_steps,
    positions: Sequence[Any] | None = None,
) -> Manifest:
    """Imports an export into the checkpoint (and store) of a config; `positions` as for ``import_direct``."""
    if isinstance(config, TieredConfig):
        what = tiered_wheel_of(located(spark, config, create=True), until_ms=None)
        return import_tiered(
            spark,
            folder,
            what,
            checkpoint=config.checkpoint,
            name=config.name,
            positions=positions,
            on_step=on_step,
        )
    begins: dict[str, Any] = {
        "checkpoint": config.checkpoint,
        "wheel": config.wheel.wheel(),
        "clock": clock_of(config.clock, until_ms=None),
        "shards": config.wheel.shards,
        "name": config.name,
        "positions": positions,
        "on_step": on_step,
    }
    if isinstance(config, PurgatoryConfig):
        return import_watch(spark, folder, **begins)
    return import_direct(spark, folder, leveled=config.levels is not None, **begins)


def require_same_sources(config: AnyConfig, manifest: Manifest, folder: str) -> None:
    """Refuses a config with another number of sources: each needs a position."""
    there, here = len(manifest.positions), len(config.sources) + len(config.level_topics)
    if there != here:
        raise TransferError(
            "the job reads another number of sources",
            field=folder,
            value=there,
            rule=str(here),
            hint="keep the sources, and the topics of delay levels, of the old config",
        )


def say_content(manifest: Manifest, print_line: PrintLine) -> None:
    """Prints what an export holds."""
    ended = {name: count for name, count in manifest.counts.items() if count}
    counted = ", ".join(f"{count:,} {name}" for name, count in ended.items()) or "nothing"
    tables = ", ".join(f"{count:,} {name}" for name, count in manifest.rows.items())
    print_line(f"  account   {manifest.pending:,} pending; counted so far: {counted}")
    print_line(f"  rows      {tables}")
    print_line(f"  clock     {instant_text(manifest.clock_ms)}")
    for position in manifest.positions:
        print_line(f"  source    goes on at {position}")
