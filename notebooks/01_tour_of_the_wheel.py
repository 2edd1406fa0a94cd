# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tour of the wheel
#
# A *hierarchical timing wheel* holds many entries, each with a due time, and finds the due ones without comparing entries with
# each other. This notebook shows how it does that: first with plain integers, then with the in-memory reference
# implementation, and finally on Spark.
#
# It needs no Kafka and takes less than a minute. `make notebooks` runs it.

# %%
import tempfile
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import plots
from pyspark.sql import functions as F

from wheel_udf import SimulatedClock, TimingWheel, Wheel, build_session, fired, schedule, status, stop_session
from wheel_udf.common import geometry

# %% [markdown]
# ## Levels, slots, intervals
#
# `Wheel(tick_ms, size, levels)` is the geometry. Level 1 has `size` slots that are `tick_ms` wide. A slot of the next level is
# as wide as the whole level below: its *tick* is `size` times larger.

# %%
wheel = Wheel(tick_ms=1, size=20, levels=3)

pd.DataFrame(
    [
        {"level": level, "tick (ms)": wheel.tick_of(level), "interval (ms)": wheel.interval_of(level)}
        for level in range(1, wheel.levels + 1)
    ]
)

# %% [markdown]
# An entry is on the lowest level whose interval, counted from that level's clock, contains its due time. The top level is
# open-ended: no due time is too far away. At this clock the dotted slots are not used, because the level below covers them.

# %%
plots.levels_and_slots(wheel)

# %% [markdown]
# So the place of an entry is arithmetic on two numbers, its due time and the clock:

# %%
pd.DataFrame(
    [
        {
            "due (ms)": due_ms,
            "level": (level := geometry.level_of(wheel, due_ms, 0)),
            "slot": (slot := geometry.slot_of(wheel, level, due_ms)),
            "bucket (ms)": "[{:,}, {:,})".format(*geometry.bucket_interval(wheel, level, slot)),
        }
        for due_ms in (5, 19, 20, 399, 450, 7_999, 50_000)
    ]
)

# %% [markdown]
# ## Where entries lie
#
# A wheel for reminders: 1 s x 20, five levels. Three thousand entries are due within the next two days, most of them soon. Each
# level holds the entries of its own range of due times. The slots of a level form a ring, which is reused as time goes on.

# %%
reminders = Wheel(tick_ms=1_000, size=20, levels=5)
due_ms = np.random.default_rng(1).exponential(4 * 3_600_000, 3_000).astype(np.int64)
plots.occupancy(reminders, due_ms, clock_ms=0)

# %% [markdown]
# Two hours and fourteen minutes later the clock has reached a slot of level 4: its entries have moved down, and near entries
# have fired. The slot that holds a level's clock is outlined. Above level 1 it is empty: its entries are on lower levels.

# %%
later_ms = 8_040_000
plots.occupancy(reminders, due_ms[due_ms > later_ms], clock_ms=later_ms)

# %% [markdown]
# ## The cascade, step by step
#
# The first classic trace: a wheel of 1 ms x 20, one entry due at 450 ms. When the clock reaches the start of the entry's
# bucket, the bucket is emptied and its entries are placed again, on a lower level. An entry moves at most once for each level.

# %%
plots.way_down(wheel, deliver_at_ms=450, clock_ms=0)

# %% [markdown]
# `TimingWheel` is the reference implementation in memory. Its observer receives every wake-up, move and firing. The wheel
# wakes only where a bucket starts or an entry is due: three times here, not 450 times.

# %%
events: list[object] = []
small = TimingWheel(tick_ms=1, size=20, levels=3, observer=events.append)
small.add("tea", deliver_at_ms=450)
while (wakeup_ms := small.next_wakeup_ms()) is not None:
    small.advance(wakeup_ms)
for event in events:
    print(event)

# %% [markdown]
# ## The second trace: twelve entries on 10 s x 8
#
# Entries due at 12, 18, 35, 36, 38, 53, 54, 62, 65, 69, 100 and 700 s. The wheel adds levels (overflow wheels) when it needs them.


