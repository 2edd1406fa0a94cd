"""The config file: what it may say, and that all its faults are told at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.job.configs import faults_of, written
from wheel_udf.commands.delay_levels import BinaryLevels, FixedLevels
from wheel_udf.commands.header_names import SETTINGS, HeaderNames
from wheel_udf.common.errors import ConfigError
from wheel_udf.common.geometry import Wheel
from wheel_udf.job import loader as config
from wheel_udf.job.compose import contract_of, header_names_of
from wheel_udf.job.dry_run import source_lines
from wheel_udf.job.kafka_options import ending_offsets, for_level_topic, for_topics, reader_options
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.models.source import KafkaSourceConfig

ROOT = Path(__file__).parents[3]
GOOD = """
name: departures
mode: direct
wheel: {tick: 1 second, size: 20, levels: 6, shards: 4}
clock: {kind: event, delay: 0 seconds, max_ahead: 1 minute, heartbeat: 1 minute}
source: {format: parquet, path: data/commands, options: {maxFilesPerTrigger: 1}}
contract: {preset: columns, max_delay: 730 days, memory: 5 minutes, max_value_bytes: 1048576}
destinations:
  reminders_*: {sink: delta, path: data/tables, create: true}
rejects: {sink: delta, path: data/rejects}
limits: {fired_per_batch: 100000}
trigger: 1 second
checkpoint: data/checkpoints/departures
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def fault_of(file: Path, *overrides: str) -> str:
    (fault,) = faults_of(file, *overrides)
    return fault


def load(file: Path, *overrides: str) -> SchedulerConfig:
    job = config.load(file, overrides)
    assert isinstance(job, SchedulerConfig)
    return job


def test_the_example_of_the_design_is_read_with_its_units(file: Path) -> None:
    job = load(file)
    assert (job.name, job.mode, job.trigger, job.trigger_ms) == (
        "departures",
        "direct",
        "1000 milliseconds",
        1_000,
    )
    assert job.wheel.wheel() == Wheel(tick_ms=1_000, size=20, levels=6)
    assert job.clock.model_dump() == {
        "kind": "event",
        "delay_ms": 0,
        "max_ahead_ms": 60_000,
        "heartbeat_ms": 60_000,
    }
    assert job.source.model_dump() == {
        "format": "parquet",
        "path": "data/commands",
        "schema_ddl": None,
        "options": {"maxFilesPerTrigger": "1"},
    }
    assert (job.contract.max_delay_ms, job.contract.memory_ms) == (730 * 86_400_000, 300_000)
    assert list(job.destinations) == ["reminders_*"]
    assert job.destinations["reminders_*"].create
    assert not job.rejects.create
    assert job.limits.fired_per_batch == 100_000


def test_a_short_config_gets_the_defaults_of_the_design(tmp_path: Path) -> None:
    file = tmp_path / "short.yml"
    file.write_text(
        "clock: {kind: event}\nsource: {format: json, path: in}\ndestinations: {a: {sink: csv, path: out}}\n"
        "rejects: {sink: json, path: bad}\ncheckpoint: state\n"
    )
    job = load(file)
    assert job.wheel.model_dump() == {
        "tick_ms": 1_000,
        "size": 20,
        "levels": 6,
        "shards": 4,
    }
    assert job.clock.model_dump() == {
        "kind": "event",
        "delay_ms": 0,
        "max_ahead_ms": 60_000,
        "heartbeat_ms": 60_000,
    }
    assert job.contract.model_dump() == {
        "preset": "columns",
        **dict.fromkeys(SETTINGS),
        "default_delay_ms": None,
        "max_delay_ms": 63_072_000_000,
        "memory_ms": 300_000,
        "max_value_bytes": 1_048_576,
        "default_destination": None,
        "max_lateness_ms": None,
        "time_zone": "UTC",
        "most_missed": 1_000,
    }
    assert (job.mode, job.trigger_ms, job.limits.fired_per_batch) == ("direct", 1_000, None)


@pytest.mark.parametrize("name", ["scheduler.yml", "departures.yml"])
def test_the_configs_of_the_project_are_good(name: str) -> None:
    assert load(ROOT / "conf" / name).mode == "direct"


def test_a_config_with_three_faults_tells_three(file: Path) -> None:
    file.write_text(
        GOOD.replace("size: 20", "size: 1")
        .replace("trigger:", "triger:")
        .replace("format: parquet", "format: orc")
    )
    assert faults_of(file) == [
        "too small: wheel.size = 1; rule: at least 2",
        "not one of the known values: source.format = 'orc'; rule: one of parquet, json, csv, delta, kafka",
        "unknown key: triger; hint: did you mean trigger?",
    ]


