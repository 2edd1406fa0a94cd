"""Secrets: how they come into the config, and that no text which leaves the process holds one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from wheel_udf.common.errors import ConfigErrors, SinkError
from wheel_udf.common.secrets import hide, hide_from_now_on, redacted, remember_options, resolve
from wheel_udf.job import begin, loader as config
from wheel_udf.job.cli import line_printer, main
from wheel_udf.spark.failures import explain

CANARY = "can4ry-in-the-mine"
GOOD = """
clock: {kind: event}
source: {format: json, path: in}
destinations: {a: {sink: json, path: out}}
rejects: {sink: json, path: bad}
checkpoint: state
"""


def test_variables_and_files_are_put_in_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_USER", "wheel-user")
    (tmp_path / "password").write_text(f"{CANARY}\n")
    given = {"a": [{"b": f"user=${{env:KAFKA_USER}} pw=${{file:{tmp_path}/password}}"}], "n": 5, "t": None}
    settings, faults = resolve(given)
    assert settings == {"a": [{"b": f"user=wheel-user pw={CANARY}"}], "n": 5, "t": None}
    assert faults == {}
    assert hide(f"wheel-user has {CANARY}") == "*** has ***"


@pytest.mark.parametrize(
    "text", ["$", "${}", "${env}", "$env:HOME", "${vault:a:b}", "{env:HOME}", "${ENV:HOME}"]
)
def test_other_texts_with_dollars_stay_as_they_are(text: str) -> None:
    assert resolve({"a": text}) == ({"a": text}, {})


def test_what_comes_out_of_a_variable_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${env:INNER}")
    assert resolve({"a": "${env:OUTER}"}) == ({"a": "${env:INNER}"}, {})


def test_missing_variables_and_files_are_told_together_with_all_other_faults(tmp_path: Path) -> None:
    overrides = [
        "name=${env:WHEEL_NO_SUCH_NAME}",
        f"source.options={{p.q: '${{file:{tmp_path}/none}} ${{env:}}'}}",
        "wheel={tick: '${env:WHEEL_NO_SUCH_NAME}', size: 1}",
    ]
    with pytest.raises(ConfigErrors) as caught:
        config.check(config.mapping_of_text(GOOD, "job.yml"), overrides)
    assert [str(fault) for fault in caught.value.faults] == [
        (
            f"there is no readable text file {tmp_path}/none; there is no environment variable (no name): "
            'source.options."p.q"'
        ),
        "there is no environment variable WHEEL_NO_SUCH_NAME: name",
        "there is no environment variable WHEEL_NO_SUCH_NAME: wheel.tick",
        "too small: wheel.size = 1; rule: at least 2",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.password",
        "kafka.ssl.key.password",
        "kafka.ssl.keystore.key",
        "KAFKA.SSL.TRUSTSTORE.PASSWORD",
        "clientSecret",
        "my_token",
        "aws.credentials",
    ],
)
def test_the_value_of_a_setting_with_a_secrets_name_is_hidden(name: str) -> None:
    remember_options({name: CANARY, "kafka.bootstrap.servers": "host:9092"})
    assert hide(f"at host:9092 with {CANARY}") == "at host:9092 with ***"
    assert redacted({name: "x", "b": ["y", CANARY]}) == {name: "***", "b": ["y", "***"]}


@pytest.mark.parametrize(
    "name", ["key", "kafka.bootstrap.servers", "monkey", "path", "kafka.ssl.keystore.location"]
)
def test_other_settings_are_shown(name: str) -> None:
    remember_options({name: CANARY})
    assert hide(CANARY) == CANARY


def test_the_parts_of_a_jaas_text_are_hidden_one_by_one() -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="wheel" password="{CANARY}" clientSecret=\'other-one\';'
    )
    remember_options({"kafka.sasl.jaas.config": jaas})
    assert hide(f"wheel came with {CANARY} and other-one") == "wheel came with *** and ***"
    assert hide(repr(jaas)) == "'***'"
    assert hide(json.dumps({"config": jaas})) == '{"config": "***"}'


def test_a_secret_in_another_secret_leaves_no_rest() -> None:
    hide_from_now_on("inner-part")
    hide_from_now_on("outer-inner-part-outer")
    assert hide("outer-inner-part-outer inner-part") == "*** ***"


def test_short_texts_are_left_in_running_text() -> None:
    hide_from_now_on("1")
    hide_from_now_on("   ")
    assert hide("batch 1 of 100") == "batch 1 of 100"


def test_no_fault_of_a_config_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHEEL_CANARY", CANARY)
    long = "x" * 190  # a value is cut at 200 characters: half a secret is one too
    overrides = [
        "trigger=${env:WHEEL_CANARY}",
        f"clock.kind={long}${{env:WHEEL_CANARY}}",
        "source.options={kafka.sasl.jaas.config: [${env:WHEEL_CANARY}]}",
        "wheel={size: '${env:WHEEL_CANARY}', more: '${env:WHEEL_CANARY}'}",
    ]
    with pytest.raises(ConfigErrors) as caught:
        config.check(config.mapping_of_text(GOOD, "job.yml"), overrides)
    assert len(caught.value.faults) == 5
    assert CANARY[:8] not in str(caught.value)


def test_failures_progress_and_stack_traces_show_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_from_now_on(CANARY)
    assert CANARY not in explain(SinkError(f"login with {CANARY} failed")).sentence
    out, err = io.StringIO(), io.StringIO()
    line_printer(out)(f"a line with {CANARY}")
    assert out.getvalue() == "a line with ***\n"
    file = tmp_path / "job.yml"
    file.write_text(GOOD)

    def fail(*_: object) -> int:
        raise RuntimeError(f"deep inside: {CANARY}")

    monkeypatch.setattr(begin, "run", fail)
    code = main(["run", "--config", str(file), "--debug"], out=out, err=err)
    assert code == 1
    assert err.getvalue().count("deep inside: ***") == 2
    assert CANARY not in err.getvalue()
