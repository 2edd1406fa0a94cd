"""The local broker: it serves, it ends, and it leaves alone what it did not start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.client import KafkaWorld
from wheel_udf.common.errors import SessionError
from wheel_udf.testing import broker as local_kafka
from wheel_udf.testing.broker import EXTERNAL_VARIABLE, LocalKafka
from wheel_udf.testing.topics import create_topics, delete_topics

ROOT = Path(__file__).parents[3]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tests run against an external broker."""
    monkeypatch.delenv(EXTERNAL_VARIABLE, raising=False)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.is_file() or state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def test_what_is_written_is_read_back_untouched(kafka: KafkaWorld) -> None:
    topic = kafka.topic(partitions=2)

    kafka.produce(
        topic,
        [
            (b"a", b"\x00\xff", [("wheel-id", b"a"), ("trace", None), ("trace", b"2")], 0),
            (None, None, {}, 1),
            ("b", "text", {"wheel-op": "CANCEL"}, 0),
        ],
    )

    assert kafka.consume(topic, 3) == [
        (b"a", b"\x00\xff", [("wheel-id", b"a"), ("trace", None), ("trace", b"2")], 0),
        (b"b", b"text", [("wheel-op", b"CANCEL")], 0),
        (None, None, [], 1),
    ]
    assert kafka.count(topic) == 3


def test_a_reader_that_asks_for_too_much_gets_what_there_is(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(b"a", b"1")])

    assert kafka.consume(topic, 2, patience_s=1) == [(b"a", b"1", [], 0)]
    assert kafka.everything(topic) == [(b"a", b"1", [], 0)]


def test_a_topic_that_exists_is_told(kafka: KafkaWorld) -> None:
    topic = kafka.topic()

    with pytest.raises(SessionError, match=f"the topic cannot be created: {topic} = .*already exists"):
        create_topics(kafka.bootstrap, [topic])


def test_topics_are_deleted_and_may_be_made_again(kafka: KafkaWorld) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(b"a", b"old")])

    delete_topics(kafka.bootstrap, [topic, "there is no such topic"])
    assert topic not in kafka.topics()

    create_topics(kafka.bootstrap, [topic])
    assert kafka.everything(topic) == []


def test_a_broker_of_its_own_takes_settings_is_killed_taken_up_and_stopped(own: None, tmp_path: Path) -> None:
    broker = LocalKafka(tmp_path / "broker", {"message.max.bytes": "2000"})
    with broker:
        first_pid, bootstrap = broker.pid, broker.bootstrap
        world = KafkaWorld(bootstrap)
        topic = world.topic()
        world.produce(topic, [(b"a", b"kept")])
        with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
            world.produce(topic, [(b"a", os.urandom(3_000))])
        assert world.topics() == {topic}

        broker.kill()
        assert not _runs(first_pid)
        assert broker.pid is None

        broker.start()
        assert broker.bootstrap == bootstrap
        assert world.everything(topic) == [(b"a", b"kept", [], 0)]
        second_pid = broker.pid
    assert not _runs(second_pid)
    broker.stop()  # harmless
    assert (tmp_path / "broker" / "broker.log").is_file()


def test_two_brokers_do_not_meet_and_a_temporary_folder_goes_with_its_broker(
    kafka: KafkaWorld, own: None
) -> None:
    with LocalKafka() as other:
        folder = other.folder
        assert folder.is_dir()
        assert KafkaWorld(other.bootstrap).topics() == set()
        assert other.bootstrap != kafka.bootstrap

    assert not folder.exists()


def test_a_port_that_is_taken_is_another_ports_turn(
    kafka: KafkaWorld, own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, free_ports = taken.getsockname()[1], local_kafka.free_ports
        offers = iter([(port, free_ports()[1])])
        monkeypatch.setattr(local_kafka, "free_ports", lambda: next(offers, None) or free_ports())
        with LocalKafka() as broker:
            assert broker.bootstrap != f"127.0.0.1:{port}"
            assert KafkaWorld(broker.bootstrap).topics() == set()


def test_a_broker_that_does_not_come_up_says_why(own: None, tmp_path: Path) -> None:
    broker = LocalKafka(tmp_path, {"num.io.threads": "-1"})

    with pytest.raises(SessionError, match=r"Invalid value -1 for configuration num.io.threads"):
        broker.start()
    assert broker.pid is None


def test_an_external_broker_is_used_and_never_stopped(
    kafka: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXTERNAL_VARIABLE, kafka.bootstrap)

    with LocalKafka() as broker:
        assert broker.bootstrap == kafka.bootstrap
        assert broker.pid is None
        with pytest.raises(SessionError, match="not killed from here"):
            broker.kill()

    assert kafka.topic() in kafka.topics()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_broker_does_not_outlive_an_owner_that_is_killed(own: None) -> None:
    program = (
        "import sys; from wheel_udf.testing.broker import LocalKafka; b = LocalKafka().start(); "
        "print(b.pid, b.folder, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        pid, folder = owner.stdout.readline().split()
        assert _runs(int(pid))
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    subprocess.run(
        ["tail", f"--pid={pid}", "-s0.1", "-f", "/dev/null"], timeout=60, check=True
    )  # waits for its end
    assert not _runs(int(pid))
    shutil.rmtree(folder)


@pytest.mark.sentinel
def test_the_verb_broker_serves_topics_on_its_port_until_it_is_told_to_end(own: None) -> None:
    port = local_kafka.free_ports()[0]
    command = [sys.executable, "-m", "wheel_udf", "broker", "--port", str(port)]
    command += ["--topic", "orders", "--partitions", "3"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as verb:
        assert verb.stdout is not None
        try:
            lines = [next(verb.stdout).strip() for _ in range(4)]
            assert lines[1:] == [
                "topics: orders",
                f"kafka.bootstrap.servers: 127.0.0.1:{port}",
                "Ctrl-C stops it",
            ]
            found = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics("orders", timeout=30)
            assert len(found.topics["orders"].partitions) == 3
            verb.send_signal(signal.SIGTERM)
            assert verb.wait(60) == 0
            assert verb.stdout.read().strip() == "stopped"
        finally:
            verb.kill()
