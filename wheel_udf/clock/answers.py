"""What the answers of the shards say about the next tick: what is due, the watermark, and whether a sender is a reason for one.

Imports the standard library and :mod:`wheel_udf.wheel.sender_news` only: it runs in the planning process of the clock source.
"""

from __future__ import annotations

from collections.abc import Mapping

from wheel_udf.clock.due_board import Answer, Sending
from wheel_udf.wheel import SenderNews


def earliest_due_ms(answers: Mapping[int, Answer]) -> int | None:
    """Due time of the earliest pending entry of any shard; None if nothing is pending."""
    return min((a.next_due_ms for a in answers.values() if a.next_due_ms is not None), default=None)


def is_waiting(answers: Mapping[int, Answer]) -> bool:
    """Whether what is due waits for the instant that it belongs to (:class:`~wheel_udf.clock.clocks.StoreClock`): the last batch of its shard has released
    nothing. One that a limit has ended has released something.
    """
    return all(
        a.released == 0 for a in answers.values() if a.next_due_ms is not None and a.next_due_ms <= a.clock_ms
    )


def sender_calls(sending: Sending, answers: Mapping[int, Answer], now_ms: int) -> bool:
    """Whether a sender is a reason for a batch at this instant."""
    news = SenderNews.from_text(sending.news)
    reach_ms, until_ms = now_ms + news.ahead_ms, news.present.until_ms
    return sending.failed > 0 or any(
        (a.beyond_ms is not None and a.beyond_ms <= reach_ms)
        or (a.complete_ms is not None and a.complete_ms <= until_ms and a.batch_id <= news.present.batch)
        for a in answers.values()
    )


def watermark_ms(answers: Mapping[int, Answer]) -> int | None:
    """The watermark, which is one for all shards; None if no shard knows one."""
    return max((a.watermark_ms for a in answers.values() if a.watermark_ms is not None), default=None)


def is_due(answers: Mapping[int, Answer], now_ms: int | None) -> bool:
    """Whether a shard would release something in a batch at this instant.

    Each by its own clock, which may be ahead of the instant and of the other shards' clocks (a clock that was set back, ``until``). By the largest
    clock of all, a shard with an earlier one would get tick after tick and release nothing.
    """
    return any(
        a.next_due_ms is not None
        and a.next_due_ms <= (a.clock_ms if now_ms is None else max(a.clock_ms, now_ms))
        for a in answers.values()
    )
