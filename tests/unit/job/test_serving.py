"""A job whose token cannot be written runs all the same, is watched, and says that nobody can ask it."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.unit.job.test_job import checked
from tests.unit.metrics.jobs import meter
from wheel_udf.api.place import place_of
from wheel_udf.common.errors import ConfigError
from wheel_udf.job.begin import check_port
from wheel_udf.job.dry_run import api_text
from wheel_udf.job.serving import Questions, answering


def test_a_home_that_cannot_be_written_keeps_no_job_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "file"))
    session: Any = None
    lines: list[str] = []
    config = checked(checkpoint=str(tmp_path / "job"), api={"address": "localhost"})
    with answering(session, config, meter(), lines.append) as begin:
        begin()
        begin()
        assert place_of(str(tmp_path / "job")) is None
        told, fault = lines
        metrics, health = re.fullmatch(
            "metrics at (http://.+/metrics), health at (http://.+/healthz)", told
        ).groups()
        with urlopen(metrics) as answer:
            assert b"wheel_healthy 0.0" in answer.read()
        with pytest.raises(HTTPError, match="503") as unhealthy:
            urlopen(health)
        unhealthy.value.close()
    assert fault.startswith("the job answers no questions: its token cannot be written (")


@pytest.mark.parametrize(
    ("api", "text"),
    [
        ({}, None),
        ({"enabled": False}, "off: no metrics, and the verbs start a Spark of their own"),
        ({"port": 8450}, "on 127.0.0.1, 8450: /metrics, /healthz; questions with the token"),
        ({"address": "10.0.0.7"}, "on 10.0.0.7, any free port: /metrics, /healthz; questions with the token"),
    ],
)
def test_a_dry_run_says_where_the_job_answers_if_the_config_does(
    api: dict[str, Any], text: str | None
) -> None:
    assert api_text(checked(api=api).api) == text


def test_a_port_that_is_in_use_is_found_before_spark_starts() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as other,
        pytest.raises(ConfigError, match=r"api\.port"),
    ):
        check_port(checked(api={"port": other.getsockname()[1]}))


def test_an_api_that_is_off_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path))
    config = checked(checkpoint=str(tmp_path / "job"), api={"enabled": False})
    session: Any = None
    with answering(session, config, meter(), print) as begin:
        begin()
        assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "what is asked for is not clear"),
        ({"id": ["a"], "n": 0}, "not a number of lines"),
        ({"id": ["a"], "n": 10**9}, "not a number of lines"),
    ],
)
def test_next_asks_a_running_job_no_more_than_one_that_rests(question: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Questions(MagicMock(), checked()).answer("next", question)
