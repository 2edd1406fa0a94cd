"""The list of private API is complete, and the error for a version that lacks an API names both versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.spark import private_api
from wheel_udf.spark.private_api import PRIVATE_APIS, PrivateApi, required

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "wheel_udf"


# --- the list -------------------------------------------------------------------------------------


def test_the_list_holds_every_entry_of_the_module_once() -> None:
    entries = [value for value in vars(private_api).values() if isinstance(value, PrivateApi)]

    assert list(PRIVATE_APIS) == entries
    assert len({api.name for api in PRIVATE_APIS}) == len(PRIVATE_APIS)


@pytest.mark.parametrize("api", PRIVATE_APIS, ids=lambda api: api.name)
def test_an_entry_names_a_module_of_the_room_and_a_version(api: PrivateApi) -> None:
    assert (ROOM / f"{api.used_in}.py").is_file()
    assert re.match(r"(Spark|Delta) \d+\.\d+\.\d+|Java \d+", api.read_in)
    assert api.why
    assert api.risk


# --- the error ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        AttributeError("'DataFrame' object has no attribute '_jdf'"),
        AttributeError(),
        ImportError("No module named 'pyspark.sql.classic'"),
        Py4JError("org.x.Log.forTable does not exist in the JVM"),
        Py4JError(
            "An error occurred while calling o1.f. Trace:\npy4j.Py4JException: Method f([]) does not exist\n\tat"
        ),
        Py4JError("py4j.Py4JException: Constructor org.x.Y([class java.lang.String]) does not exist"),
        Py4JError("An error occurred while calling o1.f.\n: java.lang.NoSuchMethodError: 'void x()'\n\tat"),
    ],
)
def test_a_missing_api_is_an_error_that_names_both_versions(fault: Exception) -> None:
    with pytest.raises(UnsupportedVersionError) as failure, required(private_api.COLUMN_PLANS):
        raise fault

    assert "a batch takes about 0.1 s longer" in str(failure.value)
    assert "Spark 4.2.0; installed: Spark " in str(failure.value)
    assert failure.value.__cause__ is fault


@pytest.mark.parametrize(
    "fault",
    [
        Py4JError("An error occurred while calling o1.commit.\n: java.io.IOException: no space"),
        Py4JError(
            "An error occurred while calling o1.get.\n: java.lang.IllegalStateException: /a does not exist"
        ),
        ValueError("no attribute"),
    ],
)
def test_other_failures_of_an_api_pass_unchanged(fault: Exception) -> None:
    with pytest.raises(type(fault)) as failure, required(private_api.COLUMN_PLANS):
        raise fault

    assert failure.value is fault
