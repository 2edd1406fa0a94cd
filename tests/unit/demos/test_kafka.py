"""The Kafka demo: its config and its constants say the same, and the job beside it is started, stopped and killed as
told.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jobs.demos import kafka as demo_kafka
from jobs.demos.job_process import SubmittedJob
from jobs.demos.kafka_plan import TARGETS
from wheel_udf.common.errors import SessionError

ROOT = Path(__file__).parents[3]

# A stand-in for the job: takes the lease as the driver does, says a line, and waits for its end.
JOB = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
def stop(*_):
    print("summary", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
(folder / "wheel.lease").write_text(json.dumps({"pid": os.getpid(), "host": "here"}))
print("batch 0", flush=True)
signal.pause()
"""


def _job(tmp_path: Path, script: str = JOB) -> SubmittedJob:
    with (tmp_path / "lock").open("w") as lock:
        return SubmittedJob(
            [sys.executable, "-c", script, str(tmp_path / "checkpoint")],
            root=tmp_path,
            environment=dict(os.environ),
            log=tmp_path / "job.log",
            lock=lock,
        )


def _wait_for_a_line(job: SubmittedJob, line: str = "batch 0") -> None:
    while line not in job.lines:
        job.check()


def test_the_config_and_the_demo_name_the_same_things() -> None:
    config = yaml.safe_load((ROOT / demo_kafka.CONFIG).read_text(encoding="utf-8"))

    assert config["source"]["topics"] == [demo_kafka.COMMANDS]
    assert config["rejects"]["topic"] == demo_kafka.REJECTS
    assert list(config["destinations"]) == ["wheel-demo-due-*"]
    assert all(topic.startswith("wheel-demo-due-") for topic in TARGETS)
    assert config["wheel"]["shards"] == demo_kafka.SHARDS
    assert config["checkpoint"] == str(demo_kafka.FOLDER / demo_kafka.CHECKPOINT)


@pytest.mark.parametrize(
    "arguments", [["--commands", "199"], ["--seconds", "19"], ["--seconds", "x"], ["more"]]
)
def test_arguments_that_cannot_be_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        demo_kafka.main(arguments, ROOT, print_line=print)
    assert end.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_job_is_stopped_in_order_and_its_last_words_are_heard(tmp_path: Path) -> None:
    job = _job(tmp_path)
    _wait_for_a_line(job)

    assert job.stop(tmp_path / "checkpoint") == 0
    assert job.lines == ["batch 0", "summary"]
    assert (tmp_path / "job.log").read_text(encoding="utf-8") == "batch 0\nsummary\n"


def test_a_job_is_killed_without_a_word_and_another_goes_on_with_its_log(tmp_path: Path) -> None:
    first = _job(tmp_path)
    _wait_for_a_line(first)
    first.kill()
    second = _job(tmp_path)
    _wait_for_a_line(second)

    assert second.stop(tmp_path / "checkpoint") == 0
    assert (tmp_path / "job.log").read_text(encoding="utf-8") == "batch 0\nbatch 0\nsummary\n"


def test_a_lease_of_another_process_is_not_signalled(tmp_path: Path) -> None:
    job = _job(tmp_path)
    _wait_for_a_line(job)
    other = tmp_path / "other"
    other.mkdir()
    (other / "wheel.lease").write_text(json.dumps({"pid": os.getpid(), "host": "here"}))

    assert job.stop(other) == -signal.SIGKILL  # it alone, and hard, for want of anything better


def test_a_job_that_ends_by_itself_is_told_with_its_last_lines(tmp_path: Path) -> None:
    job = _job(tmp_path, "import sys; print('what is wrong'); sys.exit(2)")

    with pytest.raises(
        SessionError, match=r"the job has ended \(exit code 2\); its last lines:\n +what is wrong"
    ):
        _wait_for_a_line(job)
    assert job.stop(tmp_path / "checkpoint") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="waits with the tail of Linux")
def test_a_job_does_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    program = (
        "import os, pathlib, sys; from jobs.demos.job_process import SubmittedJob; root = pathlib.Path(sys.argv[1])\n"
        "job = SubmittedJob([sys.executable, 'job.py', 'checkpoint'], root=root, environment=dict(os.environ),\n"
        "                   log=root / 'job.log', lock=open(root / 'lock', 'w'))\n"
        "while 'batch 0' not in job.lines: job.check()\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    demo = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(demo, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "up\n"
        job_pid = json.loads((tmp_path / "checkpoint" / "wheel.lease").read_text(encoding="utf-8"))["pid"]
        os.kill(job_pid, 0)  # it runs
        owner.kill()

    subprocess.run(["tail", f"--pid={job_pid}", "-s0.1", "-f", "/dev/null"], timeout=60, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(job_pid, 0)
