"""What the cards say: which figure is exact, how old it is, what an error or nothing at all looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tests.unit.page.figures import NOW_MS, STORE, figures_of, line, next_of, subject_of, watch_of, wheel_of
from wheel_udf.page import tiles, views
from wheel_udf.page.app import Page, make_app
from wheel_udf.page.guard import Access
from wheel_udf.page.hour import hour_of
from wheel_udf.page.reader import Figure
from wheel_udf.page.tasks import Tasks


@dataclass
class Reader:
    """Has figures; reads nothing."""

    found: dict[str, Figure]

    def figures(self) -> dict[str, Figure]:
        return self.found


def rendered(figures: dict[str, Figure]) -> str:
    """The first page, with single blanks."""
    page = Page(subject_of(), Access(), cast("Any", Reader(figures)), Tasks(), lambda: NOW_MS)
    return " ".join(make_app(page).test_client().get("/live/overview").text.split())


def shown(mode: str = "direct", clock: str = "event", **values: object) -> dict[str, tuple[str, str]]:
    found = tiles.tiles(subject_of(mode, clock), figures_of(**values), NOW_MS)
    return {tile["label"]: (tile["value"], tile["note"]) for tile in found}


def test_the_tiles_of_a_direct_job() -> None:
    assert shown() == {
        "pending": ("3", "entries, exact"),
        "next due": ("in 2 s", "2026-01-01 10:00:02 UTC"),
        "fired, last hour": ("20", "in 2 batches; 24 received"),
        "lateness p99, last hour": ("900 ms", "the worst minute, of data time"),
        "rejects": ("0", "all commands were usable"),
    }


def test_pending_of_the_tiered_mode_is_from_metadata_until_the_exact_count_is_there() -> None:
    parts = "near 3 exact, store 1,000 from metadata"
    assert shown("tiered", store=STORE, exact=None)["pending"] == ("1,003", parts)
    exact = {"rows": 990, "clock_ms": NOW_MS, "steps": {"sms": {2: 990}}}
    assert shown("tiered", store=STORE, exact=exact)["pending"] == ("990", f"exact; {parts}")
    old = figures_of(store=STORE, exact=None) | {"exact": Figure(exact, NOW_MS - 60_000, 40_000)}
    assert tiles.tiles(subject_of("tiered"), old, NOW_MS)[0]["value"] == "1,003", (
        "an old count is not shown as now"
    )


def test_the_next_due_time_of_a_tiered_job_may_be_in_the_store() -> None:
    wheel = wheel_of(next_due_ms=None)
    assert shown("tiered", wheel=wheel, store=STORE, exact=None)["next due"] == (
        "in 6.7 min",
        "not before; in the store",
    )


def test_a_wheel_on_the_wall_clock_counts_from_the_wall_clock() -> None:
    behind = wheel_of(clock_ms=NOW_MS - 60_000, next_due_ms=NOW_MS + 5_000)
    assert shown(clock="processing", wheel=behind)["next due"][0] == "in 5 s"
    assert shown(clock="event", wheel=behind)["next due"][0] == "in 1.1 min"


@pytest.mark.parametrize(
    ("wheel", "lines", "word"),
    [
        (wheel_of(), [line(1)], "running"),
        (wheel_of(runs=False), [line(1)], "at rest"),
        (wheel_of(), [line(1, paused=True)], "intake paused"),
        (wheel_of(runs=False), [line(1, paused=True)], "at rest"),
    ],
)
def test_the_state_is_one_word(wheel: dict[str, object], lines: list[dict[str, object]], word: str) -> None:
    figures = figures_of(wheel=wheel, batches=hour_of(lines, NOW_MS))
    assert tiles.state(subject_of(), figures, NOW_MS)["word"] == word


def test_a_failed_reading_keeps_its_last_figures_and_says_why() -> None:
    figures = figures_of() | {
        "wheel": Figure(wheel_of(), NOW_MS - 90_000, 400, "the plan of a batch is damaged")
    }
    card = views.wheel(subject_of(), figures, NOW_MS)
    assert card["map"] is not None
    assert card["source"] == {"kind": "exact", "age": "1.5 min ago", "took": "400 ms", "error": "the plan of a batch is damaged"}  # fmt: skip


def test_before_the_first_reading_nothing_is_shown_as_zero() -> None:
    figures = dict.fromkeys(figures_of(), Figure())
    found = views.overview(subject_of(), figures, NOW_MS)
    assert {tile["value"] for tile in found["tiles"]} == {"-"}
    assert found["state"]["word"] == "reading"
    assert (found["wheel"]["map"], found["forecast"]["chart"], found["destinations"]["rows"]) == (
        None,
        None,
        None,
    )
    assert (found["account"]["groups"], found["rejects"]["codes"]) == (None, None)


def test_every_line_of_the_account_adds_up_to_its_total() -> None:
    groups = views.account(subject_of(), figures_of(), NOW_MS)["groups"]
    assert list(groups) == ["schedules", "cancels"]
    assert [row for row in groups["schedules"] if row[1]] == [("pending", 3), ("fired", 5), ("rejected", 1)]
    assert [row for row in groups["cancels"] if row[1]] == [("late", 2)]
    html = rendered(figures_of())
    assert "schedules <b>9</b>" in html
    assert "cancels <b>2</b>" in html


def test_the_account_of_a_purgatory_has_operations_and_events() -> None:
    groups = views.account(subject_of("purgatory"), figures_of(wheel=watch_of()), NOW_MS)["groups"]
    assert [row for row in groups["operations"] if row[1]] == [("pending", 3), ("completed", 4)]
    assert sum(count for _, count in groups["events"]) == 9
    assert shown("purgatory", wheel=watch_of(resting=2, held=1))["pending"] == ("3", "2 resting, 1 held")
    assert shown(wheel=wheel_of(paused=2))["pending"] == ("3", "2 paused")


def test_the_forecast_of_the_tiered_mode_says_how_good_it_is() -> None:
    subject = subject_of("tiered")
    first = views.forecast(subject, figures_of(store=STORE, exact=None), NOW_MS)
    assert first["source"]["kind"].startswith("from metadata")
    assert "in the store (all destinations)" in first["chart"]["names"]
    exact = {"rows": 9, "clock_ms": NOW_MS, "steps": {"sms": {2: 9}}}
    then = views.forecast(subject, figures_of(store=STORE, exact=exact), NOW_MS)
    assert (then["source"]["kind"], then["chart"]["names"], then["chart"]["total"]) == ("exact", ["sms"], 9)


def test_the_last_hour_is_drawn_as_a_bar_and_a_mark_for_each_minute_and_lines_of_lateness() -> None:
    figures = figures_of(batches=hour_of([line(0), line(1_000), line(600_000)], NOW_MS + 30_000))
    html = rendered(figures)
    # 10 of 15 rows of the axis fired, 12 were received.
    tip = 'data-tip="10:00 UTC: 10 fired, 12 received, 1 rejected">'
    assert f'{tip} <rect class="hit" x="98.333%" width="1.667%" y="0" height="200"/>' in html
    assert 'x="98.483%" width="1.367%" y="66.667" height="133.333"/>' in html
    assert 'y1="40.0" y2="40.0"/>' in html
    assert 'data-tip="09:50 UTC: p50 400 ms, p99 900 ms, max 1.2 s" x="81.667%"' in html
    assert 'd="M49 80.0H50M58 80.0H59V80.0H60"' in html
    assert html.count("09:01</text>") == 2


def test_rejects_that_are_in_no_table_are_not_read() -> None:
    card = views.rejects(figures_of(rejects={"codes": {}, "samples": [], "elsewhere": "kafka"}), NOW_MS)
    assert (card["elsewhere"], card["codes"]) == ("kafka", {})


def test_the_entries_that_are_due_next_come_with_their_distance_and_series_are_marked() -> None:
    html = rendered(figures_of())
    row = "<td><time>2026-01-01 10:00:{}</time></td><td>{}</td> <td>{}</td> <td>{}</td>"
    sms, tag = '<bdi class="literal">sms</bdi>', ' <span class="tag">series</span>'
    assert row.format("02", "in 2 s", '<bdi class="literal">a</bdi>', sms) in html
    assert row.format("50", "in 50 s", f'<bdi class="literal">c</bdi>{tag}', sms) in html
    assert "Nothing is due" in rendered(figures_of(wheel=wheel_of(next=[])))


def test_the_tiered_mode_lists_what_is_due_before_all_that_is_in_the_store() -> None:
    found = [next_of("near", 2_000), next_of("far series", 600_000, is_series=True)]
    figures = figures_of(
        wheel=wheel_of(next=found), store=STORE | {"cursor_ms": NOW_MS + 400_000}, exact=None
    )
    card = views.next_due(subject_of("tiered"), figures, NOW_MS)
    assert [row["schedule_id"] for row in card["rows"]] == ["near"]
    assert (
        card["note"] == "in the store: 1,000 rows, due at 2026-01-01 10:06:40 UTC or later; not in this list"
    )
    empty = figures_of(wheel=wheel_of(next=found), store=STORE | {"rows": 0}, exact=None)
    card = views.next_due(subject_of("tiered"), empty, NOW_MS)
    assert ([row["in"] for row in card["rows"]], card["note"]) == (["in 2 s", "in 10 min"], None)
