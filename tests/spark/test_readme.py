"""Every code block of the README works as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wheel_udf import cli
from wheel_udf.config import load
from wheel_udf.watch_settings import WatchJobConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wheel_udf.settings import JobConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def test_the_readme_holds_code_only_in_languages_that_are_tested_here() -> None:
    assert set(re.findall(r"^```(\w+)", README, flags=re.MULTILINE)) == {"bash", "python", "text", "yaml"}


def test_the_library_example_closes_the_order_half_an_hour_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, _ = blocks("python")  # the other is tested with a broker: tests/kafka/test_dedupe_example.py
    # In a running JVM a relative path starts where the JVM was started, so the example gets its folder in full.
    exec(compile(program.replace('"data/', f'"{tmp_path}/data/'), "README.md", "exec"), {})
    (row,) = spark.read.format("delta").load(f"{tmp_path}/data/orders/tables/orders_to_close").collect()
    assert (row.schedule_id, row.deliver_at.isoformat(), row.fired_at.isoformat()) == (
        "order-7",
        "2026-01-01T10:30:00",
        "2026-01-01T11:00:00",
    )
    assert "order-7" in capsys.readouterr().out


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_each_command_names_what_exists(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if words[0] == "make":
        assert re.search(
            rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    elif words[0] != "mkdir":
        seen: list[JobConfig] = []
        verbs = cli.Verbs(
            run=lambda config, _until, _say: seen.append(config) or 0,
            dry_run=lambda config, _until, _say: seen.append(config) or 0,
        )
        job = words.index("jobs/delay_scheduler.py")
        assert cli.main(words[job + 1 :], verbs=verbs) == 0
        assert [config.name for config in seen] == ["scheduler"]


def config_of(folder: Path, block: int) -> JobConfig:
    (folder / "job.yml").write_text(blocks("yaml")[block])
    return load(folder / "job.yml")


def test_the_tiered_config_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    config = config_of(tmp_path, 3)
    assert (config.mode, config.wheel.layout().window_ms) == ("tiered", 8_000_000)


def test_the_single_level_wheel_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    (wheel,) = re.findall(r"`(\{tick: [^`]*\})`", README)
    text = re.sub("^wheel: .*$", f"wheel: {wheel}", blocks("yaml")[3], flags=re.MULTILINE)
    (tmp_path / "job.yml").write_text(text)
    assert load(tmp_path / "job.yml").wheel.layout().window_ms == 600_000


def test_the_kafka_config_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    config = config_of(tmp_path, 0)
    assert (config.source.format, config.contract.preset, list(config.destinations)) == (
        "kafka",
        "native",
        ["orders_*", "audit_*"],
    )


def test_the_compacted_logs_of_the_readme_are_good_configs(tmp_path: Path) -> None:
    topic = config_of(tmp_path, 1)
    assert (topic.contract.preset, topic.contract.memory_ms) == ("scheduler", None)
    rest = re.sub("^(source|contract): .*\n", "", blocks("yaml")[1], flags=re.MULTILINE)
    (tmp_path / "table.yml").write_text(rest + blocks("yaml")[2])
    table = load(tmp_path / "table.yml")
    assert (table.source.reads_changes, table.contract.memory_ms) == (True, None)


def test_the_purgatory_config_of_the_readme_is_a_good_one(tmp_path: Path) -> None:
    config = config_of(tmp_path, -1)
    assert isinstance(config, WatchJobConfig)
    assert (config.operations.topics, config.watch.deliver) == (("orders",), ("expired",))


def test_the_config_of_the_readme_passes_a_dry_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commands").mkdir()
    overrides = [f"source.path={tmp_path}/commands", f"checkpoint={tmp_path}/checkpoint"]
    assert load(str(ROOT / "conf" / "scheduler.yml"), overrides).mode == "direct"
    sets = [word for override in overrides for word in ("--set", override)]
    assert cli.main(["dry-run", "--config", str(ROOT / "conf" / "scheduler.yml"), *sets]) == 0
    assert "at worst one trigger (1" in capsys.readouterr().out
