"""The job, unchanged, on a real cluster: standalone master, two workers, code shipped as a zip, an executor killed on
the way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.standalone import Cluster
from tests.faults.checker import faults_of
from tests.faults.inputs import end_s, files
from tests.spark.streams import add_files, at
from wheel_udf.spark import jars

ROOT = Path(__file__).parents[2]
FILES = 4
CONFIG = """
name: cluster
wheel: {tick: 1 second, size: 20, levels: 6, shards: 2}
clock: {kind: event}
source: {format: parquet, path: FOLDER/in, options: {maxFilesPerTrigger: 1}}
destinations: {"*": {sink: delta, path: FOLDER/tables, create: true}}
rejects: {sink: delta, path: FOLDER/rejects}
checkpoint: FOLDER/checkpoint
trigger: available-now
"""


def zip_of_project(folder: Path) -> Path:
    """The code as it is shipped to executors."""
    built = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(built, check=True)
    (wheel,) = folder.glob("*.whl")
    shutil.copy(wheel, folder / "wheel_udf.zip")
    return folder / "wheel_udf.zip"


def _submit(cluster: Cluster, folder: Path) -> subprocess.Popen[str]:
    """The command of the README, with this machine's paths; its settings file has to travel by name, since the code is
    a zip.
    """
    jar_files = ",".join(str(jar) for jar in sorted(jars.jars_folder().glob("*.jar")))
    settings = {
        "spark.jars": jar_files,
        "spark.pyspark.python": str(cluster.python),
        "spark.executor.memory": "700m",
        "spark.driver.memory": "700m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.task.maxFailures": "8",
    }
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", cluster.url]
    command += ["--properties-file", str(ROOT / "conf" / "spark-defaults.conf")]
    command += ["--py-files", str(folder / "wheel_udf.zip")]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    until = at(end_s(FILES)).isoformat()
    command += [str(ROOT / "jobs" / "delay_scheduler.py"), "run", "--config", str(folder / "job.yml")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*command, "--until", until],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env=environment | {"PYSPARK_DRIVER_PYTHON": sys.executable},
        )


def test_the_same_job_runs_on_a_cluster_and_survives_the_death_of_an_executor(tmp_path: Path) -> None:
    commands = files(seed=1, count=FILES)
    add_files(tmp_path / "in", *commands)
    (tmp_path / "job.yml").write_text(CONFIG.replace("FOLDER", str(tmp_path)))
    zip_of_project(tmp_path)
    with Cluster(tmp_path / "cluster") as cluster:
        with _submit(cluster, tmp_path) as job:
            assert job.stdout is not None
            said = []
            for line in job.stdout:
                said.append(line)
                if line.startswith("batch     1"):
                    cluster.kill_an_executor()
        log = (tmp_path / "log").read_text()
        assert job.returncode == 0, "".join(said) + log[-5_000:]
    assert "Lost executor" in log or "exited" in log or "Removed" in log, log[-3_000:]
    assert any("every command accounted for: yes" in line for line in said)
    assert faults_of(tmp_path, [row for rows in commands for row in rows], FILES) == []