def test_a_rule_between_two_sections_is_checked_although_other_settings_of_them_are_wrong(file: Path) -> None:
    assert faults_of(
        file,
        "contract.memory=x",
        "contract.default_destination=y",
        "rejects.path=data/commands",
        "source.schema=1",
    ) == [
        "not a text: source.schema = 1; rule: a text (in quotes if it looks like a number)",
        "not a duration: contract.memory = 'x'; rule: unlimited, or a duration with its unit, such as 1 second, 10 minutes or PT10M",
        (
            "the default destination is not on the allow-list: contract.default_destination = 'y'; "
            "rule: a name that one of destinations matches: reminders_*"
        ),
        "one path with two uses: rejects.path = 'data/commands'; rule: not the path of source.path",
    ]


@pytest.mark.parametrize(
    "path", ["data/tables", "data/tables/reminders_EWR", "data//tables/reminders_JFK/x/", "data"]
)
def test_rejects_in_the_folder_of_a_destination_are_refused(file: Path, path: str) -> None:
    (fault,) = faults_of(file, f"rejects.path={path}")
    assert fault == (
        f"the rejects and a destination share a folder: rejects.path = '{path}'; "
        "rule: neither in nor above the folder of destinations.reminders_* below data/tables"
    )


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("checkpoint", ()),
        ("source.path", ()),
        ("source.path", ("source.format=delta",)),
        ("rejects.path", ()),
        ("rejects.path", ("rejects.sink=json",)),
        ("destinations.reminders_*.path", ()),
        ("destinations.reminders_*.path", ("destinations.reminders_*.sink=csv",)),
        ("store.path", ("mode=tiered", "clock.kind=processing", "clock.delay=", "clock.max_ahead=")),
    ],
)
def test_a_path_that_hadoop_cannot_hold_is_refused_in_each_setting(
    file: Path, field: str, kind: tuple[str, ...]
) -> None:
    assert fault_of(file, *kind, f"{field}='data:1/x'") == (
        f"a colon in the first name of a path: {field} = 'data:1/x'; "
        "rule: Hadoop takes what stands before it for the scheme of a URI; hint: ./data:1/x"
    )


def test_one_path_with_two_uses_is_found_however_it_is_written(file: Path) -> None:
    path = Path("data/commands").absolute()
    assert fault_of(file, f"checkpoint='file:{path}'").startswith("one path with two uses: checkpoint = ")


def test_a_section_of_no_known_variant_is_checked_for_what_is_wrong_with_all_of_them(file: Path) -> None:
    assert faults_of(file, "source={form: json, path: 5, options: []}", "mode=half", "wheel.size=1") == [
        "not one of the known values: mode = 'half'; rule: one of direct, tiered",
        "too small: wheel.size = 1; rule: at least 2",
        "a required setting is missing: source.format; rule: one of parquet, json, csv, delta, kafka",
        "not a section: source.options = []; rule: keys with values",
        "unknown key: source.form; hint: did you mean format?",
    ]


