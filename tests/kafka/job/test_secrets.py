"""A password in the config is nowhere to be found afterwards: not in the output, the logs, the checkpoint, the tables
or the topics.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclBinding, AdminClient, NewTopic

from tests.kafka.client import KafkaWorld
from wheel_udf.common.errors import SinkError
from wheel_udf.kafka import admin as kafka_admin
from wheel_udf.kafka.admin import TopicInfo
from wheel_udf.testing.broker import LocalKafka

ROOT = Path(__file__).parents[3]
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
        "wheel": {"shards": 2},
        "clock": {"kind": "processing"},
        "source": {"format": "kafka", "topics": ["in"], "options": options},
        "destinations": {"out": {"sink": "kafka", "options": options}},
        "rejects": {"sink": "delta", "path": str(tmp_path / "bad")},
        "trigger": "available-now",
        "checkpoint": str(tmp_path / "state"),
    }


_RUNS = """
import sys
from wheel_udf.job.cli import main

for argv in [words.split() for words in sys.argv[1:]]:
    print("exit code", main(argv), flush=True)
"""


def run_jobs(
    folder: Path, bootstrap: str, *runs: tuple[str, dict[str, Any]]
) -> tuple[list[int], list[str], str]:
    """Exit codes, what each run put on standard output, and all standard error, of runs in one process: the JVM writes
    its logs there.
    """
    servers = {"kafka.bootstrap.servers": bootstrap}
    (folder / "job").mkdir()
    argv = []
    for number, (words, config) in enumerate(runs):
        verb, *more = words.split()
        for section in (config["source"], config["destinations"]["out"]):
            section["options"] = servers | section["options"]
        file = folder / "job" / f"{number}.yml"
        file.write_text(yaml.safe_dump(config))
        argv.append(" ".join([verb, "--config", str(file), *more]))
    run = subprocess.run(
        [sys.executable, "-c", _RUNS, *argv],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"WHEEL_CANARY": OTHER},
    )
    shutil.rmtree(folder / "job")
    *outputs, _ = re.split(r"^exit code ", run.stdout, flags=re.MULTILINE)
    codes = [int(code) for code in re.findall(r"^exit code (\d+)$", run.stdout, flags=re.MULTILINE)]
    return codes, outputs, run.stderr


def holders(folder: Path) -> list[str]:
    """Files that hold one of the secrets."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    secrets = (CANARY.encode(), OTHER.encode())
    return [str(file) for file in files if any(secret in file.read_bytes() for secret in secrets)]


def assert_nowhere(output: str, folder: Path) -> None:
    assert CANARY not in output
    assert OTHER not in output
    assert holders(folder) == []


def test_rejects_an_undeliverable_row_and_faults_of_options_and_clusters_hold_no_secret(
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
    away, no_login = (copy.deepcopy(config) for _ in range(2))
    for section in (away["source"], away["destinations"]["out"]):
        section["options"]["kafka.bootstrap.servers"] = "127.0.0.1:1"
    no_login["source"]["options"]["kafka.security.protocol"] = "SASL_PLAINTEXT"
    no_login["source"]["options"]["kafka.sasl.jaas.config"] = f"{CANARY} is no JAAS text"
    runs = (
        ("run", config),
        ("dry-run --debug", config),
        ("run --debug", away),
        ("run --debug", no_login),
    )
    codes, outputs, errors = run_jobs(tmp_path, kafka.bootstrap, *runs)
    assert codes == [0, 2, 1, 1], errors
    assert "1 rejected" in outputs[0]
    assert (tmp_path / "bad" / "_delta_log").is_dir()
    assert "cannot be written, " in outputs[1] + errors
    assert "error: the Kafka cluster does not answer" in errors
    assert (
        f"librdkafka cannot ask the Kafka cluster {kafka.bootstrap} (options.kafka.sasl.jaas.config" in errors
    )
    assert_nowhere("".join(outputs) + errors, tmp_path)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A broker that lets nobody in without a password."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = (
        f'username="broker" password="inside" user_broker="inside" user_wheel="{CANARY}" user_guest="guest"'
    )
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{login} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:wheel;User:ANONYMOUS",
    }
    with LocalKafka(properties=properties) as broker:
        yield broker


