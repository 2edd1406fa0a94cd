"""Tables by their names in a catalog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wheel_udf.common.errors import ConfigErrors
from wheel_udf.job.loader import load
from wheel_udf.job.named import check_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
clock: {kind: processing}
source: {format: delta, table: shop.commands}
destinations:
  "late*": {sink: delta, table: "spark_catalog.reminders.{destination}", create: true}
rejects: {sink: delta, path: rejects}
checkpoint: state
"""


def test_names_lead_to_tables_of_a_metastore() -> None:
    """``with_metastore.py``, in a process of its own: a metastore is chosen when Spark starts."""
    cases = Path(__file__).with_name("with_metastore.py")
    command = [sys.executable, "-m", "pytest", str(cases), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]


def test_a_catalog_that_forgets_its_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(JOB)

    with pytest.raises(ConfigErrors) as refused:
        check_names(spark, load(str(tmp_path / "job.yml")))

    assert [(fault.field, fault.value) for fault in refused.value.faults] == [
        ("source.table", "shop.commands"),
        ("destinations.late*.table", "spark_catalog.reminders.{destination}"),
    ]
    assert {fault.what for fault in refused.value.faults} == {
        "the tables of this catalog are forgotten when the job ends"
    }
