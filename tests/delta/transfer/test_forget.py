"""The verb forget: which files hold an id before and after it, what it says, and how the job goes on."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.job.test_purgatory_jobs import Case, at
from tests.delta.pending.verbs import ask
from tests.spark.streams import add_files, due
from wheel_udf.checkpoint.lease import Lease
from wheel_udf.transfer import into_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ANN = "Zq7'Xk2\"; DROP TABLE x --`9vT"
"""An id that SQL, JSON and a shell would like to read otherwise."""

SCHEMA = "schedule_id string, op string, seq long, deliver_at timestamp, event_time timestamp, destination string, value binary"


class Wheel:
    """A scheduler in a folder, by its command line."""

    def __init__(self, spark: SparkSession, folder: Path, mode: str) -> None:
        self.spark, self.folder = spark, folder
        levels: dict[str, Any] = {"state_levels": 1} if mode == "tiered" else {}
        self.without = () if mode == "tiered" else ("store",)
        self.settings: dict[str, Any] = {
            "mode": mode,
            "wheel": {"tick": "1 second", "size": 20, "levels": 4, "shards": 2, **levels},
            "source": {
                "format": "parquet",
                "path": self.place("in"),
                "schema": SCHEMA,
                "options": {"maxFilesPerTrigger": "1"},
            },
            "destinations": {
                "out": {"sink": "delta", "path": self.place("tables"), "create": True},
                "log": {"sink": "json", "path": self.place("files")},
            },
        }

    def place(self, name: str) -> str:
        return str(self.folder / name)

    def ask(self, verb: str, *more: str) -> tuple[int, list[str], list[str]]:
        return ask(self.folder, verb, *more, without=self.without, **self.settings)

    def run(self, *batches: list[dict[str, Any]]) -> str:
        add_files(self.folder / "in", *batches)
        code, out, err = self.ask("run", "--trigger", "available-now")
        assert code == 0, err
        return "\n".join(out)

    def forget(self, *more: str) -> tuple[int, list[str]]:
        code, out, err = self.ask("forget", "--id", ANN, *more)
        assert err == []
        return code, [re.sub(" +", " ", line.replace(f"{self.folder}/", "")) for line in out]

    def fired(self) -> list[str]:
        rows = self.spark.read.format("delta").load(self.place("tables/out"))
        return sorted(row.schedule_id for row in rows.collect())

    def begin(self) -> None:
        """ANN is in each place: fired to a table and to a file, rejected, remembered, in a text of the rejects, moved
        by an act, pending.
        """
        self.run(
            [due(ANN, 5, 0), due("bob", 5, 0), due("bob 2", 3_000, 0), due(ANN, 5, 0, destination="nowhere")],
            [tick(20), due(None, 20, 20, value=ANN.encode())],
            [tick(21)],
            [due(ANN, 30, 22, seq=2, destination="log")],
            [tick(60)],
            [tick(61)],
            [due(ANN, 4_000, 61, seq=3)],
        )
        code, out, _ = self.ask("move", "--id", ANN, "--to", "deliver_at + interval 1 second")
        assert (code, out) == (0, ["moved 1 entry"])
        self.run([tick(70)])


def tick(said_s: int) -> dict[str, Any]:
    """A row that moves the clock, from the next batch on."""
    return due(f"tick {said_s}", said_s, said_s)


def holders(folder: Path, name: str, schedule_id: str = ANN) -> set[str]:
    """The kinds of files below a folder that hold an id, as it is (however quotes are escaped), or in base64, as chunks
    of the state have it.

    The tests write Parquet without compression.
    """
    plain = schedule_id.encode()
    forms = {plain}
    for ahead in range(3):
        text = base64.b64encode(b"\0" * ahead + plain)
        # The first and the last letters also depend on the bytes beside it.
        forms.add(text[4 : len(text) - 4])
    found = set()
    for file in (folder / name).rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        if any(form in content.replace(b"\\", b"") for form in forms):
            found.add(_kind(str(file.relative_to(folder))))
    return found


def _kind(file: str) -> str:
    """A name without numbers and random parts."""
    if "/_delta_log/" in file:
        return f"{file.partition('/_delta_log/')[0]}/_delta_log"
    return re.sub(r"/[^/]*(\.[a-z]+)$", r"/*\1", re.sub(r"/[^/]*\d[^/]*(?=/)", "/*", file))


OLDER = "older versions, until VACUUM and the log's retention (delta.logRetentionDuration)"
AFTER = [
    f"table tables/out 1 {OLDER}",
    "json files/log 1 all: files are not changed",
    f"table rejects 1 {OLDER}",
    "table rejects, rows without an id 1 all: their texts contain one of the ids",
    "source in - all: sources are not changed; what is not read yet is taken as new",
    "elsewhere - exports, backups, logs, temporary folders of processes that were killed",
    "then: VACUUM delta.`tables/out` RETAIN 168 HOURS",
    "then: VACUUM delta.`rejects` RETAIN 168 HOURS",
]
TICKS = ["tick 20", "tick 21", "tick 3100", "tick 60", "tick 61", "tick 70"]
PLANNED = "nothing: it is to be written anew, while the job is stopped"


def test_of_a_direct_job_no_file_holds_a_forgotten_id_but_those_that_the_verb_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    wheel = Wheel(spark, tmp_path, "direct")
    wheel.begin()
    held = holders(tmp_path, "checkpoint")
    assert "checkpoint/acts/*.json" in held
    assert any(each.startswith("checkpoint/chunks/") for each in held)

    assert wheel.forget("--dry-run") == (
        0,
        [
            "place rows left",
            f"checkpoint checkpoint 3 {PLANNED}",
            f"record of acts 1 {PLANNED}",
            *AFTER,
            "dry run: nothing was changed",
        ],
    )
    assert held <= holders(tmp_path, "checkpoint")

    lease = Lease(wheel.place("checkpoint")).acquire()
    code, lines = wheel.forget()
    lease.close()
    assert (code, lines[1], lines[-1]) == (
        1,
        "checkpoint checkpoint 3 all: the job runs",
        "not all is removed: stop the job, and run this again",
    )
    assert lines[3] == f"table tables/out 1 {OLDER}"
    assert held <= holders(tmp_path, "checkpoint")

    code, lines = wheel.forget()
    assert code == 0
    assert lines[:4] == [
        "place rows left",
        "checkpoint checkpoint 3 nothing: written anew",
        "record of acts 1 nothing: written anew",
        "table tables/out 0 nothing in its newest version",
    ]
    assert holders(tmp_path, "checkpoint") == set()
    assert not (tmp_path / "checkpoint-forgetting").exists()
    assert holders(tmp_path, "tables") == {"tables/out/*.parquet", "tables/out/_delta_log"}
    _vacuum(spark, wheel.place("tables/out"))
    assert holders(tmp_path, "tables") == {"tables/out/_delta_log"}
    assert holders(tmp_path, "files") == {"files/log/*/*/*.json"}

    # The other ids go on. A command for the forgotten one is new.
    out = wheel.run([due(ANN, 80, 72)], [tick(3_100)])
    assert wheel.fired() == [ANN, "bob", "bob 2", *TICKS]
    assert "1 cancelled" in out
    code, out_lines, _ = wheel.ask("acts")
    assert [re.sub('"(at|by)":"[^"]*",', "", line) for line in out_lines] == [
        '{"act":"move","picked":"(forgotten)","change":"to deliver_at + interval 1 second","rows":1,"batch":-2}',
        '{"act":"forget","picked":"1 id","change":"","rows":1,"batch":-1}',
    ]


def test_of_a_tiered_job_the_store_and_its_history_are_written_anew_and_a_killed_forget_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(spark, tmp_path, "tiered")
    wheel.begin()
    assert holders(tmp_path, "store") == {"store/*/*/*/*.parquet"}
    assert {"checkpoint/wheel/acts/*.json", "checkpoint/wheel/acts/*/*.parquet"} < holders(
        tmp_path, "checkpoint"
    )

    def killed(*_: object) -> None:
        raise _KilledError

    with monkeypatch.context() as patch:
        patch.setattr(into_store, "run_first_batch", killed)
        code, _, err = wheel.ask("forget", "--id", ANN)
    assert code == 1
    assert "_KilledError" in err[0]
    code, _, err = wheel.ask("run", "--trigger", "available-now")
    assert (code, "run the same wheel-udf forget again" in err[0]) == (2, True)

    code, lines = wheel.forget()
    assert code == 0
    assert lines[1:4] == [
        "checkpoint checkpoint 0 nothing: written anew",
        "store store 0 nothing: written anew",
        "record of acts 0 nothing: written anew",
    ]
    assert holders(tmp_path, "checkpoint") == holders(tmp_path, "store") == set()
    assert not (tmp_path / "checkpoint-forgetting").exists()

    out = wheel.run([tick(3_100)])
    assert wheel.fired() == ["bob", "bob 2", *TICKS]
    assert "1 cancelled" in out


def test_of_a_purgatory_an_operation_its_end_and_the_events_on_its_key_are_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(spark, tmp_path, "unpaid_orders")
    case.write("orders", *({"order": name, "placed_at": at("10:00:00"), "total": 1} for name in (ANN, "bob")))
    case.write("payments", {"order": ANN, "what": "paid", "at": at("10:01:00")})
    case.write("orders", {"order": f"{ANN}2", "placed_at": at("10:03:00"), "total": 1})
    assert case.run("10:02:00") == 0, case.err
    assert holders(tmp_path, "checkpoints") != set()

    assert case.say("forget", "--id", ANN, "--id", f"{ANN}2") == 0, case.err
    (line,) = [each for each in case.out.splitlines() if each.startswith("checkpoint ")]
    assert re.search(r" 3  nothing: written anew; operations of other ids keep keys of this name", line)
    assert holders(tmp_path, "checkpoints") == set()

    assert case.run("11:00:00") == 0, case.err
    assert case.table("orders_to_close", "op_id", "outcome") == [("bob", "expired")]


class _KilledError(Exception):
    """Stands for a kill."""


def _vacuum(spark: SparkSession, place: str) -> None:
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    try:
        spark.sql(f"VACUUM delta.`{place}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset(check)
