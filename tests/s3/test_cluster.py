"""Jobs on a cluster whose machines share no file system but an S3 server: each worker and each driver finds the folders of the drivers
empty, and has temporary files and a Python of its own.

On the way an executor is killed, a worker leaves for good, and the driver is killed; another one, on a machine of its own,
goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

from tests.cluster.standalone import Cluster, on_own_machine
from tests.cluster.test_standalone import ROOT, zip_of_project
from tests.faults.checker import ledger_faults, watch_faults
from tests.faults.inputs import end_s, files, watched
from tests.spark.streams import add_files, at, due
from tests.spark.watches import add_rows
from wheel_udf.spark import jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3.server import Server

FILES = 5
MANY = 6_000
MODES = ("direct", "tiered", "purgatory")


class Job:
    """A job whose all is in the bucket; drivers with a folder of their own start it.

    Attributes:
        root: Its place in the bucket.
        said: What the drivers have printed so far.
    """

    def __init__(self, mode: str, server: Server, place: str, folder: Path) -> None:
        self.mode, self.server, self.place, self.folder = mode, server, place, folder
        self.root = f"s3a://bucket/{place}"
        self.said: list[str] = []

    def config(self) -> dict[str, Any]:
        one_file = {"format": "parquet", "options": {"maxFilesPerTrigger": 1}}
        settings = {
            "wheel": {"tick": "1 second", "size": 20, "levels": 6, "shards": 2},
            "clock": {"kind": "event"},
            "destinations": {"*": {"sink": "delta", "path": f"{self.root}/tables", "create": True}},
            "rejects": {"sink": "delta", "path": f"{self.root}/rejects"},
            "checkpoint": f"{self.root}/checkpoint",
            "trigger": "available-now",
            "lease": {"timeout": "10 seconds"},
        }
        if self.mode == "purgatory":
            sources = {name: one_file | {"path": f"{self.root}/{name}"} for name in ("operations", "events")}
            return settings | sources
        settings["source"] = one_file | {"path": f"{self.root}/in"}
        store = {"mode": "tiered", "store": {"path": f"{self.root}/store"}}
        return settings | (store if self.mode == "tiered" else {})

    def give(self) -> None:
        """Uploads the input, one file for each batch."""
        if self.mode == "purgatory":
            self.watched = watched(1, FILES)
            add_rows(self.folder / "given", *self.watched.pairs)
        else:
            self.commands = files(seed=1, count=FILES)
            # So many that parts of a shard's state are files of their own.
            self.commands[0] += [
                due(f"many{row}", end_s(FILES) - 1_000 - row % 100, 0, destination="left", value=b"x" * 30)
                for row in range(MANY)
            ]
            add_files(self.folder / "given" / "in", *self.commands)
        for file in sorted((self.folder / "given").rglob("*.parquet")):
            name = f"{self.place}/{file.parent.name}/{file.name}"
            self.server.put(name, file.read_bytes())

    def start(self, cluster: Cluster, driver: str) -> subprocess.Popen[str]:
        """Starts a driver on a machine of its own."""
        home = self.folder / driver
        (home / "tmp").mkdir(parents=True)
        (home / "job.yml").write_text(yaml.safe_dump(self.config()))
        zipped = zip_of_project(home)
        jar_files = [*jars.jars_folder().glob("*.jar"), *jars.jar_files("s3")]
        settings = {f"spark.hadoop.{key}": value for key, value in self.server.settings.items()} | {
            "spark.jars": ",".join(sorted(map(str, jar_files))),
            "spark.pyspark.python": str(cluster.python),
            "spark.executor.memory": "700m",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.task.maxFailures": "8",
        }
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.url]
        command += [
            "--properties-file",
            str(ROOT / "conf" / "spark-defaults.conf"),
            "--py-files",
            str(zipped),
        ]
        command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        command += [str(ROOT / "jobs" / "delay_scheduler.py"), "run", "--config", str(home / "job.yml")]
        command += ["--until", at(end_s(FILES)).isoformat(), "--debug"]
        others = [each for each in self.folder.iterdir() if each != home and each.name != "cluster"]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "TMPDIR": str(home / "tmp")}
        with (self.folder / f"{driver}.log").open("w") as log:
            return subprocess.Popen(
                on_own_machine(command, [each for each in others if each.is_dir()], own_processes=True),
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd=home,
                env=environment,
            )

    def lines(self, driver: subprocess.Popen[str]) -> Iterator[str]:
        """The lines of a driver, as they come."""
        assert driver.stdout is not None, "a pipe"
        for line in driver.stdout:
            self.said.append(line)
            yield line

    def rows_of(self, folder: str) -> pa.Table:
        """All tables below a folder of the bucket, without Spark."""
        place = f"{self.place}/{folder}"
        names = [name.rstrip("/") for name in self.server.names(place) if name.endswith("/")]
        places = [place] if "_delta_log" in names else [f"{place}/{name}" for name in names]
        found = []
        for each in places:
            rows = DeltaTable(
                f"s3://bucket/{each}", storage_options=self.server.environment
            ).to_pyarrow_table()
            found.append(rows.append_column("table", pa.repeat(each.rpartition("/")[2], rows.num_rows)))
        return pa.concat_tables(found, promote_options="permissive")

    def faults(self) -> list[str]:
        """What is wrong with the tables."""
        fired, rejects = self.rows_of("tables"), self.rows_of("rejects")
        if self.mode == "purgatory":
            return watch_faults(fired.to_pylist(), rejects.num_rows, self.watched)
        return ledger_faults([row for rows in self.commands for row in rows], fired, rejects, FILES)


@pytest.mark.parametrize("mode", MODES)
def test_a_job_survives_executors_workers_and_drivers_that_share_s3_alone(
    mode: str, s3: Server, place: str, tmp_path: Path
) -> None:
    job = Job(mode, s3, place, tmp_path)
    job.give()
    drivers = [tmp_path / "one", tmp_path / "two"]
    for each in drivers:
        each.mkdir()
    with Cluster(tmp_path / "cluster", hidden=[*drivers, tmp_path / "given"]) as cluster:
        with job.start(cluster, "one") as first:
            for line in job.lines(first):
                if line.startswith("batch     0"):
                    cluster.kill_an_executor()
                elif line.startswith("batch     1"):
                    cluster.lose_a_worker()
                elif line.startswith("batch     2"):
                    first.send_signal(signal.SIGKILL)
        assert first.returncode == -signal.SIGKILL, said_of(job, "one")
        with job.start(cluster, "two") as second:
            for _ in job.lines(second):
                pass
        assert second.returncode == 0, said_of(job, "two")
    assert any("every command accounted for: yes" in line for line in job.said) or mode == "purgatory"
    assert job.faults() == []
    if mode != "purgatory":
        assert s3.names(f"{place}/checkpoint/{'wheel/' * (mode == 'tiered')}chunks/0"), (
            "no part of the state is a file"
        )


def said_of(job: Job, driver: str) -> str:
    """What the test has seen until it failed."""
    return "".join(job.said) + (job.folder / f"{driver}.log").read_text()[-5_000:]
