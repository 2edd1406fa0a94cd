"""Every code block of the README and the guides works as it stands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import wheel_udf
from tests.documents import LANGUAGES, PAGES, ROOT, blocks, commands, configs, languages, text_of
from tests.spark import streams, watches
from wheel_udf import Contract
from wheel_udf.commands.parse import parse_commands
from wheel_udf.job import arguments, begin, cli, dry_run
from wheel_udf.job.loader import load
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.sinks.own_sink import make_own_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wheel_udf.job.models.scheduler import JobConfig


@pytest.mark.parametrize("page", PAGES)
def test_code_is_in_languages_that_are_tested_here(page: str) -> None:
    assert languages(page) <= LANGUAGES


# ---- python --------------------------------------------------------------------------------------


def test_each_python_block_is_run_by_a_test() -> None:
    """Elsewhere: those for Kafka need a broker (tests/kafka/delivery/test_deliveries.py), that for Spark Connect a server
    (tests/connect), the ledger's no JVM (tests/unit/docs), nor do the questions to a running job (tests/unit/api).
    """
    assert {page: count for page in PAGES if (count := len(blocks(page, "python")))} == {
        "README.md": 1,
        "docs/api-http.md": 1,
        "docs/choosing-a-wheel.md": 1,
        "docs/clients.md": 4,
        "docs/connect.md": 1,
        "docs/delay-levels.md": 1,
        "docs/ledger.md": 1,
        "docs/metrics.md": 2,
        "docs/pending.md": 1,
        "docs/purgatory.md": 1,
        "docs/testing.md": 1,
        "docs/tiered-mode.md": 1,
        "docs/sinks.md": 1,
    }


def run_block(page: str, folder: Path, **names: object) -> dict[str, object]:
    """Runs the Python block of a page. In a running JVM a relative path starts where the JVM was started, so it gets
    its folder in full.
    """
    (program,) = blocks(page, "python")
    namespace = dict(names)
    exec(compile(program.replace('"data/', f'"{folder}/data/'), page, "exec"), namespace)
    return namespace


def test_the_example_of_the_readme_prints_what_stands_below_it_and_its_checkpoint_can_be_looked_into(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_block("README.md", tmp_path)
    (table,) = [block for block in blocks("README.md", "text") if block.startswith("+--")]
    assert table in capsys.readouterr().out

    run_block("docs/pending.md", tmp_path, spark=spark)
    assert "destination" in capsys.readouterr().out


def test_the_example_of_delay_levels_has_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    streams.add_files(tmp_path / "in", [])
    names = run_block("docs/delay-levels.md", tmp_path, commands=streams.read_files(spark, tmp_path / "in"))
    assert {"scheduled_at", "level_error_ms"} <= set(names["due"].columns)


def test_the_example_of_the_tiered_mode_finds_what_waits_and_cancels_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [streams.due("soon", 5, 0), streams.due("far", 10_000_000, 10, destination="old")]
    streams.add_files(tmp_path / "in", rows)
    names = run_block(
        "docs/tiered-mode.md", tmp_path, spark=spark, commands=streams.read_files(spark, tmp_path / "in")
    )
    said = capsys.readouterr().out
    assert "|        old|   1|    0|" in said
    assert "1 rows in the store" in said
    assert streams.waiting(spark, names["work"]) == []


def test_the_example_of_a_replay_compares_plans(spark: SparkSession, tmp_path: Path) -> None:
    names = run_block("docs/choosing-a-wheel.md", tmp_path, spark=spark)
    figures = names["figures"].set_index("plan")
    assert set(figures["fired"]) == {300}
    assert figures.loc["ten seconds", "batches"] < figures.loc["a second", "batches"]
    assert figures.loc["ten seconds, tiered", "state_bytes"] < figures.loc["ten seconds", "state_bytes"]


def test_the_example_of_a_users_test_passes_and_can_fail(spark: SparkSession, tmp_path: Path) -> None:
    names = run_block("docs/testing.md", tmp_path)
    names["test_only_the_unpaid_order_is_closed"](spark)
    paid_too_late = names["play"](
        spark,
        [("2026-01-01T10:30:00Z", [names["order"]("o-1", "10:00:00")]), ("2026-01-01T10:31:00Z", [])],
        "order_id string, paid boolean, at timestamp",
        names["closing"],
    )
    assert [row.schedule_id for row in paid_too_late.collect()] == ["o-1"]


def test_the_example_of_the_purgatory_makes_a_frame_of_outcomes(spark: SparkSession, tmp_path: Path) -> None:
    watches.add_rows(tmp_path / "in", ([], []))
    operations, events = watches.read_rows(spark, tmp_path / "in")
    names = run_block("docs/purgatory.md", tmp_path, operations=operations, events=events)
    assert {"op_id", "outcome", "decided_at"} <= set(names["ended"].columns)


def test_the_listener_of_the_metrics_guide_prints_the_figures_of_a_batch(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams.add_files(tmp_path / "in", [streams.due("a", 5, 0), streams.due("b", 60, 10)])
    clock = wheel_udf.SimulatedClock(start_ms=streams.at_ms(0), step_ms=10_000)
    wheel = wheel_udf.Wheel(tick_ms=1_000, size=20, levels=6)
    due = wheel_udf.schedule(streams.read_files(spark, tmp_path / "in"), wheel=wheel, shards=2, clock=clock)
    _, program = blocks("docs/metrics.md", "python")
    added: list[Any] = []
    session = SimpleNamespace(streams=SimpleNamespace(addListener=added.append))
    names = {"spark": session, "due": due}
    exec(compile(program, "docs/metrics.md", "exec"), names)
    said, plain = Event(), added[0].onQueryProgress
    added[0].onQueryProgress = lambda event: (plain(event), said.set())
    spark.streams.addListener(added[0])
    try:
        streams.run(names["due"], tmp_path / "checkpoint")
        assert said.wait(60)
    finally:
        spark.streams.removeListener(added[0])
    assert capsys.readouterr().out.splitlines()[0] == "0 2 0 None"


def test_the_frames_of_the_guide_to_clients_are_commands(spark: SparkSession) -> None:
    orders = spark.sql("SELECT 'order-7' AS order_id, timestamp'2026-01-01 10:00:00Z' AS made_at")
    payments = spark.sql("SELECT 'order-7' AS order_id, timestamp'2026-01-01 10:12:00Z' AS paid_at")
    names: dict[str, object] = {"orders": orders, "payments": payments}
    exec(compile(blocks("docs/clients.md", "python")[3], "docs/clients.md", "exec"), names)
    parsed = parse_commands(names["both"], Contract()).select("schedule_id", "op", "error_code").collect()
    assert [tuple(row) for row in parsed] == [("order-7", 0, None), ("order-7", 1, None)]


def test_the_sink_of_the_guide_keeps_to_the_protocol(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_own_sink("tests.own_sinks:OfTheGuide", {"folder": str(tmp_path)})
    missing = make_own_sink("tests.own_sinks:OfTheGuide", {"folder": str(tmp_path / "none")})
    rows = spark.createDataFrame([("f1", "a"), ("f2", "b")], "fire_id string, schedule_id string")
    batch = {"app_id": "orders", "batch_id": 7}

    assert sink.missing_reason(spark, "lines") is None
    assert missing.missing_reason(spark, "lines") == f"the folder {tmp_path}/none is missing"
    assert not sink.holds(spark, "lines", **batch)
    for _ in range(2):
        sink.write(rows, "lines", **batch)
    assert sink.holds(spark, "lines", **batch)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["f1 a\nf2 b\n"]


# ---- bash ----------------------------------------------------------------------------------------

OF_PLATFORMS = {"aws", "databricks", "docker", "gcloud", "kubectl"}


@pytest.mark.parametrize("words", [words for page in PAGES for words in commands(page)], ids=" ".join)
def test_each_command_names_what_exists(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = [word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    name = words[0].removeprefix(".venv/bin/")
    if name == "make":
        assert re.search(rf"^{words[1]}:", text_of("Makefile"), flags=re.MULTILINE)
    elif name == "wheel-udf":
        check_verb(words[1:])
    elif name == "spark-submit":
        check_verb(words[words.index("jobs/delay_scheduler.py") + 1 :])
    elif name == "python":
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None
    elif name == "pip":
        check_install(words[words.index("install") + 1 :])
    elif name in OF_PLATFORMS:
        check_files(words)
    else:
        assert name == "mkdir"


def check_files(words: list[str]) -> None:
    """Files of this repository in the command of a platform's own program, which is not asked."""
    for word in words:
        path = word.rpartition("=")[2].removeprefix("file://")
        if path.startswith(("conf/", "jobs/")):
            assert (ROOT / path).is_file()
        if path.startswith("dist/"):
            check_install([path])


