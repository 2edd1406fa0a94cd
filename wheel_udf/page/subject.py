"""The subject of a page: one job, with all data of it that readings need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from wheel_udf.common.geometry import Wheel
from wheel_udf.pending.entries import PendingWork
from wheel_udf.sinks.destinations import Destinations, Sink


@dataclass(frozen=True)
class Subject:
    """A job, as far as a page shows it.

    Attributes:
        name: Its name.
        mode: ``direct``, ``tiered`` or ``purgatory``.
        spark: A session.
        checkpoint: The checkpoint of the job.
        open_work: Opens its pending work; raises StoreError if the job has not made its store yet.
        geometry: Its wheel.
        destinations: Where rows go.
        rejects: Where rejects go.
        clock_kind: ``event``, ``processing`` or ``simulated``.
    """

    name: str
    mode: str
    spark: SparkSession
    checkpoint: str
    open_work: Callable[[], PendingWork]
    geometry: Wheel
    destinations: Destinations
    rejects: Sink
    clock_kind: str

    @property
    def is_tiered(self) -> bool:
        """Whether far entries wait in a slot store."""
        return self.mode == "tiered"

    @property
    def is_purgatory(self) -> bool:
        """Whether operations wait, and not entries."""
        return self.mode == "purgatory"

    @property
    def noun_of_one(self) -> str:
        """The singular noun for what is pending."""
        return "operation" if self.mode == "purgatory" else "entry"

    @property
    def noun(self) -> str:
        """The plural noun for what is pending."""
        return "operations" if self.is_purgatory else "entries"

    @property
    def query(self) -> str:
        """Checkpoint of the query that holds the wheel's state."""
        return f"{self.checkpoint}/wheel" if self.is_tiered else self.checkpoint
