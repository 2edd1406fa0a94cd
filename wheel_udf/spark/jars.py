"""The JVM jars that Spark lacks: Delta, the Kafka connector, and what paths ``s3a://`` need.

A session takes the jars of its Python environment, if ``make setup`` has put them there; else Spark itself downloads
them (the public setting ``spark.jars.packages``, see :func:`wheel_udf.spark.versions.packages`), unless ``spark.jars``
is set.

::

    python -m wheel_udf.spark.jars spark s3 database broker hdfs    as make setup runs it
    <environment>/jars/spark/*.jar     on Spark's class path: see wheel_udf.spark.session
    <environment>/jars/s3/*.jar        likewise, if they are there; no start downloads them
    <environment>/jars/iceberg/*.jar   Iceberg's runtime for Spark 4.0 or 4.1, for the tests of the Iceberg sink
    <environment>/jars/database/*.jar  a JDBC driver, for the tests of the database sink
    <environment>/jars/broker/*.jar    a Kafka broker, in a JVM of its own: see wheel_udf.testing.broker
    <environment>/jars/hdfs/*.jar      an HDFS for tests, likewise

``conf/ivy.xml`` pins the jars of each configuration, for the Ivy that pyspark contains; those for Spark and S3 are the
ones of the installed version. A folder of jars is complete or
absent: it is filled beside its place, then renamed. Ivy's cache is inside the environment. The environment variable
``WHEEL_UDF_IVY_SETTINGS`` names a file of Ivy settings (a mirror, a proxy with a password).

Standard library only: it runs before the packages are installed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wheel_udf.common.errors import SessionError, WheelError
from wheel_udf.common.interrupts import INTERRUPTED
from wheel_udf.spark.java import check_java, find_java
from wheel_udf.spark.versions import TESTED, minor_version, pyspark_folder

CONFIGURATIONS: Final = ("spark", "s3", "iceberg", "database", "broker", "hdfs")
"""What can be asked for."""
_OF_EACH_SPARK: Final = ("spark", "s3", "iceberg")
"""In ``conf/ivy.xml`` these are a configuration for each version of Spark."""

SETTINGS_VARIABLE: Final = "WHEEL_UDF_IVY_SETTINGS"
"""Environment variable that names a file of Ivy settings, for jars from another place than Maven Central."""


def conf_folder() -> Path | None:
    """The project's ``conf`` folder: the copy in an installed package, else the folder beside the package.

    Returns:
        The folder with ``spark-defaults.conf``; None for a package without it (a zip on a cluster, for example).
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_conf", package.parent / "conf"):
        if (folder / "spark-defaults.conf").is_file():
            return folder
    return None


def jars_folder(configuration: str = "spark") -> Path:
    """The folder for the jars of a configuration in the running Python environment (it may not exist yet)."""
    return Path(sys.prefix) / "jars" / configuration


def jar_files(configuration: str = "spark") -> list[Path]:
    """The jars of a configuration in the running Python environment."""
    return sorted(jars_folder(configuration).glob("*.jar"))


def resolve(configurations: Sequence[str], into: Path | None = None) -> list[Path]:
    """Downloads the pinned jars of configurations. A folder is replaced when all jars are there.

    Args:
        configurations: Some of :data:`CONFIGURATIONS`.
        into: The folder that gets a folder for each; default is that of :func:`jars_folder`.

    Returns:
        The folders with the jars.

    Raises:
        SessionError: There is no Java, no Ivy or no list of jars, or the download failed.
    """
    into = into or jars_folder().parent
    into.mkdir(parents=True, exist_ok=True)
    names = {each: _name_in_list(each) for each in configurations}
    with tempfile.TemporaryDirectory(prefix=".resolving-", dir=into) as scratch:
        command = _ivy_command(list(names.values()), Path(scratch), into / ".ivy")
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if run.returncode:
            raise SessionError(
                "the JVM jars cannot be downloaded",
                field="ivy",
                value=run.stdout.decode(errors="replace").strip()[-500:],
                hint="check the network and run it again; behind a mirror, name a file of Ivy settings in "
                f"{SETTINGS_VARIABLE}",
            )
        for each, name in names.items():
            folder = into / each
            if folder.exists():
                folder.rename(Path(scratch) / f"{each}.old")
            (Path(scratch) / name).rename(folder)
    return [into / each for each in configurations]