def test_faults_of_the_overrides_and_across_sections_stand_in_the_same_list(file: Path) -> None:
    assert faults_of(
        file, "wheel", "name=a b", "contract.default_destination=other", "checkpoint=data/rejects/"
    ) == [
        (
            "--set cannot be read: wheel; rule: a.b=c; hint: a key with dots goes in double quotes: "
            'destinations."a.b".path=out'
        ),
        "not allowed: name = 'a b'; rule: a text that matches ^[A-Za-z0-9._-]{1,100}$",
        (
            "the default destination is not on the allow-list: contract.default_destination = 'other'; "
            "rule: a name that one of destinations matches: reminders_*"
        ),
        "one path with two uses: checkpoint = 'data/rejects/'; rule: not the path of rejects.path",
    ]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("wheel.tick=5", "not a duration: wheel.tick = 5; rule: a duration with its unit"),
        (
            "wheel.tick=0 seconds",
            "too small: wheel.tick = '0 seconds'; rule: at least 1 ms",
        ),
        ("wheel.tick=1 month", "not a duration: wheel.tick = '1 month'"),
        ("wheel.size='20'", "not a whole number: wheel.size = '20'; rule: a whole number"),
        ("wheel.shards=1025", "too large: wheel.shards = 1025; rule: at most 1024"),
        ("wheel.shards=0", "too small: wheel.shards = 0; rule: at least 1"),
        ("wheel.levels=true", "not a whole number: wheel.levels = True"),
        ("wheel.levels=1000000000", "too large: wheel.levels = 1000000000; rule: at most 62"),
        (
            "wheel.levels=15",
            "this wheel spans more than 64 bits of ms: wheel; rule: tick_ms * size**levels below 2**63",
        ),
        ("wheel.tick_ms=5", "unknown key: wheel.tick_ms; hint: did you mean tick?"),
        (
            "clock.kind=wall",
            "not one of the known values: clock.kind = 'wall'; rule: one of event, processing, simulated",
        ),
        ("clock={}", "a required setting is missing: clock.kind; rule: one of event, processing, simulated"),
        ("clock=", "a required setting is missing: clock"),
        ("clock.dely=1s", "unknown key: clock.dely; hint: did you mean delay?"),
        (
            "clock.step=1s",
            "not a setting of kind event: clock.step = '1s'; rule: only with kind: simulated",
        ),
        ("clock.heartbeat=0s", "too small: clock.heartbeat = '0s'; rule: at least 1 ms"),
        (
            "clock.delay=999999999 days",
            "no such duration: clock.delay = '999999999 days'; rule: from 0 to 106,751,991 days",
        ),
        ("clock.delay=-1s", "no such duration: clock.delay = '-1s'; rule: from 0"),
        ("clock={kind: simulated}", "found none of them: clock; rule: either start and step, or instants"),
        (
            "clock={kind: simulated, start: 2013-01-01, instants: [2013-01-01]}",
            "found start, instants: clock; rule: either start and step, or instants",
        ),
        (
            "clock={kind: simulated, instants: []}",
            "found none of them: clock; rule: either start and step, or instants",
        ),
        (
            "clock={kind: simulated, start: 2013, step: 1s}",
            "not an instant: clock.start = 2013; rule: an ISO instant",
        ),
        ("source.path=", "a required setting is missing: source.path; rule: the folder to read"),
        (
            "source.options={a: [1]}",
            "not an option value: source.options.a = [1]; rule: a text, a number, true or false",
        ),
        ("source=parquet", "not a section: source = 'parquet'; rule: keys with values"),
        ("contract.max_value_bytes=1.5", "not a whole number: contract.max_value_bytes = 1.5"),
        ("contract.memory=none", "not a duration: contract.memory = 'none'"),
        ("contract.default_destination=..", "not a name: contract.default_destination = '..'"),
        ("contract.time_zone=Mars/Base", "not a time zone: contract.time_zone = 'Mars/Base'; rule: "),
        ("contract.most_missed=0", "too small: contract.most_missed = 0; rule: at least 1"),
        ("destinations={}", "empty: destinations; rule: at least one"),
        (
            "destinations.x.sink=delta",
            "a required setting is missing: destinations.x.path; rule: a folder; or table, a name in a catalog",
        ),
        ("destinations.a/b={sink: delta, path: x}", "not a destination pattern: destinations.a/b = 'a/b'"),
        ("rejects.create=1", "not true or false: rejects.create = 1; rule: true or false"),
        ("rejects.path=' '", "empty text: rejects.path = ' '; rule: at least one character"),
        ("limits.fired_per_batch=0", "too small: limits.fired_per_batch = 0; rule: at least 1"),
        ("trigger=5", "not a duration: trigger = 5; rule: available-now, or a duration with its unit"),
        ("trigger=-1 second", "no such duration: trigger = '-1 second'; rule: from 0"),
        ("checkpoint=", "a required setting is missing: checkpoint"),
    ],
)
def test_a_fault_names_its_field_its_value_and_the_rule(file: Path, override: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(file, override))


def test_the_store_says_how_long_it_keeps_what_nothing_needs(file: Path) -> None:
    tiered = ("mode=tiered", "store.path=data/store")
    store = load(file, *tiered).store
    assert store is not None
    assert (store.history_ms, store.keep_ms) == (0, 86_400_000)
    store = load(file, *tiered, "store.history=7 days", "store.keep=2 days").store
    assert store is not None
    assert (store.history_ms, store.keep_ms) == (7 * 86_400_000, 2 * 86_400_000)
    assert fault_of(file, *tiered, "store.keep=1 minute").startswith(
        "too small: store.keep = '1 minute'; rule: at least 3,600,000 ms"
    )


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("limits.pending=0", "too small: limits.pending = 0; rule: at least 1"),
        ("limits.soft=0", "too small: limits.soft = 0; rule: above 0"),
        ("limits.soft=half", "not a number: limits.soft = 'half'; rule: a number"),
        ("limits.per_slot=3", "too small a limit: limits.per_slot = 3; rule: at least wheel.shards, 4"),
        (
            "limits.on_limit=drop",
            "not one of the known values: limits.on_limit = 'drop'; rule: 'reject' or 'pause'",
        ),
        (
            "limits.on_limit=pause",
            "the intake cannot pause here: limits.on_limit = 'pause'; rule: not with mode: direct",
        ),
    ],
)
def test_limits_that_cannot_hold_are_refused(file: Path, override: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(file, override))


