"""Any bytes as a config file, and any text behind ``--set``, give a config or its errors; never a traceback, never a
wait without end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given

from tests.hostile import mangled
from tests.unit.job.configs import written
from wheel_udf.common.errors import ConfigError, ConfigErrors
from wheel_udf.job import loader
from wheel_udf.job.kafka_options import assigned_partitions, offsets_of
from wheel_udf.job.models.scheduler import DirectConfig, JobConfig

SMALL = (
    b"clock: {kind: event}\nsource: {format: json, path: in}\n"
    b"destinations: {a: &a {sink: json, path: out}, b: *a}\nrejects: {sink: json, path: bad}\n"
    b"limits: {fired_per_batch: 0x1f}\ntrigger: PT1S\ncheckpoint: state\n"
)


def read(octets: bytes) -> JobConfig | list[str]:
    """The config in these bytes, or its errors, a sentence each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yml"
        path.write_bytes(octets)
        try:
            return loader.load(path)
        except ConfigErrors as error:
            return [str(fault) for fault in error.faults]
        except ConfigError as error:
            return [str(error)]


@given(mangled(SMALL))
def test_any_bytes_are_a_config_or_its_errors(octets: bytes) -> None:
    found = read(octets)

    assert isinstance(found, DirectConfig) or all(found), "a config, or at least one sentence"
    assert found != []


def test_the_config_that_is_damaged_in_these_tests_is_a_good_one() -> None:
    assert isinstance(read(SMALL), DirectConfig)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 0x_", "not a value of the type int"),
        ("a: 0b_", "not a value of the type int"),
        (f"a: {'1' * 5_000}", "not a value of the type int"),
        ("a: !!float x", "not a value of the type float"),
        ('a: !!int ""', "not a value of the type int"),
        ("a: !!bool perhaps", "not a value of the type bool"),
        ("a: !!timestamp soon", "not a value of the type timestamp"),
        ("a: !!map 5", "not a value of the type map"),
        ("a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("[" * 5_000, "nested too deeply"),
        ("a: &a [*a]", "recursive"),
        ("a: &a {b: *a}", "recursive"),
        ("a: \x00", "unreadable"),
        ("a: [", "expected"),
        ("? [a]\n: b", "a key must be a text"),
    ],
)
def test_a_text_that_is_no_plain_mapping_is_one_error_with_its_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=r"not valid YAML \(.*" + problem):
        loader.load(written(tmp_path, text))
    with pytest.raises(ConfigErrors, match=r"the value of --set is not valid YAML: name"):
        loader.load(written(tmp_path, SMALL.decode()), [f"name={text}"])


@pytest.mark.parametrize(
    "more",
    [
        "404: {sink: delta}",
        "levels: {topics: {1: 5s}}",
        "source: {options: {1: 2}}",
        "1: 2",
        "destinations: {404: {sink: delta, path: out}, on: {sink: json}}",
    ],
)
def test_a_key_that_is_no_text_hid_all_other_errors(tmp_path: Path, more: str) -> None:
    with pytest.raises(ConfigErrors) as found:
        loader.load(written(tmp_path, f"{more}\nname: 5\ncheckpoint: [a]\n"))
    fields = [str(fault.field) for fault in found.value.faults]
    assert {"name", "checkpoint"} <= set(fields)


def test_a_placeholder_where_a_number_is_wanted_is_told_from_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "9108")
    with pytest.raises(ConfigError, match=r"api.port = '\*\*\*'; rule: a whole number; hint: .*: --set"):
        loader.load(written(tmp_path, SMALL.decode() + '\napi: {port: "${env:PORT}"}\n'))


@given(mangled(b'destinations."a.b".path=out', b"limits={fired_per_batch: 5}", b"wheel.size= "))
@example(b"a.b.c.d=1")
@example(b"name.x=1")
@example(b"=")
def test_any_text_behind_set_is_a_setting_or_an_error(octets: bytes) -> None:
    override = octets.decode(errors="replace")
    faults: list[str] | None = None
    try:
        loader.check(loader.mapping_of_text(SMALL.decode(), "job.yml"), [override])
    except ConfigErrors as error:
        faults = [str(fault) for fault in error.faults]
    assert faults is None or (faults and all(faults))


@given(mangled(b'{"orders": {"0": 23, "1": -2}}', b'{"orders": [0, 1]}'))
@example(b"[" * 100_000)
@example(b'{"orders": {"' + b"9" * 5_000 + b'": 1}}')
def test_any_text_is_offsets_or_refused(octets: bytes) -> None:
    text, read = octets.decode(errors="replace"), 0
    for reader in (offsets_of, assigned_partitions):
        try:
            found = reader(text)
        except ValueError:
            continue
        read += 1
        assert all(isinstance(topic, str) for topic in found)
    assert read < 2 or text.strip() == "{}"
