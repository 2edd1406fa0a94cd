"""Downloads the JVM jars that Spark lacks: Delta, the Kafka connector, a broker and a database driver for tests.

pyspark ships Ivy, so Java and pip are the only prerequisites. ``conf/ivy.xml`` pins the jars and their versions.
``make setup`` runs ``python -m wheel_udf.spark.jars spark database broker``, which puts the configurations beside
the Python packages of the environment::

    <environment>/jars/spark/*.jar     on Spark's class path: see wheel_udf.spark.session
    <environment>/jars/database/*.jar  a JDBC driver, for the tests of the database sink
    <environment>/jars/broker/*.jar    a Kafka broker, in a JVM of its own: see wheel_udf.testing.broker

Invariants: a folder of jars is complete or absent (it is filled beside its place, then renamed). A SIGINT or SIGTERM
ends the downloads too: a Java that still runs would share its cache with the next try. Ivy's cache is inside the
environment, so the cache of another project cannot make a build pass or fail. The environment variable
``WHEEL_UDF_IVY_SETTINGS`` names a file of Ivy settings (a mirror, a proxy with a password).

Cost: 23 MB and 15 seconds for Spark, 43 MB and 40 seconds for the broker, once for each environment. Ivy requests one
small file after the other, so the latency of the answers takes the time. The configurations are therefore resolved in
parallel, each with its own cache (Ivy does not lock a cache).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path

from wheel_udf.common.errors import SessionError, WheelError
from wheel_udf.common.interrupts import INTERRUPTED
from wheel_udf.spark.downloads import Downloads
from wheel_udf.spark.java import find_java

CONFIGURATIONS = ("spark", "database", "broker")
"""The configurations of ``conf/ivy.xml``."""

SETTINGS_VARIABLE = "WHEEL_UDF_IVY_SETTINGS"
"""Environment variable that names a file of Ivy settings, for jars from another place than Maven Central."""

_ATTEMPTS = 3


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


def resolve(
    configuration: str = "spark",
    *,
    ivy_file: Path | None = None,
    into: Path | None = None,
    downloads: Downloads | None = None,
) -> Path:
    """Downloads the pinned jars of a configuration. The folder is replaced when all of them are there.

    Args:
        configuration: One of :data:`CONFIGURATIONS`.
        ivy_file: The list of jars; default is the project's ``conf/ivy.xml``.
        into: The folder to fill; default is :func:`jars_folder`.
        downloads: Runs Ivy; default one of its own.

    Returns:
        The folder with the jars.

    Raises:
        SessionError: There is no Java or no list of jars, or the download failed three times.
    """
    java, ivy_file = find_java(), ivy_file or _default_ivy_file()
    into = into or jars_folder(configuration)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".resolving-", dir=into.parent) as scratch:
        fresh = Path(scratch) / configuration
        cache = into.parent / ".ivy" / configuration
        command = _ivy_command(java, ivy_file, configuration, Path(scratch), cache)
        _run_ivy(command, downloads or Downloads())
        _replace(into, fresh)
    return into


def _default_ivy_file() -> Path:
    folder = conf_folder()
    if folder is None or not (folder / "ivy.xml").is_file():
        raise SessionError(
            "the list of jars is missing",
            field="conf/ivy.xml",
            hint="run this from the project, or name a file with --ivy",
        )
    return folder / "ivy.xml"


def _ivy_command(java: Path, ivy_file: Path, configuration: str, scratch: Path, cache: Path) -> list[str]:
    settings = os.environ.get(SETTINGS_VARIABLE)
    return [
        str(java),
        f"-Divy.default.ivy.user.dir={cache}",
        # Jars of sources and documentation are not needed, and a request for each of them takes a fifth of the time.
        *("-Divy.maven.lookup.sources=false", "-Divy.maven.lookup.javadoc=false"),
        *("-jar", str(_ivy_jar())),
        *(("-settings", settings) if settings else ("-m2compatible",)),
        *(
            "-ivy",
            str(ivy_file),
            "-confs",
            configuration,
            "-cache",
            str(cache / "cache"),
            "-types",
            "jar",
            "bundle",
        ),
        *("-retrieve", f"{scratch}/[conf]/[artifact]-[revision].[ext]", "-warn"),
    ]


def _ivy_jar() -> Path:
    found = sorted((pyspark_folder() / "jars").glob("ivy-*.jar"))
    if not found:
        raise SessionError(
            "this pyspark ships no Ivy", field="pyspark/jars/ivy-*.jar", hint="pip install pyspark==4.2.0"
        )
    return found[-1]


def pyspark_folder() -> Path:
    """The folder of the installed pyspark. It is not imported, which would take a second.

    Raises:
        SessionError: pyspark is not installed.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SessionError("pyspark is not installed", field=sys.executable, hint="run `make setup`")
    return Path(spec.origin).parent


