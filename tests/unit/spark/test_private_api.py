"""The list of private API is complete, and the error for a version that lacks an API names both versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.spark.private_api import private_apis, required

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "wheel_udf"


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", private_apis())
def test_an_entry_names_a_module_of_the_room_and_a_version(key: str) -> None:
    entry = private_apis()[key]
    assert entry.keys() - {"instead"} == {"name", "used_in", "why", "risk", "read_in"}
    assert (ROOM / f"{entry['used_in']}.py").is_file()
    assert re.match(r"(Spark|Delta) \d+\.\d+\.\d+|Java \d+", entry["read_in"])


def test_what_modules_require_is_in_the_list() -> None:
    used = {
        key for file in ROOM.rglob("*.py") for key in re.findall(r'required\("(\w+)"\)', file.read_text())
    }
    assert used
    assert used <= private_apis().keys()


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
    with pytest.raises(UnsupportedVersionError) as failure, required("groups_as_arrow"):
        raise fault

    assert private_apis()["groups_as_arrow"]["risk"] in str(failure.value)
    assert "as in Spark 4.0 to 4.2 and Delta 4.4.0; installed: Spark " in str(failure.value)
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
    with pytest.raises(type(fault)) as failure, required("groups_as_arrow"):
        raise fault

    assert failure.value is fault
