"""The catalog of the tests: folders on a local disk."""

from __future__ import annotations

from pathlib import Path

from wheel_udf.spark import jars


def settings(warehouse: Path) -> dict[str, str]:
    """The settings that a user of Iceberg gives Spark."""
    files = [*jars.jar_files("spark"), *jars.jar_files("iceberg")]
    return {
        "spark.jars": ",".join(map(str, files)),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
