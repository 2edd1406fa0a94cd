"""The server of the page: how it begins and ends. Its addresses are tested in a browser (tests/page)."""

from __future__ import annotations

import logging
import socket
from errno import ETIMEDOUT
from http.client import HTTPConnection, RemoteDisconnected
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
from waitress.channel import HTTPChannel
from waitress.trigger import trigger

from wheel_udf.page import server as server_module
from wheel_udf.page.guard import Access
from wheel_udf.page.server import PageServer

if TYPE_CHECKING:
    from wheel_udf.page.subject import Subject


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> PageServer:
    monkeypatch.setattr(server_module, "readings_of", lambda _: {})
    return PageServer(cast("Subject", SimpleNamespace(name="job")), Access(port=0))


def status_of(page: PageServer) -> int:
    connection = HTTPConnection(urlsplit(page.url).netloc, timeout=60)
    connection.request("GET", "/sign-in")
    status = connection.getresponse().status
    connection.close()
    return status


def is_open(page: PageServer) -> bool:
    with socket.socket() as client:
        host, port = urlsplit(page.url).netloc.split(":")
        return client.connect_ex((host, int(port))) == 0


def test_a_page_answers_and_frees_its_port_at_the_end(page: PageServer) -> None:
    with page:
        assert status_of(page) > 0
    assert not is_open(page)
    page.wait()


def test_a_browser_that_has_vanished_leaves_no_trace_in_the_log(
    page: PageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unanswered(*_: object, **__: object) -> int:
        raise TimeoutError(ETIMEDOUT, "Connection timed out")  # what the system says of its machine

    monkeypatch.setattr(HTTPChannel, "send", unanswered)
    with page, pytest.raises(RemoteDisconnected):
        status_of(page)
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    # A busy machine may let the task of a request wait for its thread.
    assert [record for record in warned if record.name != "waitress.queue"] == []


def test_a_page_ends_when_a_request_wakes_its_thread_first(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # caller    appends the end .............................. writes to the pipe
    # thread                      wakes for a request, leaves
    pull = trigger._physical_pull

    def pull_after_a_request(self: Any) -> None:
        pull(self)
        page.wait()
        pull(self)

    with page:
        monkeypatch.setattr(trigger, "_physical_pull", pull_after_a_request)
    assert not is_open(page)
