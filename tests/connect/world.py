"""The ground of a test: commands, outbox and tables in a schema of its own, at a time that the test says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from tests.connect.client import Client
from tests.connect.server import Server

T0_MS: Final = 1_704_067_200_000
DESTINATIONS: Final = {"out_*": "{destination}"}
_PATIENCE_S: Final = 120

COMMANDS: Final = "schedule_id string, op string, seq bigint, deliver_at timestamp, event_time timestamp, destination string, value binary"


def due(schedule_id: str | None, due_s: int, *, seq: int = 1, to: str = "out_a", said_s: int = 0) -> str:
    """A SCHEDULE as a row of SQL: due some seconds after 2024-01-01 00:00 UTC."""
    name = "NULL" if schedule_id is None else f"'{schedule_id}'"
    return (
        f"({name}, 'SCHEDULE', {seq}, {_at(due_s)}, {_at(said_s)}, '{to}', CAST('{schedule_id}' AS BINARY))"
    )


def cancel(schedule_id: str, *, seq: int = 1, said_s: int = 0) -> str:
    """A CANCEL."""
    return f"('{schedule_id}', 'CANCEL', {seq}, NULL, {_at(said_s)}, NULL, NULL)"


def _at(seconds: int) -> str:
    return f"timestamp_seconds({T0_MS // 1_000 + seconds})"


class World:
    """See the module.

    Args:
        server: The server.
        schema: The schema of the test.
        folder: For checkpoints.
    """

    def __init__(self, server: Server, schema: str, folder: Path) -> None:
        self.server, self.schema, self.folder = server, schema, folder
        self.client = self.new_client()
        self.sql(f"CREATE TABLE IF NOT EXISTS commands ({COMMANDS}) USING delta")

    def new_client(self) -> Client:
        """A client; that of before, if any, is left as it is."""
        return Client(self.server.url, self.schema, self.folder / "client.log")

    def restart(self) -> None:
        """Kills server and client and starts both again, with the tables that are there in the catalog."""
        self.server.kill()
        self.client.kill()
        self.server.start()
        self.client = self.new_client()
        for table in (self.server.warehouse / f"{self.schema}.db").iterdir():
            if any(table.glob("_delta_log/*.json")):
                self.sql(f"CREATE TABLE {table.name} USING delta LOCATION '{table}'")

    def sql(self, text: str) -> list[list[Any]]:
        """The rows of a statement."""
        return self.client.sql(text)

    def give(self, *rows: str) -> None:
        """Adds commands, as one file."""
        self.sql(f"INSERT INTO commands SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(rows)}")

    def outbox_call(self, *instants_s: int, **settings: Any) -> dict[str, Any]:
        """The arguments of ``to_outbox`` with a clock that has these instants, one for each batch."""
        instants = [T0_MS + 1_000 * each for each in instants_s]
        return {
            "table": "outbox",
            "checkpoint": f"{self.folder}/outbox",
            "clock": {"kind": "simulated", "instants_ms": instants},
            **settings,
        }

    def delivery_call(self, **settings: Any) -> dict[str, Any]:
        """The arguments of ``deliver_outbox``."""
        return {
            "destinations": DESTINATIONS,
            "rejects": "rejects",
            "checkpoint": f"{self.folder}/delivery",
            "create": True,
            **settings,
        }

    def to_outbox(self, *instants_s: int, **settings: Any) -> dict[str, Any]:
        """Runs ``to_outbox``; the times of clocks are those of all runs so far."""
        report: dict[str, Any] = self.client.call("to_outbox", **self.outbox_call(*instants_s, **settings))
        return report

    def deliver(self, **settings: Any) -> list[str]:
        """Runs ``deliver_outbox``."""
        tables: list[str] = self.client.call("deliver_outbox", "outbox", **self.delivery_call(**settings))
        return [name.removeprefix(f"spark_catalog.{self.schema}.") for name in tables]

    def ids(self, table: str) -> list[str]:
        """The ids of the rows of a table, in order."""
        return [row[0] for row in self.sql(f"SELECT schedule_id FROM {table} ORDER BY 1")]

    def rejected(self) -> list[list[Any]]:
        """Id, code and message of the rejects, in order; names of tables without catalog and schema."""
        rows = self.sql("SELECT schedule_id, error_code, error_message FROM rejects ORDER BY 1, 2")
        return [[*row[:2], row[2].replace(f"spark_catalog.{self.schema}.", "")] for row in rows]

    def wait_for(self, place: str) -> None:
        """Waits until there is such a file below the folder."""
        begin_s = time.monotonic()
        while not any(self.folder.glob(place)):
            assert time.monotonic() - begin_s < _PATIENCE_S, f"no {place}"
            assert self.client.is_there(), "the client has ended"
            time.sleep(0.002)