def test_the_intake_cannot_pause_where_commands_move_the_clock(file: Path) -> None:
    tiered = ("mode=tiered", "store.path=data/store", "limits.on_limit=pause")
    assert fault_of(file, *tiered).startswith(
        "the intake cannot pause here: limits.on_limit = 'pause'; rule: not with the event clock"
    )
    limits = load(file, *tiered, "clock={kind: processing}", "limits.pending=10").limits
    assert (limits.on_limit, limits.bounds, limits.soft) == ("pause", {"pending": 10}, 1.0)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        (
            "store={path: x}",
            "not a setting of mode direct: store = {'path': 'x'}; rule: only with mode: tiered",
        ),
        (
            "wheel.state_levels=2",
            "not a setting of mode direct: wheel.state_levels = 2; rule: only with mode: tiered",
        ),
        ("wheel.state_horizon=1 minute", "not a setting of mode direct: wheel.state_horizon = '1 minute'"),
        ("mode=tiered", "a required setting is missing: store; rule: mode tiered keeps its far levels at"),
        ("mode=half", "not one of the known values: mode = 'half'; rule: one of direct, tiered"),
    ],
)
def test_what_belongs_to_one_mode_is_refused_in_the_other(file: Path, override: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(file, override))


TIERED = ("mode=tiered", "store.path=data/store")


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("store={}", "a required setting is missing: store.path"),
        ("store.path=data/rejects", "one path with two uses: store.path = 'data/rejects'"),
        ("wheel.state_levels=6", "this number of levels cannot be in the state: wheel.state_levels = 6"),
        ("wheel.state_levels=0", "the state's horizon is not valid: wheel.state_horizon = 'not given'"),
        ("wheel.state_horizon=1 minute", "the state's horizon is not valid: wheel.state_horizon = 60000"),
        ("wheel.levels=1", "the state's horizon is not valid: wheel.state_horizon = 'not given'"),
        (
            "clock={kind: simulated, start: 2026-01-01, step: 1 second}",
            "not available with mode: tiered: clock.kind = 'simulated'; rule: one of event, processing; hint: ",
        ),
    ],
)
def test_a_fault_of_the_tiered_mode_names_its_field(file: Path, override: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(file, *TIERED, override))


def test_half_of_the_levels_are_in_the_state_unless_the_config_says_how_many(file: Path) -> None:
    assert load(file, *TIERED).wheel.layout().far_levels == range(4, 7)
    assert load(file, *TIERED, "wheel.state_levels=5").wheel.layout().far_levels == range(6, 7)
    slots = [*TIERED, "wheel.state_levels=0", "wheel.state_horizon=1 minute"]
    assert load(file, *slots, "wheel.size=7200", "wheel.levels=1").wheel.layout().window_ms == 60_000


KAFKA = """
clock: {kind: processing}
source: {format: kafka, topics: [orders, payments], options: {kafka.bootstrap.servers: "127.0.0.1:9092"}}
destinations:
  orders_*: {sink: kafka, options: {kafka.bootstrap.servers: "127.0.0.1:9092", kafka.acks: all}}
  audit: {sink: delta, path: data/tables}
rejects: {sink: kafka, topic: rejects, options: {kafka.bootstrap.servers: "127.0.0.1:9092"}}
checkpoint: state
"""


@pytest.fixture
def kafka_file(tmp_path: Path) -> Path:
    path = tmp_path / "kafka.yml"
    path.write_text(KAFKA)
    return path


def test_a_kafka_config_is_read_and_its_preset_is_native(kafka_file: Path) -> None:
    job = load(kafka_file)
    assert isinstance(job.source, KafkaSourceConfig)
    assert (job.source.format, job.source.topics) == ("kafka", ("orders", "payments"))
    assert job.contract.preset == "native"
    assert job.destinations["orders_*"].options == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.acks": "all",
    }
    assert (job.rejects.sink, job.rejects.topic) == ("kafka", "rejects")


@pytest.mark.parametrize("preset", ["native", "json", "scheduler"])
def test_a_kafka_source_takes_each_preset_of_records(kafka_file: Path, preset: str) -> None:
    assert load(kafka_file, f"contract.preset={preset}").contract.preset == preset


def test_headers_of_other_systems_are_named_in_the_contract(kafka_file: Path) -> None:
    job = load(
        kafka_file,
        "contract.id_from=key",
        "contract.due_from=header:eta",
        "contract.delay_from=header:DELAY",
        "contract.delay_unit=level",
        "contract.seq_from=constant",
        "contract.default_delay=30 seconds",
    )
    names = {
        "id_from": "key",
        "due_from": "header:eta",
        "delay_from": "header:DELAY",
        "delay_unit": "level",
        "seq_from": "constant",
    }
    assert (job.contract.preset, job.contract.named_headers) == ("native", names)
    assert job.contract.default_delay_ms == 30_000
    assert header_names_of(job) == HeaderNames(**names)  # type: ignore[arg-type]
    assert contract_of(job).default_destination is None

    leveled = load(kafka_file, "contract.id_from=key", "levels={policy: fixed, list: [1s, 1m]}")
    assert header_names_of(leveled).levels_ms == (1_000, 60_000)
    assert load(kafka_file, "contract.preset=json", "contract.default_delay=0").contract.preset == "json"


