"""The application: addresses of the page, and what each of them answers. A request does no work of Spark.

::

    GET  /                     overview                  GET  /live/overview, ...   the part that changes
    GET  /rejects              rejects by code           POST /find     search for an id     -> /find/TASK
    GET  /find/TASK            history of an id          POST /check    dry run of an act    -> /acts/TASK
    GET  /acts, /acts/TASK     acts, dry run, result     POST /act      confirms a dry run   -> /acts/TASK
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask, Response, abort, redirect, render_template, request, session, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from wheel_udf import __version__
from wheel_udf.common.errors import ActError
from wheel_udf.page import charts, tiles, views, words
from wheel_udf.page.guard import Access, is_token, protect
from wheel_udf.page.questions import DONE, Request, act, require_id, search
from wheel_udf.page.reader import Reader
from wheel_udf.page.subject import Subject
from wheel_udf.page.tasks import Task, Tasks

_Result = TypeVar("_Result")
_PAGES = ("overview", "rejects", "find", "acts")


@dataclass(frozen=True)
class Page:
    """The parts that the addresses use.

    Attributes:
        subject: The job.
        access: The access rights.
        reader: Has the figures.
        tasks: Runs searches and acts.
        now_ms: The wall clock.
    """

    subject: Subject
    access: Access
    reader: Reader
    tasks: Tasks
    now_ms: Callable[[], int]


def make_app(page: Page) -> Flask:
    """Makes the application of a page."""
    app = Flask("wheel_udf.page")
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True, "finalize": _rounded}
    app.jinja_env.globals.update(
        subject=page.subject,
        access=page.access,
        version=__version__,
        plot_px=charts.PLOT_PX,
        literal=words.literal,
        count_text=words.count_text,
        short_count=words.short_count,
        span_text=words.span_text,
        when_text=words.when_text,
        payload_text=words.payload_text,
        done=DONE,
    )
    protect(app, page.access)
    _add_looks(app, page)
    _add_search(app, page)
    _add_acts(app, page)
    _add_sign_in(app, page.access)
    app.register_error_handler(HTTPException, _refusal)
    return app


def _rounded(value: Any) -> Any:
    """A place in a chart with three decimals, which are less than a pixel."""
    return round(value, 3) if isinstance(value, float) else value


def _context(page: Page, name: str) -> dict[str, Any]:
    figures, now_ms = page.reader.figures(), page.now_ms()
    context: dict[str, Any] = {"page": name, "state": tiles.state(page.subject, figures, now_ms)}
    if name == "overview":
        return context | views.overview(page.subject, figures, now_ms)
    if name == "rejects":
        return context | {"rejects": views.rejects(figures, now_ms)}
    if name == "acts":
        return context | {"audit": views.audit(figures, now_ms)}
    return context


def _add_looks(app: Flask, page: Page) -> None:
    @app.get("/", endpoint="overview")
    def overview() -> str:
        return render_template("overview.html", **_context(page, "overview"))

    @app.get("/rejects", endpoint="rejects")
    def rejects() -> str:
        return render_template("rejects.html", **_context(page, "rejects"))

    @app.get("/live/<name>", endpoint="live")
    def live(name: str) -> str:
        if name not in _PAGES:
            abort(404)
        task = page.tasks.find(request.args.get("task", ""), "search", "check", "act")
        return render_template(f"_{name}.html", **_context(page, name), **_shown(task))


def _shown(task: Task | None) -> dict[str, Any]:
    """The values of a task for the templates."""
    return {"task": task, "events": task.result if task is not None and task.kind == "search" else None}


def _task_or_404(page: Page, number: str, *kinds: str) -> Task:
    task = page.tasks.find(number, *kinds)
    if task is None:
        abort(404, "this answer is not kept any more: ask again")
    return task


def _add_search(app: Flask, page: Page) -> None:
    @app.get("/find", endpoint="find")
    @app.get("/find/<number>", endpoint="found")
    def find(number: str | None = None) -> str:
        task = None if number is None else _task_or_404(page, number, "search")
        return render_template("find.html", **_context(page, "find"), **_shown(task))

    @app.post("/find", endpoint="search")
    def ask() -> AnyResponse:
        schedule_id = _checked(lambda: require_id("id", request.form.get("id", "")))
        task = _checked(
            lambda: page.tasks.add("search", {"id": schedule_id}, lambda: search(page.subject, schedule_id))
        )
        return redirect(url_for("found", number=task.number), 303)


def _checked(work: Callable[[], _Result]) -> _Result:
    """The result of a check of what was typed; its error as a page."""
    try:
        return work()
    except ActError as fault:
        abort(400, str(fault))


def _add_acts(app: Flask, page: Page) -> None:
    @app.get("/acts", endpoint="acts")
    @app.get("/acts/<number>", endpoint="acted")
    def look(number: str | None = None) -> str:
        task = None if number is None else _task_or_404(page, number, "check", "act")
        return render_template("acts.html", **_context(page, "acts"), **_shown(task))

    @app.post("/check", endpoint="check")
    def check() -> AnyResponse:
        _require_acts(page)
        asked = _checked(lambda: Request.of_form(request.form))
        _checked(asked.picked)
        task = _checked(
            lambda: page.tasks.add(
                "check", {"request": asked}, lambda: act(page.subject, asked, dry_run=True)
            )
        )
        return redirect(url_for("acted", number=task.number), 303)

    @app.post("/act", endpoint="act")
    def confirm() -> AnyResponse:
        _require_acts(page)
        counted = _task_or_404(page, request.form.get("task", ""), "check")
        if not page.tasks.use(counted):
            abort(409, "this dry run was confirmed before, or has failed: make a new one")
        try:
            task = page.tasks.add("act", counted.asked, lambda: _act(page, counted.asked["request"]))
        except ActError as fault:
            counted.is_used = False  # nothing was done
            abort(400, str(fault))
        return redirect(url_for("acted", number=task.number), 303)


def _require_acts(page: Page) -> None:
    if not page.access.allow_acts:
        abort(403, "acts are off: start the page with --allow-acts")


def _act(page: Page, asked: Request) -> int:
    """Executes an act, and marks the figures that it has changed to be read again."""
    count = act(page.subject, asked, dry_run=False)
    page.reader.read("acts")
    page.reader.ask("wheel", "store", "exact")
    return count


def _add_sign_in(app: Flask, access: Access) -> None:
    @app.route("/sign-in", methods=["GET", "POST"], endpoint="sign_in")
    def sign_in() -> str | AnyResponse:
        if request.method == "POST" and is_token(access, request.form.get("token", "")):
            session.clear()
            session["signed_in"] = True
            return redirect(url_for("overview"), 303)
        return render_template("sign_in.html", page="sign_in", is_wrong=request.method == "POST")


def _refusal(error: HTTPException) -> AnyResponse:
    """Shows why a request was refused."""
    text = render_template(
        "refusal.html", page="refusal", code=error.code, name=error.name, why=error.description
    )
    return Response(text, status=error.code or 500, mimetype="text/html")
