"""One endpoint of a webhook sink, as one task sees it: tries, back-off, time budget, circuit breaker.

::

    a row --> try 1 --2xx--> delivered
                 |--4xx------------------------------------> refused: this row, at once; the endpoint is well
                 '--5xx, 408, 425, 429, no answer--> wait --> try 2 ... --> given up after the last try
                                                      |
                 Retry-After: all rows of the endpoint wait so long    5 rows given up in a row, or the budget used up:
                 otherwise: the back-off, doubled with each try        the other rows are refused without a try

Time is that of the event loop. No state outlives the task. Executors load this module: httpx, and nothing of Spark.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from wheel_udf.common.instants import LONGEST_WAIT_MS

if TYPE_CHECKING:
    import httpx

_TRIES_LATER: Final = frozenset({408, 425, 429})
_SERVER_ERRORS_FROM: Final = 500
_NEVER: Final = frozenset({501, 505})  # the server will not learn the method or the version
_GIVEN_UP_IN_A_ROW: Final = 5
_LONGEST_WAIT_S: Final = LONGEST_WAIT_MS / 1_000
_LONGEST_ANSWER: Final = 2048
_TEXT_TIMEOUT_S: Final = 1.0
_LONGEST_REASON: Final = 200


class Request(NamedTuple):
    """The request of one row."""

    fire_id: str
    body: bytes
    headers: list[tuple[str, str]]


class Refused(NamedTuple):
    """A row that was not delivered.

    Attributes:
        fire_id: Of the row.
        reason: Why.
        is_final: Whether no later attempt can succeed.
        is_tried: Whether a request was sent.
        retry_after_ms: How long the endpoint asks to wait; None: it does not.
    """

    fire_id: str
    reason: str
    is_final: bool = False
    is_tried: bool = True
    retry_after_ms: int | None = None


@dataclass(frozen=True)
class Plan:
    """The settings of a task.

    Attributes:
        url: The URL, with ``{destination}`` where the name belongs.
        headers: Headers of every request.
        id_header: The header that gets the fire id.
        timeout_s: The longest time of one try, from connecting to the status of the answer.
        retries: Tries after the first one.
        backoff_s: The wait before the second try; it doubles with each further one.
        budget_s: The longest time for all rows of the endpoint in one task.
        concurrency: How many rows are sent at the same time.
        on_probation: Destinations that failed in an earlier batch.
        waits: Whether rows wait in the task if the endpoint asks for that; otherwise they are left out.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    id_header: str
    timeout_s: float
    retries: int
    backoff_s: float
    budget_s: float
    concurrency: int
    on_probation: frozenset[str] = frozenset()
    waits: bool = True


@dataclass(frozen=True)
class _Answer:
    """The outcome of one try: the reason is None if the row was delivered."""

    reason: str | None
    try_again: bool = False
    wait_s: float | None = None


