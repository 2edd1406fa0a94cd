"""What the verbs export and import say, and the sources that an import asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import say
from wheel_udf.common.errors import TransferError
from wheel_udf.job.loader import load
from wheel_udf.job.moves import require_same_sources, say_content
from wheel_udf.transfer.manifest import Manifest

ROOT = Path(__file__).parents[3]
MANIFEST = Manifest(
    export_id="e-1",
    mode="direct",
    wheel="tick_ms=1000,size=20,levels=6",
    shards=2,
    clock="event",
    app_id="departures-1",
    batch=7,
    clock_ms=1_767_261_600_000,
    counts={"fired": 3_000, "missed": 0, "applied": 1},
    rows={"entries": 1_200, "memory": 5},
    positions=[{"orders": {"0": 4711}}],
)


def test_the_content_of_an_export_is_told_as_an_account() -> None:
    lines: list[str] = []

    say_content(MANIFEST, lines.append)

    assert lines == [
        "  account   1,200 pending; counted so far: 3,000 fired, 1 applied",
        "  rows      1,200 entries, 5 memory",
        "  clock     2026-01-01T10:00:00Z",
        "  source    goes on at {'orders': {'0': 4711}}",
    ]


@pytest.mark.parametrize(("verb", "argument"), [("export", "--to"), ("import", "--from")])
def test_a_folder_that_hadoop_cannot_hold_is_refused_before_spark_starts(verb: str, argument: str) -> None:
    code, out, err = say(ROOT / "conf/scheduler.yml", verb, argument, "a:b")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: a colon in the first name of a path: {argument} = 'a:b'; rule: ")


@pytest.mark.parametrize(("name", "sources"), [("scheduler", 1), ("unpaid_orders", 2)])
def test_each_source_of_the_new_job_needs_a_position(name: str, sources: int) -> None:
    config = load(ROOT / "conf" / f"{name}.yml")
    if sources == len(MANIFEST.positions):
        require_same_sources(config, MANIFEST, "export")
    else:
        with pytest.raises(TransferError, match="another number of sources: export = 1; rule: 2"):
            require_same_sources(config, MANIFEST, "export")