def test_what_a_dry_run_says_of_a_preset_names_the_headers(kafka_file: Path) -> None:
    def said(*overrides: str) -> str:
        (line,) = source_lines(load(kafka_file, *overrides), {"source": SimpleNamespace(columns=[])})  # type: ignore[dict-item]
        return line

    assert ", preset native, first start" in said()
    named = said("contract.due_from=header:eta", "contract.default_delay=0", "contract.id_from=key")
    assert ", preset native (id_from key, due_from header:eta, default_delay 0 ms), first start" in named


@pytest.mark.parametrize(
    ("overrides", "faults"),
    [
        (
            ["due_from=eta", "id_from='header:'", "seq_from=offset", "delay_from=header:d", "delay_unit=min"],
            [
                "not a part of a record: contract.due_from = 'eta'; rule: header:NAME; hint: header:eta reads the",
                "not a part of a record: contract.id_from = 'header:'; rule: one of header:NAME, key, offset; hint:",
                "not a part of a record: contract.seq_from = 'offset'; rule: one of header:NAME, constant; hint:",
                "not one of the known values: contract.delay_unit = 'min'; rule: ",
            ],
        ),
        (
            ["due_from=header:at", "delay_from=header:at", "default_delay=soon"],
            [
                "one header with two uses: contract.delay_from = 'header:at'; rule: not the header of due_from",
                "not a duration: contract.default_delay = 'soon'",
            ],
        ),
        (
            ["delay_unit=ms"],
            ["a setting without effect: contract.delay_unit = 'ms'; rule: with contract.delay_from"],
        ),
        (
            ["preset=json", "id_from=key", "due_from=header:at", "memory=x"],
            [
                "a setting without effect: contract.id_from = 'key'; rule: contract.preset: native",
                "a setting without effect: contract.due_from = 'header:at'; rule: contract.preset: native",
                "not a duration: contract.memory = 'x'",
            ],
        ),
    ],
)
def test_faults_of_named_headers_are_told_together(
    kafka_file: Path, overrides: list[str], faults: list[str]
) -> None:
    found = faults_of(kafka_file, *(f"contract.{each}" for each in overrides))
    assert len(found) == len(faults)
    assert [fault for fault in faults if not any(each.startswith(fault) for each in found)] == []


def test_other_sources_have_no_headers(file: Path) -> None:
    found = faults_of(file, "contract.due_from=header:eta", "contract.default_delay=1 s")
    assert found == [
        "a setting without effect: contract.due_from = 'header:eta'; rule: source.format: kafka",
        "a setting without effect: contract.default_delay = '1000 ms'; rule: source.format: kafka",
    ]


@pytest.mark.parametrize(
    "options",
    [
        "{subscribe: 'a, b'}",
        "{subscribePattern: 'a.*'}",
        "{ASSIGN: '{\"a\": [0, 1]}'}",
    ],
)
def test_topics_may_stand_in_the_options_of_spark(kafka_file: Path, options: str) -> None:
    way = options.replace("{", "{kafka.bootstrap.servers: 'h:1', ", 1)
    assert load(kafka_file, "source.topics=", f"source.options={way}").source.topics is None


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        (
            "source.path=in",
            "not a setting of format kafka: source.path = 'in'; rule: only with format: parquet, json, csv or delta",
        ),
        (
            "source.schema=a INT",
            "not a setting of format kafka: source.schema = 'a INT'; rule: only with format: parquet",
        ),
        ("source.topics=", "no topics: source; rule: one of: topics, or the option subscribe"),
        ("source.topics=[]", "empty: source.topics"),
        ("source.topics=[a b]", "not a name: source.topics.0 = 'a b'"),
        ("source.topics=[..]", "not a name: source.topics.0 = '..'"),
        ("source.topics=[5]", "not a text: source.topics.0 = 5"),
        ("source.topics=orders", "not a list: source.topics = 'orders'"),
        ("source.options.subscribe=a", "found options.subscribe and topics: source; rule: one of"),
        ("source.options={}", 'a required option is missing: source.options."kafka.bootstrap.servers"'),
        ("source.options.startingOffsets=first", "not offsets: source.options.startingOffsets = 'first'"),
        (
            'source.options.startingOffsets=\'{"orders": {"0": -3}}\'',
            "no such offset: source.options.startingOffsets = -3; rule: earliest, latest, or JSON",
        ),
        ("source.options.startingOffsets='{\"orders\": [0]}'", "not offsets: source.options.startingOffsets"),
        ("source.options.endingOffsets=latest", "an end that moves: source.options.endingOffsets = 'latest'"),
        (
            'source.options.endingOffsets=\'{"orders": {"x": 1}}\'',
            "not offsets: source.options.endingOffsets",
        ),
        ('source.options.endingOffsets=\'{"orders": {"0": true}}\'', "not offsets: source.options.endingOff"),
        (
            'source.options.endingOffsets=\'{"orders": {"0": -1}}\'',
            "no such offset: source.options.endingOff",
        ),
        (
            "source.options.endingTimestamp=5",
            "an option that streams do not have: source.options.endingTimest",
        ),
        (
            "contract.preset=columns",
            "a Kafka record has no such columns: contract.preset = 'columns'; rule: one",
        ),
        ("contract.preset=compacted", "not one of the known values: contract.preset = 'compacted'"),
        ("source={format: json, path: in}", ""),
        (
            "destinations.x={sink: kafka}",
            'a required option is missing: destinations.x.options."kafka.bootstr',
        ),
        (
            "destinations.orders_*.path=x",
            "not a setting of sink kafka: destinations.orders_*.path = 'x'; rule: only with sink: delta, parquet",
        ),
        (
            "destinations.orders_*.topic=x",
            "does not belong here: destinations.orders_*.topic; rule: the topic is the destination's name; only rejects",
        ),
        (
            "destinations.orders_*.options.topic=x",
            "an option that a kafka sink does not take: destinations.orde",
        ),
        (
            "destinations.audit.topic=x",
            "does not belong here: destinations.audit.topic; rule: the topic is the destination's name",
        ),
        (
            "destinations.audit.options={a: 1}",
            "not a setting of sink delta: destinations.audit.options = {'a': 1}; rule: only with sink: kafka",
        ),
        (
            "rejects.topic=",
            "a required setting is missing: rejects.topic; rule: the topic for what cannot be delivered",
        ),
        ("rejects.topic=a/b", "not a name: rejects.topic = 'a/b'"),
        ("rejects.topic=orders", "the rejects would come back as commands: rejects.topic = 'orders'"),
    ],
)
def test_a_fault_in_the_settings_of_kafka_is_told(kafka_file: Path, override: str, fault: str) -> None:
    if not fault:
        assert load(kafka_file, override).contract.preset == "columns"
        return
    assert [found[: len(fault)] for found in faults_of(kafka_file, override)] == [fault]


