"""One broker for all tests that speak to Kafka: the project's own, or the one that WHEEL_UDF_KAFKA names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.client import KafkaWorld
from wheel_udf.testing.broker import LocalKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaWorld]:
    """A running broker and a plain client for it; each test takes topics of its own (`kafka.topic()`)."""
    with LocalKafka() as broker:
        yield KafkaWorld(broker.bootstrap)