def _run_ivy(command: Sequence[str], downloads: Downloads) -> None:
    output = ""
    for attempt in range(1, _ATTEMPTS + 1):
        code, output = downloads.run(command)
        if code == 0:
            return
        _say(f"downloading the jars failed ({attempt} of {_ATTEMPTS} attempts)")
    raise SessionError(
        "the JVM jars cannot be downloaded",
        field="ivy",
        value=_reason(output),
        hint=f"check the network and run it again; behind a mirror, name a file of Ivy settings in {SETTINGS_VARIABLE}",
    )


def _reason(output: str) -> str:
    """The lines of Ivy's log that name the error; Ivy repeats them at the end, after a hundred others."""
    telling = [
        line.strip()
        for line in output.splitlines()
        if re.search(r"not found|FAILED|rror|xception|refused|timed out", line)
    ]
    return "; ".join(dict.fromkeys(telling[-3:])) or output.strip()[-200:]


def _replace(into: Path, fresh: Path) -> None:
    if not any(fresh.glob("*.jar")):
        raise SessionError(
            "Ivy found no jars", field=str(fresh.name), rule="a configuration of ivy.xml with jars in it"
        )
    if into.exists():
        into.rename(fresh.with_name("old"))
    fresh.rename(into)


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


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--ivy", type=Path, metavar="FILE", help="the list of jars (default: conf/ivy.xml)")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="where to put them (default: the environment's jars folder)",
    )
    parser.add_argument(
        "--check-java", action="store_true", help="only check that there is a Java which Spark can use"
    )
    return parser


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    chosen.configurations = list(dict.fromkeys(chosen.configurations)) or ["spark"]
    for each in chosen.configurations:
        if each not in CONFIGURATIONS:
            parser.error(f"no such configuration: {each!r}; one of {', '.join(CONFIGURATIONS)}")
    if chosen.into and len(chosen.configurations) > 1:
        parser.error("--into takes one configuration")
    return chosen


def _resolve_all(chosen: argparse.Namespace) -> None:
    """Fills the folders in parallel, and reports each when it is complete."""
    downloads, count = Downloads(), len(chosen.configurations)
    with ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(resolve, each, ivy_file=chosen.ivy, into=chosen.into, downloads=downloads)
            for each in chosen.configurations
        ]
        try:
            for number, each in enumerate(as_completed(waiting), 1):
                folder = each.result()
                _say(f"{len(list(folder.glob('*.jar')))} jars in {folder} ({number} of {count})")
        except BaseException:
            downloads.end()
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 if the jars are in place, else 1 (after Ctrl-C 130) and prints one line."""
    chosen = _parse(arguments)
    try:
        if chosen.check_java:
            find_java()
            return 0
        _resolve_all(chosen)
        link_spark_home()
    except KeyboardInterrupt:
        _say("interrupted: a folder of jars is complete or as it was before")
        return INTERRUPTED
    except WheelError as fault:
        _say(f"error: {fault}")
        return 1
    return 0


if __name__ == "__main__":
    # A shell starts its background commands without SIGINT: `make setup` ends this one with SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
