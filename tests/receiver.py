"""A real HTTP server for tests: each path answers as its test has said, and everything that came is kept."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Came(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return self.headers["idempotency-key"]


class Says(NamedTuple):
    """An answer: a status, headers and a text."""

    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed
    text: str = ""


HANG = Says(0)
"""No answer at all."""
DRIP = Says(-1)
"""A good status and a text that never ends: a byte now and then."""
DRIP_HEADER = Says(-2)
"""An answer whose headers never end."""


@dataclass
class Receiver:
    """The server: what came, and what each path answers (by the number of the request for that path, from 1)."""

    url: str = ""
    came: list[Came] = field(default_factory=list)
    answers: dict[str, Callable[[int], Says]] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    numbers: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, path: str, *answers: Says) -> None:
        """Sets the answers of a path, one after the other; the last one repeats."""
        self.answers[path] = lambda number: answers[min(number, len(answers)) - 1]

    def keys(self, path: str) -> list[str]:
        """The idempotency keys that came to a path, in order."""
        return [each.key for each in self.came if each.path == path]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A server on the loopback address, for a block."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            with state.lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                state.came.append(Came(self.path, headers, body))
                state.numbers[self.path] += 1
                says = state.answers.get(self.path, lambda _: Says())(state.numbers[self.path])
                state.running += 1
                state.most_at_once = max(state.most_at_once, state.running)
            self.answer(says)
            with state.lock:
                state.running -= 1

        def answer(self, says: Says) -> None:
            if says is HANG:
                state.released.wait()
                self.close_connection = True
                return
            if says in (DRIP, DRIP_HEADER):
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                (self.end_headers if says is DRIP else self.flush_headers)()
                while not state.released.wait(0.02):
                    self.wfile.write(b".")
                self.close_connection = True
                return
            (self.send_response_only if "Date" in says.headers else self.send_response)(says.status)
            for name, value in says.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(says.text.encode())))
            self.end_headers()
            self.wfile.write(says.text.encode())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that has gone away is the test's own doing."""

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
