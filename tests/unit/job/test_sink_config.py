"""Sinks of a config: webhooks, databases and classes of users; all that is wrong with them is reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_sinks import Lines
from tests.unit.job.configs import faults_of, written
from wheel_udf.common.errors import ConfigErrors
from wheel_udf.job import compose
from wheel_udf.job.loader import load
from wheel_udf.job.replay import row_settings, with_row_settings
from wheel_udf.sinks.http_sink import HttpSink
from wheel_udf.sinks.jdbc_sink import JdbcSink

GOOD = """
clock: {kind: processing}
source: {format: json, path: in}
destinations:
  hooks_*:
    sink: http
    url: https://example.org/hooks/{destination}?v=1
    headers: {Authorization: "Bearer ${env:HOOK_TOKEN}", X-Tenant: 7}
    timeout: 2 seconds
    backoff: 0
    cooldown: 1 minute 30 seconds
  lines: {sink: "tests.own_sinks:Lines", options: {folder: out}}
rejects: {sink: delta, path: bad}
checkpoint: state
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOOK_TOKEN", "hook-s3cr3t")
    return written(tmp_path, GOOD)


def test_a_config_makes_its_sinks(file: Path) -> None:
    config = load(file)
    (_, hook), (_, lines) = compose.destinations_of(config)

    assert hook == HttpSink(
        "https://example.org/hooks/{destination}?v=1",
        {"Authorization": "Bearer hook-s3cr3t", "X-Tenant": "7"},
        timeout_ms=2_000,
        backoff_ms=0,
        cooldown_ms=90_000,
    )
    assert "s3cr3t" not in repr(hook)
    assert lines == Lines(folder="out")


def test_a_planned_batch_is_replayed_into_the_sinks_of_today(file: Path) -> None:
    config = load(file)
    recorded = row_settings(config, None)

    assert recorded["destinations"] == {
        "hooks_*": {"sink": "http"},
        "lines": {"sink": "tests.own_sinks:Lines"},
    }
    assert with_row_settings(config, recorded).destinations == config.destinations


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("destinations.a={sink: http}", "a required setting is missing: destinations.a.url; rule: where rows are posted"),
        ("destinations.a={sink: http, url: ftp://x}", "not a URL for rows: destinations.a.url = 'ftp://x'; rule: http://"),
        ("destinations.a={sink: http, url: 'https://{destination}.org'}", "{destination} only after the host"),
        ("destinations.a={sink: http, url: 'https://u:pass@x.org'}", "not a URL for rows: destinations.a.url; rule"),
        ("destinations.a={sink: http, url: 'http://x', headers: {'a b': c}}", "not a header: destinations.a.headers.a b; rule"),
        ("destinations.a={sink: http, url: 'http://x', headers: {t: é}}", "not a header: destinations.a.headers.t"),
        ("destinations.a={sink: http, url: 'http://x', body: xml}", "not one of the known values: destinations.a.body"),
        ("destinations.a={sink: http, url: 'http://x', retries: -1}", "not a number of tries: destinations.a.retries = -1; rule: 0 to 20; or a section with a policy"),
        ("destinations.a={sink: http, url: 'http://x', timeout: 5}", "not a duration: destinations.a.timeout = 5"),
        ("destinations.a={sink: http, url: 'http://x', timeout: 25 days}", "too large: destinations.a.timeout = '25 days'"),
        ("destinations.a={sink: jdbc, url: 'jdbc:postgresql://h/d', timeout: 25 days}", "too large: destinations.a.timeout"),
        ("destinations.a={sink: http, url: 'http://x', create: true}", "not a setting of sink http: destinations.a.create"),
        ("rejects={sink: http, url: 'http://x'}", "not one of the known values: rejects.sink = 'http'; rule: one of delta"),
        ("rejects={sink: 'tests.own_sinks:Lines'}", "not one of the known values: rejects.sink"),
        ("destinations.lines.sink=lines", "not one of the known values: destinations.lines.sink = 'lines'; rule: one of delta, iceberg, kafka,"),
        ("destinations.lines.sink=a-b:C", "not the name of a class: destinations.lines.sink = 'a-b:C'; rule: module:Class"),
        ("destinations.lines.sink=no.such:C", "the module of a sink cannot be imported: destinations.lines.sink = 'no.such:C'"),
        ("destinations.lines.sink=tests.own_sinks:C", "the module has no such class: destinations.lines.sink"),
        ("destinations.lines.sink=tests.own_sinks:not_a_class", "not a class: destinations.lines.sink"),
        ("destinations.lines.options={}", "the sink cannot be made with these options: destinations.lines.options; rule: Lines: TypeError"),
        ("destinations.lines.options={folder: a, b: c}", "got an unexpected keyword argument 'b'"),
        ("destinations.lines.path=x", "not a setting of sink module:Class: destinations.lines.path = 'x'; rule: only with sink: delta"),
        ("destinations.lines={sink: 'tests.own_sinks:WithoutHolds'}", "rule: it has methods holds; hint"),
        ("destinations.lines={sink: 'tests.own_sinks:Unhashable', options: {folder: a}}", "one with write_all is hashable"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_sink_is_named(file: Path, override: str, words: str) -> None:
    faults = faults_of(file, override)

    assert [fault for fault in faults if words in fault], faults


def test_a_wait_that_a_socket_or_a_driver_cannot_count_is_refused() -> None:
    for make in (
        lambda: HttpSink("http://x", cooldown_ms=2**31),
        lambda: JdbcSink("jdbc:postgresql://h/d", timeout_ms=2**31),
    ):
        with pytest.raises(ConfigErrors, match=r"_ms = 2147483648; rule: .*2147483647"):
            make()


def test_all_faults_are_reported_together(file: Path) -> None:
    faults = faults_of(
        file,
        "destinations.lines.sink=no.such:C",
        "destinations.hooks_*.url=ftp://x",
        "destinations.hooks_*.headers={'a b': c}",
        "wheel.size=1",
    )

    assert len(faults) == 4


def test_no_message_shows_a_secret(file: Path) -> None:
    secret = "destinations.lines={sink: 'tests.own_sinks:Picky', options: {folder: '${env:HOOK_TOKEN}'}}"
    (fault,) = faults_of(file, secret)

    assert fault.endswith("rule: Picky: ValueError: no such folder, password=***")


def test_without_httpx_a_webhook_is_an_error_that_says_how_to_install_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheel_udf.common.extras.find_spec", lambda _: None)
    (fault,) = faults_of(file)

    assert fault == (
        "the package httpx is not installed: destinations.hooks_*.sink; hint: pip install 'wheel-udf[http]'"
    )
