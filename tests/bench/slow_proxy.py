"""A TCP proxy on loopback that hands on what a client sends only after a while: an object store as far away as a real one.

It notes the lines with which requests of HTTP begin, and knows nothing else of it. What comes back is handed on at once, so that each request on a connection, whose parts are sent one
after the other, takes longer by one delay.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_PIECE: Final = 1 << 16
_REQUEST: Final = re.compile(rb"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/")


class SlowProxy:
    """A running proxy.

    Attributes:
        port: Its port.
        asked: Method and path of each request so far.
        sent: Bytes that clients have sent so far.
        received: Bytes that they have got so far.
    """

    def __init__(self, port: int) -> None:
        self.port, self.asked = port, list[str]()
        self.sent = self.received = 0

    def note(self, piece: bytes) -> None:
        """Notes what a client has sent."""
        self.sent += len(piece)
        if found := _REQUEST.match(piece):
            self.asked.append(b" ".join(found.groups()).decode())

    def note_answer(self, piece: bytes) -> None:
        """Notes what a client has got."""
        self.received += len(piece)


@contextmanager
def slow_proxy(port: int, delay_s: float) -> Iterator[SlowProxy]:
    """Runs a proxy before a port, until the context is left."""
    proxy = SlowProxy(0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                _hand_on(reader, far_writer, delay_s, proxy.note),
                _hand_on(far_reader, writer, 0, proxy.note_answer),
            )

    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0), loop).result()
    try:
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _hand_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float, note: Callable[[bytes], None]
) -> None:
    """Hands on in order, each piece ``delay_s`` after it came."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"?"
        while piece:
            try:
                piece = await reader.read(_PIECE)
            except OSError:
                piece = b""
            note(piece)
            pieces.put_nowait((loop.time() + delay_s, piece))

    reading = asyncio.ensure_future(read())
    with suppress(OSError):
        while True:
            due_s, piece = await pieces.get()
            if (left_s := due_s - loop.time()) > 0:
                await asyncio.sleep(left_s)
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    writer.close()
    await reading
