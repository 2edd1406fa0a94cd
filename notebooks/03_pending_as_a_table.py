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
# # Pending as a table
#
# Which entries are pending? What falls due next week? Cancel some, move some, send others to another destination. The questions are
# SQL and the answers are DataFrames. The job does not have to run; if it runs, it is not disturbed.
#
# The first part is a job in the *tiered* mode: entries that are due later wait in a Delta table, the slot store. The last part is a job
# in the *direct* mode, without a store.
#
# It needs no Kafka and takes a minute or two. `make notebooks` runs it.

# %%
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path

import pandas as pd
import plots
from pyspark.sql import DataFrame, functions as F

from wheel_udf import (
    DeltaSink,
    Destinations,
    EventClock,
    Wheel,
    build_session,
    deliver,
    schedule,
    stop_session,
)
from wheel_udf.pending import acts
from wheel_udf.pending.entries import PendingWork, count_far, forecast, pending
from wheel_udf.pending.history import history_of
from wheel_udf.store.layout import StoreLayout
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.tiered.settings import TieredWheel
from wheel_udf.tiered.start import Outlet, start_tiered

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.log.level": "ERROR"}
folder = tempfile.mkdtemp()
spark = build_session("pending as a table", master="local[2]", conf=SETTINGS, checkpoint=folder)

# %% [markdown]
# ## A wheel with two tiers
#
# Level 1 has 24 slots of an hour and is in Spark's state; level 2 has slots of a day, level 3 of 24 days, and both are in the slot
# store. (An entry still fires at its minute, however coarse the slots.) The commands: 2,000 reminders over the next four weeks, to
# mail, text message and push.

# %%
columns = "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value string"


def command(number: int) -> tuple:
    """The schedule of one reminder: half of them by mail, a third by text message, a sixth by push."""
    due = START + timedelta(minutes=round(40_000 * (number / 2_000) ** 1.6), hours=9 + number * 7 % 10)
    channel = ("mail", "mail", "mail", "text", "text", "push")[number % 6]
    return f"reminder-{number:04}", "SCHEDULE", 1, due, START, channel, f"visit {number}"


(Path(folder) / "commands").mkdir()
names = [column.split()[0] for column in columns.split(", ")]
commands = pd.DataFrame([command(number) for number in range(2_000)], columns=names)
instants = dict.fromkeys(("deliver_at", "event_time"), "datetime64[us, UTC]")
commands.astype(instants).to_parquet(f"{folder}/commands/0.parquet", index=False)

layout = StoreLayout(Wheel(tick_ms=3_600_000, size=24, levels=3), state_levels=1)
wheel = TieredWheel(layout=layout, store=f"{folder}/store", clock=EventClock(), shards=2)
tables, refused = DeltaSink(f"{folder}/tables", create=True), DeltaSink(f"{folder}/rejects", create=True)


start_tiered(
    spark.readStream.schema(columns).parquet(f"{folder}/commands"),
    wheel,
    outlet=Outlet(Destinations({"*": tables}), refused),
    checkpoint=f"{folder}/checkpoint",
    trigger="available-now",  # reads the commands that are there, releases what is due, and ends
).awaitTermination()

# %% [markdown]
# ## List, filter, count
#
# `pending` returns a DataFrame; everything that Spark can do with one works.

# %%
store = SlotStore.open(spark, f"{folder}/store", layout, create=False)
work = PendingWork(f"{folder}/checkpoint", store)
shown = ["schedule_id", "deliver_at", "destination", "place"]
entries = pending(spark, work).cache()
entries.orderBy("deliver_at").limit(5).select(*shown).toPandas()

# %%
entries.groupBy("destination").agg(
    F.count("*").alias("entries"), F.min("deliver_at").alias("next due")
).orderBy("destination").toPandas()

# %%
entries.where("schedule_id = 'reminder-0042'").select(*shown).toPandas()

# %% [markdown]
# `count_far` counts the far entries from the table's log and reads no data.

# %%
print(f"{count_far(store):,} entries in the slot store")

# %% [markdown]
# ## Forecast
#
# How much falls due when, by destination. One row for each step and destination, in order.

# %%
load = forecast(entries, every="1 day").toPandas()
per_day = load.pivot_table(index="due_from", columns="destination", values="rows", fill_value=0)
per_day.columns.name = "destination"
per_day.index = per_day.index.strftime("%d %b")
plots.stacked_bars(
    per_day[["mail", "text", "push"]], title="Reminders that will fall due", x="day (UTC)",
    y="entries due", rotation=60, height=4.8,
)  # fmt: skip

# %% [markdown]
# ## Cancel, move, reroute
#
# An act picks pending entries by id, by a SQL predicate, or both. With `dry_run` it only counts. The text message provider is down
# on 10 January, so what is due that day goes out by mail.

# %%
moment_ms = int(time.time() * 1_000)  # to look back at, below
tenth = acts.Picked(where="destination = 'text' AND date(deliver_at) = '2026-01-10'")
print("would reroute", acts.reroute(spark, work, tenth, to="mail", dry_run=True), "entries")

