"""The list of private API: the docstring of the room shows it, and the error for a version without one names both
versions.
"""

from __future__ import annotations

import re
import textwrap
from itertools import zip_longest
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from wheel_udf import platform
from wheel_udf.common.errors import UnsupportedVersionError
from wheel_udf.platform import private_api
from wheel_udf.platform.private_api import PRIVATE_APIS, PrivateApi, required

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "wheel_udf" / "platform"


# --- the table in the docstring -------------------------------------------------------------------


WIDTHS = (38, 33, 34)


def row(*cells: str) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(cells, WIDTHS, strict=True)
    ]
    lines = zip_longest(*wrapped, fillvalue="")
    return [
        "    " + "  ".join(cell.ljust(width) for cell, width in zip(line, WIDTHS, strict=True)).rstrip()
        for line in lines
    ]


def table() -> str:
    lines = row("API (module)", "why", "without it -> the way taken instead")
    lines.append("    " + "  ".join("-" * width for width in WIDTHS))
    for api in PRIVATE_APIS:
        instead = f" -> {api.instead}" if api.instead else ""
        lines += row(f"{api.name} ({api.used_in})", api.why, f"{api.risk}{instead}")
    return "\n".join(lines)


def test_the_docstring_of_the_room_has_a_row_for_each_private_api() -> None:
    assert table() in (platform.__doc__ or ""), f"the table of the docstring must be:\n{table()}"


@pytest.mark.parametrize("api", PRIVATE_APIS, ids=lambda api: api.name)
def test_an_entry_names_a_module_of_the_room_and_a_version(api: PrivateApi) -> None:
    assert (ROOM / f"{api.used_in}.py").is_file()
    assert re.match(r"(Spark|Delta) \d+\.\d+\.\d+|Java \d+", api.read_in)


# --- the error ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        AttributeError("'DataFrame' object has no attribute '_jdf'"),
        AttributeError(),
        ImportError("No module named 'pyspark.sql.classic'"),
        Py4JError("org.x.DeltaLog.forTable does not exist in the JVM"),
        Py4JError(
            "An error occurred while calling o1.f. Trace:\npy4j.Py4JException: Method f([]) does not exist\n\tat"
        ),
        Py4JError("py4j.Py4JException: Constructor org.x.Y([class java.lang.String]) does not exist"),
        Py4JError("An error occurred while calling o1.f.\n: java.lang.NoSuchMethodError: 'void x()'\n\tat"),
    ],
)
def test_a_missing_api_is_an_error_that_names_both_versions(fault: Exception) -> None:
    with pytest.raises(UnsupportedVersionError) as failure, required(private_api.DELTA_APPEND):
        raise fault

    assert "the slot store cannot be written" in str(failure.value)
    assert "Delta 4.4.0; installed: Spark " in str(failure.value)
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
    with pytest.raises(type(fault)) as failure, required(private_api.DELTA_APPEND):
        raise fault

    assert failure.value is fault
