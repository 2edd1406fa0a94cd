"""Which version of Spark is installed, which jars belong to it, and what does not work with it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wheel_udf.common.errors import SessionError
from wheel_udf.spark import jars, versions


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    versions.spark_version.cache_clear()
    yield
    versions.spark_version.cache_clear()


def installed(place: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pyspark that comes before the real one on the path."""
    package = place / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"# ...\n__version__: str = {version!r}\n")
    on_path(place, monkeypatch)


def on_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(place))


@pytest.mark.parametrize("version", ["4.0.4", "4.1.3", "4.2.0"])
def test_the_installed_spark_decides_which_jars_are_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, version, monkeypatch)

    assert versions.packages() == (
        f"io.delta:delta-spark_{version[:3]}_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    )
    of_hadoop = {"4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0"}
    assert versions.s3_packages() == f"org.apache.hadoop:hadoop-aws:{of_hadoop[version[:3]]}"


def test_under_spark_submit_pyspark_is_in_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("pyspark/__init__.py", "")
        packed.writestr("pyspark/version.py", '__version__: str = "4.1.1"\n')
    on_path(archive, monkeypatch)

    assert versions.spark_version() == "4.1.1"


def test_a_spark_without_known_jars_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", "4.3.0", monkeypatch)

    with pytest.raises(
        SessionError, match=r"no jars are known.*4\.3.*4\.0, 4\.1, 4\.2.*spark\.jars\.packages"
    ):
        jars.resolve(["spark"], tmp_path / "jars")


@pytest.mark.parametrize(
    ("version", "pyarrow", "fits"),
    [
        ("4.0.4", "25.0.1", True),
        ("4.0.4", "26.0.1", False),
        ("4.1.3", "27.1.0", False),
        ("4.2.0", "26.0.1", True),
    ],
)
def test_pyarrow_26_with_an_older_spark_is_refused_before_the_first_batch_fails(
    version: str, pyarrow: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, version, monkeypatch)
    monkeypatch.setattr(versions, "version", lambda _: pyarrow)

    if fits:
        versions.require_pyarrow()
    else:
        with pytest.raises(
            SessionError, match=r"pyarrow.*older than 26 with Spark.*pip install 'pyarrow<26'"
        ):
            versions.require_pyarrow()
