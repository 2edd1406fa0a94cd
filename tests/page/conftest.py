"""A real browser without a screen, and pages that it opens. Without a browser these tests are skipped; in CI that is a
failure.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.page import jobs
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.job.ui import subject_of
from wheel_udf.page.guard import Access
from wheel_udf.page.server import PageServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.page.jobs import Made

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip
_MOST_S = 120


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The browser, with a new profile."""
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        reason = "the tests of the page need chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    options = Options()
    options.binary_location = found
    for argument in (*_ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


class Browser:
    """The browser as a reader of the page uses it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver, self.url = driver, ""

    def open(self, path: str = "") -> None:
        """Opens an address of the page."""
        self.driver.get(self.url + path)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """Waits for an element."""
        self.wait(lambda: bool(self.all(selector)), selector)
        return self.all(selector)[0]

    def text(self, selector: str = "main") -> str:
        """The text that a reader sees of an element, on one line; empty if it is not there."""
        script = "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''"
        return " ".join(self.driver.execute_script(script, selector).split())

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements at one moment: a card may be replaced at any time."""
        script = "return [...document.querySelectorAll(arguments[0])].map((found) => found.innerText.trim())"
        found: list[str] = self.driver.execute_script(script, selector)
        return found

    def attribute(self, selector: str, name: str) -> str:
        """An attribute of an element; empty if it is not there."""
        script = "const found = document.querySelector(arguments[0]); return found ? found.getAttribute(arguments[1]) : ''"
        return str(self.driver.execute_script(script, selector, name))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        waiting = WebDriverWait(self.driver, _MOST_S, poll_frequency=0.1)
        try:
            waiting.until(lambda _: condition())
        except TimeoutException:
            pytest.fail(f"not within {_MOST_S} s: {what}; the page says: {self.text()[:3000]}")

    def shows(self, text: str, selector: str = "main") -> None:
        """Waits until an element shows a text."""
        self.wait(lambda: text in self.text(selector), f"{selector} shows {text!r}")

    def fill(self, selector: str, text: str) -> None:
        """Puts a text into a field, also one that keys cannot type."""
        self.driver.execute_script("arguments[0].value = arguments[1]", self.one(selector), text)

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def find(self, schedule_id: str) -> None:
        """Searches for an id, and waits for the answer."""
        self.open("find")
        self.fill("#id", schedule_id)
        self.click(".find button")
        self.one("#history[data-done]")

    def requested(self) -> list[str]:
        """The addresses that have been requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def complaints(self) -> list[str]:
        """What the browser has complained of since the last call: refused by the policy, errors of the script, missing
        files.
        """
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def browser(driver: webdriver.Chrome) -> Iterator[Browser]:
    """The browser without sessions, complaints and requests of another test."""
    driver.delete_all_cookies()
    found = Browser(driver)
    found.requested(), found.complaints()
    yield found
    driver.get("about:blank")


@pytest.fixture(scope="session")
def made(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """A job of each mode, at rest after a run. No test changes them but by acts on the tiered one."""
    found = {
        "direct": jobs.direct(tmp_path_factory.mktemp("direct")),
        "tiered": jobs.tiered(tmp_path_factory.mktemp("tiered")),
        "purgatory": jobs.purgatory(tmp_path_factory.mktemp("purgatory")),
    }
    for mode, job in found.items():
        job.run(until_s=60 if mode == "purgatory" else 10)
        job.is_kept = True
        job.log(jobs.line(wall_clock_ms() - 120_000), jobs.line(wall_clock_ms() - 60_000))
    return found


@pytest.fixture(scope="session")
def session(driver: webdriver.Chrome, _session: SparkSession) -> SparkSession:
    """The one session, as it is: the fixture `spark` would tidy up while the page reads. Not started without a
    browser.
    """
    return _session


Serve = Callable[..., str]


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[str, PageServer]]:
    """Pages of the jobs that no test changes, for looking only; each is started once."""
    with ExitStack() as kept:
        yield (servers := {})
        for server in servers.values():
            kept.push(server)


@pytest.fixture
def serve(browser: Browser, session: SparkSession, _servers: dict[str, PageServer]) -> Iterator[Serve]:
    """Serves the page of a job on a free port, and lets the browser open it from then on."""
    with ExitStack() as own:

        def start(job: Made, **access: Any) -> str:
            server = _servers.get(str(job.file)) if not access else None
            if server is None:
                subject = subject_of(session, job.config)
                server = PageServer(subject, Access(port=0, **access), every_ms=1_000)
                if access or not job.is_kept:
                    own.enter_context(server)
                else:
                    _servers[str(job.file)] = server.__enter__()
            browser.url = server.url
            return browser.url

        yield start
