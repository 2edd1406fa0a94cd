"""A password in the config is nowhere to be found afterwards: not in the output, the logs, the checkpoint, the tables or the topics."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.client import KafkaWorld
from wheel_udf.local_kafka import LocalKafka

ROOT = Path(__file__).parents[2]
CANARY = "can4ry-in-the-mine"
OTHER = "fr0m-the-environment"
JAAS = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="wheel" password="{CANARY}";'
)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    # Without kafka.security.protocol the client does not log in: the options are there, and the broker does not ask.
    options = {"kafka.sasl.jaas.config": JAAS, "kafka.ssl.key.password": "${env:WHEEL_CANARY}"}
    return {
        "wheel": {"shards": 1},
        "clock": {"kind": "processing"},
        "source": {"format": "kafka", "topics": ["in"], "options": options},
        "destinations": {"out": {"sink": "kafka", "options": options}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "bad")},
        "trigger": "available-now",
        "checkpoint": str(tmp_path / "state"),
    }


def run_job(folder: Path, config: dict[str, Any], bootstrap: str, *argv: str) -> tuple[int, str]:
    """Exit code and all output of a job in a process of its own: the JVM writes its logs there."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    for section in (config["source"], config["destinations"]["out"]):
        section["options"] = section["options"] | servers
    (folder / "job").mkdir()
    file = folder / "job" / "job.yml"
    file.write_text(yaml.safe_dump(config))
    verb, *more = argv
    run = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "delay_scheduler.py"), verb, "--config", str(file), *more],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"WHEEL_CANARY": OTHER},
    )
    file.unlink()
    return run.returncode, run.stdout + run.stderr


def holders(folder: Path) -> list[str]:
    """Files that hold one of the secrets."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    secrets = (CANARY.encode(), OTHER.encode())
    return [str(file) for file in files if any(secret in file.read_bytes() for secret in secrets)]


def assert_nowhere(output: str, folder: Path) -> None:
    assert CANARY not in output
    assert OTHER not in output
    assert holders(folder) == []


def test_a_run_with_rejects_and_an_undeliverable_row_holds_no_secret(
    kafka: KafkaWorld, config: dict[str, Any], tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.produce(
        topic,
        [
            (None, b"x", {"wheel-id": b"a", "wheel-delay": b"0", "wheel-target": b"out"}),  # no such topic
            (None, b"x", {"wheel-id": b"b"}),
        ],
    )
    config["source"]["topics"] = [topic]
    code, output = run_job(tmp_path, config, kafka.bootstrap, "run")
    assert (code, "1 rejected" in output) == (0, True), output
    assert (tmp_path / "bad" / "_delta_log").is_dir()
    assert_nowhere(output, tmp_path)


def test_a_dry_run_and_its_faults_hold_no_secret(
    kafka: KafkaWorld, config: dict[str, Any], tmp_path: Path
) -> None:
    config["source"]["topics"] = [kafka.topic()]
    code, output = run_job(tmp_path, config, kafka.bootstrap, "dry-run", "--debug")
    assert (code, "cannot be written, " in output) == (2, True), output
    assert_nowhere(output, tmp_path)


def test_a_cluster_that_cannot_be_reached_is_told_without_a_secret(
    config: dict[str, Any], tmp_path: Path
) -> None:
    code, output = run_job(tmp_path, config, "127.0.0.1:1", "run", "--debug")
    assert (code, "error: the Kafka cluster does not answer" in output) == (1, True), output
    assert_nowhere(output, tmp_path)


def test_a_login_that_cannot_work_is_told_without_a_secret(
    kafka: KafkaWorld, config: dict[str, Any], tmp_path: Path
) -> None:
    config["source"]["options"]["kafka.security.protocol"] = "SASL_PLAINTEXT"
    config["source"]["options"]["kafka.sasl.jaas.config"] = f"{CANARY} is no JAAS text"
    code, output = run_job(tmp_path, config, kafka.bootstrap, "run", "--debug")
    assert (code, "error: the options of Kafka do not make a client" in output) == (1, True), output
    assert_nowhere(output, tmp_path)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A broker that lets nobody in without a password."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'username="broker" password="inside" user_broker="inside" user_wheel="{CANARY}"'
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{login} {users};",
    }
    with LocalKafka(properties=properties) as broker:
        yield broker


def log_in(config: dict[str, Any], password: str) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{login} username="wheel" password="{password}";',
    }
    for section in (config["source"], config["destinations"]["out"]):
        section["options"] = options


def test_a_broker_that_asks_for_a_password_is_read_and_written(
    guarded: LocalKafka, config: dict[str, Any], tmp_path: Path
) -> None:
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "wheel"}
    client |= {"bootstrap.servers": guarded.bootstrap, "sasl.password": CANARY}
    admin = AdminClient(client)  # its futures end with it
    for topic in admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)]).values():
        topic.result(timeout=60)
    producer = Producer(client)
    headers = {"wheel-id": b"a", "wheel-delay": b"0", "wheel-target": b"out"}
    producer.produce("in", value=b"close", headers=headers)
    assert producer.flush(60) == 0
    log_in(config, CANARY)
    code, output = run_job(tmp_path, config, guarded.bootstrap, "run")
    assert code == 0, output
    consumer = Consumer(client | {"group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["out"])
    (message,) = consumer.consume(1, timeout=60)
    consumer.close()
    assert message.value() == b"close"
    assert_nowhere(output, tmp_path)


def test_a_wrong_password_is_told_and_not_shown(
    guarded: LocalKafka, config: dict[str, Any], tmp_path: Path
) -> None:
    log_in(config, OTHER)
    code, output = run_job(tmp_path, config, guarded.bootstrap, "run", "--debug")
    assert (code, "uthentication" in output) == (1, True), output
    assert_nowhere(output, tmp_path)