def check_verb(words: list[str]) -> None:
    """Parses a command line of the job and reads the config that it names."""
    if words == ["--help"]:
        assert cli.main(words) == 0
        return
    parsed = arguments.parse(words)
    if parsed.verb in ("broker", "init") or parsed.config is None:
        return
    if parsed.verb not in ("run", "dry-run", "conf"):
        assert load(parsed.config, parsed.set).name
        return
    seen: list[JobConfig] = []
    with pytest.MonkeyPatch.context() as patch:
        for verb in (begin, dry_run):
            patch.setattr(verb, "run", lambda config, _until, _say: seen.append(config) or 0)
        assert cli.main(words) == 0
    assert [config.name for config in seen] == ["scheduler"]


def check_install(words: list[str]) -> None:
    for word in words:
        if word.endswith(".txt"):
            assert (ROOT / word).exists()
        if word.endswith(".whl"):
            assert word == f"dist/wheel_udf-{wheel_udf.__version__}-py3-none-any.whl"


# ---- yaml ----------------------------------------------------------------------------------------

CONFIGS = [(page, number) for page in PAGES for number in range(len(configs(page)))]


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch, _secrets: None) -> None:
    """The variables of the configs; what they hold is forgotten again, as ``_secrets`` has it for every test."""
    for name in ("HOOK_TOKEN", "LEDGER_PASSWORD"):
        monkeypatch.setenv(name, f"{name}-of-this-page")


