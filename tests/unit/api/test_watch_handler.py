"""What watches a job: metrics and health without a token, and the port of both."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import meter
from wheel_udf.api.server import ApiServer, Job
from wheel_udf.common.errors import ConfigError
from wheel_udf.metrics.meter import Meter


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    """Status, content type and text of an answer."""
    try:
        with urlopen(Request(url, headers={"Accept": accept})) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


NOBODY: Any = Job({"checkpoint": "/x"}, [], None, None, {}, None)  # type: ignore[arg-type]  # no question comes through


@pytest.fixture
def job() -> Meter:
    return meter()


@pytest.fixture
def url(job: Meter) -> Iterator[str]:
    with closing(ApiServer("127.0.0.1", 0)) as server:
        server.serve(job)
        yield server.url


def test_metrics_are_text_for_prometheus(url: str, job: Meter) -> None:
    job.on_batch(report(fired=2))
    status, kind, text = get(f"{url}/metrics")

    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "wheel_fired_total 2.0\n" in text
    assert 'wheel_info{clock="processing",mode="direct",name="job",version="1.2.3"} 1.0' in text
    assert "\nprocess_resident_memory_bytes " in text


def test_a_client_that_asks_for_open_metrics_gets_them(url: str) -> None:
    status, kind, text = get(f"{url}/metrics", "application/openmetrics-text; version=1.0.0")

    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_health_is_200_or_503_with_the_reason(url: str, job: Meter) -> None:
    assert get(f"{url}/healthz")[::2] == (503, "the query has not started yet\n")
    assert "wheel_healthy 0.0\n" in get(f"{url}/metrics")[2]
    job.started()
    assert get(f"{url}/healthz?from=probe")[::2] == (200, "ok\n")
    assert "wheel_healthy 1.0\n" in get(f"{url}/metrics")[2]


def test_a_client_that_hangs_up_before_the_answer_leaves_no_trace_in_the_log(
    job: Meter, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked, gone = threading.Event(), threading.Event()

    def unhealthy_reason() -> None:
        asked.set()
        assert gone.wait(60)

    monkeypatch.setattr(job, "unhealthy_reason", unhealthy_reason)
    with closing(ApiServer("127.0.0.1", 0)) as server:
        server.serve(job)
        with socket.create_connection(server.address) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert asked.wait(60)
            # Its end resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        for thread in threading.enumerate():
            if "process_request" in thread.name:
                thread.join()

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["", "/", "/metric", "/healthz/x", "/../metrics", "/v1/job"])
def test_other_paths_are_not_answered_before_the_query_has_started(url: str, path: str) -> None:
    status, kind, text = get(url + path)

    assert (status, kind) == (503, "application/json")
    assert "the job answers no questions yet: " in text


def test_a_job_that_answers_questions_is_watched_at_the_same_port_without_a_token(job: Meter) -> None:
    with closing(ApiServer("127.0.0.1", 0)) as server:
        server.serve(job)
        server.answer(NOBODY, job)
        assert get(f"{server.url}/healthz")[0] == 503
        assert "wheel_healthy 0.0" in get(f"{server.url}/metrics")[2]
        assert get(f"{server.url}/v1/status")[0] == 401
        assert get(f"{server.url}/metric")[0] == 404


def test_without_the_package_metrics_say_what_to_install_and_health_works(
    url: str, job: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.started()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    assert get(f"{url}/metrics")[::2] == (
        501,
        "the package prometheus_client is not installed: /metrics; hint: pip install 'wheel-udf[metrics]'\n",
    )
    assert get(f"{url}/healthz")[::2] == (200, "ok\n")


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as error:
            ApiServer("127.0.0.1", port)

    assert str(error.value) == (
        f"the port of the job cannot be opened (Address already in use): api.port = {port}; "
        "rule: a free port of the address 127.0.0.1; hint: use another port or address; 0 takes any free port"
    )


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        ApiServer("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="cannot be opened"):
        ApiServer("no such address", 0)


def test_a_closed_server_frees_its_port(job: Meter) -> None:
    first = ApiServer("127.0.0.1", 0)
    first.serve(job)
    first.close()

    ApiServer(*first.address).close()


def test_it_listens_on_ipv6_too(job: Meter) -> None:
    try:
        server = ApiServer("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with closing(server):
        server.serve(job)
        assert server.url.startswith("http://[::1]:")
        assert get(f"{server.url}/healthz")[0] == 503
