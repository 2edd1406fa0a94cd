"""Acts in the direct mode and on a purgatory: a file of the checkpoint, which the query takes with its next batch,
running or at rest.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.pending.verbs import ask
from tests.spark.streams import T0_MS, add_files, at_ms, due, read_files
from tests.spark.watches import add_rows, operation, read_rows
from wheel_udf.checkpoint.act_files import acts_taken
from wheel_udf.checkpoint.spark_logs import planned_batch
from wheel_udf.commands.contract import Contract
from wheel_udf.common.errors import ActError, TransferError
from wheel_udf.common.geometry import Wheel
from wheel_udf.control.clocks import EventClock
from wheel_udf.delivery.query import deliver
from wheel_udf.pending import acts
from wheel_udf.pending.acts import Picked
from wheel_udf.pending.entries import PendingWork, pending
from wheel_udf.pending.operations import operations_pending
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations
from wheel_udf.stream.schedule_operator import schedule
from wheel_udf.stream.watch_operator import watch
from wheel_udf.transfer.exporting import export_job
from wheel_udf.transfer.importing import import_direct

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WHEEL = Wheel(tick_ms=1_000, size=20, levels=4)
EVERYTHING = Picked(where="true")


class Full(DeltaSink):
    """A sink that cannot write."""

    def write(self, *_: Any, **__: Any) -> None:
        """Fails."""
        raise OSError(28, "No space left on device")


@dataclass
class Job:
    """A wheel in the direct mode over files in a folder."""

    spark: SparkSession
    folder: Path
    sink: type[DeltaSink] = DeltaSink

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def work(self) -> PendingWork:
        contract = Contract(destinations=("out", "mail_*"), max_delay_ms=1_000_000_000)
        return PendingWork(self.checkpoint, contract=contract)

    def frame(self, until_s: float | None) -> DataFrame:
        clock = EventClock(until_ms=None if until_s is None else at_ms(until_s))
        return schedule(read_files(self.spark, self.folder / "in"), wheel=WHEEL, clock=clock, shards=3)

    def start(
        self, until_s: float | None = None, trigger: str = "available-now", **others: Any
    ) -> StreamingQuery:
        return deliver(
            self.frame(until_s),
            destinations=Destinations({"*": self.sink(str(self.folder / "tables"), create=True)}),
            rejects=DeltaSink(str(self.folder / "rejects"), create=True),
            checkpoint=self.checkpoint,
            trigger=trigger,
            **others,
        )

    def run(self, until_s: float | None = None) -> dict[str, int]:
        """Runs over all input; the counts of the account that are not 0."""
        reports: list[Any] = []
        self.start(until_s, on_batch=reports.append).awaitTermination()
        return {name: count for name, count in reports[-1].counts.items() if count}

    def waiting(self) -> dict[str, tuple[int, int, str]]:
        """Of each pending entry: amend, due in seconds from the beginning, destination."""
        rows = pending(self.spark, self.work)
        rows = rows.selectExpr("schedule_id", "amend", "unix_millis(deliver_at)", "destination")
        return {name: (amend, (at - T0_MS) // 1_000, to) for name, amend, at, to in rows.collect()}

    def fired(self, table: str = "out") -> list[tuple[str, int, bytes]]:
        """Of each row of a table: id, due in seconds from the beginning, value."""
        rows = self.spark.read.format("delta").load(str(self.folder / "tables" / table))
        rows = rows.selectExpr("schedule_id", "unix_millis(deliver_at)", "value")
        return sorted((name, (at - T0_MS) // 1_000, bytes(value)) for name, at, value in rows.collect())


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    """Entries due after 60, 70, 80 and 90 seconds wait; the job is at rest."""
    job = Job(spark, tmp_path)
    add_files(
        tmp_path / "in",
        [due("a", 60, 0, value=b"va"), due("b", 70, 0, value=b"vb")],
        [due("c", 80, 1, value=b"vc"), due("d", 90, 1, value=b"vd")],
    )
    job.run()
    return job


def test_acts_on_a_job_at_rest_are_seen_at_once_and_taken_before_anything_fires(job: Job) -> None:
    spark = job.spark
    assert acts.cancel(spark, job.work, Picked(ids=["a"]), dry_run=True) == 1
    assert job.waiting() == {
        "a": (0, 60, "out"),
        "b": (0, 70, "out"),
        "c": (0, 80, "out"),
        "d": (0, 90, "out"),
    }
    assert acts.cancel(spark, job.work, Picked(ids=["a"])) == 1
    assert acts.move(spark, job.work, Picked(ids=["b", "c"]), to="deliver_at + interval 1 hour") == 2
    assert acts.reroute(spark, job.work, Picked(where="schedule_id >= 'c'"), to="mail_x") == 2
    changed = {"b": (1, 3_670, "out"), "c": (2, 3_680, "mail_x"), "d": (1, 90, "mail_x")}
    assert job.waiting() == changed
    assert acts.cancel(spark, job.work, Picked(ids=["a"])) == 0, "it is cancelled already"

    account = job.run(until_s=1_000)
    assert job.waiting() == {name: changed[name] for name in "bc"}
    assert job.fired("mail_x") == [("d", 90, b"vd")]
    # 4 rows of commands, 5 of acts; a, b, c twice and d were replaced or cancelled.
    assert account == {"fired": 1, "cancelled": 1, "applied": 1, "superseded": 4}
    assert job.run(until_s=4_000) == {**account, "fired": 3}
    assert job.fired() == [("b", 3_670, b"vb")]
    assert job.fired("mail_x") == [("c", 3_680, b"vc"), ("d", 90, b"vd")]

    recorded = acts.audit(spark, job.checkpoint).orderBy("batch").collect()
    assert [(row.act, row.picked, row.change, row.rows) for row in recorded] == [
        ("cancel", "schedule_id in ['a']", "", 1),
        ("move", "schedule_id in ['b', 'c']", "to deliver_at + interval 1 hour", 2),
        ("reroute", "(schedule_id >= 'c')", "to mail_x", 2),
    ]


@pytest.mark.sentinel
def test_a_running_job_takes_an_act_without_a_new_command(job: Job) -> None:
    query = job.start(trigger="200 milliseconds")
    try:
        assert (
            acts.move(
                job.spark,
                job.work,
                Picked(where="deliver_at > '2024-01-01 00:01:25'"),
                to="timestamp'2024-01-02'",
            )
            == 1
        )
        assert job.waiting()["d"] == (1, 86_400, "out")
        eventually(lambda: acts_taken(job.checkpoint) == 1, query)
        assert job.waiting()["d"] == (1, 86_400, "out")
    finally:
        query.stop()


def test_a_batch_that_failed_is_repeated_with_its_acts_and_without_later_ones(job: Job) -> None:
    acts.move(job.spark, job.work, Picked(ids=["a"]), to="timestamp'2024-01-01 00:00:00'")  # due now
    with pytest.raises(Exception, match="No space left"):
        Job(job.spark, job.folder, sink=Full).start().awaitTermination()
    assert planned_batch(job.checkpoint) is not None
    acts.cancel(job.spark, job.work, Picked(ids=["a"]))  # too late for the planned batch
    assert job.run() == {"fired": 1, "superseded": 1, "late": 1}
    assert job.fired() == [("a", 0, b"va")]


def test_a_later_command_of_the_producer_wins_over_an_act(job: Job) -> None:
    acts.move(job.spark, job.work, EVERYTHING, to="timestamp'2024-01-02'")
    add_files(job.folder / "in", [due("a", 65, 1, seq=2, value=b"new")])
    job.run(until_s=100)
    assert job.fired() == [("a", 65, b"new")]
    assert sorted(job.waiting()) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "to", "said"),
    [
        ("reroute", "sms", r"not an allowed destination: to = 'sms'; rule: one of out, mail_\*"),
        ("move", "deliver_at + interval 30 days", "too far in the future"),
        ("move", "nobody", "the new due time cannot be used"),
        (
            "move",
            "2024-12-01",
            "no time but of the type int: to = '2024-12-01'; .* hint: a time stands in quotes",
        ),
        ("move", "1733011200000", "no time but of the type bigint"),
        ("move", "true", "no time but of the type boolean"),
        ("move", "CAST(NULL AS timestamp)", "the new due time is NULL"),
    ],
)
def test_an_act_obeys_the_contract_or_changes_nothing(job: Job, name: str, to: str, said: str) -> None:
    with pytest.raises(ActError, match=said):
        getattr(acts, name)(job.spark, job.work, EVERYTHING, to=to)
    assert acts.audit(job.spark, job.checkpoint).count() == 0


def test_an_export_waits_for_the_acts_and_the_new_checkpoint_knows_them(job: Job) -> None:
    acts.cancel(job.spark, job.work, Picked(ids=["a"]))
    with pytest.raises(
        TransferError, match=r"acts were recorded that the job has not taken yet.*1 acts'; hint: run the job"
    ):
        export_job(job.spark, job.work, str(job.folder / "export"))
    job.run()
    export_job(job.spark, job.work, str(job.folder / "export"))
    new = str(job.folder / "new")
    import_direct(
        job.spark, str(job.folder / "export"), checkpoint=new, wheel=WHEEL, clock=EventClock(), shards=2
    )
    acts.cancel(job.spark, PendingWork(new), Picked(ids=["b"]))
    recorded = acts.audit(job.spark, new).orderBy("batch").collect()
    assert [(row.batch, row.picked) for row in recorded] == [
        (-1, "schedule_id in ['a']"),
        (0, "schedule_id in ['b']"),
    ]


def test_the_verbs_act_on_a_direct_job_and_tell_the_history(job: Job) -> None:
    wheel = {"tick": "1 second", "size": 20, "levels": 4, "shards": 3}

    def verb(*arguments: str) -> list[str]:
        code, out, err = ask(job.folder, *arguments, without=("store",), mode="direct", wheel=wheel)
        assert (code, err) == (0, [])
        return out

    assert (verb("acts"), verb("pending", "--id", "nobody")) == (["0 acts"], ["0 pending entries match"])
    assert verb("forecast", "--where", "false") == ["nothing falls due (a forecast leaves out paused series)"]
    assert verb("cancel", "--id", "a", "--dry-run") == ["would cancel 1 entry (dry run)"]
    assert verb("move", "--id", "a", "--to", "timestamp'2024-01-01 01:00:00'") == ["moved 1 entry"]
    assert verb("cancel", "--where", "schedule_id < 'c'") == ["cancelled 2 entries"]
    assert (verb("pending", "--count"), verb("pending", "--limit", "0")) == (["pending 2"], [])
    assert [json.loads(line)["act"] for line in verb("acts")] == ["move", "cancel"]
    told = [json.loads(line) for line in verb("history", "--id", "a")]
    assert [(each["what"], each.get("act"), each.get("amend")) for each in told] == [
        ("SCHEDULE", "move to timestamp'2024-01-01 01:00:00'", 1),
        ("CANCEL", "cancel", 1),
    ]


def test_a_verb_on_a_direct_job_obeys_the_contract_of_its_config(job: Job) -> None:
    wheel = {"tick": "1 second", "size": 20, "levels": 4, "shards": 3}
    sink = {"sink": "delta", "path": str(job.folder / "tables"), "create": True}
    more = {
        "mode": "direct",
        "wheel": wheel,
        "destinations": {"out": sink},
        "contract": {"max_delay": "1 hour"},
    }

    def refusal(*arguments: str) -> str:
        code, _, err = ask(job.folder, *arguments, without=("store",), **more)
        assert code == 2
        return err[-1]

    assert "not an allowed destination: to = 'sms'; rule: one of out" in refusal(
        "reroute", "--id", "a", "--to", "sms"
    )
    assert "too far in the future" in refusal("move", "--id", "a", "--to", "deliver_at + interval 50 years")
    assert acts.audit(job.spark, job.checkpoint).count() == 0


@pytest.mark.sentinel
def test_operations_of_a_purgatory_are_cancelled_at_rest(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    add_rows(tmp_path, ([operation("a", 0, "k"), operation("b", 0, "k"), operation("c", 5, "k")], []))

    def run(until_s: float | None = None) -> dict[str, int]:
        reports: list[Any] = []
        clock = EventClock(until_ms=None if until_s is None else at_ms(until_s))
        frame = watch(*read_rows(spark, tmp_path), wheel=WHEEL, clock=clock, shards=2)
        deliver(
            frame,
            destinations=Destinations({"*": DeltaSink(str(tmp_path / "tables"), create=True)}),
            rejects=DeltaSink(str(tmp_path / "rejects"), create=True),
            checkpoint=checkpoint,
            trigger="available-now",
            on_batch=reports.append,
        ).awaitTermination()
        return {name: count for name, count in reports[-1].counts.items() if count}

    run()
    work = PendingWork(checkpoint)
    with pytest.raises(ActError, match=r"an operation cannot be changed: act = 'reroute'; rule: cancel"):
        acts.reroute(spark, work, EVERYTHING, to="elsewhere")
    assert acts.cancel(spark, work, Picked(where="op_id < 'c'")) == 2
    assert acts.cancel(spark, work, EVERYTHING, dry_run=True) == 1
    assert [row.op_id for row in operations_pending(spark, checkpoint).collect()] == ["c"]
    assert run()["cancelled"] == 2
    assert [row.op_id for row in operations_pending(spark, checkpoint).collect()] == ["c"]
    counts = run(until_s=100_000)
    assert (counts["cancelled"], counts["expired"]) == (2, 1)


def eventually(reached: Any, query: StreamingQuery) -> None:
    """Waits until something is so, as long as a query runs, at most a minute."""
    until = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until, "not within a minute"
        assert not query.awaitTermination(0.2), "the query has ended"
