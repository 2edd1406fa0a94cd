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
# # Again
#
# Two reasons to deliver an id more than once: its command has a rule (`repeat`), or its destination could not take it. This notebook
# shows both. First a week of daily reminders in which clocks change, then an outage, then an endpoint that fails.
#
# It needs no Kafka and takes a minute or two. `make notebooks` runs it.

# %%
import json
import logging
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pandas as pd
import plots

from wheel_udf import (
    DeltaSink,
    Destinations,
    HttpSink,
    SimulatedClock,
    Wheel,
    build_session,
    deliver,
    schedule,
    stop_session,
)
from wheel_udf.policies.retries import NO_RETRIES, Retries, Retry

logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("wheel_udf.sinks.breaker").setLevel(logging.INFO)
os.environ["NO_PROXY"] = "127.0.0.1"  # the endpoint of the last part is on this machine
SETTINGS = {"spark.sql.shuffle.partitions": 1, "spark.log.level": "ERROR"}
folder = Path(tempfile.mkdtemp())
spark = build_session("again", master="local[2]", conf=SETTINGS, checkpoint=str(folder))

# %% [markdown]
# Each part is a job of its own in the direct mode: commands in a file, deliveries in Delta tables. The clock is simulated. It takes one
# instant of a list in each batch, so a week passes in some seconds.

# %%
columns = ("schedule_id", "repeat", "time_zone", "on_gap", "on_fold", "on_missed", "deliver_at", "event_time")
texts = ", ".join(f"{name} string" for name in (*columns, "destination", "value"))


def send(job: str, commands: list[dict[str, str]]) -> None:
    """Writes commands to the input of a job."""
    (folder / job / "commands").mkdir(parents=True)
    (folder / job / "commands" / "0.json").write_text("\n".join(map(json.dumps, commands)))


def run(job: str, instants: list[datetime], *, hooks: dict[str, HttpSink] | None = None, retries=NO_RETRIES):
    """Runs a job through the instants of its clock, and returns the reports of its batches."""
    reports = []
    deliver(
        schedule(
            spark.readStream.schema(texts).json(str(folder / job / "commands")),
            wheel=Wheel(tick_ms=1_000, size=20, levels=6),
            clock=SimulatedClock(instants_ms=tuple(int(each.timestamp() * 1_000) for each in instants)),
            shards=1,
            retries=retries,
        ),
        destinations=Destinations(
            {**(hooks or {}), "*": DeltaSink(str(folder / job / "tables"), create=True)}
        ),
        rejects=DeltaSink(str(folder / job / "rejects"), create=True),
        checkpoint=str(folder / job / "checkpoint"),
        trigger="available-now",
        on_batch=reports.append,
    ).awaitTermination()
    return reports


def table(path: str) -> pd.DataFrame:
    """A table of a job; its instants are UTC."""
    rows = spark.read.format("delta").load(str(folder / path)).toPandas()
    instants = rows.select_dtypes("datetime").columns
    return rows.assign(**{name: rows[name].dt.tz_localize("UTC") for name in instants})


