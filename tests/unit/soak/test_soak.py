"""The parts of a soak around its runs: the plan, the traffic, the check of the purgatory's outcomes, live files, the
table.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak import __main__ as soak
from tests.soak.analysis import trend
from tests.soak.feeder import make_folders, write
from tests.soak.plan import Plan, plan_of
from tests.soak.reading import Batch, input_of, queries_of, read_by
from tests.soak.report import Result, read_samples, results_of, table
from tests.soak.sampler import LiveFiles, below, files_below
from tests.soak.traffic import Traffic, command, event, operation
from tests.soak.verify import outcome_faults

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_767_225_600_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp((NOW_MS + ms) / 1_000, UTC)


def test_thirty_minutes_are_measured_behind_a_warm_up_of_a_quarter() -> None:
    plan = plan_of(30, None, 3)
    assert (plan.feed_s, plan.warm_s, plan.measured_s) == (1_800, 450, 1_350)
    assert plan.warm_s > plan.memory_s + plan.delay_s[1]


def test_the_short_form_fits_three_modes_and_their_starts_into_its_minutes() -> None:
    plan = plan_of(30, 5, 3)
    assert 3 * (plan.feed_s + plan.drain_s) < 5 * 60 - 40
    assert plan.warm_s > plan.memory_s + plan.delay_s[1]
    assert plan.measured_s >= 20


def test_minutes_of_a_mode_are_minutes_of_feeding_in_the_short_form_too() -> None:
    assert plan_of(1.5, None, 2).feed_s == pytest.approx(90)


def test_too_short_a_soak_says_how_long_is_long_enough() -> None:
    with pytest.raises(ValueError, match=r"at least 20 are needed; in all 4\.3 minutes"):
        plan_of(30, 3, 3)


def test_the_same_seed_makes_the_same_commands_at_a_steady_rate() -> None:
    first, again = (Traffic(7, 200, (2, 10)) for _ in range(2))
    seconds = [first.commands(second, NOW_MS + 1_000 * second) for second in range(60)]
    assert seconds == [again.commands(second, NOW_MS + 1_000 * second) for second in range(60)]
    later = [len(rows) for rows in seconds[15:]]
    assert 230 < min(later) <= max(later) < 280


def test_commands_hold_versions_cancels_repetitions_and_bad_rows_of_ids_that_came_before() -> None:
    traffic = Traffic(7, 200, (2, 10))
    rows = [row for second in range(40) for row in traffic.commands(second, NOW_MS + 1_000 * second)]
    ids = [row["schedule_id"] for row in rows if row["seq"] == 1]
    assert {row["schedule_id"] for row in rows if row["seq"] > 1} < set(ids)
    assert len(ids) > len(set(ids)) + 200, "repetitions"
    assert sum(row["op"] == "CANCEL" for row in rows) > 500
    assert sum(row["seq"] == 2 for row in rows) > 500
    assert sum(row["schedule_id"] is None for row in rows) > 20
    assert {row.get("destination") for row in rows} == {"left", "right", None}


def asked(*keys: str) -> dict[str, Any]:
    return operation("op1", "g1", list(keys), NOW_MS, "5000 ms")


def told(key: str, ms: int, read_ms: int | None = None) -> dict[str, Any]:
    """An event that was read two seconds later, if nothing else is said."""
    return event("g1", key, NOW_MS + ms) | {
        "read_by_ms": NOW_MS + (ms + 2_000 if read_ms is None else read_ms)
    }


def ended(outcome: str, decided_ms: int = 6_000) -> dict[str, Any]:
    return {"op_id": "op1", "outcome": outcome, "decided_at": at(decided_ms)}


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ([("a", 1_000)], "completed"),
        ([("a", 5_000)], "completed"),
        ([("a", 5_000)], "expired"),
        ([("a", 5_001)], "expired"),
        ([], "expired"),
        ([("op1", 1_000)], "cancelled"),
    ],
)
def test_right_outcomes(said: list[tuple[str, int]], outcome: str) -> None:
    assert outcome_faults([asked("a")], [told(key, ms) for key, ms in said], [ended(outcome)]) == []


@pytest.mark.parametrize(
    ("said", "found", "fault"),
    [
        ([("a", 1_000)], [], "op1: 0 outcomes"),
        ([("a", 1_000)], [ended("completed")] * 2, "op1: 2 outcomes"),
        ([("a", 1_000)], [ended("expired")], "op1: expired instead of completed"),
        ([("a", 5_001)], [ended("completed")], "op1: completed instead of expired"),
        ([("op1", 1_000)], [ended("expired")], "op1: expired instead of cancelled"),
        ([], [ended("expired", 5_000)], "op1: expired before its deadline had passed"),
        ([], [ended("expired"), ended("expired") | {"op_id": "x"}], "x: an outcome of no operation"),
    ],
)
def test_wrong_outcomes(said: list[tuple[str, int]], found: list[dict[str, Any]], fault: str) -> None:
    assert outcome_faults([asked("a")], [told(key, ms) for key, ms in said], found) == [fault]


def test_an_event_of_which_it_is_not_known_when_it_was_read_may_have_come_too_late() -> None:
    unknown = told("a", 1_000) | {"read_by_ms": None}
    assert outcome_faults([asked("a")], [unknown], [ended("expired")]) == []
    assert outcome_faults([asked("a")], [unknown], [ended("completed")]) == []


def test_an_operation_with_two_keys_is_complete_when_both_had_their_event() -> None:
    first, second = told("a", 1_000), told("b", 2_000)
    assert outcome_faults([asked("a", "b")], [first], [ended("expired")]) == []
    assert outcome_faults([asked("a", "b")], [first, second], [ended("completed")]) == []
    assert outcome_faults([asked("a", "b")], [first, second], [ended("expired")]) == [
        "op1: expired instead of completed"
    ]


def test_a_file_is_read_when_the_first_batch_that_began_after_it_is_planned() -> None:
    batches = [Batch(1_000, 1_200, 1_800), Batch(2_000, 2_100, 3_500), Batch(4_000, 4_200, 4_400)]
    assert [read_by(at_ms, [batches]) for at_ms in (0, 999, 1_000, 2_500, 4_000)] == [
        1_200, 1_200, 2_100, 4_200, None,
    ]  # fmt: skip


def test_in_the_tiered_mode_the_wheel_reads_what_a_batch_of_the_intake_has_written_at_its_end() -> None:
    intake = [Batch(1_000, 1_200, 1_800), Batch(2_000, 2_100, 3_500), Batch(4_000, 4_200, 4_400)]
    wheel = [Batch(1_500, 1_600, 2_500), Batch(3_000, 3_100, 3_200), Batch(3_600, 3_700, 3_900)]
    assert [read_by(at_ms, [intake, wheel]) for at_ms in (0, 1_500, 2_500)] == [3_100, 3_700, None]


def test_the_batches_of_a_mode_are_those_of_its_intake_and_then_those_of_its_wheel(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    lines = [
        {"mode": "tiered", "s": 1, "batch": 300, "began_ms": 100, "planned_ms": 110},
        {"mode": "tiered", "s": 1, "intake batch": 200, "began_ms": 90, "planned_ms": 95},
        {"mode": "tiered", "s": 1, "JVM heap": 1.5},
        {"mode": "direct", "s": 1, "batch": 5, "began_ms": 7, "planned_ms": 8},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    assert queries_of(file, "tiered") == [[(90, 95, 290)], [(100, 110, 400)]]
    assert queries_of(file, "direct") == [[(7, 8, 12)]]


def test_the_input_is_what_was_written_wherever_it_was_archived(tmp_path: Path) -> None:
    make_folders(tmp_path, ("commands",))
    for number in range(2):
        write(tmp_path, number, "commands", [command(f"id{number}", 1, NOW_MS, at(0))])
    archived = tmp_path / "archive" / "some" / "in" / "commands"
    archived.mkdir(parents=True)
    first = tmp_path / "in" / "commands" / "000000.parquet"
    first.rename(archived / first.name)
    rows = input_of(tmp_path, "commands", lambda _: 5).to_pylist()
    assert [(row["schedule_id"], row["read_by_ms"]) for row in rows] == [("id0", 5), ("id1", 5)]
    (archived / first.name).unlink()
    with pytest.raises(AssertionError, match="no longer there"):
        input_of(tmp_path, "commands", lambda _: 5)


def test_live_files_are_those_added_and_not_removed(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    live = LiveFiles(tmp_path)
    assert live.count() == 0
    commits = [
        [{"protocol": {}}, {"add": {}}, {"add": {}}],
        [{"add": {}}, {"remove": {}}, {"commitInfo": {}}],
    ]
    for number, actions in enumerate(commits):
        (log / f"{number:020}.json").write_text("\n".join(json.dumps(action) for action in actions))
    assert live.count() == 2
    assert live.count() == 2


def test_files_are_counted_at_any_depth_and_a_missing_folder_has_none(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/1", "a/b/2", "3"):
        (tmp_path / name).touch()
    assert sorted(entry.name for entry in files_below(tmp_path, tmp_path / "missing")) == ["1", "2", "3"]


def test_processes_below_one_are_found_at_any_depth() -> None:
    of = {1: [(2, "python")], 2: [(3, "java"), (4, "sh")], 3: [(5, "worker")], 9: [(10, "other")]}
    assert sorted(below(2, of)) == [(3, "java"), (4, "sh"), (5, "worker")]


def test_a_planted_leak_is_the_one_line_of_the_table_that_grows(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    lines = [
        {"mode": "direct", "s": second, "batch": 500 + 10 * (second % 7), "JVM handles": 300 + second // 10}
        for second in range(1_800)
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    results = results_of(read_samples(file), plan_of(30, None, 3), ["direct"])
    assert [(each.figure, each.grows) for each in results] == [("batch", False), ("JVM handles", True)]
    batch, handles = table(results, 0.05).splitlines()[2:4]
    assert batch.endswith("level")
    assert handles.split() == [
        "direct",
        "JVM",
        "handles",
        "1,350",
        "412.0",
        "+360.0",
        "0.0",
        "+32.7%",
        "GROWS",
    ]


def test_the_table_tells_what_has_too_few_samples() -> None:
    few = Result("tiered", "JVM heap", trend([0, 1], [1, 2]), grows=False)
    assert "too few samples" in table([few], 0.05)


def test_files_of_the_store_are_decided_only_where_windows_come_and_go(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    rising = [{"mode": "tiered", "s": second, "store files": 10 * second} for second in range(1_800)]
    file.write_text("\n".join(json.dumps(line) for line in rising))
    long, short = (
        results_of(read_samples(file), plan, ["tiered"])[0]
        for plan in (plan_of(30, None, 3), plan_of(30, 5, 3))
    )
    assert (long.grows, long.undecided, short.grows) == (True, "", False)
    assert table([short], 0.10).splitlines()[2].endswith("decided by 4 windows of 60 s")


def soaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *rounds: dict[str, set[str]], right: bool = True
) -> tuple[int, int]:
    """The exit code of a short soak of two modes, and how many rounds it took; `rounds` says which figures of which
    modes rise in each.
    """
    left = list(rounds)

    def run(modes: list[str], plan: Plan, out: Path) -> bool:
        rising = left.pop(0)
        lines = [
            {"mode": mode, "s": second}
            | {
                figure: 500 + 9 * second * (figure in rising.get(mode, ()))
                for figure in ("batch", "JVM heap")
            }
            for mode in modes
            for second in range(int(plan.feed_s))
        ]
        (out / "samples.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
        return right

    monkeypatch.setattr(soak, "run_modes", run)
    asked = ["--total-minutes", "5", "--modes", "direct,purgatory", "--out", str(tmp_path)]
    return soak.main(asked), len(rounds) - len(left)


def test_what_grows_in_a_short_soak_fails_it_if_the_same_figure_grows_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level: dict[str, set[str]] = {}
    batch, heap = {"purgatory": {"batch"}}, {"purgatory": {"JVM heap"}}
    assert soaks(monkeypatch, tmp_path, level) == (0, 1)
    assert soaks(monkeypatch, tmp_path, batch, batch) == (1, 2)
    assert "purgatory: batch grows\nthe soak has FAILED" in capsys.readouterr().out
    assert soaks(monkeypatch, tmp_path, batch, level) == (0, 2)
    assert soaks(monkeypatch, tmp_path, batch, heap) == (0, 2)
    assert soaks(monkeypatch, tmp_path, batch, right=False) == (1, 1)


def test_a_short_soak_measures_those_modes_once_more_in_which_something_grew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert soaks(monkeypatch, tmp_path, {"direct": {"batch"}}, {}) == (0, 2)
    assert {mode for mode, _ in read_samples(tmp_path / "again" / "samples.jsonl")} == {"direct"}