@dataclass
class Endpoint:
    """The URL of one destination.

    Attributes:
        url: Where rows are posted.
        plan: How long and how often.
        slots: The connections of the task.
        on_probation: Whether it failed in an earlier batch: one row is tried, once, before the others.
        open_reason: Why no further row is tried in this task; None while rows are tried.
        failed_reason: Why it is not tried in the next batches; None if it is.
        doubt: Why the next batch tries it with one row first: its rows were given up, and it accepted none; None if it
            accepted one.
    """

    url: str
    plan: Plan
    slots: asyncio.Semaphore = field(repr=False)
    on_probation: bool = False
    open_reason: str | None = None
    failed_reason: str | None = None
    doubt: str | None = None
    _asks_ms: int | None = None
    _answered: bool = False
    _deadline: float | None = None
    _not_before: float = 0.0
    _given_up: int = 0

    async def send(self, client: httpx.AsyncClient, requests: list[Request]) -> list[Refused]:
        """Sends the requests of one batch of rows, oldest first; returns those that were not delivered."""
        waiting, refused = deque(requests), list[Refused]()
        if self.on_probation and waiting:
            await self._work(client, deque([waiting.popleft()]), refused)
            self.on_probation = False
        workers = (self._work(client, waiting, refused) for _ in range(self.plan.concurrency))
        await asyncio.gather(*workers)
        return refused

    async def _work(self, client: httpx.AsyncClient, waiting: deque[Request], refused: list[Refused]) -> None:
        while waiting:
            request = waiting.popleft()
            if self.open_reason is not None:
                left = Refused(
                    request.fire_id, self.open_reason, is_tried=False, retry_after_ms=self._asks_ms
                )
                refused.append(left)
            elif (reason := await self._deliver(client, request)) is not None:
                refused.append(reason)

    async def _deliver(self, client: httpx.AsyncClient, request: Request) -> Refused | None:
        """Tries a row until it is delivered, refused or given up; returns why it is not delivered."""
        tries = 1 if self.on_probation else 1 + self.plan.retries
        reason, not_before, wait_ms = "", 0.0, None
        for number in range(1, tries + 1):
            if not await self._turn(not_before):
                why = self._out_of_time(reason)
                return Refused(request.fire_id, why, is_tried=number > 1, retry_after_ms=wait_ms)
            answer = await self._try(client, request)
            if not answer.try_again:
                self._answered, self._given_up, self.doubt = True, 0, None
                if answer.reason is None:
                    return None
                return Refused(request.fire_id, answer.reason, is_final=True)
            reason, not_before = answer.reason or "", self._next_try(answer, number)
            wait_ms = None if answer.wait_s is None else round(1000 * answer.wait_s)
        why = self._give_up(f"{reason} ({tries} {'try' if tries == 1 else 'tries'})")
        return Refused(request.fire_id, why, retry_after_ms=wait_ms)

    async def _turn(self, not_before: float) -> bool:
        """Waits for the time of a try, of this row and of the endpoint; returns whether it may be made."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self.plan.budget_s
        while self.open_reason is None and now < self._deadline:  # another row may put the time off meanwhile
            wait_s = max(not_before, self._not_before) - now
            if wait_s <= 0:
                return True
            if now + wait_s >= self._deadline:
                return False
            await asyncio.sleep(wait_s)
            now = asyncio.get_running_loop().time()
        return False

    def _next_try(self, answer: _Answer, number: int) -> float:
        """Returns the time of the next try of a row. A wait that the endpoint asks for applies to all rows."""
        now = asyncio.get_running_loop().time()
        if answer.wait_s is None:
            return now + self.plan.backoff_s * 2.0 ** (number - 1)
        self._not_before = max(self._not_before, now + answer.wait_s)
        if not self.plan.waits:
            self._asks_ms = round(1000 * answer.wait_s)
            self._open(f"the endpoint asks for {answer.wait_s:g} s without requests", failed=False)
        if self._deadline is not None and self._not_before >= self._deadline:
            self._open(
                f"the endpoint asks for {answer.wait_s:g} s without requests, {answer.reason}", failed=True
            )
        return self._not_before

    def _out_of_time(self, reason: str) -> str:
        now = asyncio.get_running_loop().time()
        if self._deadline is not None and now >= self._deadline:
            # An endpoint that answers is not one that failed: there are more rows than it takes in this time.
            used = f"the {self.plan.budget_s:g} s of the endpoint for this batch were used up"
            self._open(used, failed=not self._answered)
        return f"{reason} (not tried again)" if reason else self.open_reason or "not sent"

    def _give_up(self, reason: str) -> str:
        self._given_up += 1
        self.doubt = None if self._answered else reason
        if self._given_up >= (1 if self.on_probation else _GIVEN_UP_IN_A_ROW):
            self._open(f"the endpoint failed before, {reason}", failed=True)
        return reason

    def _open(self, why: str, *, failed: bool) -> None:
        if self.open_reason is None:
            self.open_reason = f"not sent: {why}"
            self.failed_reason = why if failed else None

    async def _try(self, client: httpx.AsyncClient, request: Request) -> _Answer:
        import httpx

        assert self._deadline is not None, "a turn came first"
        async with self.slots:
            left_s = self._deadline - asyncio.get_running_loop().time()
            limit_s = max(0.0, min(self.plan.timeout_s, left_s))
            try:
                async with asyncio.timeout(limit_s):
                    return await self._post(client, request)
            except TimeoutError:
                return _Answer(f"no answer within {limit_s:.3g} s", try_again=True)
            except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError) as fault:
                return _Answer(f"cannot be sent: {_short(str(fault))}")
            except httpx.TransportError as fault:
                return _Answer(f"{_short(str(fault)) or type(fault).__name__}", try_again=True)

    async def _post(self, client: httpx.AsyncClient, request: Request) -> _Answer:
        sent = client.stream("POST", self.url, content=request.body, headers=request.headers)
        async with sent as response:
            text = await _text_of(response)
        if response.is_success:
            return _Answer(None)
        body = _short(text.decode("utf-8", "replace"))
        reason = f"HTTP {response.status_code}{f': {body}' if body else ''}"
        is_for_good = response.status_code < _SERVER_ERRORS_FROM or response.status_code in _NEVER
        if is_for_good and response.status_code not in _TRIES_LATER:
            return _Answer(reason)
        return _Answer(reason, try_again=True, wait_s=_retry_after_s(response.headers))


async def _text_of(response: httpx.Response) -> bytes:
    """The beginning of an answer's text. The status decides alone: a missing or endless text changes nothing."""
    import httpx

    text = b""
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout(_TEXT_TIMEOUT_S):
            async for part in response.aiter_raw():
                text += part
                if len(text) > _LONGEST_ANSWER:  # the rest is not read, and the connection not used again
                    break
    return text


def _short(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_LONGEST_REASON]


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The header ``Retry-After`` in seconds. A date counts from the answer's own date, by the server's clock."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), _LONGEST_WAIT_S)
    with suppress(ValueError, TypeError):
        span = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
        return min(max(0.0, span.total_seconds()), _LONGEST_WAIT_S)
    return None
