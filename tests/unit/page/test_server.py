"""The server of the page: how it begins and ends. Its addresses are tested in a browser (tests/page)."""

from __future__ import annotations

import logging
import socket
from errno import ETIMEDOUT
from http.client import HTTPConnection, RemoteDisconnected
from queue import Queue
from threading import Event, current_thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest
from waitress.channel import HTTPChannel
from waitress.task import ThreadedTaskDispatcher
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


def test_a_page_waits_for_the_thread_that_answers_a_request_before_it_closes_its_pipe(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # answering   has answered ......................................... writes to the pipe
    # caller                    ends the page's thread, waits or closes
    pull, close, shutdown = trigger._physical_pull, trigger.close, ThreadedTaskDispatcher.shutdown
    answered, may_write, faults = Event(), Event(), Queue[OSError | None]()

    def pull_late(self: Any) -> None:
        if not current_thread().name.startswith("waitress"):
            pull(self)
            return
        answered.set()
        assert may_write.wait(60)
        try:
            pull(self)
        except OSError as fault:
            faults.put(fault)
        else:
            faults.put(None)

    def close_first(self: Any) -> None:
        close(self)
        may_write.set()

    def wait_for_it(self: Any, *, cancel_pending: bool) -> bool:
        may_write.set()
        return bool(shutdown(self, cancel_pending))

    monkeypatch.setattr(trigger, "_physical_pull", pull_late)
    monkeypatch.setattr(trigger, "close", close_first)
    monkeypatch.setattr(ThreadedTaskDispatcher, "shutdown", wait_for_it)
    connection = HTTPConnection(urlsplit(page.url).netloc, timeout=60)
    with page:
        connection.request("GET", "/sign-in")
        assert answered.wait(60)
    assert faults.get(timeout=60) is None
    connection.close()
