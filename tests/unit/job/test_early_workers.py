"""Python processes of the first batch: where they are started early, what they import, what a failure of them changes."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from wheel_udf.job import early_workers


def session_with(master: str, **more: Any) -> Any:
    """The parts of a session that are asked; it runs nothing."""
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=2, **more))


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_executors_of_other_jvms_get_no_job_before_the_first_batch(master: str) -> None:
    assert early_workers.start_early(session_with(master), 4) is None


def test_a_session_that_ends_meanwhile_is_no_error(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    thread = early_workers.start_early(session_with("local[2]"), 4)  # its context can do nothing

    assert thread is not None
    thread.join()
    assert raised == []
    assert [str(warning.message) for warning in recwarn] == []


def test_a_process_has_imported_both_operators_and_passes_its_rows_on() -> None:
    code = (
        "import sys; from wheel_udf.job.early_workers import _with_operators\n"
        "rows = list(_with_operators(iter(['row'])))\n"
        "print(rows, [name in sys.modules for name in ('wheel_udf.stream.wheel_worker', 'wheel_udf.stream.watch_worker', 'pandas')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "['row'] [True, True, True]\n"
