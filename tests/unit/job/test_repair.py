"""What the verb repair says of each part of a checkpoint, its exit codes, and which places and options it looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.checkpoint.damaged import flip, run
from wheel_udf.checkpoint.inspection import Inspection
from wheel_udf.checkpoint.repair import Evidence, decide_repair
from wheel_udf.job import loader
from wheel_udf.job.repair import Part, lines_of, repeat_risk, report_repair, sink_places
from wheel_udf.job.replay import row_settings

CONFIG = """
clock: {kind: event}
source: {format: kafka, topics: [orders], options: {kafka.bootstrap.servers: "127.0.0.1:9092"}}
destinations:
  out_*: {sink: delta, path: data/tables}
  alerts: {sink: kafka, options: {kafka.bootstrap.servers: "127.0.0.1:9092"}}
rejects: {sink: delta, path: data/rejects}
checkpoint: data/checkpoint
"""


def part(folder: Path, held: int, *blind: str) -> Part:
    found, evidence = Inspection(str(folder)), Evidence({"data/out": held}, blind)
    return Part(str(folder), found, evidence, decide_repair(found, evidence))


def finished(*parts: Part, dry_run: bool = False) -> tuple[int, list[str]]:
    said: list[str] = []
    return report_repair(list(parts), said.append, lambda: None, dry_run=dry_run), said


def damaged(folder: Path) -> Path:
    flip(run(folder, 3, planned=True) / "state/0/1/4_w3.changelog")
    return folder


def test_a_damage_that_can_be_repaired_is_told_with_what_is_done(tmp_path: Path) -> None:
    assert list(lines_of(part(damaged(tmp_path), 3, "kafka alerts"))) == [
        f"checkpoint {tmp_path}: batch 4 is the newest planned one, 3 the newest committed one",
        "  table      data/out holds batches up to 3",
        "  no batches kafka alerts does not show which batches it holds",
        "  damaged    state/0/1/4_w3.changelog: it does not match its checksum",
        "  repair     batch 3 is repeated with the rows of its plan: tables skip what they have of it; topics get its rows a second time, with the same fire_id",
        "  repair     batch 4 is planned anew: nothing was delivered of it",
    ]


def test_a_damage_that_cannot_be_repaired_is_told_with_the_reason(tmp_path: Path) -> None:
    *_, last = lines_of(part(damaged(tmp_path), 4))
    assert last.startswith(
        "  no repair  data/out holds batch 4, and the checkpoint can only go on after batch 3: "
    )


def test_the_exit_code_says_whether_something_is_left_damaged(tmp_path: Path) -> None:
    sound, bad = run(tmp_path / "sound", 3), damaged(tmp_path / "bad")
    assert finished(part(sound, 3)) == (0, ["nothing to repair"])
    refused = finished(part(sound, 3), part(bad, 4))
    assert refused == (1, ["not repaired: nothing was changed"])
    code, said = finished(part(bad, 3), dry_run=True)
    assert (code, said) == (
        0,
        ["dry run: nothing was changed; without --dry-run it is repaired as described"],
    )
    assert part(bad, 3).decision.damage != ()
    code, said = finished(part(sound, 3), part(bad, 3))
    assert code == 0
    assert said[0].startswith(
        f"repaired: start the job again. A copy of what was taken out (12 files) is in {bad}-repaired-"
    )
    assert part(bad, 3).decision.is_sound


def test_a_part_that_can_be_repaired_is_left_as_it_is_if_the_other_one_cannot(tmp_path: Path) -> None:
    intake, wheel = damaged(tmp_path / "intake"), damaged(tmp_path / "wheel")
    assert finished(part(intake, 3), part(wheel, 4))[0] == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["intake", "wheel"]
    assert part(intake, 3).decision.damage != ()


def test_the_places_of_destinations_and_rejects_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(CONFIG)
    assert list(sink_places(row_settings(loader.load(tmp_path / "job.yml", []), None))) == [
        ("out_*", "delta", "data/tables"),
        ("alerts", "kafka", None),
        (None, "delta", "data/rejects"),
    ]


def test_tables_of_iceberg_and_of_a_database_are_places_that_show_no_batches() -> None:
    settings = {
        "destinations": {
            "ice_*": {"sink": "iceberg", "table": "cat.db.{destination}"},
            "pg_*": {"sink": "jdbc", "table": "{destination}"},
            "named_*": {"sink": "delta", "table": "main.r.{destination}"},
        },
        "rejects": {"sink": "iceberg", "table": "cat.db.rejects"},
    }
    assert list(sink_places(settings)) == [
        ("ice_*", "iceberg", "cat.db.{destination}"),
        ("pg_*", "jdbc", "{destination}"),
        ("named_*", "table", "main.r.{destination}"),
        (None, "iceberg", "cat.db.rejects"),
    ]


@pytest.mark.parametrize(
    ("override", "risk"),
    [
        ([], None),
        (["source.options.failOnDataLoss=true"], None),
        (
            ["source.options.failOnDataLoss=false"],
            "source.options.failOnDataLoss: false lets Spark leave out what is gone from the source",
        ),
    ],
)
def test_a_source_that_leaves_out_what_is_gone_is_a_risk(
    tmp_path: Path, override: list[str], risk: str | None
) -> None:
    (tmp_path / "job.yml").write_text(CONFIG)
    assert repeat_risk(loader.load(tmp_path / "job.yml", override)) == risk
