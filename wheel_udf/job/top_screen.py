"""The screen of ``wheel-udf top``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Grid
from textual.widgets import Footer, Input, Static

from wheel_udf.api.job import Job
from wheel_udf.common.errors import WheelError
from wheel_udf.job.top_view import Panel, Status, headline, panels

_RATE_OVER_MS: Final = 10_000
_ACTS_EVERY: Final = 5
_MOST_EVENTS: Final = 10
_TITLES: Final = ("rates", "lateness", "pending", "by level", "held back", "rejects", "last acts")


def _id_of(title: str) -> str:
    return title.replace(" ", "-")


class Top(App[None]):
    """A running job.

    Args:
        job: The job.
        every_s: How often it is looked at.
    """

    TITLE = "wheel-udf top"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $primary; color: $text; padding: 0 1; }
    Grid { grid-size: 2; grid-rows: auto; height: auto; }
    Grid Static { border: round $primary; border-title-color: $text; height: auto; min-height: 4; padding: 0 1; }
    #last-acts { column-span: 2; }
    #found { height: auto; padding: 0 2; }
    Input { display: none; }
    Input.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("slash", "ask('find')", "Find an id"),
        ("c", "ask('cancel')", "Cancel an id"),
        ("escape", "close", "Close"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, job: Job, *, every_s: float) -> None:
        super().__init__()
        self._job, self._every_s = job, every_s
        self._looks: deque[Status] = deque()
        self._acts: Sequence[Mapping[str, Any]] = ()
        self._number = 0
        self._question = ""
        self._to_cancel: str | None = None

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Static(id="head", markup=False)
        with Grid():
            for title in _TITLES:
                part = Static(id=_id_of(title), markup=False)
                part.border_title = title
                yield part
        yield Static(id="found", markup=False)
        yield Input()
        yield Footer()

    def on_mount(self) -> None:
        """Begins to look."""
        self.look()
        self.set_interval(self._every_s, self.look)

    @work(thread=True, exclusive=True, group="look")
    def look(self) -> None:
        """Looks at the job."""
        try:
            status = Status(self._job.status())
            if self._number % _ACTS_EVERY == 0:
                self._acts = self._job.acts()
        except WheelError as fault:
            self.call_from_thread(self._say_head, f"{fault.what}: this is how it was")
            return
        self._number += 1
        self.call_from_thread(self._show, status)

    def _say_head(self, text: str) -> None:
        self.query_one("#head", Static).update(text)

    def _show(self, now: Status) -> None:
        self._looks.append(now)
        # Two looks make a rate, however far apart.
        while len(self._looks) > 2 and now.at_ms - self._looks[0].at_ms > _RATE_OVER_MS:
            self._looks.popleft()
        self._say_head(headline(now))
        for panel in panels(now, self._looks[0], self._acts):
            self._fill(panel)

    def _fill(self, panel: Panel) -> None:
        self.query_one(f"#{_id_of(panel.title)}", Static).update("\n".join(panel.lines))

    # ---- questions -----------------------------------------------------------------------------------

    def action_ask(self, question: str) -> None:
        """Lets an id be typed."""
        self._question, field = question, self.query_one(Input)
        field.placeholder = "an id" if question == "find" else "the id to cancel"
        field.value = ""
        field.add_class("shown")
        field.focus()

    def action_close(self) -> None:
        """Puts away the field and what was found."""
        self._to_cancel = None
        self._put_away()
        self._say("")

    def _put_away(self) -> None:
        self.query_one(Input).remove_class("shown")
        self.set_focus(None)  # the next key is not for the field

    def on_input_submitted(self, typed: Input.Submitted) -> None:
        """Answers what was typed."""
        text = typed.value.strip()
        typed.input.value = ""
        if self._to_cancel is not None:
            asked_for, self._to_cancel = self._to_cancel, None
            if text == "yes":
                self.cancel(asked_for, dry_run=False)
            else:
                self._say("nothing was cancelled")
            self._put_away()
        elif text and self._question == "find":
            self._put_away()
            self.find(text)
        elif text:
            self.cancel(text, dry_run=True)

    def _say(self, text: str) -> None:
        self.query_one("#found", Static).update(text)

    @work(thread=True, exclusive=True, group="question")
    def find(self, schedule_id: str) -> None:
        """Shows what is known of an id."""
        self.call_from_thread(self._say, f"looking for {schedule_id} ...")
        try:
            rows = self._job.pending(ids=[schedule_id], limit=20).to_pylist()
            lines = [f"{schedule_id}: {len(rows)} pending", *map(_line, rows)]
            self.call_from_thread(self._say, "\n".join([*lines, "its history ..."]))
            events = self._job.history(schedule_id)
        except WheelError as fault:
            self.call_from_thread(self._say, str(fault))
            return
        self.call_from_thread(self._say, "\n".join([*lines, *map(_line, events[-_MOST_EVENTS:])]))

    @work(thread=True, exclusive=True, group="question")
    def cancel(self, schedule_id: str, *, dry_run: bool) -> None:
        """Cancels an id, or says what that would be and asks."""
        try:
            count = self._job.cancel(ids=[schedule_id], dry_run=dry_run)
        except WheelError as fault:
            self.call_from_thread(self._say, str(fault))
            return
        if not dry_run:
            self.call_from_thread(self._say, f"cancelled {count} of {schedule_id}")
            self._number = 0  # the acts are looked at anew
        elif count:
            self.call_from_thread(self._confirm, schedule_id, count)
        else:
            self.call_from_thread(self._put_away)
            self.call_from_thread(self._say, f"{schedule_id} is not pending")

    def _confirm(self, schedule_id: str, count: int) -> None:
        self._to_cancel = schedule_id
        self._say(f"would cancel {count} of {schedule_id}: type yes to do it")
        self.query_one(Input).placeholder = "yes, or anything else"


def _line(row: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in row.items() if value is not None}
    return json.dumps(shown, ensure_ascii=False, default=str, separators=(",", ":"))
