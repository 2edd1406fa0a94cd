"""The JSON Schema of the config files: it is that of the models, the shipped configs fit it, and wrong ones do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.schema import schemas
from wheel_udf.job import loader

CONF = Path(__file__).parents[3] / "conf"
CONFIGS = sorted(CONF.glob("*.yml"))


def settings_of(file: Path) -> dict[str, Any]:
    return loader.mapping_of_text(file.read_text(encoding="utf-8"), file.name)


def schema_of(file: Path) -> Draft202012Validator:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    (named,) = first.split("# yaml-language-server: $schema=")[1:]
    return Draft202012Validator(json.loads((file.parent / named).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", ["scheduler.schema.json", "purgatory.schema.json"])
def test_the_shipped_schema_is_that_of_the_models(name: str) -> None:
    shipped = (CONF / "schema" / name).read_text(encoding="utf-8")
    assert shipped == schemas()[name], "run: python -m tests.schema conf/schema"
    Draft202012Validator.check_schema(json.loads(shipped))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_each_shipped_config_names_its_schema_and_fits_it(file: Path) -> None:
    assert [error.message for error in schema_of(file).iter_errors(settings_of(file))] == []


@pytest.mark.parametrize(
    "override",
    [
        "wheel.size=1",
        "wheel.sice=20",
        "wheel.tick=5",
        "wheel.state_levels=2",
        "clock.kind=wall",
        "clock.step=1 second",
        "source.topics=[a]",
        "destinations={}",
        "destinations.a/b={sink: delta, path: x}",
        "rejects={sink: kafka, options: {}}",
        "levels={policy: binary, list: [5s]}",
        "store={path: x}",
        "mode=tiered",
        "checkpoint=",
    ],
)
def test_a_config_that_is_wrong_does_not_fit_its_schema(override: str) -> None:
    file = CONF / "scheduler.yml"
    settings = settings_of(file)
    loader.apply_override(settings, override)
    assert not schema_of(file).is_valid(settings)


def test_every_setting_of_the_schema_has_a_description() -> None:
    for text in schemas().values():
        for model in json.loads(text)["$defs"].values():
            missing = [key for key, field in model["properties"].items() if "description" not in field]
            assert missing == [], model["title"]
