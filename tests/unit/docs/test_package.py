"""Facts that stand in several files agree: versions, dependencies, the licence."""

from __future__ import annotations

import re
import tomllib
from xml.etree import ElementTree as ET

from packaging.requirements import Requirement

import wheel_udf
from tests.documents import ROOT, text_of
from wheel_udf.common.errors import missing_spark

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT_BY_A_MANAGED_SPARK = {"pyspark", "delta-spark"}


def requirements(texts: list[str]) -> dict[str, Requirement]:
    return {found.name: found for found in map(Requirement, texts)}


def of_file(name: str) -> dict[str, Requirement]:
    lines = (ROOT / "conf" / name).read_text(encoding="utf-8").splitlines()
    return requirements([line for line in lines if line.strip() and not line.startswith("#")])


def pinned() -> dict[str, str]:
    return {
        name: str(found.specifier).removeprefix("==") for name, found in of_file("constraints.txt").items()
    }


def jars() -> dict[str, str]:
    tree = ET.parse(ROOT / "conf" / "ivy.xml")
    return {found.attrib["name"]: found.attrib["rev"] for found in tree.iter("dependency")}


def test_the_changelog_begins_with_this_version() -> None:
    (newest, *_) = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)

    assert newest == wheel_udf.__version__


def test_each_version_of_the_changelog_says_what_happens_to_checkpoints() -> None:
    _, *sections = text_of("CHANGELOG.md").split("\n## ")

    assert [
        section.splitlines()[0] for section in sections if "**Existing checkpoints:**" not in section
    ] == []


def test_the_format_versions_of_the_changelog_are_those_of_the_code() -> None:
    from wheel_udf.purgatory import state as purgatory
    from wheel_udf.shard import state as shard_state
    from wheel_udf.store import table

    newest = text_of("CHANGELOG.md").split("\n## ")[1]
    (told,) = re.findall(r"state format (\d+), slot store format (\d+), purgatory format (\d+)", newest)

    assert [int(number) for number in told] == [
        shard_state.FORMAT_VERSION,
        table.FORMAT_VERSION,
        purgatory.WATCH_FORMAT_VERSION,
    ]


def test_the_pinned_versions_are_within_the_ranges_that_users_install() -> None:
    extras = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    wanted = requirements(
        [each for each in PROJECT["dependencies"] + extras if not each.startswith("wheel-udf")]
    )
    versions = pinned()

    assert sorted(wanted.keys() - versions.keys()) == []
    assert {name for name, each in wanted.items() if versions[name] not in each.specifier} == set()


def test_a_managed_spark_is_given_all_dependencies_but_spark_and_delta() -> None:
    wanted = requirements(PROJECT["dependencies"])

    assert of_file("managed-spark.txt") == {
        name: each for name, each in wanted.items() if name not in BROUGHT_BY_A_MANAGED_SPARK
    }


def test_the_jars_are_those_of_the_pinned_packages_and_of_the_guide() -> None:
    found, versions = jars(), pinned()
    guide = text_of("docs/platforms.md")

    assert found["delta-spark_4.2_2.13"] == versions["delta-spark"]
    assert found["spark-sql-kafka-0-10_2.13"] == versions["pyspark"]
    for name in ("delta-spark_4.2_2.13", "spark-sql-kafka-0-10_2.13"):
        assert f":{name}:{found[name]}" in guide


def test_the_license_is_the_one_that_the_package_names() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0" in text_of("LICENSE")
    assert (ROOT / "wheel_udf" / "py.typed").exists()


def test_the_error_without_spark_names_the_ranges_of_the_package() -> None:
    fault = missing_spark(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"))
    wanted = [
        each for each in PROJECT["dependencies"] if Requirement(each).name in BROUGHT_BY_A_MANAGED_SPARK
    ]

    assert [each for each in wanted if f"'{each}'" not in str(fault)] == []
