"""``explain``: the wheel as a table, what it holds at a rate, and which limit comes first. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command_line import say
from tests.documents import ROOT
from wheel_udf.job.explain import Traffic, bytes_of_entry, levels_of, limits
from wheel_udf.job.loader import load

if TYPE_CHECKING:
    from wheel_udf.job.models.scheduler import JobConfig

CONF = ROOT / "conf"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
TIERED = ["mode=tiered", "store.path=data/store"]


def config(*overrides: str, name: str = "scheduler") -> JobConfig:
    return load(str(CONF / f"{name}.yml"), list(overrides))


def test_the_entries_of_the_levels_are_those_that_wait() -> None:
    levels = levels_of(config(), Traffic(100, HOUR_MS, 10))
    assert [(each.number, each.bucket_ms, each.span_ms) for each in levels[:3]] == [
        (1, 1_000, 20_000),
        (2, 20_000, 400_000),
        (3, 400_000, 8_000_000),
    ]
    # 100 a second for an hour, half of them gone: 180,000. Within 20 s of 3,600: 2/180 - 1/180^2 of them.
    assert [round(each.entries) for each in levels] == [1_994, 35_783, 142_222, 0, 0, 0]
    assert sum(each.entries for each in levels) == pytest.approx(180_000)


def test_the_far_levels_of_a_tiered_wheel_are_in_the_store() -> None:
    levels = levels_of(config(*TIERED), Traffic(100, 30 * DAY_MS, 10))
    assert [each.place for each in levels] == ["state"] * 3 + ["store"] * 3


def test_the_bytes_of_an_entry_follow_its_value() -> None:
    small, large = bytes_of_entry(0), bytes_of_entry(1_000)
    assert 20 < small < 120
    # Base64 of values that do not compress.
    assert large - small == pytest.approx(1_000 * 4 / 3, rel=0.05)


def test_values_of_a_megabyte_took_all_memory_to_be_measured() -> None:
    assert bytes_of_entry(1_000_000) == pytest.approx(1_000_000 * 4 / 3, rel=0.05)


def test_a_job_without_delays_can_be_explained() -> None:
    found = [text for _, text in limits(config("contract.max_delay=0"), Traffic(10, HOUR_MS, 10))]
    assert not any("max_delay" in text for text in found)


def test_the_limit_that_is_nearest_comes_first() -> None:
    found = sorted(
        limits(config("limits.pending=1000", "limits.soft=1"), Traffic(10, HOUR_MS, 10)), reverse=True
    )
    share, text = found[0]
    assert (share, text) == (18.0, "limits.pending 1,000; at the limit: reject")
    assert any("contract.max_delay" in text and 0 < share < 0.01 for share, text in found)


# kafka_demo.yml is completed by the demo.
@pytest.mark.parametrize("name", sorted({path.stem for path in CONF.glob("*.yml")} - {"kafka_demo"}))
def test_every_example_config_can_be_explained_as_text_and_as_a_diagram(name: str) -> None:
    code, out, err = say(CONF / f"{name}.yml", "explain")
    assert (code, err) == (0, "")
    assert "limits, the nearest first:" in out
    code, out, _ = say(CONF / f"{name}.yml", "explain", "--mermaid")
    assert (code, out.splitlines()[0]) == (0, "flowchart TD")
    assert out.count("subgraph") == out.count("  end\n")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--rate", "0", "not a rate: --rate = 0.0; rule: above 0, commands a second"),
        ("--rate", "nan", "not a rate"),
        ("--horizon", "0 s", "not a horizon"),
        ("--horizon", "soon", "not a duration"),
        ("--bytes", "-1", "not a size"),
    ],
)
def test_a_number_out_of_range_is_refused(option: str, value: str, said: str) -> None:
    code, out, err = say(Path(CONF / "scheduler.yml"), "explain", option, value)
    assert (code, out) == (2, "")
    assert said in err
