"""The verb ui: what stops it before Spark is started."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.served import served
from tests.unit.job.test_top_screen import Questions
from tests.unit.metrics.jobs import meter
from wheel_udf.job import asking, ui
from wheel_udf.job.arguments import parse
from wheel_udf.job.cli import main

CONFIG = """
clock: {kind: event}
source: {format: json, path: in}
destinations: {"reminders.*": {sink: json, path: out}}
rejects: {sink: json, path: bad}
checkpoint: state
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "job.yml"
    file.write_text(CONFIG)
    return str(file)


def error_of(config: str, *options: str) -> str:
    err = io.StringIO()
    assert main(["ui", "--config", config, *options], out=io.StringIO(), err=err) == 2
    return err.getvalue()


def test_other_machines_need_a_token(config: str) -> None:
    assert error_of(config, "--address", "0.0.0.0") == (
        "error: other machines can open this page, so it needs a token: --address = '0.0.0.0'; "
        "rule: a loopback address, or --token; hint: --token '${env:NAME}' reads it from an environment variable\n"
    )


def test_a_token_that_cannot_be_read_is_named_and_not_used_as_it_stands(config: str) -> None:
    error = error_of(config, "--token", "${env:NO_SUCH_TOKEN_ANYWHERE}")
    assert "there is no environment variable NO_SUCH_TOKEN_ANYWHERE" in error


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = [
        name for name in sys.modules if name.startswith(("wheel_udf.page", "wheel_udf.job.ui", "flask"))
    ]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flask", None)
    assert error_of(config) == (
        "error: the package flask is not installed: ui; hint: pip install 'wheel-udf[ui]'\n"
    )


def test_a_token_from_the_environment_is_hidden_in_all_output(monkeypatch: pytest.MonkeyPatch) -> None:
    from wheel_udf.common.secrets import hide

    monkeypatch.setenv("PAGE_TOKEN", "correct horse battery")
    asked = parse(["ui", "--config", "job.yml", "--token", "${env:PAGE_TOKEN}", "--host", "a", "--host", "b"])
    access = ui.access_of(asked)
    assert (access.token, access.hosts) == ("correct horse battery", ("a", "b"))
    assert (access.address, access.port, access.allow_acts) == ("127.0.0.1", 8440, False)
    assert hide("it is correct horse battery") == "it is ***"


def test_a_job_on_another_machine_does_not_serve_the_page_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "user"))
    file = tmp_path / "job.yml"
    file.write_text(f"checkpoint: {tmp_path / 'job'}")
    asked = parse(["ui", "--config", str(file)])
    pages: list[Mapping[str, Any]] = []

    @contextmanager
    def page(arguments: Mapping[str, Any]) -> Iterator[list[str]]:
        pages.append(arguments)
        yield ["the page"]

    def leave(line: str) -> None:
        raise KeyboardInterrupt(line)

    with served(str(tmp_path / "job"), ["pending"], Questions(), {}, meter(), page):
        assert asking.was_done(asked, leave)
        monkeypatch.setattr("socket.gethostname", lambda: "laptop")
        assert not asking.was_done(asked, leave)
    assert [each["port"] for each in pages] == [8440]
