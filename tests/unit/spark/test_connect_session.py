"""What needs the JVM of a session says so, in one sentence, on a session of Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from wheel_udf import Contract, SessionError, SimulatedClock, Wheel, deliver, watch
from wheel_udf.pending.acts import Picked, cancel
from wheel_udf.pending.entries import PendingWork, count_pending, pending
from wheel_udf.spark.connect_session import is_connect, missing_jvm, require_jvm
from wheel_udf.spark.jvm import java_gateway
from wheel_udf.spark.local_mode import executors_are_here
from wheel_udf.spark.object_stores import settings_of
from wheel_udf.spark.worker_python import require_worker_python
from wheel_udf.store.slot_store import SlotStore
from wheel_udf.transfer.exporting import export_job

# The class of pyspark-client, which cannot be installed beside pyspark; tests/connect has the real one.
RemoteSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
OwnSession = type("OwnSession", (RemoteSession,), {"__module__": "somewhere"})

REMOTE: Any = RemoteSession()
FRAME: Any = SimpleNamespace(sparkSession=REMOTE)
WORK = PendingWork("checkpoint")
WHEEL = Wheel(tick_ms=1_000, size=20, levels=6)
CALLS = {
    "deliver()": lambda: deliver(FRAME, destinations=None, rejects=None, checkpoint="checkpoint"),
    "watch()": lambda: watch(
        FRAME, FRAME, wheel=WHEEL, clock=SimulatedClock(instants_ms=(0,)), contract=Contract()
    ),
    "the slot store": lambda: SlotStore(REMOTE, "store", None),
    "pending()": lambda: pending(REMOTE, WORK),
    "count_pending()": lambda: count_pending(REMOTE, WORK),
    "an act on pending entries": lambda: cancel(REMOTE, WORK, Picked(ids=("a",))),
    "an export": lambda: export_job(REMOTE, WORK, "folder"),
    "this part of wheel_udf": lambda: java_gateway(REMOTE),
}


@pytest.mark.parametrize("part", CALLS)
def test_a_part_that_needs_the_jvm_says_so(part: str) -> None:
    with pytest.raises(SessionError) as raised:
        CALLS[part]()
    assert str(raised.value) == (
        f"{part} needs a Spark session with a JVM, and a client of Spark Connect has none: "
        "hint: over Spark Connect use wheel_udf.connect (docs/connect.md)"
    )


def test_a_session_is_told_by_the_class_that_it_is_made_from() -> None:
    from pyspark.sql import SparkSession

    classic: Any = SparkSession.__new__(SparkSession)
    own: Any = OwnSession()
    assert (is_connect(classic), is_connect(REMOTE), is_connect(own)) == (False, True, True)
    require_jvm(classic, "all")


def test_what_is_known_only_of_a_classic_session_is_not_asked() -> None:
    require_worker_python(REMOTE)
    assert not executors_are_here(REMOTE)
    assert settings_of(REMOTE) == ()


def test_a_module_that_a_client_lacks_is_told_from_one_that_is_not_installed() -> None:
    fault = ModuleNotFoundError("No module named 'delta'", name="delta")
    program = (
        "import sys; sys.modules['py4j'] = None; from wheel_udf.spark.connect_session import missing_jvm; "
        "print(missing_jvm(ModuleNotFoundError('', name='delta'), 'deliver'))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("deliver needs a Spark session with a JVM")
    assert missing_jvm(fault, "deliver") is None