def login(user: str, password: str, flag: str = "required") -> dict[str, str]:
    """Options of Spark's connector."""
    module = f"org.apache.kafka.common.security.plain.PlainLoginModule {flag}"
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="{user}" password="{password}";',
    }


def log_in(config: dict[str, Any], password: str, flag: str = "required") -> None:
    options = login("wheel", password, flag)
    for section in (config["source"], config["destinations"]["out"]):
        section["options"] = options


@pytest.fixture
def client(guarded: LocalKafka) -> dict[str, str]:
    """Settings of a client that may do everything."""
    user = {"sasl.mechanism": "PLAIN", "sasl.username": "wheel", "sasl.password": CANARY, "log_level": "0"}
    return {"bootstrap.servers": guarded.bootstrap, "security.protocol": "SASL_PLAINTEXT", **user}


def test_a_broker_that_asks_for_a_password_is_read_and_written_and_a_wrong_one_is_told_and_not_shown(
    guarded: LocalKafka, client: dict[str, str], config: dict[str, Any], tmp_path: Path
) -> None:
    admin = AdminClient(client)  # its futures end with it
    for topic in admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)]).values():
        topic.result(timeout=60)
    producer = Producer(client)
    headers = {"wheel-id": b"a", "wheel-delay": b"0", "wheel-target": b"out"}
    producer.produce("in", value=b"close", headers=headers)
    assert producer.flush(60) == 0
    wrong, of_java = copy.deepcopy(config), copy.deepcopy(config)
    of_java["checkpoint"] += "-2"
    log_in(config, CANARY)
    log_in(wrong, OTHER)
    log_in(of_java, CANARY, "sufficient")  # a login that only Spark's own client understands
    runs = (("run", config), ("run --debug", wrong), ("run", of_java))
    codes, outputs, errors = run_jobs(tmp_path, guarded.bootstrap, *runs)
    assert codes == [0, 1, 0], errors
    assert "the Kafka cluster does not answer (_AUTHENTICATION: " in errors
    assert "1 fired" in outputs[2]
    assert errors.count("its topics are neither checked nor created") == 1
    consumer = Consumer(client | {"group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["out"])
    (message,) = consumer.consume(1, timeout=60)
    consumer.close()
    assert message.value() == b"close"
    assert_nowhere("".join(outputs) + errors, tmp_path)


def test_a_topic_that_the_user_may_not_describe_is_missing_and_one_that_may_not_be_written_is_told(
    guarded: LocalKafka, client: dict[str, str]
) -> None:
    admin = AdminClient(client)
    for made in admin.create_topics([NewTopic("shown", 2), NewTopic("hidden", 1)]).values():
        made.result(timeout=60)
    of_guest = AclBinding("TOPIC", "shown", "LITERAL", "User:guest", "*", "DESCRIBE", "ALLOW")
    admin.create_acls([of_guest])[of_guest].result(timeout=60)
    guest = {"kafka.bootstrap.servers": guarded.bootstrap, **login("guest", "guest")}
    found = kafka_admin.describe(guest, ["shown", "hidden"])
    assert found == {"shown": TopicInfo(partitions=2, max_message_bytes=None, may_write=False)}
    with pytest.raises(SinkError, match=r"the topic x cannot be created \(\w+_AUTHORIZATION_FAILED"):
        kafka_admin.create(guest, "x")
    with pytest.raises(
        SinkError, match=r"does not answer \(TOPIC_AUTHORIZATION_FAILED"
    ):  # not: it was deleted
        kafka_admin.offsets(guest, ["hidden"])
    kafka_admin.close_all()
