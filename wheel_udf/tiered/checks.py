"""Checks that the settings, the checkpoint and the slot store of a tiered run belong together.

::

    settings --- layout, shards, clock ---> wheel.json of <checkpoint>/intake and <checkpoint>/wheel
    settings --- layout, format ----------> properties of the store's table
    store ------ writer of its rows ------> transaction id of the intake's checkpoint
    checkpoint - table that it has read --> id of the store's table

A store that another checkpoint has written is refused, since the wheel would not know which of its entries have fired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from wheel_udf.checkpoint.identity import (
    TIERED_PARTS,
    Identity,
    check_checkpoint,
    check_tiered_folder,
    open_checkpoint,
)
from wheel_udf.checkpoint.spark_logs import last_committed, last_planned, planned_offsets
from wheel_udf.commands.delay_levels import fingerprint
from wheel_udf.common.errors import CheckpointError, StoreError
from wheel_udf.control.clocks import StoreClock
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tables.delta_log import tables_read
from wheel_udf.tiered.settings import TieredWheel


def check_tiered(spark: SparkSession, what: TieredWheel, checkpoint: str) -> None:
    """Compares settings with the checkpoint and the store of a tiered run, and these two with each other. Creates
    nothing.

    Args:
        spark: The session.
        what: As for :func:`start_tiered`.
        checkpoint: As for :func:`start_tiered`.

    Raises:
        GeometryChangedError, StoreError, CheckpointError: As :func:`start_tiered`.
    """
    check_tiered_folder(checkpoint)
    intake = check_checkpoint(f"{checkpoint}/intake", **_intake_settings(what))
    wheel = check_checkpoint(f"{checkpoint}/wheel", **wheel_settings(what))
    _require_both(checkpoint, {"intake": intake, "wheel": wheel})
    store = SlotStore.find(spark, what.store, what.layout)
    require_one_another(store, what.store, checkpoint, intake)


def _intake_settings(what: TieredWheel) -> dict[str, Any]:
    return {
        "wheel_fingerprint": fingerprint(what.layout.fingerprint(), leveled=what.contract.levels is not None),
        "shards": what.shards,
        "clock_kind": what.clock.kind,
    }


def _require_both(checkpoint: str, parts: Mapping[str, Identity | None]) -> None:
    """Refuses a checkpoint of which one of the two folders was lost after batches were planned."""
    lost = [f"{checkpoint}/{part}" for part, identity in parts.items() if identity is None]
    if lost and any(last_planned(f"{checkpoint}/{part}") is not None for part in TIERED_PARTS):
        raise CheckpointError(
            "a part of the checkpoint is missing",
            field=lost[0],
            hint="restore the folder from a copy; or begin with a new checkpoint folder and an empty store, "
            "which read the input anew",
        )


def require_one_another(
    store: SlotStore | None, place: str, checkpoint: str, identity: Identity | None
) -> None:
    """Refuses a store of another checkpoint, and a checkpoint of another store.

    Args:
        store: The store; None if there is none yet.
        place: Place of the store, now or later.
        checkpoint: Checkpoint folder of the run.
        identity: Identity of the intake's checkpoint; None before the first start.
    """
    owners = frozenset[str]() if store is None else store.head().owners
    own = None if identity is None else identity.app_id
    if owners - {own}:
        raise StoreError(
            "the slot store belongs to another checkpoint",
            field=place,
            value=", ".join(sorted(owners)),
            rule=f"written by {own}" if own is not None else "a new checkpoint begins with an empty store",
            hint=f"only that checkpoint knows what has fired: use it instead of {checkpoint}, or use an empty store",
        )
    found = _other_store(store, checkpoint, has_rows=bool(owners))
    if found is not None:
        raise StoreError(
            "the checkpoint belongs to another slot store",
            field=place,
            value=found,
            rule=f"the store written by {own}",
            hint="set store.path to that store, which holds what is pending",
        )


def _other_store(store: SlotStore | None, checkpoint: str, *, has_rows: bool) -> str | None:
    """What is at the place of the store, if a checkpoint has another one; None if it has this one, or none yet."""
    read = tables_read(planned_offsets(f"{checkpoint}/wheel") or ())
    has_filled = last_committed(f"{checkpoint}/intake") is not None
    if store is None:
        return "missing" if read or has_filled else None
    if has_filled and not has_rows:
        return "an empty store"
    return "another table" if read - {store.table_id} else None


def open_identity(checkpoint: str, name: str, what: TieredWheel, importing: str | None = None) -> Identity:
    """Opens the checkpoint of the intake, or creates it; `importing` is the id of an export that is being imported."""
    return open_checkpoint(f"{checkpoint}/intake", name=name, importing=importing, **_intake_settings(what))


def wheel_settings(what: TieredWheel) -> dict[str, Any]:
    """The settings that the checkpoint of the wheel's query is recognised by; arguments of ``open_checkpoint``."""
    return {
        "wheel_fingerprint": fingerprint(what.wheel.fingerprint(), leveled=what.contract.levels is not None),
        "shards": what.shards,
        "clock_kind": StoreClock.kind,
    }
