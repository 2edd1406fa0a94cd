"""The end of a running job: takes questions over HTTP, and answers them one or two at a time.

::

    POST /v1/VERB      Authorization: Bearer TOKEN          the arguments of the verb as a JSON object
        200            {"rows": [...], "counts": {...}, "lines": [...]}
                       with "Accept: application/vnd.apache.arrow.stream": the rows as an Arrow stream
        400, 409, 500  {"error": "...", "exit_code": 2, "kind": "ConfigError", "parts": {...}}
        401, 404, 413  likewise
        503            too many questions wait, or the run ends
    POST /v1/page      serves the page of the job until this connection is closed
        200            {"lines": [...]}, and no end of the answer until the job ends
    GET  /v1/job       what this is: name, mode, checkpoint, version, the verbs
    GET  /v1/status    how it is now: its metrics, the line of its last batch, whether it is healthy
    GET  /v1/openapi.json    the interface as OpenAPI; without a token
    GET  /metrics, /healthz  for those who watch the job; without a token (wheel_udf.api.watch_handler)

A question whose client has hung up before its turn is dropped: whoever asks again must not have an act done twice. One
whose turn has come is carried out.

A question names the checkpoint that it is about in ``Wheel-Checkpoint``; another job, which has got the port since,
refuses it (409). The token is 256 random bits and new with each run.
"""

from __future__ import annotations

import hmac
import json
import secrets
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from wheel_udf.api.answer import Answer, RefusedError, parts_of, too_long
from wheel_udf.api.http_server import HttpServer
from wheel_udf.api.watch_handler import WatchHandler
from wheel_udf.api.words import ARROW, CHECKPOINT, JSON, MOST_BYTES, PAGE, ROOT
from wheel_udf.common.secrets import hide, hide_from_now_on
from wheel_udf.metrics.meter import Meter
from wheel_udf.spark.failures import USER_FAULT, explain
from wheel_udf.spark.files import parsed_json

_AT_ONCE: Final = 2
_MOST_WAITING: Final = 20
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True)
class Job:
    """What the server answers for.

    Attributes:
        about: What ``GET /v1/job`` returns; has ``checkpoint``.
        verbs: The verbs that are questions; another one is no address.
        ask: Answers a question: verb and arguments.
        ask_arrow: Likewise, with the rows as an Arrow stream.
        openapi: The interface as an OpenAPI document.
        page: Serves a page while the context is open, by the arguments of the verb ``ui``; yields the lines to print.
    """

    about: Mapping[str, Any]
    verbs: Sequence[str]
    ask: Callable[[str, Mapping[str, Any]], Answer]
    ask_arrow: Callable[[str, Mapping[str, Any]], bytes]
    openapi: Mapping[str, Any]
    page: Callable[[Mapping[str, Any]], AbstractContextManager[Sequence[str]]]


class ApiServer:
    """The server of a running job; its port is bound when it is made.

    Args:
        address: The address to listen on.
        port: The port; 0: any free one.

    Raises:
        ConfigError: The port is in use, or the address is not one of this machine.

    Attributes:
        token: What a question has to bring.
    """

    def __init__(self, address: str, port: int) -> None:
        self._server = HttpServer(address, port)
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        hide_from_now_on(self.token)
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="wheel-question")
        self._held = _Held()

    @property
    def address(self) -> tuple[str, int]:
        """The address and port on which it listens."""
        return self._server.address

    @property
    def url(self) -> str:
        """The address as a URL without a path."""
        return self._server.url

    def serve(self, meter: Meter) -> None:
        """Begins to serve metrics and health."""
        self._server.serve(type("Handler", (WatchHandler,), {"meter": meter}))

    def answer(self, job: Job, meter: Meter) -> None:
        """Begins to answer questions, too."""
        shared = {
            "job": job,
            "meter": meter,
            "token": self.token,
            "pool": self._pool,
            "room": threading.BoundedSemaphore(_AT_ONCE + _MOST_WAITING),
            "held": self._held,
        }
        self._server.serve(type("Handler", (_Handler,), shared))

    def close(self) -> None:
        """Ends after the questions that are being answered; those that wait are dropped, and pages are closed."""
        self._held.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._server.close()