def steps(start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    """Instants at equal distances, both ends included."""
    return [start + number * step for number in range((end - start) // step + 1)]


# %% [markdown]
# ## A week with two changes of clocks
#
# Three people want a reminder at nine in the morning. On Sunday 29 March 2026 clocks in Paris are set forward. A week later, on Sunday
# 5 April, clocks in Sydney and on Lord Howe Island are set back, there by half an hour. In New York they do not change in this week.
#
# Five more series are due at 02:30 at night. In Paris this time does not exist on 29 March: `on_gap` decides. In Sydney it comes twice on
# 5 April: `on_fold` decides.

# %%
SATURDAY = datetime(2026, 3, 28, tzinfo=UTC)
zones = {"Paris": "Europe/Paris", "New York": "America/New_York", "Lord Howe": "Australia/Lord_Howe"}
in_the_morning = [
    {"schedule_id": f"09:00 in {name}", "repeat": "0 9 * * *", "time_zone": zone, "destination": "mornings"}
    for name, zone in zones.items()
]
at_night = {"repeat": "30 2 * * *", "destination": "nights", "on_missed": "all"}
paris, sydney = at_night | {"time_zone": "Europe/Paris"}, at_night | {"time_zone": "Australia/Sydney"}
of_gap = [paris | {"schedule_id": f"on_gap: {policy}", "on_gap": policy} for policy in ("shift", "skip")]
of_fold = [
    sydney | {"schedule_id": f"on_fold: {policy}", "on_fold": policy} for policy in ("first", "last", "both")
]
week = [*in_the_morning, *of_gap, *of_fold]
send("week", [command | {"event_time": SATURDAY.isoformat()} for command in week])

reports = run("week", steps(SATURDAY, SATURDAY + timedelta(days=9), timedelta(hours=12)))
print("account:", {name: count for name, count in reports[-1].counts.items() if count})

# %% [markdown]
# A batch comes every twelve hours here, so the rows fire late, but `deliver_at` is their nominal time. The two deliveries of
# `on_fold: both` come in one batch; without `on_missed: all` the first of them would be missed.

# %%
mornings, nights = table("week/tables/mornings"), table("week/tables/nights")
mornings["UTC"] = mornings["deliver_at"].dt.strftime("%H:%M")
mornings.groupby(["schedule_id", "UTC"])["deliver_at"].agg(
    deliveries="count", first="min", last="max"
).sort_values(["schedule_id", "first"])

# %%
plots.week(
    mornings[["schedule_id", "deliver_at"]],
    [
        plots.Night("Paris, 29 March: clocks go from 02:00 to 03:00", "Europe/Paris",
                    pd.Timestamp("2026-03-29T01:00Z"), [each["schedule_id"] for each in of_gap]),
        plots.Night("Sydney, 5 April: clocks go from 03:00 to 02:00", "Australia/Sydney",
                    pd.Timestamp("2026-04-04T16:00Z"), [each["schedule_id"] for each in of_fold]),
    ],
    nights[["schedule_id", "deliver_at"]],
)  # fmt: skip

# %% [markdown]
# Above: nine o'clock stays nine o'clock, so the instant in UTC moves, in Paris by an hour and on Lord Howe Island by half an hour. Below: in the
# gap, `shift` delivers at the first instant after it and `skip` nothing; in the fold, `both` delivers twice, an hour apart.
#
# ## An outage
#
# Three series, every half hour from 08:00. The job is stopped after its batch at 10:00, and started again at 14:10. Eight occurrences of
# each series are over by then, and `on_missed` decides what becomes of them.

# %%
MONDAY = datetime(2026, 3, 30, tzinfo=UTC)
OPENING, STOP, START = (MONDAY + timedelta(minutes=minutes) for minutes in (8 * 60, 10 * 60, 14 * 60 + 10))
HALF_HOUR = timedelta(minutes=30)
policies = ("latest", "all", "none")
every_half_hour = {
    "repeat": "every 30 minutes",
    "deliver_at": OPENING.isoformat(),
    "event_time": MONDAY.isoformat(),
    "destination": "rounds",
}
send("outage", [every_half_hour | {"schedule_id": each, "on_missed": each} for each in policies])

before = steps(OPENING, STOP, HALF_HOUR)
run("outage", before)
# The second run begins at the checkpoint, with the next instant of the list.
after = [START, *steps(MONDAY + timedelta(hours=14, minutes=30), MONDAY + timedelta(hours=16), HALF_HOUR)]
reports = run("outage", [*before, *after])
print("account:", {name: count for name, count in reports[-1].counts.items() if count})

# %% [markdown]
# What the first batch after the outage has delivered, and what is in the rejects. The series with `latest` has 7 in `missed_before`: one
# delivery stands for eight. What `none` leaves out is one row of the rejects.

# %%
rounds = table("outage/tables/rounds").sort_values(["schedule_id", "deliver_at"])
rounds[rounds["fired_at"] == START][
    ["schedule_id", "deliver_at", "fired_at", "occurrence", "missed_before"]
].reset_index(drop=True)

# %%
pd.set_option("display.max_colwidth", 90)
table("outage/rejects")[["schedule_id", "error_code", "error_message"]]

# %%
plots.outage(
    rounds[["schedule_id", "deliver_at", "fired_at", "missed_before"]],
    series=policies,
    due=pd.DatetimeIndex(steps(OPENING, MONDAY + timedelta(hours=16), HALF_HOUR)),
    down=(pd.Timestamp(STOP), pd.Timestamp(START)),
)

# %% [markdown]
# Each mark stands at the nominal time. After the start at 14:10 `latest` delivers one of the eight, `all` delivers the eight, `none` waits
# for 14:30. From then on all three are on time again.
#
# ## An endpoint that fails
#
# Two webhooks. `crm` answers 503 until 10:05; one of its customers is gone, which it answers with 410. `old` has been switched off and
# answers 503 for good. Both are one small server on this machine. As the clock is simulated, the server takes the time from the request.

# %%
TEN = MONDAY + timedelta(hours=10)
UP_AGAIN = TEN + timedelta(minutes=5)
requests = []


class Endpoint(BaseHTTPRequestHandler):
    """Answers requests and remembers them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answers a request."""
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        at = datetime.fromisoformat(row["fired_at"])
        is_down = row["destination"] == "old" or at < UP_AGAIN
        status = 503 if is_down else 410 if row["value"] == "gone" else 200
        requests.append((row["destination"], row["schedule_id"], row["attempt"], at, status))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        """Writes no log."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
Thread(target=server.serve_forever, daemon=True).start()

# %% [markdown]
# A row that fails is tried again after 30 seconds, one minute, two minutes and so on. After three failures in a row the breaker of the
# destination opens for a minute. `crm` is tried up to ten times, `old` three times. What is not tried again becomes a row of the
# table `dead`.

# %%
policy = {
    "first_ms": 30_000,
    "factor": 2.0,
    "jitter": "none",
    "breaker_failures": 3,
    "breaker_cooldown_ms": 60_000,
}
retries = Retries(
    {"crm": Retry(**policy, attempts=10, dead_letters="dead"), "old": Retry(**policy, attempts=3, dead_letters="dead")},
    ("crm", "old", "*"),
)  # fmt: skip
hook = HttpSink(
    f"http://127.0.0.1:{server.server_port}/{{destination}}", retries=0, waits=False, cooldown_ms=0
)

reminders = [("crm", number, number * 30) for number in range(1, 9)] + [("old", 1, 60), ("old", 2, 150)]
calls = [
    {
        "schedule_id": f"{name} {number}",
        "destination": name,
        "deliver_at": (TEN + timedelta(seconds=second)).isoformat(),
        "event_time": TEN.isoformat(),
        "value": "gone" if (name, number) == ("crm", 5) else "call back",
    }
    for name, number, second in reminders
]
send("hooks", calls)
reports = run(
    "hooks",
    steps(TEN, TEN + timedelta(minutes=9), timedelta(seconds=30)),
    hooks={"crm": hook, "old": hook},
    retries=retries,
)
server.shutdown()
server.server_close()
print("account:", {name: count for name, count in reports[-1].counts.items() if count})

# %% [markdown]
# The dead letters, with their history:

# %%
dead = table("hooks/tables/dead").sort_values(["dead_at", "schedule_id"])
dead[["schedule_id", "origin", "attempts", "reason", "last_error", "dead_at"]].reset_index(drop=True)

# %%
attempts = pd.DataFrame(requests, columns=["destination", "schedule_id", "attempt", "at", "status"])
states = pd.DataFrame(
    [(report.clock_ms, name, state) for report in reports for name, state in report.breakers.items()],
    columns=["clock_ms", "destination", "state"],
)
states["at"] = pd.to_datetime(states["clock_ms"], unit="ms", utc=True)
plots.attempts(
    attempts,
    {each["schedule_id"]: pd.Timestamp(each["deliver_at"]) for each in calls},
    states,
    dead=list(dead["schedule_id"]),
)

# %% [markdown]
# The line of a row goes from its due time to its last attempt. `crm 1` and `crm 2` fail three times together, and the breaker opens. From
# then on the rows wait in the wheel, and one of them tries once a minute. At 10:05 the endpoint is back: the next trial, of `crm 3`,
# succeeds, and the breaker closes. The others follow with the next batch, in one attempt each; `crm 2` waits two minutes after its third
# failure. The rows of `old` end as dead letters after three attempts, and `crm` does not wait for them. (Half-open: the minute is over, and no
# row has tried yet.)

# %%
stop_session(spark)
