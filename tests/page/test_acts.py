"""Acts through the page: counted before, confirmed, recorded after; and nothing of it without the
flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.by import By

from tests.page.conftest import Browser, Serve
from tests.page.jobs import Made, direct, purgatory, series, tiered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def orders(session: SparkSession, tmp_path: Path) -> Made:
    """A tiered job of its own."""
    job = tiered(tmp_path)
    job.run(until_s=10)
    return job


def ask(browser: Browser, verb: str, **fields: str) -> None:
    """Fills in the form, and asks for the dry run."""
    browser.open("acts")
    browser.one(f"input[value={verb}]").click()
    for name, text in fields.items():
        browser.fill(f"[name={name}]", text)
    browser.click(".act button")
    browser.one("#result[data-done]")


def confirm(browser: Browser) -> None:
    browser.click("button.danger")
    browser.shows("Done", "#result")


def test_an_act_is_counted_then_confirmed_then_recorded(browser: Browser, serve: Serve, orders: Made) -> None:
    serve(orders, allow_acts=True)
    browser.open()
    browser.shows("pending 12", "#tiles")

    ask(browser, "cancel", where="destination = 'old' AND schedule_id < 'old 4'")
    assert "would cancel 4 entries" in browser.text("#result")
    browser.shows("Nothing has been changed by hand", "#audit")
    dry_run = browser.driver.current_url
    confirm(browser)
    assert "cancelled 4 entries" in browser.text("#result")
    browser.shows("cancel 4 (destination = 'old' AND schedule_id < 'old 4')", "#audit")
    browser.driver.get(dry_run)
    assert "This dry run was confirmed" in browser.text("#result")
    assert browser.all("button.danger") == []

    ask(browser, "move", ids="far\nold 9", to_move="deliver_at + interval 1 day")
    assert "would move 2 entries" in browser.text("#result")
    confirm(browser)
    browser.shows("move 2 schedule_id in ['far', 'old 9'] to deliver_at + interval 1 day", "#audit")

    ask(browser, "reroute", ids="old 5", to_reroute="new")
    assert "would reroute 1 entry" in browser.text("#result")
    confirm(browser)
    browser.find("old 5")
    assert "reroute to new" in browser.text("#history")
    browser.open()
    browser.shows("pending 8", "#tiles")
    browser.shows("new", "#destinations")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "an act without ids and without a predicate"),
        ({"where": "java_method('java.lang.System', 'exit', 1) = 0"}, "it calls java_method"),
        ({"ids": "x" * 513}, "rule: 1 to 512 bytes"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_its_reason(
    browser: Browser, serve: Serve, made: dict[str, Made], fields: dict[str, str], sentence: str
) -> None:
    serve(made["tiered"], allow_acts=True)
    browser.open("acts")
    for name, text in fields.items():
        browser.fill(f"[name={name}]", text)
    browser.click(".act button")
    browser.shows(sentence)


def test_an_expression_that_spark_refuses_is_a_sentence_of_the_dry_run(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["tiered"], allow_acts=True)
    ask(browser, "cancel", where="no_such_column = 1")
    assert "this predicate cannot be used" in browser.text("#result")
    assert browser.all("button.danger") == []


@pytest.mark.parametrize(
    ("make", "schedule_id", "noun"), [(direct, "near", "entry"), (purgatory, "open", "operation")]
)
def test_in_the_other_modes_an_act_on_a_job_at_rest_is_recorded_and_seen_at_once(
    browser: Browser,
    serve: Serve,
    session: SparkSession,
    tmp_path: Path,
    make: Callable[[Path], Made],
    schedule_id: str,
    noun: str,
) -> None:
    job = make(tmp_path)
    job.run(until_s=10)
    serve(job, allow_acts=True)
    ask(browser, "cancel", ids=schedule_id)
    assert f"would cancel 1 {noun}" in browser.text("#result")
    confirm(browser)
    browser.shows(f"cancel 1 schedule_id in ['{schedule_id}']", "#audit")
    ask(browser, "cancel", ids=schedule_id)
    assert "would cancel 0" in browser.text("#result")


def test_a_series_is_skipped_paused_resumed_and_fired(
    browser: Browser, serve: Serve, session: SparkSession, tmp_path: Path
) -> None:
    job = series(tmp_path)
    job.run(until_s=10)
    serve(job, allow_acts=True)
    browser.open()
    browser.wait(lambda: browser.texts("#next-due .tag") == ["series"], "the series is marked")
    assert "01:00:00 in 59.8 min hourly series out" in browser.text("#next-due")

    ask(browser, "skip", where="true")
    assert "would skip 1 entry" in browser.text("#result")
    confirm(browser)
    assert "skipped an occurrence of 1 entry" in browser.text("#result")
    ask(browser, "pause", ids="hourly\nonce")
    confirm(browser)
    assert "paused 1 entry" in browser.text("#result")
    ask(browser, "resume", where="paused")
    assert "would resume 1 entry" in browser.text("#result")
    confirm(browser)
    ask(browser, "fire-now", ids="once")
    assert browser.text("button.danger") == "Fire 1 now"
    confirm(browser)
    assert "fired 1 entry" in browser.text("#result")
    browser.wait(lambda: len(browser.all("#audit tbody tr")) == 4, "the record of acts")

    job.run(until_s=3_700)
    browser.open()
    browser.shows("02:00:00 in 58.3 min hourly series out", "#next-due")
    assert "once" not in browser.text("#next-due")


def test_the_form_of_a_purgatory_has_the_act_that_it_takes(
    browser: Browser, serve: Serve, made: dict[str, Made]
) -> None:
    serve(made["purgatory"], allow_acts=True)
    browser.open("acts")
    assert [each.get_attribute("value") for each in browser.all(".verbs input")] == ["cancel"]


def test_acts_are_off_unless_they_are_allowed(browser: Browser, serve: Serve, made: dict[str, Made]) -> None:
    serve(made["tiered"])
    browser.open("acts")
    assert "Acts are off" in browser.text()
    assert browser.driver.find_elements(By.CSS_SELECTOR, "form") == []


def test_a_page_with_a_token_asks_for_it_once(browser: Browser, serve: Serve, made: dict[str, Made]) -> None:
    serve(made["direct"], token="correct horse battery")
    browser.open("rejects")
    assert browser.driver.current_url == browser.url + "sign-in"
    browser.fill("#token", "wrong horse battery")
    browser.click("button")
    browser.shows("This is not the token")
    browser.fill("#token", "correct horse battery")
    browser.click("button")
    browser.shows("pending 9", "#tiles")
