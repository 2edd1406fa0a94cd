"""One Connect server for the tests of this folder, and a client for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect import server as servers
from tests.connect.world import World


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """The server, for all tests; one that was killed is started again by the next one."""
    with servers.running(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def world(server: servers.Server, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Tables in a schema of the test, and a client."""
    schema = re.sub(r"\W+", "_", request.node.name).strip("_").lower()[-100:]
    world = World(server, schema, tmp_path)
    yield world
    world.client.kill()
