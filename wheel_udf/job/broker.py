"""The verb ``broker``: starts a Kafka broker on this machine, to try the scheduler with. It is the broker of the tests.

::

    wheel-udf broker                                a new broker on 127.0.0.1:9092, its data in a temporary folder
    wheel-udf broker --topic orders --topic late    with these topics
    wheel-udf broker --folder data/kafka            with data that outlive it

It listens on the loopback address only, has one node and no password, and ends with Ctrl-C: not for production.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.extras import missing_package
from wheel_udf.testing.broker import LocalKafka
from wheel_udf.testing.topics import create_topics


def execute(asked: argparse.Namespace, print_line: Callable[[str], None]) -> None:
    """Runs a broker until the process is interrupted.

    Raises:
        ConfigError: The port is out of range, or topics cannot be made without the client.
        SessionError: Java or the jars are missing, or the broker did not start.
    """
    if not 1 <= asked.port <= 65_535:
        raise ConfigError("not a port", field="--port", value=asked.port, rule="1 to 65535")
    if asked.topic and (missing := missing_package("confluent_kafka", "kafka", "--topic")) is not None:
        raise missing
    ended = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
    print_line("starting a broker, about 5 seconds (the first time also some downloads)")
    with LocalKafka(asked.folder, port=asked.port) as kafka:
        if asked.topic:
            create_topics(kafka.bootstrap, asked.topic, partitions=asked.partitions)
            print_line(f"topics: {', '.join(asked.topic)}")
        print_line(f"kafka.bootstrap.servers: {kafka.bootstrap}")
        print_line("Ctrl-C stops it")
        with suppress(KeyboardInterrupt):
            while not ended.wait(1):
                if not kafka.is_running:
                    raise ConfigError(
                        "the broker has ended by itself",
                        field="broker",
                        hint="see its log: --folder keeps it",
                    )
    print_line("stopped")
