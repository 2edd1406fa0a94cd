"""How the client that makes and drops topics is set up."""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin
import pytest

from wheel_udf.testing import topics


def test_notes_of_librdkafka_are_not_among_the_lines_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    # "BGQUEUE ... Purging 1 unserved events from background queue", on a busy machine
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", seen.append)
    topics.topics_admin("127.0.0.1:9", None)
    topics.topics_admin("127.0.0.1:9", {"log_level": 7})
    assert [config["log_level"] for config in seen] == [4, 7]
