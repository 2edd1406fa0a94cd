"""The report of the verb forget, and the places that it names without looking into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_udf.job.arguments import parse
from wheel_udf.job.forget import Line, lines_of_copies, lines_of_sources, report, table_line
from wheel_udf.job.loader import load

CONF = Path(__file__).parents[3] / "conf"
OLDER = "older versions, until VACUUM and the log's retention (delta.logRetentionDuration)"


def test_the_report_is_a_table_and_the_commands_that_remove_the_rest() -> None:
    lines = [
        Line("checkpoint data/orders", 1_234, "nothing: written anew"),
        Line("table t", 1, "older versions", ("VACUUM t",)),
        Line("source in", None, "all"),
        Line("table u", 1, "older versions", ("VACUUM u", "VACUUM t")),
    ]

    assert list(report(lines)) == [
        "place                     rows  left",
        "checkpoint data/orders   1,234  nothing: written anew",
        "table t                      1  older versions",
        "source in                    -  all",
        "table u                      1  older versions",
        "then: VACUUM t",
        "then: VACUUM u",
    ]


@pytest.mark.parametrize(
    ("count", "vectors", "line"),
    [
        (None, False, Line("table a`b", None, "all: it has no column with the id")),
        (0, True, Line("table a`b", 0, "nothing in its newest version")),
        (2, False, Line("table a`b", 2, OLDER, ("VACUUM delta.`a``b` RETAIN 168 HOURS",))),
        (
            2,
            True,
            Line(
                "table a`b",
                2,
                f"its files, until REORG ... APPLY (PURGE); {OLDER}",
                ("REORG TABLE delta.`a``b` APPLY (PURGE)", "VACUUM delta.`a``b` RETAIN 168 HOURS"),
            ),
        ),
    ],
)
def test_a_table_keeps_older_versions_until_vacuum(count: int | None, line: Line, *, vectors: bool) -> None:
    assert table_line("a`b", count, vectors=vectors) == line


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("scheduler", ["source data/commands"]),
        ("unpaid_orders", ["source data/orders", "source data/payments"]),
        ("kafka_demo", ["source wheel-demo-commands"]),
    ],
)
def test_sources_are_named_and_left(name: str, places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHEEL_UDF_KAFKA", "localhost:9092")
    assert [line.place for line in lines_of_sources(load(CONF / f"{name}.yml"))] == places


def test_what_a_repair_has_taken_out_is_named(tmp_path: Path) -> None:
    config = load(CONF / "scheduler.yml", [f"checkpoint={tmp_path}/a[1]"])
    for name in ("a[1]-repaired-2026", "a1-repaired-2026", "a[1]"):
        (tmp_path / name).mkdir()

    assert [line.place for line in lines_of_copies(config)] == [
        f"copy {tmp_path}/a[1]-repaired-2026",
        "elsewhere",
    ]


def test_the_copies_of_a_tiered_checkpoint_are_beside_its_parts(tmp_path: Path) -> None:
    tiered = ["mode=tiered", "store.path=data/store", "clock.kind=processing"]
    config = load(CONF / "scheduler.yml", [f"checkpoint={tmp_path}", *tiered])
    (tmp_path / "wheel-repaired-2026").mkdir()

    assert [line.place for line in lines_of_copies(config)] == [
        f"copy {tmp_path}/wheel-repaired-2026",
        "elsewhere",
    ]


def test_several_ids_are_given_by_repeating_the_option() -> None:
    asked = parse(["forget", "--config", "job.yml", "--id", "a", "--id", "b", "--dry-run"])

    assert (asked.id, asked.dry_run) == (["a", "b"], True)
    with pytest.raises(SystemExit):
        parse(["forget", "--config", "job.yml"])
