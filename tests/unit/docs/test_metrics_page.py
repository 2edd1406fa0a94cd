"""The page about metrics lists what the code declares: metrics, members of a line, alerts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.documents import ROOT, blocks, text_of
from wheel_udf.metrics.batch_log import BatchLog
from wheel_udf.metrics.lines import MEMBERS
from wheel_udf.metrics.names import METRICS

PAGE = text_of("docs/metrics.md")


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    rows = [
        f"| `{metric.name}` | {metric.kind}{f', {metric.unit}' if metric.unit else ''} | "
        f"{', '.join(f'`{label}`' for label in metric.labels) or '-'} | {metric.text} |"
        for metric in METRICS.values()
    ]

    assert [row for row in PAGE.splitlines() if row.startswith("| `wheel_")] == rows


def test_the_line_that_is_shown_has_the_members_of_a_line_and_so_has_their_table() -> None:
    (shown,) = blocks("docs/metrics.md", "text")
    table = PAGE.split("| member | meaning |")[1].split("\n\n")[0]

    assert tuple(json.loads(shown)) == MEMBERS
    assert {
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    } == set(MEMBERS)


def test_the_table_of_alerts_is_that_of_the_rules() -> None:
    rules = yaml.safe_load((ROOT / "conf" / "monitoring" / "alerts.yml").read_text())["groups"][0]["rules"]
    table = PAGE.split("| alert | fires when |")[1].split("\n\n")[0]

    assert re.findall(r"`(Wheel\w+)`", table) == [rule["alert"] for rule in rules]


def test_the_example_of_the_batch_log_prints_its_slowest_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, _ = blocks("docs/metrics.md", "python")
    checkpoint = f"{tmp_path}/data/trial/checkpoint"
    for batch, seconds in enumerate([0.5, 2.0, None]):
        BatchLog(checkpoint).append({"at_ms": batch, "batch_id": batch, "seconds": seconds})
    exec(compile(program.replace("data/trial/checkpoint", checkpoint), "docs/metrics.md", "exec"), {})

    assert capsys.readouterr().out == "{'at_ms': 1, 'batch_id': 1, 'seconds': 2.0}\n"