# %%
def run_trace(rule: str) -> pd.DataFrame:
    """Runs the twelve entries and returns what happened to each."""
    seen: list[object] = []
    wheel = TimingWheel(tick_ms=10_000, size=8, rule=rule, observer=seen.append)
    dues_s = (12, 18, 35, 36, 38, 53, 54, 62, 65, 69, 100, 700)
    for due_s in dues_s:
        wheel.add(due_s, due_s * 1_000)
    while (wakeup_ms := wheel.next_wakeup_ms()) is not None:
        wheel.advance(wakeup_ms)
    rows = [
        {
            "entry": event.entry_id,
            "due_s": event.entry_id,
            "at_s": event.at_ms / 1_000,
            "level": getattr(event, "level", None),
        }
        for event in seen
        if hasattr(event, "entry_id")
    ]
    return pd.DataFrame(rows).sort_values(["entry", "at_s"], kind="stable")


moves = run_trace("exact")
plots.trace(moves)

# %% [markdown]
# A tick of 10 s does not make the wheel imprecise. This project fires an entry when `deliver_at <= now`, to the millisecond.
# The rule of Kafka's wheel fires all entries of a tick when the tick begins, so up to one tick early. `TimingWheel` has
# both rules; everything else in this project uses the exact one.

# %%
fired_at = {
    rule: (trace := run_trace(rule))[trace["level"].isna()].set_index("due_s")["at_s"]
    for rule in ("exact", "kafka")
}
comparison = pd.DataFrame(fired_at).astype(int)
comparison["early by (s)"] = comparison.index - comparison["kafka"]
comparison.T

# %% [markdown]
# ## A clock that jumps
#
# A clock jumps when a computer sleeps, when a stream is behind, or when a test skips a day. The wheel visits only the buckets
# that hold entries, and no empty ticks. All entries that have become due fire, oldest first. A `limit` bounds how many fire at
# once; the rest stays due.

# %%
wakes: list[object] = []
jumping = TimingWheel(tick_ms=1_000, size=20, observer=wakes.append)
for number, each_ms in enumerate(due_ms):
    jumping.add(number, int(each_ms))
wakes.clear()
week_ms = 7 * 86_400_000
first = jumping.advance(week_ms, limit=1_000)
rest = jumping.advance(week_ms)
stops = sum(type(event).__name__ == "Woke" for event in wakes)
print(f"released {len(first):,}, then {len(rest):,}; pending {len(jumping)}")
print(f"the wheel stopped {stops:,} times in {7 * 86_400:,} ticks")

# %% [markdown]
# A clock that is set back changes nothing: the wheel keeps its time, and nothing fires twice.

# %%
print(jumping.advance(0), "clock at", f"{jumping.clock_ms:,} ms")

# %% [markdown]
# ## The same wheel on Spark, with a clock moved by hand
#
# `schedule` takes a streaming DataFrame of commands and returns a streaming DataFrame of what happened. Time comes from a
# clock: the wall clock, the watermark, or, as here, a `SimulatedClock` with a list of instants, one for each micro-batch. So the
# first trace runs on Spark without waiting.

# %%
SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.log.level": "ERROR"}
folder = tempfile.mkdtemp()
spark = build_session("tour of the wheel", master="local[2]", conf=SETTINGS, checkpoint=folder)


def instant(ms: int) -> datetime:
    """The instant `ms` milliseconds after 1970."""
    return datetime.fromtimestamp(ms / 1_000, UTC)


columns = "schedule_id string, seq long, deliver_at timestamp, destination string"
commands = [
    ("tea", 1, instant(450), "kitchen"),
    ("soon", 1, instant(5), "kitchen"),
    ("far", 1, instant(50_000), "kitchen"),
]
spark.createDataFrame(commands, columns).coalesce(1).write.parquet(f"{folder}/commands")

clock = SimulatedClock(instants_ms=(0, 5, 399, 400, 440, 449, 450))
happened = schedule(
    spark.readStream.schema(columns).parquet(f"{folder}/commands"), wheel=wheel, clock=clock, shards=1
)
query = (
    happened.writeStream.format("memory")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .queryName("tour")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% [markdown]
# Each batch took the next instant. The status of the shard shows how many entries are pending and when the next one is due. At
# 449 ms the entry has not fired; at 450 ms it has.

# %%
(
    status(spark.table("tour"))
    .select("clock_ms", "pending", "next_due_ms", "fired_now")
    .orderBy("batch_id")
    .toPandas()
)

# %%
(
    fired(spark.table("tour"))
    .select(
        "schedule_id",
        F.unix_millis("deliver_at").alias("due (ms)"),
        F.unix_millis("fired_at").alias("fired at (ms)"),
        "lateness_ms",
        "destination",
    )
    .orderBy("fired_at")
    .toPandas()
)

# %%
stop_session(spark)
