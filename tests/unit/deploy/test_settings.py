"""Facts that the files of conf/deploy repeat: Spark settings, versions, jars, the config of a job."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import wheel_udf
from tests.deployment import FILES, ROOT, config_of, driver_settings, parsed, settings, text_of
from wheel_udf.job.loader import load
from wheel_udf.spark.session import read_defaults

DEFAULTS = read_defaults(ROOT / "conf")
OF_THE_PLATFORM = {
    "spark.jars",
    "spark.pyspark.python",
    "spark.master",
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
    "spark.sql.shuffle.partitions",
}
DELTA = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
IMAGES = ("Dockerfile", "emr-serverless/Dockerfile", "emr/install.sh", "dataproc/install.sh")


def jars(spark: str) -> set[str]:
    """The file names of the jars for a version of Spark."""
    wanted = ("spark", f"spark-{spark}")
    return {
        f"{each.attrib['name']}-{each.attrib['rev']}.jar"
        for each in ET.parse(ROOT / "conf" / "ivy.xml").iter("dependency")
        if each.attrib["conf"].split("->")[0] in wanted
    }


@pytest.mark.parametrize("name", settings())
def test_each_file_has_the_settings_of_the_package_but_those_of_the_machine(name: str) -> None:
    missing = DELTA if name.startswith("databricks") else set()
    wanted = {key: DEFAULTS[key] for key in DEFAULTS.keys() - OF_THE_PLATFORM - missing}

    assert {key: settings()[name].get(key) for key in wanted} == wanted


@pytest.mark.parametrize("name", settings())
def test_the_driver_has_the_stack_and_the_regions_of_the_package(name: str) -> None:
    options = DEFAULTS["spark.driver.extraJavaOptions"].split()

    assert settings()[name]["spark.driver.extraJavaOptions"].split() == [
        each for each in options if not each.startswith("-Dlog4j2")
    ]


@pytest.mark.parametrize("name", settings())
def test_there_are_as_many_partitions_as_the_example_has_shards(name: str) -> None:
    shards = yaml.safe_load((ROOT / "conf" / "scheduler.yml").read_text())["wheel"]["shards"]

    assert settings()[name]["spark.sql.shuffle.partitions"] == str(shards)


@pytest.mark.parametrize("manifest", ["deployment", "spark-application"])
def test_the_config_of_a_manifest_is_a_good_one(manifest: str, tmp_path: Path) -> None:
    config = load(config_of(f"kubernetes/{manifest}.yaml", tmp_path))

    assert config.checkpoint == "s3a://BUCKET/checkpoint"
    assert config.api.port == 9108
    assert str(config.wheel.shards) == driver_settings()["spark.sql.shuffle.partitions"]


def test_a_pod_without_an_operator_overrides_no_setting_of_the_state() -> None:
    """The package adds what the file does not set, because SPARK_CONF_DIR is the user's."""
    assert DEFAULTS.keys() & driver_settings().keys() == {
        "spark.master",
        "spark.driver.memory",
        "spark.sql.shuffle.partitions",
    }


@pytest.mark.parametrize("name", FILES)
def test_the_package_and_its_image_have_the_version_of_this_one(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert set(re.findall(r"wheel_udf-(\d[\d.]*)-py3|/wheel-udf:(\d[\d.]*\d)", text)) <= {
        (wheel_udf.__version__, ""),
        ("", wheel_udf.__version__),
    }


@pytest.mark.parametrize("name", IMAGES)
def test_python_and_pyspark_are_ones_that_the_package_takes(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pyspark,) = [each for each in map(Requirement, project["dependencies"]) if each.name == "pyspark"]
    text = text_of(name)

    for found in re.findall(r"python:?(3\.\d+)", text):
        assert found in SpecifierSet(project["requires-python"])
    for found in re.findall(r"pyspark==([\d.]+)", text):
        assert found in pyspark.specifier
        assert ("pyarrow<26" in text) == found.startswith("4.1")


def test_the_image_has_the_pinned_spark_and_so_has_the_manifest() -> None:
    pinned = re.search(r"^pyspark==(.+)$", (ROOT / "conf/constraints.txt").read_text(), flags=re.MULTILINE)
    assert pinned is not None

    assert f"pyspark=={pinned[1]}" in text_of("Dockerfile")
    assert f"sparkVersion: {pinned[1]}" in text_of("kubernetes/spark-application.yaml")


def test_emr_serverless_is_given_the_jars_of_its_spark() -> None:
    properties = parsed("emr-serverless/start-job-run.json")["configurationOverrides"][
        "applicationConfiguration"
    ][0]["properties"]

    assert {each.rpartition("/")[2] for each in properties["spark.jars"].split(",")} == jars("4.1")


def test_databricks_gets_the_extras_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]

    for each in (*extras["kafka"], *extras["s3"]):
        assert f"'{each}'" in text_of("databricks/install.sh")