def test_without_confluent_kafka_each_section_of_topics_is_an_error_that_says_how_to_install_it(
    kafka_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheel_udf.common.extras.find_spec", lambda _: None)
    found = faults_of(kafka_file)
    assert found == [
        f"the package confluent_kafka is not installed: {section}; hint: pip install 'wheel-udf[kafka]'"
        for section in ("source", "destinations.orders_*", "rejects")
    ]


LEVEL_TOPICS = "levels.topics={delay_30s: 30s, delay_1m: 1 minute}"


def test_delay_levels_are_a_policy_over_the_ticks_of_the_wheel(file: Path, kafka_file: Path) -> None:
    assert load(file).levels is None
    job = load(file, "levels={}")
    assert job.levels is not None
    assert job.levels.levels(1_000) == FixedLevels()
    job = load(file, "levels={list: [1s, 90 seconds, PT1H], on_beyond: top}")
    assert job.levels is not None
    assert job.levels.levels(1_000) == FixedLevels((1_000, 90_000, 3_600_000), "top")
    job = load(file, "levels.policy=binary")
    assert job.levels is not None
    assert job.levels.levels(500) == BinaryLevels(500)
    job = load(kafka_file, LEVEL_TOPICS, "levels.paused=[30s]")
    assert job.levels is not None
    assert (job.levels.topics, job.levels.paused) == ({"delay_30s": 30_000, "delay_1m": 60_000}, (30_000,))


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        (
            "levels.list=[10s, 5s]",
            "not a list of delay levels: levels.list = ['10s', '5s']; rule: each level",
        ),
        ("levels.list=[]", "not a list of delay levels: levels.list = []; rule: 1 to 64 levels"),
        ("levels.list=[0s]", "too small: levels.list.0 = '0s'; rule: at least 1 ms"),
        ("levels.list=[soon]", "not a duration: levels.list.0 = 'soon'"),
        ("levels.on_beyond=drop", "not one of the known values: levels.on_beyond = 'drop'"),
        ("levels.policy=roman", "not one of the known values: levels.policy = 'roman'"),
        (
            "levels={policy: binary, list: [5s]}",
            "not a setting of policy binary: levels.list = ['5s']; rule: only with policy: fixed",
        ),
        ("levels.lists=[5s]", "unknown key: levels.lists; hint: did you mean list?"),
        ("levels.topics={a: 17s}", "not a delay level: levels.topics.a = '17s'; rule: one of levels.list"),
        (
            "levels={policy: binary, topics: {a: 3s}}",
            "not a delay level: levels.topics.a = '3s'; rule: a power of two of wheel.tick",
        ),
        ("levels.topics={orders: 30s}", "this topic is read already: levels.topics = 'orders'"),
        (
            "levels.topics={rejects: 30s}",
            "the rejects would come back as commands: rejects.topic = 'rejects'",
        ),
        ("levels.topics={a b: 30s}", "not a name: levels.topics.a b = 'a b'"),
        (
            "levels.paused=[1h]",
            "the intake of this level cannot pause: levels.paused = '1h'; rule: a level with",
        ),
    ],
)
def test_a_fault_of_the_delay_levels_names_its_field(kafka_file: Path, override: str, fault: str) -> None:
    assert fault_of(kafka_file, override).startswith(fault)


