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
# # The purgatory by example
#
# "Close this order in 30 minutes *unless it is paid*." "Answer when *all* replicas have acknowledged, or time out." An *operation*
# waits under keys until *events* on these keys complete it, a cancel ends it, or its deadline passes. Each operation ends exactly
# once: `completed`, `cancelled` or `expired`.
#
# It needs no Kafka and takes less than a minute. `make notebooks` runs it.

# %%
import tempfile
from datetime import UTC, datetime, timedelta

import pandas as pd
import plots
from pyspark.sql import functions as F

from wheel_udf import EventClock, Wheel, build_session, outcomes, rejects, stop_session, watch

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """The instant some seconds after the start of the example."""
    return START + timedelta(seconds=seconds)


SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.log.level": "ERROR"}
folder = tempfile.mkdtemp()
spark = build_session("the purgatory", master="local[2]", conf=SETTINGS, checkpoint=folder)

# %% [markdown]
# ## Operations and events
#
# Both are streaming DataFrames. An operation names its `group` (the scope of its keys and of its id), its `keys`, a `rule` and a
# `deadline` (an instant, or a duration from `event_time`). An event names a group and a key. Four examples:
#
# | group | example | rule |
# |---|---|---|
# | `o-1` to `o-4` | unpaid orders: closed after 30 s unless they are paid | `any` of `paid` |
# | `w-1`, `w-2` | a write that all three replicas must acknowledge within 20 s | `all` |
# | `team` | a join: all of three members within 10 s, extended by 10 s as long as members come, up to 40 s | `all` with a `limit` |
# | `sensor` | a heartbeat: each beat extends the deadline by 15 s | `beat` |

# %%
operation_columns = "op_id string, group string, keys array<string>, rule string, deadline string, limit string, event_time timestamp"
orders = [(f"order {n}", f"o-{n}", ["paid"], "any", "30 s", None, at(2 * n)) for n in (1, 2, 3, 4)]
writes = [(f"write {n}", f"w-{n}", ["a", "b", "c"], "all", "20 s", None, at(5)) for n in (1, 2)]
join = ("join", "team", ["ann", "bob", "cyd"], "all", "10 s", "40 s", at(4))
heart = ("heartbeat", "sensor", ["beat"], "beat", "15 s", None, at(0))
broken = ("no keys", "o-9", [], "any", "30 s", None, at(1))
operations = [*orders, *writes, join, heart, broken]

event_columns = "group string, key string, op string, event_time timestamp"
events = [
    ("o-1", "paid", "EVENT", at(12)),
    ("o-2", "order 2", "CANCEL_OPERATION", at(20)),
    ("o-4", "paid", "EVENT", at(45)),  # after its deadline
    *(("w-1", replica, "EVENT", at(second)) for replica, second in (("a", 7), ("b", 8), ("c", 15))),
    *(("w-2", replica, "EVENT", at(second)) for replica, second in (("a", 6), ("b", 9))),
    *(("team", member, "EVENT", at(second)) for member, second in (("ann", 6), ("bob", 19), ("cyd", 27))),
    *(("sensor", "beat", "EVENT", at(second)) for second in (10, 22, 34)),
]
spark.createDataFrame(operations, operation_columns).coalesce(1).write.parquet(f"{folder}/operations")
spark.createDataFrame(events, event_columns).coalesce(1).write.parquet(f"{folder}/events")

# %% [markdown]
# ## The query
#
# `watch` takes both streams and returns a stream of outcomes. Times decide, not the order of arrival: here everything arrives in
# one batch, and the result is the same as if each row had come alone.

# %%
watched = watch(
    spark.readStream.schema(operation_columns).parquet(f"{folder}/operations"),
    spark.readStream.schema(event_columns).parquet(f"{folder}/events"),
    wheel=Wheel(tick_ms=100, size=20, levels=4),
    clock=EventClock(until_ms=int(at(90).timestamp() * 1_000)),
    shards=1,
)
query = (
    watched.writeStream.format("memory")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .queryName("ends")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

seconds = F.round((F.unix_millis("at") - int(START.timestamp() * 1_000)) / 1_000, 1)
ends = (
    outcomes(spark.table("ends"))
    .select("op_id", "group", "outcome", "by_key", seconds.alias("at_s"), "present", "missing", "generation")
    .orderBy("at_s", "op_id")
    .toPandas()
)
ends

# %% [markdown]
# ## Unpaid orders
#
# Order 1 is paid in time. Order 2 is cancelled. Order 3 is not paid. Order 4 is paid too late: it expired at its deadline, and the
# later payment has no effect.


# %%
def time_lines(names: list[str], title: str, deadlines_s: tuple[float, ...] = ()) -> plots.Image:
    """The waits of some operations, what happened on them, and deadlines that were extended."""
    waits, marks = [], []
    for op_id, group, keys, _, _, _, event_time in operations:
        if op_id not in names:
            continue
        starts_s = (event_time - START).total_seconds()
        for end in ends[ends["op_id"] == op_id].sort_values("generation").itertuples():
            waits.append((op_id, starts_s, end.at_s, end.outcome))
            starts_s = end.at_s
        for its_group, key, op, when in events:
            if its_group == group:
                what = "event" if op == "EVENT" else "cancel"
                label = key if len(keys) > 1 else ""
                marks.append((op_id, (when - START).total_seconds(), what, label))
    marks += [(name, at_s, "deadline", "") for name in names for at_s in deadlines_s]
    return plots.time_lines(
        pd.DataFrame(waits, columns=["operation", "start_s", "end_s", "outcome"]),
        pd.DataFrame(marks, columns=["operation", "at_s", "what", "label"]),
        title=title,
    )


time_lines([f"order {n}" for n in (1, 2, 3, 4)], "Unpaid orders: 30 seconds to pay")

# %% [markdown]
# To close the orders that were not paid, deliver only the expired outcomes: `watch(..., deliver=["expired"])`.
#
# ## Acknowledgements
#
# The rule `all` completes when the last key has had its event. The outcome of write 2 shows which replicas answered (`present`)
# and which did not (`missing`).

# %%
time_lines(["write 1", "write 2"], "Writes: all of three replicas within 20 seconds")

# %%
ends[ends["group"].str.startswith("w-")][["op_id", "outcome", "by_key", "at_s", "present", "missing"]]

# %% [markdown]
# ## A join
#
# If members came since the last deadline, the deadline of a join is extended by its first delay (here 10 s), up to the limit. The
# deadline at 14 s is extended because ann came, that at 24 s because bob came. When cyd comes, all are there: the join completes.

# %%
time_lines(["join"], "A join: 10 seconds more as long as members come", deadlines_s=(14, 24))

# %% [markdown]
# ## A heartbeat
#
# The rule `beat` never completes. Each beat moves the deadline to its own time plus 15 s. Without a beat the operation expires.

# %%
time_lines(["heartbeat"], "A heartbeat: expired 15 seconds after the last beat", deadlines_s=(49,))

# %% [markdown]
# ## Rejects
#
# Invalid operations and events become rows of the rejects, as in `schedule`.

# %%
pd.set_option("display.max_colwidth", 90)
rejects(spark.table("ends")).select("op_id", "error_code", "error_message").toPandas()

# %%
stop_session(spark)
