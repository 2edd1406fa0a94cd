"""Work behind a click: history of an id, dry run, act. Plain functions; :mod:`wheel_udf.page.tasks` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from wheel_udf.common.errors import ActError
from wheel_udf.page.expressions import require_plain
from wheel_udf.page.subject import Subject
from wheel_udf.pending import acts
from wheel_udf.pending.history import history_of
from wheel_udf.pending.operation_history import operation_history_of

_WITH_TO: Final = {"move": acts.move, "reroute": acts.reroute}
DONE: Final = {verb: done for verb, done in acts.DONE.items() if verb in _WITH_TO or verb in acts.PLAIN}
"""The acts of the form, with the words for each when it is done."""

_LONGEST_ID: Final = 512
_MOST_IDS: Final = 1_000


def search(subject: Subject, schedule_id: str) -> list[dict[str, Any]]:
    """Returns what is known of an id, ordered by time: the attributes of :class:`~wheel_udf.pending.in_topics.Event`.

    Raises:
        WheelError: The checkpoint or the store cannot be read.
    """
    sinks: dict[str, Any] = {"destinations": subject.destinations, "rejects": subject.rejects}
    if subject.is_purgatory:
        found = operation_history_of(subject.spark, subject.checkpoint, schedule_id, **sinks)
    else:
        work, geometry = subject.open_work(), subject.geometry
        found = history_of(subject.spark, work, schedule_id, geometry=geometry, **sinks)
    return [asdict(event) for event in found]


def require_id(field: str, text: str) -> str:
    """Returns an id as it was typed.

    Raises:
        ActError: It is empty, or longer than an id can be.
    """
    if not 1 <= len(text.encode(errors="replace")) <= _LONGEST_ID:
        raise ActError("not an id", field=field, value=text, rule=f"1 to {_LONGEST_ID} bytes")
    return text


@dataclass(frozen=True)
class Request:
    """An act as entered in the form.

    Attributes:
        verb: One of :data:`DONE`.
        ids: The selected ids; empty: any.
        where: A condition; empty: none.
        to: The new due time (an expression) or destination; empty for an act without one.
    """

    verb: str
    ids: tuple[str, ...]
    where: str
    to: str

    @classmethod
    def of_form(cls, form: Mapping[str, str]) -> Request:
        """The request in the fields ``verb``, ``ids`` (one on a line), ``where``, ``to``.

        Raises:
            ActError: A field is missing or cannot be used.
        """
        verb, where = form.get("verb", ""), form.get("where", "").strip()
        lines = form.get("ids", "").replace("\r\n", "\n").split("\n")
        ids = tuple(require_id("ids", line) for line in lines if line)
        to = form.get(f"to_{verb}", "").strip() if verb in _WITH_TO else ""
        if verb not in DONE:
            raise ActError("no such act", field="verb", value=verb, rule=", ".join(DONE))
        if len(ids) > _MOST_IDS:
            raise ActError("too many ids", field="ids", value=len(ids), rule=f"up to {_MOST_IDS}")
        if verb in _WITH_TO and not to:
            what = "the new due time is missing" if verb == "move" else "the new destination is missing"
            raise ActError(what, field="to")
        if where:
            require_plain("where", where)
        if verb == "move":
            require_plain("to", to)
        return cls(verb, ids, where, to)

    def picked(self) -> acts.Picked:
        """The selection.

        Raises:
            ActError: Nothing is selected.
        """
        return acts.Picked(list(self.ids) or None, self.where or None)


def act(subject: Subject, request: Request, *, dry_run: bool) -> int:
    """Executes an act, or counts what it would change; returns the number of entries.

    Raises:
        ActError: The act is not possible.
    """
    work, picked = subject.open_work(), request.picked()
    if request.verb in acts.PLAIN:
        return acts.PLAIN[request.verb](subject.spark, work, picked, dry_run=dry_run)
    return _WITH_TO[request.verb](subject.spark, work, picked, to=request.to, dry_run=dry_run)
