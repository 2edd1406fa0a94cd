"""An HDFS for tests: a name node and a data node of Hadoop's own, in one JVM on loopback ports."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wheel_udf.spark import jars
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.java import find_java

_MAIN: Final = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_OF_SPARK: Final = ("hadoop-client-*.jar", "*slf4j*.jar", "log4j*.jar", "commons-cli*.jar")
_PATIENCE_S: Final = 120


@dataclass(frozen=True)
class Server:
    """A running HDFS; its files are read and written through the running Spark session."""

    port: int

    @property
    def root(self) -> str:
        """The URI of all of it."""
        return f"hdfs://127.0.0.1:{self.port}"

    def put(self, name: str, content: str) -> None:
        """Writes a file."""
        folder, _, file = name.rpartition("/")
        open_folder(f"{self.root}/{folder}").replace(file, content.encode())

    def names(self, folder: str) -> list[str]:
        """What is in a folder."""
        return open_folder(f"{self.root}/{folder}").names()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Starts it with its data in a folder, and kills it at the end."""
    of_spark = [str(jar) for each in _OF_SPARK for jar in (jars.pyspark_folder() / "jars").glob(each)]
    class_path = ":".join([f"{jars.jars_folder('hdfs')}/*", *of_spark])
    details = folder / "details.json"
    command = [str(find_java()), "-Xmx400m", "-cp", class_path, _MAIN, "-nomr", "-format", "-nnport", "0"]
    command += [
        "-writeDetails",
        str(details),
        "-D",
        "dfs.replication=1",
        "-D",
        "dfs.permissions.enabled=false",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    try:
        begin_s = time.monotonic()
        while not details.exists() or not details.read_text():
            if process.poll() is not None or time.monotonic() - begin_s > _PATIENCE_S:
                said = (folder / "log").read_text(errors="replace")[-2_000:]
                raise RuntimeError(f"HDFS does not start: {said}")
            time.sleep(0.1)
        yield Server(json.loads(details.read_text())["namenode_port"])
    finally:
        process.kill()
        process.wait()
