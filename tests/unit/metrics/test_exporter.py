"""The HTTP server: paths, status codes, a port in use."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.unit.delivery.test_report import report
from tests.unit.metrics.jobs import meter
from wheel_udf.common.errors import ConfigError
from wheel_udf.metrics.exporter import Exporter
from wheel_udf.metrics.meter import Meter


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    """Status, content type and text of an answer."""
    try:
        with urlopen(Request(url, headers={"Accept": accept})) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def job() -> Meter:
    return meter()


@pytest.fixture
def url(job: Meter) -> Iterator[str]:
    with closing(Exporter("127.0.0.1", 0)) as exporter:
        exporter.serve(job)
        yield exporter.url


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
    with closing(Exporter("127.0.0.1", 0)) as exporter:
        exporter.serve(job)
        with socket.create_connection(("127.0.0.1", urlsplit(exporter.url).port or 0)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert asked.wait(60)
            # Its end resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        for thread in threading.enumerate():
            if "process_request" in thread.name:
                thread.join()

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["", "/", "/metric", "/healthz/x", "/../metrics"])
def test_other_paths_are_not_found(url: str, path: str) -> None:
    assert get(url + path)[0] == 404


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as error:
            Exporter("127.0.0.1", port)

    assert str(error.value) == (
        f"the port for metrics cannot be opened (Address already in use): metrics.port = {port}; "
        "rule: a free port of the address 127.0.0.1; hint: use another port or address; 0 takes any free port"
    )


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        Exporter("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="cannot be opened"):
        Exporter("no such address", 0)


def test_a_closed_server_frees_its_port(job: Meter) -> None:
    first = Exporter("127.0.0.1", 0)
    first.serve(job)
    port = int(first.url.rpartition(":")[2])
    first.close()

    Exporter("127.0.0.1", port).close()


def test_it_listens_on_ipv6_too(job: Meter) -> None:
    try:
        exporter = Exporter("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with closing(exporter):
        exporter.serve(job)
        assert exporter.url.startswith("http://[::1]:")
        assert get(f"{exporter.url}/healthz")[0] == 503