def config_of(folder: Path, page: str, number: int) -> JobConfig:
    (folder / "job.yml").write_text(yaml.safe_dump(configs(page)[number], sort_keys=False))
    return load(folder / "job.yml")


@pytest.mark.parametrize(("page", "number"), CONFIGS)
def test_each_config_is_a_good_one(page: str, number: int, tmp_path: Path) -> None:
    assert config_of(tmp_path, page, number).name


def test_the_configs_say_what_their_pages_say(tmp_path: Path) -> None:
    kafka = config_of(tmp_path, "docs/kafka.md", 0)
    assert (kafka.source.format, kafka.contract.preset, list(kafka.destinations)) == (
        "kafka",
        "native",
        ["orders_*", "audit_*"],
    )
    topic, table = (config_of(tmp_path, "docs/compacted-logs.md", number) for number in (0, 1))
    assert (topic.contract.preset, topic.contract.memory_ms) == ("scheduler", None)
    assert (table.source.reads_changes, table.contract.memory_ms) == (True, None)

    tiered, single_level = (config_of(tmp_path, "docs/tiered-mode.md", number) for number in (0, 1))
    assert (tiered.mode, tiered.wheel.layout().window_ms) == ("tiered", 8_000_000)
    assert single_level.wheel.layout().window_ms == 600_000

    sinks = config_of(tmp_path, "docs/sinks.md", 0).destinations
    assert {name: sink.sink for name, sink in sinks.items()} == {"hook_*": "http", "ledger_*": "jdbc"}

    watching = config_of(tmp_path, "docs/purgatory.md", 0)
    assert isinstance(watching, PurgatoryConfig)
    assert (watching.operations.topics, watching.watch.deliver) == (("orders",), ("expired",))


def test_the_config_of_the_readme_passes_a_dry_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commands").mkdir()
    overrides = [f"source.path={tmp_path}/commands", f"checkpoint={tmp_path}/checkpoint"]
    config: JobConfig = load(str(ROOT / "conf" / "scheduler.yml"), overrides)
    assert config.mode == "direct"
    sets = [word for override in overrides for word in ("--set", override)]
    assert cli.main(["dry-run", "--config", str(ROOT / "conf" / "scheduler.yml"), *sets]) == 0
    assert "at worst one trigger (1" in capsys.readouterr().out
