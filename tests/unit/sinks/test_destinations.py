"""The allow-list: which names are names, which sink a name gets, and that no name leads out of the folder of the
tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_udf.common.errors import ConfigError, SinkError
from wheel_udf.common.names import is_destination_name
from wheel_udf.sinks.catalog_sink import CatalogTableSink
from wheel_udf.sinks.delta_sink import DeltaSink
from wheel_udf.sinks.destinations import Destinations, require_apart
from wheel_udf.sinks.file_sink import FileSink
from wheel_udf.sinks.kafka_sink import KafkaSink
from wheel_udf.spark.places import place_of

TOPIC = KafkaSink({"kafka.bootstrap.servers": "127.0.0.1:9092"}, topic="t")
TABLES, FILES = DeltaSink("data/tables"), FileSink("data/files")

# Scenario 30, and what else names do to file systems, SQL and logs.
HOSTILE_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "../../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a; DROP TABLE t",
    "`a`",
    "a b",
    "a\n",
    "a\x00",
    "а",  # Cyrillic, looks like a
    "é",
    "a:b",
    "*",
    "a?",
    "[a]",
    "%2e%2e",
    "x" * 250,
]


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "-", "x" * 249])
def test_a_destination_name_is_letters_digits_dots_dashes_and_underscores(name: str) -> None:
    assert is_destination_name(name)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_no_name_even_where_every_name_is_allowed(name: str) -> None:
    assert not is_destination_name(name)
    assert Destinations({"*": TABLES}).resolve(name) is None
    with pytest.raises(SinkError, match="not a destination name"):
        place_of("data/tables", name)


def test_the_first_pattern_that_matches_decides() -> None:
    destinations = Destinations({"orders": FILES, "order?": TABLES, "reminders_*": TABLES, "*": FILES})
    assert [pattern for pattern, _ in destinations] == ["orders", "order?", "reminders_*", "*"]
    assert destinations.resolve("orders") is FILES
    assert destinations.resolve("orderX") is TABLES
    assert destinations.resolve("reminders_") is TABLES
    assert destinations.resolve("reminders_EWR") is TABLES
    assert destinations.resolve("anything") is FILES


def test_a_name_that_no_pattern_matches_has_no_sink() -> None:
    destinations = Destinations({"orders": TABLES, "a.b": TABLES})
    assert destinations.resolve("Orders") is None
    assert destinations.resolve("orders2") is None
    assert destinations.resolve("aXb") is None
    assert Destinations({}).resolve("orders") is None


@pytest.mark.parametrize("pattern", ["", "..", "[ab]", "a/*", "{a,b}", "a b", "*\n"])
def test_a_pattern_that_can_match_no_name_is_a_config_error(pattern: str) -> None:
    with pytest.raises(ConfigError, match="not a destination pattern"):
        Destinations({pattern: TABLES})


def test_a_table_lies_right_below_its_root(tmp_path: Path) -> None:
    assert place_of(str(tmp_path), "orders") == f"{tmp_path}/orders"
    assert place_of("s3a://bucket/tables/", "orders") == "s3a://bucket/tables/orders"
    assert place_of("s3a://bucket/rejects/", None) == "s3a://bucket/rejects"


@pytest.mark.parametrize("name", ["_delta_log", "_DELTA_LOG"])
def test_deltas_own_name_is_no_destination_because_its_neighbours_would_become_one_table(name: str) -> None:
    with pytest.raises(SinkError, match="reserved by Delta"):
        place_of("data/tables", name)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_link_that_leads_out_of_the_root_is_refused(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tables" / "within").symlink_to(tmp_path / "tables" / "orders")
    root = f"{scheme}{tmp_path}/tables"
    with pytest.raises(SinkError, match="leads out of its folder"):
        place_of(root, "out")
    assert place_of(root, "within") == f"{root}/within"


def test_an_unknown_file_format_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="parquet, json or csv"):
        FileSink("data/files", format="orc")


SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_a_kafka_sink_shows_no_option_because_any_of_them_may_be_a_secret() -> None:
    sink = KafkaSink({**SERVERS, "kafka.sasl.jaas.config": "canary"}, topic="rejects")
    assert repr(sink) == "KafkaSink(create=False, topic='rejects')"


def test_equal_kafka_sinks_are_one_key_so_that_their_topics_are_one_write() -> None:
    assert {KafkaSink(SERVERS): 1, KafkaSink(dict(SERVERS)): 2} == {KafkaSink(SERVERS): 2}
    assert KafkaSink(SERVERS) != KafkaSink({**SERVERS, "kafka.acks": "1"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "a Kafka sink without servers: options.kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": ""}, "a Kafka sink without servers"),
        ({**SERVERS, "Topic": "orders"}, "each row names its topic"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "has no transactions"),
        (
            {**SERVERS, "kafka.Max.Request.Size": "1 MB"},
            "not a number of bytes: options.kafka.max.request.size",
        ),
    ],
)
def test_an_option_that_cannot_be_is_a_config_error(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        KafkaSink(options)


def test_servers_are_found_whatever_their_case_as_spark_does() -> None:
    assert KafkaSink({"Kafka.Bootstrap.Servers": "127.0.0.1:9092"}).topic is None


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250])
def test_the_topic_of_the_rejects_has_a_topics_name(topic: str) -> None:
    with pytest.raises(ConfigError, match="not a topic's name"):
        KafkaSink(SERVERS, topic=topic)


@pytest.mark.parametrize(
    "rejects",
    [
        DeltaSink("data/tables"),
        DeltaSink("data/tables/a_rejects"),
        DeltaSink("./data//x/../tables/a/"),
        DeltaSink(str(Path("data/tables/abc/d").absolute())),
        FileSink(f"file:{Path('data/files/b').absolute()}"),
        DeltaSink("data"),
    ],
)
def test_rejects_inside_or_above_the_folder_of_a_destination_are_refused(
    rejects: DeltaSink | FileSink,
) -> None:
    destinations = Destinations({"topics": TOPIC, "a*": TABLES, "b*": FILES})
    with pytest.raises(ConfigError, match=r"share a folder: rejects\.path = .*; rule: neither in nor above"):
        require_apart(destinations, rejects)


@pytest.mark.parametrize(
    "rejects",
    [
        DeltaSink("data/tables2"),
        DeltaSink("data/tables/rejects"),
        DeltaSink("rejects"),
        DeltaSink("s3a://data/tables"),
        TOPIC,
    ],
)
def test_rejects_beside_the_folders_of_the_destinations_are_good(rejects: DeltaSink | KafkaSink) -> None:
    require_apart(Destinations({"topics": TOPIC, "a*": TABLES, "b*": FILES}), rejects)


def test_rejects_in_a_table_that_a_destination_may_have_are_refused() -> None:
    destinations = Destinations({"late*": CatalogTableSink("main.reminders.{destination}"), "b*": TABLES})
    with pytest.raises(
        ConfigError, match=r"share a table: rejects\.table = .*late_rejects'; rule: no table of"
    ):
        require_apart(destinations, CatalogTableSink("main.reminders.late_rejects"))
    require_apart(destinations, CatalogTableSink("main.reminders.rejects"))
