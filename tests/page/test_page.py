"""The page in a real browser, over real checkpoints of each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.page.conftest import Browser, Serve
from tests.page.jobs import HOSTILE, LONG, Made, direct
from tests.spark.streams import due
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.metrics.batch_log import read_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MODES = ("direct", "tiered", "purgatory")

PENDING = {
    "direct": ("9", "level 2 1; level 3 7; level 4 1", ["out", "mail"]),
    "tiered": ("12", "level 1 1; level 2 0; level 3 10; level 4 1", ["old", "mail", "out"]),
    "purgatory": ("1", "level 1 0; level 2 0; level 3 1", ["out"]),
}


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.sentinel] * (mode == "direct")) for mode in MODES]
)
def test_the_overview_shows_what_waits_where_and_when_and_what_became_of_the_rest(
    browser: Browser, serve: Serve, made: dict[str, Made], mode: str
) -> None:
    serve(made[mode])
    browser.open()
    pending, levels, destinations = PENDING[mode]
    browser.shows(f"pending {pending}", "#tiles")
    browser.wait(lambda: levels in browser.attribute(".wheel", "aria-label"), levels)
    browser.wait(lambda: browser.texts("#destinations th") == destinations, "names")
    assert browser.all("#forecast .plot rect.s0")
    assert "at rest" in browser.text("#live-state")
    browser.shows("read ", "#account .source")
    account = {
        "direct": "schedules 18 pending wait for their due time 9 fired",
        "tiered": "schedules 13 pending wait for their due time 12 fired",
        "purgatory": "operations 3 pending wait for their due time 1 completed",
    }
    assert account[mode] in browser.text("#account")


NEXT = {
    "direct": ["2024-01-01 00:01:40 in 1.5 min near out", "in 1.4 h", "in 1 d far mail"],
    "tiered": ["2024-01-01 00:00:15 in 11 s near out"],
    "purgatory": ["2024-01-01 01:00:01", "open out"],
}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_due_next_is_listed_in_order(
    browser: Browser, serve: Serve, made: dict[str, Made], mode: str
) -> None:
    serve(made[mode])
    browser.open()
    browser.one("#next-due tbody tr")
    found = browser.text("#next-due tbody")
    places = [found.find(part) for part in NEXT[mode]]
    assert (-1 not in places, places) == (True, sorted(places)), found
    assert len(browser.all("#next-due tbody tr")) == {"direct": 9, "tiered": 1, "purgatory": 1}[mode]
    if mode == "tiered":
        browser.shows("in the store: 11 rows, due at ", "#next-due .note")
    assert_nothing_injected(browser)


@pytest.mark.parametrize("mode", MODES)
def test_the_last_hour_has_throughput_and_lateness_with_units(
    browser: Browser, serve: Serve, made: dict[str, Made], mode: str
) -> None:
    serve(made[mode])
    browser.open()
    lines = read_batches(made[mode].config.checkpoint, wall_clock_ms() - 3_500_000)
    fired = sum(line["fired"] or 0 for line in lines if line["query"] == "wheel")
    browser.shows(f"fired, last hour {fired}", "#tiles")
    assert browser.all("#throughput g[data-tip*='30 fired, 42 received, 1 rejected']")
    assert browser.all("#lateness rect[data-tip*='p50 450 ms, p99 1.2 s, max 2 s']")
    assert "rows a minute · UTC" in browser.text("#throughput")
    assert "time after due, in the data's own time · UTC" in browser.text("#lateness")


def test_the_store_is_counted_from_metadata_at_once_and_exactly_after(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["tiered"])
    browser.open()
    browser.shows("exact; near 1 exact, store 11 from metadata", "#tiles")
    assert (
        "from metadata: replaced and cancelled entries count until their window is handed over"
        in browser.text("#wheel")
    )
    assert browser.texts(".level .tag") == ["store", "store"]


@pytest.mark.parametrize(
    ("mode", "schedule_id", "facts"),
    [
        ("direct", "fired", ["fired", "due 2024-01-01 00:00:02 UTC · to out", "after due, fire_id"]),
        ("direct", "near", ["will fire", "pending in the state", "on a level of the wheel"]),
        ("direct", "bad", ["rejected: bad_destination"]),
        (
            "tiered",
            "far",
            ["SCHEDULE", "in the store, level 4", "will fire", "pending in the store", "to mail"],
        ),
        ("purgatory", "paid", ["completed", "by key p"]),
        ("purgatory", "late", ["expired"]),
        ("purgatory", "open", ["1 of 2 keys have come: a", "expires, if it is not complete by then"]),
    ],
)
def test_an_id_is_found_with_its_history(
    browser: Browser, serve: Serve, made: dict[str, Made], mode: str, schedule_id: str, facts: list[str]
) -> None:
    serve(made[mode])
    browser.find(schedule_id)
    found = browser.text("#history")
    assert [fact for fact in facts if fact not in found] == [], found


def test_an_id_of_which_nothing_is_known_says_so(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["direct"])
    browser.find("nobody")
    assert "Nothing is known of this id" in browser.text("#history")


def test_rejects_are_shown_by_code_with_their_records(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["direct"])
    browser.open("rejects")
    browser.shows("bad_destination", "#codes")
    browser.click("#sample-1 summary")
    browser.shows("record", "#sample-1")


def test_hostile_ids_and_payloads_are_text_and_nothing_else(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["direct"])
    for schedule_id in HOSTILE:
        browser.find(schedule_id)
        shown = browser.text("#history h2 .literal")
        assert shown == schedule_id.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")
        assert browser.one("#id").get_attribute("value") == schedule_id
        assert "will fire" in browser.text("#history")
        assert_nothing_injected(browser)
    browser.open("rejects")
    browser.one("#samples")
    for details in browser.all("#samples details"):
        browser.driver.execute_script("arguments[0].open = true", details)
    browser.shows("<script>alert('id')</script>", "#samples")
    browser.shows("binary, 36 bytes: ff fe 3c", "#samples")
    assert_nothing_injected(browser)
    assert browser.all("main u, main b b, main i, main img") == []


def assert_nothing_injected(browser: Browser) -> None:
    """No dialog (a driver's call would fail), one script, which is the page's, and no complaint of its policy."""
    scripts = [str(script.get_attribute("src")) for script in browser.all("script")]
    assert scripts == [browser.url + "static/page.js"]
    assert browser.all("[onerror], [onclick], main img, iframe, object") == []
    assert browser.complaints() == []


def test_an_id_of_512_bytes_does_not_break_the_layout(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["direct"])
    browser.driver.set_window_size(500, 900)
    browser.find(LONG)
    width = browser.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
    browser.driver.set_window_size(1280, 900)
    assert width <= 0


def test_nothing_is_requested_from_another_host(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    url = serve(made["direct"], allow_acts=True)
    for path in ("", "rejects", "find", "acts"):
        browser.open(path)
        browser.one("#main")
    browser.open()
    browser.wait(lambda: any("/live/overview" in each for each in seen(browser)), "a refresh")
    hosts = {urlsplit(each).netloc for each in _SEEN if not each.startswith(("data:", "about:"))}
    assert hosts == {urlsplit(url).netloc}
    assert browser.complaints() == []


_SEEN: list[str] = []


def seen(browser: Browser) -> list[str]:
    _SEEN.extend(browser.requested())
    return _SEEN


def test_the_page_is_used_from_the_keyboard(browser: Browser, serve: Serve, made: dict[str, Made]) -> None:
    serve(made["direct"])
    browser.open()
    browser.one("#forecast-table")
    reached = []
    for _ in range(12):
        # To whatever has the focus: a card that is refreshed meanwhile replaces its elements.
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        reached.append(browser.driver.switch_to.active_element.text)
    assert [text for text in reached if text][:6] == [
        "to the content",
        "reminders",
        "Overview",
        "Rejects",
        "Find an id",
        "Acts",
    ]
    assert reached.count("as a table") >= 2
    browser.driver.execute_script("document.querySelector('#forecast-table summary').focus()")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    browser.shows("≤ ", "#forecast-table table")
    age = browser.text("#forecast .age")
    browser.wait(lambda: browser.text("#forecast .age") != age, "a refresh of the card")
    assert browser.driver.switch_to.active_element.text == "as a table", "the focus is where it was"
    assert browser.text("#forecast-table table") != "", "and the table is open"


def test_a_job_that_never_ran_says_what_to_do(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    serve(direct(tmp_path))
    browser.open()
    browser.shows("cannot be read", "#wheel")
    browser.shows("No batch of the last hour", "#throughput")
    browser.shows("There are no rejects", "#codes")
    assert "not readable" in browser.text("#live-state")


def test_a_job_is_watched_while_it_runs(
    browser: Browser, serve: Serve, session: SparkSession, tmp_path: Path
) -> None:
    job = direct(tmp_path)
    serve(job)
    with job.running(session):
        browser.open()
        browser.shows("running", "#live-state")
        browser.shows("pending 9", "#tiles")
        job.add(due("one more", 7_000, 6))
        browser.shows("pending 10", "#tiles")
