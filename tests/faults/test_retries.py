"""A job whose webhooks refuse rows at first is killed (``kill -9``) three times, in a batch that fails, between its
report and the tick that brings it, and in the next attempt: nothing is lost, an attempt is repeated only with its batch,
and what is never taken is one dead letter.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.faults.job_process import COLUMNS, JobProcess, add_json, rows_due
from tests.receiver import Receiver, Says, receiver
from wheel_udf.testing import ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TAKEN, REFUSED = tuple(f"hook-{number}" for number in range(12)), ("hook-bad-1", "hook-bad-2")
ATTEMPTS = 4


def config(folder: Path, server: Receiver) -> dict[str, Any]:
    tables = {"sink": "delta", "path": str(folder / "tables"), "create": True}
    hooks = {
        "sink": "http",
        "url": f"{server.url}/{{destination}}",
        "retries": {"policy": "list", "waits": ["1 second"], "jitter": "none", "attempts": ATTEMPTS},
        "breaker": {"failures": 0},
    }
    return {
        "wheel": {"shards": 2},
        "clock": {"kind": "processing", "heartbeat": "1 second"},
        "source": {"format": "json", "path": str(folder / "in"), "schema": COLUMNS},
        "destinations": {"hook-*": hooks, "dead": tables},
        "dead_letters": "dead",
        "rejects": {"sink": "delta", "path": str(folder / "rejects"), "create": True},
        "trigger": "500 milliseconds",
        "checkpoint": str(folder / "checkpoint"),
    }


def told(server: Receiver) -> dict[str, list[int]]:
    """The attempts that each hook got, in order."""
    found: dict[str, list[int]] = {}
    for each in server.came:
        found.setdefault(each.path[1:], []).append(json.loads(each.body)["attempt"])
    return found


def test_a_job_killed_between_a_failure_and_the_next_attempt_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with receiver() as server:
        for name in TAKEN:
            server.at(f"/{name}", *[Says(503)] * 3, Says())
        for name in REFUSED:
            server.at(f"/{name}", Says(503))
        now = datetime.now(UTC)
        for name in (*TAKEN, *REFUSED):
            add_json(tmp_path, name, rows_due(name, now, [timedelta()], name))
        moments: dict[str, Callable[[JobProcess], bool]] = {
            "in the batch": lambda _: len(server.came) >= 8,
            "a batch has ended, and the next one not": lambda job: job.batches > 0 and len(server.came) > 14,
            "in the second attempt": lambda _: any(2 in each for each in told(server).values()),
        }
        for name, moment in moments.items():
            with JobProcess(tmp_path, config(tmp_path, server)) as job:
                job.wait_until(lambda job=job, moment=moment: moment(job), name)
                job.kill()
        with JobProcess(tmp_path, config(tmp_path, server)) as job:
            job.wait_until(
                lambda: all(server.numbers[f"/{name}"] >= 4 for name in TAKEN), "all hooks have taken theirs"
            )
            job.wait_until(
                lambda: all(ATTEMPTS in told(server)[name] for name in REFUSED), "the last attempts are over"
            )
            job.wait_until((tmp_path / "tables" / "dead").exists, "there are dead letters")
            job.wait_for_batches(1)
            assert job.end() == 0
    attempts = told(server)
    for name in (*TAKEN, *REFUSED):
        # An attempt is made again if its batch is repeated, and none is left out.
        assert attempts[name] == sorted(attempts[name])
        assert set(attempts[name]) == set(range(1, max(attempts[name]) + 1))
        assert len(attempts[name]) <= ATTEMPTS + len(moments)
        assert len(set(server.keys(f"/{name}"))) == 1, "one fire id"
    assert {name: max(attempts[name]) for name in REFUSED} == dict.fromkeys(REFUSED, ATTEMPTS)
    dead = ledger.read_delta(tmp_path / "tables" / "dead").to_pylist()
    assert sorted((row["origin"], row["attempts"]) for row in dead) == [(name, ATTEMPTS) for name in REFUSED]
    assert not (tmp_path / "rejects").exists() or ledger.read_delta(tmp_path / "rejects").num_rows == 0
