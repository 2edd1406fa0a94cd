"""A running job, for programs: ``Job.connect("orders").pending(where="destination = 'mail'")``. Needs no session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from wheel_udf.api import client
from wheel_udf.api.answer import Answer, RefusedError
from wheel_udf.api.place import Place, place_by_name, place_of
from wheel_udf.api.words import MOST_ARROW_ROWS
from wheel_udf.common.errors import ConfigError, WheelError


class Job:
    """A job that runs on this machine as this user, or elsewhere with a token (:mod:`wheel_udf.api.place`).

    Each method asks the job over HTTP and returns when it has answered. An id is a ``schedule_id``, of a purgatory an
    ``op_id``; `where` is an SQL condition over the columns of ``pending``. Both together pick entries that have one of
    the ids and fulfil the condition.
    """

    def __init__(self, place: Place) -> None:
        self.place = place

    @classmethod
    def connect(cls, name_or_checkpoint: str) -> Self:
        """Finds a job by its name, or by its checkpoint.

        Raises:
            ConfigError: No such job runs, or several jobs have this name.
        """
        place = place_by_name(name_or_checkpoint) or place_of(name_or_checkpoint)
        if place is None or not client.answers(place):
            raise ConfigError(
                "no such job runs here",
                field="name or checkpoint",
                value=name_or_checkpoint,
                rule="of a job that this user runs on this machine, with its api enabled",
                hint="wheel-udf run starts it; of a job at rest wheel-udf pending, forecast and ui show what waits",
            )
        return cls(place)

    def pending(
        self,
        where: str | None = None,
        *,
        ids: Sequence[str] | None = None,
        limit: int | None = None,
        payload: bool = False,
    ) -> pa.Table:
        """Returns pending entries, the earliest due time first.

        Args:
            where: Only those that fulfil this condition.
            ids: Only those of these ids.
            limit: At most so many, up to a million; None for all.
            payload: With ``key`` and ``value`` as text.

        Returns:
            A table with the columns that ``wheel-udf pending`` prints. ``.to_pandas()``, ``polars.from_arrow(table)``
            and ``spark.createDataFrame(table)`` make other tables of it.

        Raises:
            WheelError: There are more than a million, and no limit was given.
        """
        most = MOST_ARROW_ROWS if limit is None else limit
        found = self._table("pending", {"where": where, "id": ids, "limit": most, "payload": payload})
        if limit is None and found.num_rows == most:
            raise WheelError(
                "too many pending entries for one answer",
                field="pending",
                rule=f"less than {most:,}, or a limit",
                hint="wheel_udf.pending.entries.pending reads all of them, with a session",
            )
        return found

    def count(self, where: str | None = None, *, ids: Sequence[str] | None = None) -> int:
        """Counts pending entries."""
        return self._answer("pending", {"where": where, "id": ids, "count": True}).counts["pending"]

    def forecast(
        self, every: str = "1 minute", *, horizon: str | None = None, where: str | None = None
    ) -> pa.Table:
        """Returns how many rows fall due in each step: ``due_from``, ``destination``, ``rows``, ``bytes``,
        ``estimated``.
        """
        return self._table("forecast", {"every": every, "horizon": horizon, "where": where})

    def history(self, schedule_id: str) -> list[Mapping[str, Any]]:
        """Returns what happened to an id, in order."""
        return list(self._answer("history", {"id": schedule_id}).rows)

    def status(self) -> Mapping[str, Any]:
        """Returns how the job is now: ``at_ms``, ``unhealthy`` (why, or None), ``last`` (the line of its last batch,
        :mod:`wheel_udf.metrics`), ``samples`` (its metrics, each a name, its labels and a number).
        """
        found: Mapping[str, Any] = self._there(client.look(self.place, "status"))
        return found

    def acts(self) -> list[Mapping[str, Any]]:
        """Returns the acts so far, in order."""
        return list(self._answer("acts", {}).rows)

    def act(
        self,
        verb: str,
        *,
        where: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool = False,
        **more: Any,
    ) -> int:
        """Changes pending entries.

        Args:
            verb: ``cancel``, ``move``, ``reroute``, ``fire-now``, ``skip``, ``pause``, ``resume``, ``backfill`` or
                ``redrive``.
            where: Those that fulfil this condition.
            ids: Those of these ids.
            dry_run: Counts them and changes nothing.
            more: Further arguments of the verb, such as ``to``.

        Returns:
            How many were changed, or would be.

        Raises:
            ActError, ConfigError: The act is not possible.
        """
        counts = self._answer(verb, {"where": where, "id": ids, "dry_run": dry_run, **more}).counts
        return next(iter(counts.values()))

    def cancel(
        self, *, where: str | None = None, ids: Sequence[str] | None = None, dry_run: bool = False
    ) -> int:
        """Ends pending entries without delivering them; returns how many."""
        return self.act("cancel", where=where, ids=ids, dry_run=dry_run)

    def _table(self, verb: str, arguments: Mapping[str, Any]) -> pa.Table:
        with pa.ipc.open_stream(self._asked(client.ask_arrow, verb, arguments)) as reader:
            return reader.read_all()

    def _answer(self, verb: str, arguments: Mapping[str, Any]) -> Answer:
        answer: Answer = self._asked(client.ask, verb, arguments)
        return answer

    def _asked(self, ask: Any, verb: str, arguments: Mapping[str, Any]) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        if "id" in given and not isinstance(given["id"], str):
            given["id"] = list(given["id"])
        try:
            found = ask(self.place, verb, given)
        except RefusedError as refused:
            raise refused.to_error() from None
        return self._there(found)

    def _there(self, found: Any) -> Any:
        """What the job has answered; None is no answer."""
        if found is None:
            raise WheelError("the job does not run any more", field="checkpoint", value=self.place.checkpoint)
        return found