# %% [markdown]
# Now in earnest. And the first push message comes two hours later, and three visits are cancelled. An act returns the number of
# entries that it has changed.

# %%
first_push = acts.Picked(ids=["reminder-0005"])
visits = acts.Picked(where="schedule_id BETWEEN 'reminder-0100' AND 'reminder-0102'")
print("rerouted", acts.reroute(spark, work, tenth, to="mail"))
print("moved", acts.move(spark, work, first_push, to="deliver_at + INTERVAL 2 HOURS"))
print("cancelled", acts.cancel(spark, work, visits))

# %%
picked = ["reminder-0005", "reminder-0101"]
after = pending(spark, work).cache()
after.where(F.col("schedule_id").isin(picked) | (F.expr(tenth.where))).select(*shown).toPandas()

# %% [markdown]
# This view no longer has the three visits and the text messages of that day; the push message is due two hours later.
#
# Each act (cancel, move, reroute) is a file of the checkpoint, which the job takes, and a row of the record: time, act, user,
# predicate, number of entries.

# %%
acts.audit(spark, work.query).orderBy("at").select("act", "picked", "change", "rows").toPandas()

# %% [markdown]
# ## As of an earlier moment
#
# What was pending before the acts? The slot store is a Delta table, so its earlier versions answer that, as far back as its log
# and files are kept.

# %%
before = pending(spark, work, as_of_ms=moment_ms)
pd.DataFrame(
    {
        name: dict(rows.groupBy("destination").count().orderBy("destination").collect())
        for name, rows in (("before the acts", before), ("now", after))
    }
).rename_axis("destination")

# %% [markdown]
# ## History of an id
#
# What is known of the moved reminder, and through which levels will it pass?

# %%
rows = []
for event in history_of(
    spark, work, "reminder-0005", geometry=layout.wheel, destinations=Destinations({"*": tables})
):
    at = "" if event.at_ms is None else f"{datetime.fromtimestamp(event.at_ms / 1_000, UTC):%d %b %H:%M:%S}"
    rows.append((at, event.what, event.detail or ""))
pd.set_option("display.max_colwidth", 60)
pd.DataFrame(rows, columns=["when", "what", "detail"])

# %% [markdown]
# ## Acts in the direct mode
#
# In the direct mode (the default) all pending entries are in Spark's state, and there is no store. The questions and the acts are
# the same; only the checkpoint is needed. Here the same commands go through such a job. It reads them, releases what is due at the
# clock of the data, 1 January, and ends.


# %%
def run_direct(until: datetime | None = None) -> dict[str, int]:
    """Runs the job over the input that is there, and on to `until`; the account afterwards."""
    reports = []
    deliver(
        schedule(
            spark.readStream.schema(columns).parquet(f"{folder}/commands"),
            wheel=layout.wheel,
            clock=EventClock(until_ms=None if until is None else int(until.timestamp() * 1_000)),
            shards=2,
        ),
        destinations=Destinations({"*": DeltaSink(f"{folder}/direct/tables", create=True)}),
        rejects=DeltaSink(f"{folder}/direct/rejects", create=True),
        checkpoint=f"{folder}/direct/checkpoint",
        trigger="available-now",
        on_batch=reports.append,
    ).awaitTermination()
    return {name: count for name, count in reports[-1].counts.items() if count}


run_direct()
at_rest = PendingWork(f"{folder}/direct/checkpoint")
pending(spark, at_rest).groupBy("place").count().toPandas()

# %% [markdown]
# An act is a small file in the checkpoint. A running job takes it with its next batch, a job at rest with its next start, before
# anything fires. `pending` shows it at once.

# %%
soon = acts.Picked(where="deliver_at < timestamp'2026-01-01 10:00:00'")
print("cancelled", acts.cancel(spark, at_rest, acts.Picked(ids=["reminder-0000"])))
print(
    "moved", acts.move(spark, at_rest, acts.Picked(ids=["reminder-0020"]), to="deliver_at + INTERVAL 2 HOURS")
)
print("rerouted", acts.reroute(spark, at_rest, soon, to="push"))
changed = ["reminder-0000", "reminder-0010", "reminder-0020", "reminder-0030"]
pending(spark, at_rest).where(F.col("schedule_id").isin(changed)).orderBy("deliver_at").select(
    *shown
).toPandas()

# %% [markdown]
# Now the job runs on to noon. The cancelled reminder is in no table, the moved one has its new due time, and those that were rerouted are in
# the table `push`. In the account a changed entry counts as `superseded` by its new version.

# %%
print("account:", run_direct(START + timedelta(hours=12)))
tables_of = f"{folder}/direct/tables"
released = reduce(
    DataFrame.unionByName,
    [
        spark.read.format("delta").load(f"{tables_of}/{channel}").withColumn("table", F.lit(channel))
        for channel in ("mail", "text", "push")
    ],
)
released.where(F.col("schedule_id").isin(changed)).orderBy("deliver_at").select(
    "schedule_id", "table", "deliver_at", "fired_at"
).toPandas()

# %%
acts.audit(spark, at_rest.query).orderBy("at").select("act", "picked", "change", "rows").toPandas()

# %%
stop_session(spark)
