"""A small HTTP server of the standard library: that of a running job."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from wheel_udf.common.errors import ConfigError


class HttpServer:
    """A server that is bound when it is made and answers from a thread; every request has a thread of its own.

    Args:
        address: The address to listen on.
        port: The port; 0 takes any free one.

    Raises:
        ConfigError: The port is in use, or the address is not one of this machine.
    """

    def __init__(self, address: str, port: int) -> None:
        try:
            family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            server = type("Server", (_Server,), {"address_family": family})
            self._server: ThreadingHTTPServer = server(place[:2], BaseHTTPRequestHandler)
        except (OSError, UnicodeError) as fault:  # a host name with an empty part
            raise ConfigError(
                f"the port of the job cannot be opened ({getattr(fault, 'strerror', None) or fault})",
                field="api.port",
                value=port,
                rule=f"a free port of the address {address}",
                hint="use another port or address; 0 takes any free port",
            ) from None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The address and port on which it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The address as a URL without a path."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve(self, handler: type[BaseHTTPRequestHandler]) -> None:
        """Begins to answer; a second call lets another handler answer from then on."""
        self._server.RequestHandlerClass = handler
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever,
                name="wheel-api",
                daemon=True,
                kwargs={"poll_interval": 0.1},
            )
            self._thread.start()

    def close(self) -> None:
        """Stops answering and frees the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    """The standard library's 5 are too few for some tools that ask at the same moment: the others are hung up on."""

    def server_bind(self) -> None:
        # Without HTTPServer's own, which looks up the machine's name: that takes seconds where no name server answers.
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that has hung up is no fault of the job.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
