"""How long a soak takes, what it sends, and which of its settings are not the product's, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("direct", "tiered", "purgatory")

_START_S = 14.0
"""Of the short form: allowance for a mode's start and end, beside feeding and draining."""

_SESSION_S = 25.0
"""Allowance for the start of the session and for the table."""

_LEAST_WINDOW_S = 60
"""A hand-over takes seconds on two busy cores, and the work that is done between hand-overs does, too."""

_WINDOWS = 4
"""Near rows are dropped two windows after their own: the number of files is level from then on, if each window brings
as many.
"""

SETTINGS: dict[str, str | float | bool] = {
    # Nothing on the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A heap of a fixed size, all of it touched at the start: resident memory then grows only with what is outside the
    # heap, and the heap itself is measured by what a full collection leaves.
    "spark.driver.memory": "1g",
    # By default 100 batches, 10 deltas, 60 s and 10 minutes: retention is to have begun before the warm-up ends, so
    # that the number of files is level if, and only if, files are deleted. State is deleted in steps of a snapshot
    # beyond what is retained.
    "spark.sql.streaming.minBatchesToRetain": 4,
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 3,
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "5s",
    # By default 1,000, which a batch a second would fill in 17 minutes; nothing here looks back.
    "spark.sql.streaming.numRecentProgressUpdates": 10,
    # By default 1,000 jobs, stages and executions of SQL, each with its plan: Spark keeps them even without its web
    # pages, and the heap would rise for minutes until it has as many.
    "spark.ui.retainedJobs": 20,
    "spark.ui.retainedStages": 20,
    "spark.ui.retainedTasks": 100,
    "spark.sql.ui.retainedExecutions": 20,
    # By default 8 MiB a store, which fill in some minutes.
    "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB": 1,
    # By default up to 128, 1,024 and 1,024 threads, each of which lives for a minute after its last task: the pools
    # would fill for as long as the short form lasts.
    "spark.sql.broadcastExchange.maxThreadThreshold": 8,
    "spark.sql.shuffleExchange.maxThreadThreshold": 8,
    "spark.sql.resultQueryStage.maxThreadThreshold": 8,
    # By default off, since counting costs a read for each write. Here the rows are a figure.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": True,
}

_FIXED_HEAP = "-Xms1g -XX:+AlwaysPreTouch"
_EARLY_STEADY = f"{_FIXED_HEAP} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sizes of a soak.

    Attributes:
        feed_s: How long a mode is fed, its warm-up included.
        warm_s: How much of that is not measured.
        rate: Commands a second.
        delay_s: Shortest and longest delay of a command.
        memory_s: How long an ended id is remembered.
        tiered_trigger_s: Trigger of the tiered mode; that of the others is a second.
        collect_every_s: How often the JVM is asked for a full collection, after which the heap is read.
        share: Largest rise over what is measured, as a share of the mean, that is not growth.
        java: Options of the JVM.
        doubts_growth: Whether what grows is measured once more, and counts if it grows again.
    """

    feed_s: float
    warm_s: float
    rate: int
    delay_s: tuple[float, float]
    memory_s: float
    tiered_trigger_s: int
    collect_every_s: float
    share: float
    java: str
    doubts_growth: bool = False

    @property
    def measured_s(self) -> float:
        """How long is measured."""
        return self.feed_s - self.warm_s

    @property
    def window_s(self) -> int:
        """The window of the tiered mode: half of the longest delay, so that many entries are far first; in the short
        form all are near.
        """
        return max(_LEAST_WINDOW_S, int(self.delay_s[1] / 2))

    @property
    def undecided(self) -> dict[str, str]:
        """Figures that cannot be level yet in the time measured, each with the reason."""
        if self.measured_s >= _WINDOWS * self.window_s:
            return {}
        return {"store files": f"decided by {_WINDOWS} windows of {self.window_s} s"}

    @property
    def drain_s(self) -> float:
        """Least time from the end of feeding until nothing waits."""
        return self.delay_s[1] + 3


def long_form(minutes: float) -> Plan:
    """The soak proper: so many minutes of feeding in each mode. The first quarter is not measured: the JVM compiles for
    some minutes, and windows of the tiered mode have to have come and gone.
    """
    return Plan(
        feed_s=minutes * 60,
        warm_s=minutes * 15,
        rate=200,
        delay_s=(5, 240),
        memory_s=60,
        # With a trigger of a second the intake commits about 64 times a window, which is when the files of a window
        # are joined: whether they are would depend on how busy the machine is, and the number of files with it.
        tiered_trigger_s=10,
        collect_every_s=30,
        share=0.05,
        java=_FIXED_HEAP,
    )


def short_form(total_minutes: float, modes: int) -> Plan:
    """All modes within so many minutes, starts included. It finds what grows by more than a tenth in half a minute,
    twice: of fifty figures one does by chance on a busy machine, hardly ever the same one again. The long form finds
    less.

    One compiler and the serial collector, as in the tests: the JVM is steady after half a minute and not after five.
    """
    delay_s = (2.0, 10.0)
    of_mode = (total_minutes * 60 - _SESSION_S) / modes
    return Plan(
        feed_s=of_mode - _START_S - delay_s[1] - 3,
        warm_s=30,
        rate=200,
        delay_s=delay_s,
        memory_s=8,
        # Two queries and the keeper share two cores.
        tiered_trigger_s=3,
        collect_every_s=4,
        share=0.10,
        java=_EARLY_STEADY,
        doubts_growth=True,
    )


def plan_of(minutes: float, total_minutes: float | None, modes: int) -> Plan:
    """The plan that was asked for; below ten minutes a mode it is the short form with that time for feeding.

    Raises:
        ValueError: Too little time: nothing would be measured.
    """
    if total_minutes is None and minutes >= 10:
        return long_form(minutes)
    whole = minutes * modes + (_SESSION_S + modes * (_START_S + 13)) / 60
    plan = short_form(total_minutes or whole, modes)
    if plan.measured_s < 20:
        least = (_SESSION_S + modes * (_START_S + 13 + 50)) / 60
        raise ValueError(
            f"too short: {plan.measured_s:.0f} s of each mode would be measured, at least 20 are needed; in all {least:.1f} minutes"
        )
    return plan