class _Held:
    """Connections that are held open until the client hangs up, or the server ends."""

    def __init__(self) -> None:
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._is_over = False

    @contextmanager
    def holding(self, connection: socket.socket) -> Iterator[None]:
        """Inside, the end of the server hangs up, and waits for the end of the context."""
        with self._changed:
            self._connections.add(connection)
            if self._is_over:
                _hang_up(connection)
        try:
            yield
        finally:
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            for each in self._connections:
                _hang_up(each)
            self._changed.wait_for(lambda: not self._connections)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # the client was faster
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(WatchHandler):
    job: Job
    token: str
    pool: ThreadPoolExecutor
    room: threading.BoundedSemaphore
    held: _Held

    def get(self, path: str) -> None:
        if path == f"{ROOT}openapi.json":
            self.answer(200, json.dumps(self.job.openapi).encode())
        elif path not in (f"{ROOT}job", f"{ROOT}status"):
            there = "GET /metrics, /healthz, /v1/job, /v1/status, POST /v1/VERB"
            self.refuse(404, RefusedError(f"there is no such address: {there}", USER_FAULT))
        elif self._may_ask():
            found = self.job.about if path == f"{ROOT}job" else self.meter.status()
            self.answer(200, json.dumps(found).encode())

    def post(self, path: str) -> None:
        verb = path.removeprefix(ROOT)
        if not self._may_ask():
            return
        if not path.startswith(ROOT) or verb not in (*self.job.verbs, PAGE):
            names = ", ".join(self.job.verbs)
            self.refuse(
                404, RefusedError(f"the job answers no such question: {path}; rule: {names}", USER_FAULT)
            )
            return
        arguments = self._arguments()
        if arguments is None:
            return
        if verb == PAGE:
            self._serve_page(arguments)
            return
        if not self.room.acquire(blocking=False):
            self.refuse(503, RefusedError("too many questions wait for an answer; hint: try again later", 1))
            return
        try:
            self._ask(verb, arguments)
        finally:
            self.room.release()

    def _ask(self, verb: str, arguments: Mapping[str, Any]) -> None:
        is_arrow = ARROW in self.headers.get("Accept", "")

        def content() -> bytes | None:
            if _has_hung_up(self.connection):
                return None
            if is_arrow:
                return self.job.ask_arrow(verb, arguments)
            return self.job.ask(verb, arguments).to_json().encode(errors="replace")

        try:
            found = self._queued(content).result()
        except CancelledError:
            self.refuse(
                503, RefusedError("the run ends; hint: the same question again, to its next start", 1)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told to whoever asked
            self._refuse_because(error)
        else:
            if found is None:
                self.close_connection = True
            else:
                self.answer(200, found, ARROW if is_arrow else JSON)

    def _queued(self, content: Callable[[], bytes | None]) -> Future[bytes | None]:
        try:
            return self.pool.submit(content)
        except RuntimeError:  # it takes nothing any more
            raise CancelledError from None

    def _serve_page(self, arguments: Mapping[str, Any]) -> None:
        with self.held.holding(self.connection), ExitStack() as stack:
            try:
                lines = stack.enter_context(self.job.page(arguments))
            except Exception as error:  # noqa: BLE001  # likewise
                self._refuse_because(error)
                return
            with suppress(OSError):  # the client has hung up, or this job has
                self.begin(200, JSON)
                self.wfile.write(json.dumps({"lines": list(lines)}).encode() + b"\n")
                self.connection.settimeout(None)
                self.rfile.read(1)  # nothing comes but the end

    def _refuse_because(self, error: Exception) -> None:
        failure = explain(error)
        refusal = RefusedError(
            hide(failure.sentence), failure.exit_code, type(error).__name__, _hidden(parts_of(error))
        )
        self.refuse(400 if failure.exit_code == USER_FAULT else 500, refusal)

    def _may_ask(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").encode(errors="replace")
        if not hmac.compare_digest(given, self.token.encode()):
            self.refuse(401, RefusedError("the token is missing or is not that of this run", USER_FAULT))
            return False
        about = self.headers.get(CHECKPOINT)
        if about is not None and about != quote(self.job.about["checkpoint"]):
            self.refuse(409, RefusedError("this job has another checkpoint", USER_FAULT))
            return False
        return True

    def _arguments(self) -> Mapping[str, Any] | None:
        """The JSON object of the request; None if it was refused."""
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            length = -1
        if length < 0 or "Transfer-Encoding" in self.headers:
            what = "the length of the arguments is not given; rule: Content-Length"
            self.refuse(411, RefusedError(what, USER_FAULT))
            return None
        if length > MOST_BYTES:
            self.refuse(413, too_long(length))
            return None
        content = self.rfile.read(length)
        found = parsed_json(content) if content else {}
        if not isinstance(found, dict):
            self.refuse(400, RefusedError("the arguments are not a JSON object", USER_FAULT))
            return None
        return found


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether the client is gone; one that sends more than its question is still there."""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # reset, or closed here
        return True


def _hidden(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: hide(text) for name, text in parts.items()}
