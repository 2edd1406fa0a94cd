"""Serves the page until it is stopped."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from waitress.server import create_server
from waitress.trigger import trigger

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.progress import PrintLine
from wheel_udf.control.wall import wall_clock_ms
from wheel_udf.page.app import Page, make_app
from wheel_udf.page.guard import Access, is_loopback
from wheel_udf.page.reader import Reader
from wheel_udf.page.readings import readings_of
from wheel_udf.page.subject import Subject
from wheel_udf.page.tasks import Tasks


class PageServer:
    """A page that is served from a thread; a context manager.

    Args:
        subject: The job.
        access: Where to listen, and who may do what.
        every_ms: How long figures rest before they are read again, at least.

    Raises:
        ConfigError: The port is in use, or the address is not of this machine.
    """

    def __init__(self, subject: Subject, access: Access, *, every_ms: int = 5_000) -> None:
        self.reader = Reader(readings_of(subject), every_ms=every_ms)
        self._tasks = Tasks()
        app = make_app(Page(subject, access, self.reader, self._tasks, wall_clock_ms))
        self._sockets: dict[int, Any] = {}
        self._left: list[Any] = []
        try:
            self._server = create_server(
                app,
                map=self._sockets,
                host=access.address,
                port=access.port,
                threads=4,
                ident=None,
                log_socket_errors=False,  # a browser that has hung up is no fault of the page
            )
        except OSError as fault:
            raise ConfigError(
                f"cannot listen here ({fault.strerror or fault})",
                field="--address, --port",
                value=f"{access.address}:{access.port}",
                hint="another --port, or 0 for any free one",
            ) from None
        port = next(each.effective_port for each in self._sockets.values() if hasattr(each, "effective_port"))
        host = f"[{access.address}]" if ":" in access.address else access.address
        self.url = f"http://{host}:{port}/"
        self._thread = threading.Thread(target=self._server.run, name="page-server", daemon=True)
        self._access = access

    @property
    def lines(self) -> list[str]:
        """What to say of it: where it is, who may do what."""
        access = self._access
        acts = "acts are on" if access.allow_acts else "for looking only"
        token = ", asks for the token" if access.token is not None else ""
        lines = [f"{self.url} ({acts}{token}); Ctrl-C ends it"]
        if access.token is not None and not is_loopback(access.address):
            lines.append(
                "the page speaks plain HTTP: put a proxy with TLS in front of it where others can listen"
            )
        return lines

    def __enter__(self) -> Self:
        """Begins to read and to serve."""
        self.reader.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends after the readings and the task that run."""
        self.reader.stop()
        self._tasks.stop()
        wake = next(each for each in self._sockets.values() if isinstance(each, trigger))
        wake.pull_trigger(self._leave)  # in the thread of the server
        self._thread.join()
        # Only now: the end of a request wakes the thread, too. It may then leave before `pull_trigger` writes to its
        # pipe, here or in a thread that still answers a request; the pipe has to be open.
        self._server.task_dispatcher.shutdown(cancel_pending=False)
        for each in self._left:
            each.close()
        self.reader.join()

    def _leave(self, _: None = None) -> None:
        """Ends the loop of the server's thread: it runs as long as there are sockets."""
        self._left = list(self._sockets.values())
        self._sockets.clear()

    def wait(self) -> None:
        """Returns when the server has ended."""
        self._thread.join()


def serve(subject: Subject, access: Access, print_line: PrintLine) -> None:
    """Serves a page until the process is interrupted (SIGINT, SIGTERM).

    Args:
        subject: The job.
        access: Where to listen, and who may do what.
        print_line: Takes the lines.

    Raises:
        ConfigError: As :class:`PageServer`.
    """
    with PageServer(subject, access) as server:
        for line in server.lines:
            print_line(line)
        try:
            server.wait()
        except KeyboardInterrupt:
            print_line("stopping after the readings that run")
