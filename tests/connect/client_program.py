"""The program of a client: it calls what it is told, line by line, over Spark Connect.

::

    stdin     {"call": "to_outbox", "table": "outbox", ...}
    stdout    {"result": ...}  or  {"error": "ConfigErrors", "message": "..."}

It runs in an environment without JVM (:mod:`tests.connect.environment`), so it imports nothing of the other tests.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import wheel_udf
from wheel_udf import connect

GEOMETRY = {"tick_ms": 1_000, "size": 20, "levels": 6}


class Calls:
    """What a client can be told."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def sql(self, text: str) -> list[list[Any]]:
        return [list(row) for row in self.spark.sql(text).collect()]

    def modules(self) -> list[str]:
        return sorted({name.split(".")[0] for name in sys.modules})

    def run(self, program: str) -> None:
        """Runs a code block of the documentation; what it prints is no answer."""
        with redirect_stdout(sys.stderr):
            exec(compile(program, "block", "exec"), {"spark": self.spark})

    def to_outbox(self, *, table: str, checkpoint: str, **settings: Any) -> dict[str, Any]:
        return asdict(connect.to_outbox(self._scheduled(**settings), table=table, checkpoint=checkpoint))

    def deliver_outbox(self, outbox: str, **settings: Any) -> list[str]:
        return list(connect.deliver_outbox(self.spark, outbox, **settings))

    def read(self, of: str, table: str, *columns: str) -> list[list[Any]]:
        """Rows of an outbox by one of the functions ``fired``, ``rejects``, ``status``."""
        rows: DataFrame = getattr(wheel_udf, of)(self.spark.table(table))
        return [list(row) for row in rows.select(*columns).orderBy(*columns).collect()]

    def deliver(self, **settings: Any) -> None:
        """``deliver``, which needs a JVM."""
        wheel_udf.deliver(self._scheduled(**settings))

    def watch(self) -> None:
        """``watch``, likewise."""
        wheel_udf.watch(self._commands(), self._commands(), wheel=wheel_udf.Wheel(**GEOMETRY), clock=None)

    def name(self, name: str) -> str:
        """A public name."""
        return str(getattr(wheel_udf, name))

    def _commands(self) -> DataFrame:
        return self.spark.readStream.option("maxFilesPerTrigger", 1).table("commands")

    def _scheduled(
        self, *, clock: dict[str, Any], size: int = 20, punctual: bool = False, **settings: Any
    ) -> DataFrame:
        kinds = {
            each.kind: each
            for each in (wheel_udf.EventClock, wheel_udf.ProcessingClock, wheel_udf.SimulatedClock)
        }
        if punctual:
            settings["punctual"] = wheel_udf.Punctual()
        if "max_pending" in settings:
            from wheel_udf.policies.limits import Limits

            settings["limits"] = Limits(pending=settings.pop("max_pending"))
        return connect.schedule(
            self._commands(),
            wheel=wheel_udf.Wheel(**GEOMETRY | {"size": size}),
            clock=kinds[clock.pop("kind")](**clock),
            **{"shards": 2, **settings},
        )


def main(url: str, schema: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    spark.catalog.setCurrentDatabase(schema)
    calls = Calls(spark)
    print(json.dumps({"result": "ready"}), flush=True)  # noqa: T201  # the protocol
    for line in sys.stdin:
        told = json.loads(line)
        try:
            answer = {"result": getattr(calls, told.pop("call"))(*told.pop("args", ()), **told)}
        except Exception as fault:  # noqa: BLE001  # whatever it is, the test is told
            answer = {"error": type(fault).__name__, "message": str(fault)}
        print(json.dumps(answer, default=str), flush=True)  # noqa: T201  # likewise


if __name__ == "__main__":
    main(*sys.argv[1:])