def _name_in_list(configuration: str) -> str:
    if configuration not in _OF_EACH_SPARK:
        return configuration
    if (installed := minor_version()) not in TESTED:
        raise SessionError(
            "no jars are known for the installed Spark",
            field="pyspark",
            value=installed,
            rule=f"one of {', '.join(TESTED)}",
            hint="pip install 'pyspark==4.2.0'; for another Spark set spark.jars.packages",
        )
    return f"{configuration}-{installed}"


def _ivy_command(configurations: Sequence[str], scratch: Path, cache: Path) -> list[str]:
    found, folder = sorted((pyspark_folder() / "jars").glob("ivy-*.jar")), conf_folder()
    if not found:
        raise SessionError(
            "this pyspark ships no Ivy", field="pyspark/jars/ivy-*.jar", hint="pip install pyspark==4.2.0"
        )
    if folder is None or not (folder / "ivy.xml").is_file():
        raise SessionError(
            "the list of jars is missing", field="conf/ivy.xml", hint="run this from the project"
        )
    settings = os.environ.get(SETTINGS_VARIABLE)
    return [
        str(find_java()),
        f"-Divy.default.ivy.user.dir={cache}",
        # Jars of sources and documentation are not needed, and a request for each of them takes a fifth of the time.
        *("-Divy.maven.lookup.sources=false", "-Divy.maven.lookup.javadoc=false"),
        *("-jar", str(found[-1])),
        *(("-settings", settings) if settings else ("-m2compatible",)),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(cache / "cache"), "-types", "jar", "bundle"),
        *("-confs", *configurations),
        *("-retrieve", f"{scratch}/[conf]/[artifact]-[revision].[ext]", "-error"),
    ]


def link_spark_home() -> Path | None:
    """Lets ``bin/spark-submit`` of this environment find its own Spark, even if the environment is not activated.

    pip installs Spark's ``find-spark-home`` in ``bin``. It imports pyspark in the ``python3`` of ``PATH``, and fails if
    that is another Python. But first it looks for a folder ``spark-distribution`` beside itself: the link that is made
    here.

    Returns:
        The link; None outside a virtual environment, where nothing is changed.
    """
    scripts, home = Path(sys.prefix) / "bin", pyspark_folder()
    if sys.prefix == sys.base_prefix or not (scripts / "find-spark-home").is_file():
        return None
    link = scripts / "spark-distribution"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(home, scripts), target_is_directory=True)
    return link


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m wheel_udf.spark.jars",
        description="Download the JVM jars that Spark lacks into this Python environment.",
    )
    parser.add_argument(
        "configurations",
        nargs="*",
        metavar="configuration",
        help=f"which jars, one or more of {', '.join(CONFIGURATIONS)} (default: spark)",
    )
    parser.add_argument(
        "--check-java", action="store_true", help="only check that there is a Java which Spark can use"
    )
    chosen = parser.parse_args(arguments)
    chosen.configurations = list(dict.fromkeys(chosen.configurations)) or ["spark"]
    if unknown := set(chosen.configurations) - set(CONFIGURATIONS):
        parser.error(f"no such configuration: {', '.join(unknown)}; one of {', '.join(CONFIGURATIONS)}")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 if the jars are in place, else 1 (after Ctrl-C 130) and prints one line."""
    chosen = _parse(arguments)
    try:
        check_java()
        if chosen.check_java:
            return 0
        for folder in resolve(chosen.configurations):
            sys.stderr.write(f"{len(list(folder.glob('*.jar')))} jars in {folder}\n")
        link_spark_home()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: a folder of jars is complete or as it was before\n")
        return INTERRUPTED
    except WheelError as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1
    return 0


if __name__ == "__main__":
    # A shell starts its background commands without SIGINT: `make setup` ends this one with SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