def test_topics_of_levels_want_a_kafka_source_that_names_its_own(file: Path, kafka_file: Path) -> None:
    assert fault_of(file, LEVEL_TOPICS) == (
        "a setting of kafka sources: levels.topics; rule: source.format: kafka"
    )
    pattern = ("source.topics=", "source.options.subscribePattern=o.*", LEVEL_TOPICS)
    assert fault_of(kafka_file, *pattern).startswith("topics beside a pattern: levels.topics; rule:")


def test_a_topic_of_a_level_has_its_own_reader_and_a_paused_one_reads_nothing() -> None:
    given = {
        "subscribe": "orders",
        "startingOffsets": '{"orders": {"0": 7}, "delay_30s": {"0": 9}}',
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "50",
    }
    assert for_topics(given, ["orders"])["startingOffsets"] == '{"orders": {"0": 7}}'
    assert for_level_topic(given, "delay_1m", paused=False) == {
        "subscribe": "delay_1m",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "50",
    }
    assert for_level_topic(given, "delay_30s", paused=True) == {
        "subscribe": "delay_30s",
        "startingOffsets": '{"delay_30s": {"0": 9}}',
        "maxOffsetsPerTrigger": "0",
    }


def test_the_settings_of_kafka_do_not_fit_other_sources(file: Path) -> None:
    assert fault_of(file, "contract.preset=json").startswith(
        "a preset of Kafka records: contract.preset = 'json'; rule: columns, unless the source is kafka"
    )
    assert fault_of(file, "source.topics=[a]") == (
        "not a setting of format parquet: source.topics = ['a']; rule: only with format: kafka"
    )


def test_a_delta_source_may_be_read_as_its_changes_and_no_other_has_any(file: Path, kafka_file: Path) -> None:
    feed = "source={format: delta, path: in, options: {READCHANGEFEED: true}}"
    assert load(file, feed).source.reads_changes
    assert not load(file, feed, "source.options.READCHANGEFEED=false").source.reads_changes
    assert not load(file, "source.format=delta").source.reads_changes
    assert fault_of(file, feed, "contract.preset=scheduler").startswith("a preset of Kafka records")
    for name, format_, base in (("readChangeFeed", "parquet", file), ("readChangeData", "kafka", kafka_file)):
        assert fault_of(base, f"source.options.{name}=true") == (
            f"{format_} has no change feed: source.options; rule: {name} only with delta"
        )


def test_all_faults_of_kafka_stand_in_one_list(kafka_file: Path) -> None:
    faults = faults_of(
        kafka_file,
        "source={format: kafka, path: x, options: {endingOffsets: latest, startingOffsets: soon}}",
        "rejects={sink: kafka}",
        "wheel.size=1",
    )
    assert [fault.split(":")[0] for fault in faults] == [
        "not a setting of format kafka",
        "a required option is missing",
        "no topics",
        "not offsets",
        "an end that moves",
        "a required setting is missing",
        "a required option is missing",
        "too small",
    ]


def test_the_reader_starts_at_the_earliest_record_and_reads_headers() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "maxOffsetsPerTrigger": "5", "includeHeaders": "false"}
    assert reader_options(options, ("a", "b")) == {
        "kafka.bootstrap.servers": "h:1",
        "maxOffsetsPerTrigger": "5",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }


def test_what_the_options_say_about_start_and_loss_stays_and_the_end_is_ours() -> None:
    end = '{"a": {"0": 2, "1": 3}}'
    options = {"StartingTimestamp": "5", "failondataloss": "false", "subscribe": "a", "endingoffsets": end}
    assert reader_options(options, None) == {
        "StartingTimestamp": "5",
        "failondataloss": "false",
        "subscribe": "a",
        "includeHeaders": "true",
    }
    assert ending_offsets(options) == {"a": {0: 2, 1: 3}}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("wheel.size=60", {"wheel": {"size": 60}}),
        ('destinations."a.b".path=out', {"destinations": {"a.b": {"path": "out"}}}),
        ('source.options."x.y"=1', {"source": {"options": {"x.y": 1}}}),
        ("a=b=c", {"a": "b=c"}),
        ("a={b: [1, 2]}", {"a": {"b": [1, 2]}}),
        ("a=2013-01-01", {"a": "2013-01-01"}),
        ("destinations.reminders_*.create=true", {"destinations": {"reminders_*": {"create": True}}}),
    ],
)
def test_an_override_sets_one_value_at_a_dotted_path(override: str, expected: dict[str, Any]) -> None:
    settings: dict[str, Any] = {}
    config.apply_override(settings, override)
    assert settings == expected


