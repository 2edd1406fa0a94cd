"""A standalone cluster on loopback: one master and two workers of Spark's own, each a JVM, and a Python that knows the
project from nowhere.

On one machine all processes see the same files. :func:`on_own_machine` starts one that sees some folders empty, and no process of the
others: what it shares with them then is the network.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from wheel_udf.spark import jars

PATIENCE_S = 90
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


def on_own_machine(
    command: Sequence[str], hidden: Sequence[Path], *, own_processes: bool = False
) -> list[str]:
    """A command whose process, and all that it starts, finds these folders empty.

    Args:
        command: The command.
        hidden: Folders that it does not share; what it writes there nobody else sees.
        own_processes: It also has process ids of its own, and takes all its processes with it when it is killed.
    """
    new = ["--mount", *(["--pid", "--fork", "--mount-proc", "--kill-child"] if own_processes else [])]
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    mount = "".join(f"mount -t tmpfs none {shlex.quote(str(folder))} && " for folder in hidden)
    return ["unshare", *user, *new, "sh", "-c", f'{mount}exec "$@"', "sh", *command]


class Cluster:
    """A running cluster; a context manager.

    Args:
        folder: For logs and the workers' folders.
        workers: How many, of one core each.
        hidden: Folders that no worker sees; each also has a folder for temporary files of its own.

    Attributes:
        url: What goes to ``--master``.
        python: A Python with the project's dependencies and without the project.
    """

    def __init__(self, folder: Path, workers: int = 2, hidden: Sequence[Path] = ()) -> None:
        self.folder, self.workers, self.url, self.hidden = folder, workers, "", hidden
        self.python = folder / "python" / "bin" / "python"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        _python_without_project(self.folder / "python")
        try:
            self._start("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self.workers):
                name = f"worker{number}"
                resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
                self._start(name, _WORKER, *resources, "--host", "127.0.0.1", "--webui-port", "0", self.url)
            for number in range(self.workers):
                self._said(f"worker{number}", "(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=PATIENCE_S)

    def executors(self) -> list[int]:
        """Process ids of the executors that run now: children of the workers."""
        return self._executors_of({process.pid for process in self._processes[1:]})

    @staticmethod
    def _executors_of(workers: set[int]) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent in workers and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        return sorted(found)

    def kill_an_executor(self) -> int:
        """Ends one executor by kill -9; its process id."""
        victim = self.executors()[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def lose_a_worker(self) -> None:
        """One worker and its executors end by kill -9, and do not come back."""
        worker = self._processes[1]
        for each in [worker.pid, *self._executors_of({worker.pid})]:
            os.kill(each, signal.SIGKILL)

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        command = [str(jars.pyspark_folder() / "bin" / "spark-class"), kind, *arguments]
        temporary = self.folder / f"{name}-tmp"
        temporary.mkdir(exist_ok=True)
        if self.hidden:
            command = on_own_machine(command, self.hidden)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=false",
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
            )

    def _said(self, name: str, pattern: str) -> str:
        """Waits until a daemon has logged something; the first group of it."""
        log, process = self.folder / f"{name}.log", self._processes[-1]
        for _ in range(PATIENCE_S * 10):
            if found := re.search(pattern, log.read_text(errors="replace")):
                return found[1]
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.1)
        raise TimeoutError(log.read_text(errors="replace"))


def _python_without_project(folder: Path) -> None:
    """An environment that borrows the packages of this one; its own ``.pth`` files, and with them the project, are not
    read.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    told = subprocess.run(
        [folder / "bin" / "python", "-c", "import pyarrow, wheel_udf.wheel.step"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    assert "wheel_udf" in told.stderr, f"the project must not be found by {sys.executable}: {told.stderr}"
