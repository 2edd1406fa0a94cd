"""Retries, rates and dead letters of a config: all that is wrong with them is reported together."""

from __future__ import annotations

from pathlib import Path

from tests.unit.job.configs import faults_of, written
from wheel_udf.job.loader import load
from wheel_udf.job.models.scheduler import SchedulerConfig
from wheel_udf.job.models.service import dead_letters_of, retries_of

REST = """
clock: {kind: processing}
source: {format: json, path: in}
wheel: {shards: 4}
rejects: {sink: delta, path: bad}
checkpoint: state
"""


def test_each_setting_that_cannot_be_is_named_with_its_value_and_its_rule(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        REST
        + """
destinations:
  table: {sink: delta, path: tables, retries: {attempts: 3}}
  file: {sink: parquet, path: files, on_undeliverable: retry}
  burst: {sink: http, url: "http://x", burst: 5}
  list: {sink: http, url: "http://x", retries: {policy: list}}
  waits: {sink: http, url: "http://x", retries: {waits: [1 second]}}
  many: {sink: http, url: "http://x", rate: fast, retries: {attempts: 0, factor: 0.5, jitter: some}}
  not_wanted: {sink: http, url: "http://x", on_undeliverable: reject, retries: {attempts: 3}}
""",
    )
    tables = (
        "rule: of webhooks, databases, topics and sinks of your own; hint: a batch that cannot write a table is "
        "repeated as a whole, so each row is there once"
    )
    assert faults_of(file) == [
        f"tables and files are not tried again: destinations.table.retries; {tables}",
        f"tables and files are not tried again: destinations.file.on_undeliverable = 'retry'; {tables}",
        "a burst without a rate: destinations.burst.burst = 5; rule: with rate",
        "not the waits of this policy: destinations.list.retries.waits = []; rule: with policy: list, and only there",
        (
            "not the waits of this policy: destinations.waits.retries.waits = [1000]; "
            "rule: with policy: list, and only there"
        ),
        (
            "not a rate: destinations.many.rate = 'fast'; "
            "rule: a number with /s, /min or /h, such as 100/s; from 0.0036/h to 1000000/s"
        ),
        "too small: destinations.many.retries.factor = 0.5; rule: at least 1.0",
        "not one of the known values: destinations.many.retries.jitter = 'some'; rule: 'full', 'equal' or 'none'",
        "too small: destinations.many.retries.attempts = 0; rule: at least 1",
        (
            "retries that are not wanted: destinations.not_wanted.on_undeliverable = 'reject'; "
            "rule: retry; or no retries, or a number of tries in the batch"
        ),
    ]


def test_faults_within_destinations_do_not_hide_those_between_sections(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        REST.replace("path: bad", "path: tables/t_1")
        + """
dead_letters: elsewhere
contract: {default_destination: nobody}
destinations:
  t_*: {sink: delta, path: tables}
  rate: {sink: http, url: "http://x", rate: fast}
  burst: {sink: http, url: "http://x", rate: 10/s, burst: 2}
  list: {sink: http, url: "http://x", timeout: soon}
""",
    )
    listed = "rule: a name that one of destinations matches: t_*, rate, burst, list"
    assert [fault.split("; rule: a dur")[0] for fault in faults_of(file)] == [
        (
            "the rejects and a destination share a folder: rejects.path = 'tables/t_1'; "
            "rule: neither in nor above the folder of destinations.t_* below tables"
        ),
        f"dead letters are not on the allow-list: dead_letters = 'elsewhere'; {listed}",
        f"the default destination is not on the allow-list: contract.default_destination = 'nobody'; {listed}",
        (
            "not a rate: destinations.rate.rate = 'fast'; "
            "rule: a number with /s, /min or /h, such as 100/s; from 0.0036/h to 1000000/s"
        ),
        "not a duration: destinations.list.timeout = 'soon'",
        "too small a burst: destinations.burst.burst = 2; rule: at least wheel.shards, 4: each shard has a part of it",
    ]


def test_a_default_that_is_not_allowed_is_told_beside_retries_that_cannot_be(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        REST
        + """
contract: {default_destination: nobody}
dead_letters: nowhere
destinations:
  a: {sink: http, url: "http://x", retries: {policy: list}}
  b: {sink: http, url: "http://x", burst: 5}
""",
    )
    assert [fault.partition(":")[0] for fault in faults_of(file)] == [
        "the default destination is not on the allow-list",
        "dead letters are not on the allow-list",
        "not the waits of this policy",
        "a burst without a rate",
    ]


def test_what_the_destinations_cannot_do_together_is_reported_together(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        REST
        + """
dead_letters: elsewhere
destinations:
  t_*: {sink: delta, path: tables}
  burst: {sink: http, url: "http://x", rate: 10/s, burst: 2}
  a: {sink: http, url: "http://x", retries: {dead_letters: nowhere}}
  b: {sink: http, url: "http://x", retries: {dead_letters: a}}
""",
    )
    listed = "rule: a name that one of destinations matches: t_*, burst, a, b"
    assert faults_of(file) == [
        f"dead letters are not on the allow-list: dead_letters = 'elsewhere'; {listed}",
        "too small a burst: destinations.burst.burst = 2; rule: at least wheel.shards, 4: each shard has a part of it",
        f"dead letters are not on the allow-list: destinations.a.retries.dead_letters = 'nowhere'; {listed}",
        (
            "dead letters would come back themselves: destinations.b.retries.dead_letters = 'a'; "
            "rule: a destination without retries"
        ),
    ]


def test_the_rejects_are_not_served_and_outcomes_are_delivered_once(tmp_path: Path) -> None:
    file = written(tmp_path, REST + "destinations: {t: {sink: delta, path: tables}}")
    assert faults_of(file, "rejects.rate=5/s", "rejects.breaker={failures: 1}") == [
        "a setting without effect: rejects.breaker; rule: of destinations, not of the rejects",
        "a setting without effect: rejects.rate; rule: of destinations, not of the rejects",
    ]
    outcomes = written(
        tmp_path,
        REST.replace("source:", "operations:")
        + """
events: {format: json, path: events}
destinations:
  a: {sink: http, url: "http://x", rate: 10/s}
  b: {sink: http, url: "http://x", retries: {attempts: 3}}
""",
    )
    assert faults_of(outcomes) == [
        "not for outcomes: destinations.a.rate; rule: of a scheduler's destinations",
        "not for outcomes: destinations.b.retries; rule: of a scheduler's destinations",
    ]


def test_dead_letters_of_a_destination_come_before_those_of_the_job(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        REST
        + """
dead_letters: dead
destinations:
  a: {sink: http, url: "http://x", retries: {dead_letters: t_dead}}
  b: {sink: http, url: "http://x", on_undeliverable: retry}
  c: {sink: http, url: "http://x", retries: 2}
  "*": {sink: delta, path: tables}
""",
    )
    config = load(file)
    assert isinstance(config, SchedulerConfig)
    assert dead_letters_of(config.destinations, config.dead_letters) == {
        "t_dead": ("destinations.a.retries.dead_letters", "*"),
        "dead": ("dead_letters", "*"),
    }
    retries = retries_of(config.destinations, config.dead_letters)
    found = {name: retry and retry.dead_letters for name in "abc" for retry in [retries.of(name)]}
    assert found == {"a": "t_dead", "b": "dead", "c": None}