@pytest.mark.parametrize("override", ["=1", "a.=1", ".a=1", "a", 'a"b"=1', "a..b=1", ""])
def test_an_override_that_is_not_a_path_and_a_value_is_a_fault(file: Path, override: str) -> None:
    assert fault_of(file, override).startswith("--set cannot be read")


def test_later_overrides_win_and_an_empty_one_takes_the_setting_out(file: Path) -> None:
    assert load(file, "wheel.size=30", "wheel.size=40").wheel.size == 40
    assert load(file, "limits.fired_per_batch=").limits.fired_per_batch is None
    assert load(file, "trigger=available-now").trigger_ms is None


def test_an_override_into_a_value_that_has_no_keys_is_a_fault(file: Path) -> None:
    assert fault_of(file, "name.first=x") == "--set names a key inside a value that is not a section: name"


def test_bounds_are_lifted_by_their_words(file: Path) -> None:
    job = load(file, "contract.memory=unlimited", "contract.max_delay=unlimited", "clock.max_ahead=none")
    assert (job.contract.memory_ms, job.contract.max_delay_ms) == (None, None)
    assert job.clock.model_dump()["max_ahead_ms"] is None
    assert load(file, "contract.memory=0").contract.memory_ms == 0


def test_a_simulated_clock_takes_start_and_step_or_instants_in_utc(file: Path) -> None:
    stepped = load(file, "clock={kind: simulated, start: 1970-01-01T00:01:00Z, step: PT1S}").clock
    listed = load(
        file, "clock={kind: simulated, instants: [1970-01-01, '1970-01-01T01:00:00.5+01:00']}"
    ).clock
    assert stepped.model_dump() == {
        "kind": "simulated",
        "start_ms": 60_000,
        "step_ms": 1_000,
        "instants_ms": (),
    }
    assert listed.model_dump() == {
        "kind": "simulated",
        "start_ms": None,
        "step_ms": None,
        "instants_ms": (0, 500),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the config file holds nothing"),
        ("- a\n", "the config file holds a list"),
        (
            "a: [1\nb: 2",
            "the config file is not valid YAML (expected ',' or ']', but got ':'): job.yml, line 2, column 2",
        ),
        (
            "a: 1\na: 2",
            "the config file is not valid YAML (the key 'a' occurs twice): job.yml, line 2, column 1",
        ),
        (
            "w: {x: 1, x: 2}",
            "the config file is not valid YAML (the key 'x' occurs twice): job.yml, line 1, column 11",
        ),
        ("[a]: 1", "the config file is not valid YAML (a key must be a text): job.yml, line 1, column 1"),
        ("a: !!python/object:os.x {}", "the config file is not valid YAML"),
        ("a: &x {b: *x}", "the config file is not valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_of_yaml_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load("job.yml")
    assert str(caught.value).startswith(sentence)


def test_an_empty_section_is_as_if_it_were_not_there(file: Path) -> None:
    file.write_text(GOOD + "store:\nlevels:\ncontract_:\n", encoding="utf-8")
    assert fault_of(file) == "unknown key: contract_; hint: did you mean contract?"
    file.write_text(GOOD + "store:\nlevels:\n", encoding="utf-8")
    assert load(file).mode == "direct"
    lines = [line if "clock" not in line else "clock:" for line in GOOD.splitlines()]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert fault_of(file) == "a required setting is missing: clock; rule: the clock of the wheel"


def test_a_missing_file_and_a_folder_are_config_faults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such config file"):
        config.load(tmp_path / "none.yml")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path)
    (tmp_path / "bytes.yml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not text"):
        config.load(tmp_path / "bytes.yml")


def test_anchors_and_merge_keys_work(file: Path) -> None:
    file.write_text(GOOD.replace("  reminders_*: {", "  a: &sink {") + "\n")
    file.write_text(
        file.read_text().replace("create: true}\n", "create: true}\n  b: {<<: *sink, create: false}\n")
    )
    sinks = load(file).destinations
    assert (sinks["a"].path, sinks["b"].path, sinks["a"].create, sinks["b"].create) == (
        "data/tables",
    ) * 2 + (True, False)


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("maxFilesPerTrigger: 1", "kafka.sasl.jaas.config: [hunter2]"),
        GOOD.replace("options: {maxFilesPerTrigger: 1}", "options: [{my_password: hunter2}]"),
        GOOD.replace("rejects: {", "rejects: {my_token: hunter2, "),
        GOOD + "secret: 'hunter2\n",
    ],
)
def test_secrets_are_in_no_message(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(file, ["source.options.password={hunter2", 'secret."x=hunter2'])
    assert "hunter2" not in str(caught.value)
