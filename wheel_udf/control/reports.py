"""The reports of the shards: passes them to the clock source, and derives from them when the next tick is needed.

A run of the source has a random id, which its ticks carry; the query's id is known to the shards only. The first
report after a tick links the two, so no query reads another query's reports.

Imports the standard library and :mod:`~wheel_udf.policies.sender_news` only: it runs in the planning process of the
clock source and on executors.
"""

from __future__ import annotations

from collections.abc import Mapping

from wheel_udf.control.board import FRAMES, REPORTS, RUNS, Link, Sending, ShardBoard, ShardReport
from wheel_udf.policies.sender_news import SenderNews


def post_reports(
    board: ShardBoard, query_id: str, run: str | None, reports: Mapping[int, ShardReport]
) -> None:
    """Posts reports by shard, and the link from a run of the source to its query."""
    for shard, report in reports.items():
        board.put(REPORTS, f"{query_id}/{shard}", report)
    if run and not board.has(RUNS, run):
        board.put(RUNS, run, Link(query_id))


def reports_of(board: ShardBoard, run: str) -> dict[int, ShardReport]:
    """The reports of the query that a run of the source belongs to; empty while that query is not known."""
    link = board.get(RUNS, run)
    found = {key: board.get(REPORTS, key) for key in board.keys(REPORTS, link.query_id)} if link else {}
    return {int(key.partition("/")[2]): report for key, report in found.items() if report is not None}


def query_of(board: ShardBoard, run: str, frame: str) -> str | None:
    """The query of a run of the source; before its first report, the query that its frame is linked to."""
    link = board.get(RUNS, run) or board.get(FRAMES, frame)
    return link.query_id if link else None


def forget_run(board: ShardBoard, run: str) -> None:
    """Removes the reports and the link of a run that has ended."""
    if link := board.get(RUNS, run):
        board.remove(REPORTS, link.query_id)
    board.remove(RUNS, run)


def earliest_due_ms(reports: Mapping[int, ShardReport]) -> int | None:
    """Due time of the earliest pending entry of any shard; None if nothing is pending."""
    return min((r.next_due_ms for r in reports.values() if r.next_due_ms is not None), default=None)


def is_waiting(reports: Mapping[int, ShardReport]) -> bool:
    """Whether due rows wait for their instant (:class:`~wheel_udf.control.clocks.StoreClock`): the last batch of their
    shard has released nothing, so no limit has ended it.
    """
    return all(
        r.released == 0 for r in reports.values() if r.next_due_ms is not None and r.next_due_ms <= r.clock_ms
    )


def sender_calls(sending: Sending, reports: Mapping[int, ShardReport], now_ms: int) -> bool:
    """Whether a sender is a reason for a batch at this instant."""
    news = SenderNews.from_json(sending.news)
    reach_ms, until_ms = now_ms + news.ahead_ms, news.present.until_ms
    return sending.failed > 0 or any(
        (r.beyond_ms is not None and r.beyond_ms <= reach_ms)
        or (r.complete_ms is not None and r.complete_ms <= until_ms and r.batch_id <= news.present.batch)
        for r in reports.values()
    )


def watermark_ms(reports: Mapping[int, ShardReport]) -> int | None:
    """The watermark, the same for all shards; None if no shard reports one."""
    return max((r.watermark_ms for r in reports.values() if r.watermark_ms is not None), default=None)


def is_due(reports: Mapping[int, ShardReport], now_ms: int | None) -> bool:
    """Whether a shard would release something in a batch at this instant.

    Each shard is compared by its own clock, which may be ahead of the instant and of the other shards' clocks (a clock
    that was set back, ``until``). Compared by the largest clock, a shard with an earlier one would get ticks without
    end and release nothing.
    """
    return any(
        r.next_due_ms is not None
        and r.next_due_ms <= (r.clock_ms if now_ms is None else max(r.clock_ms, now_ms))
        for r in reports.values()
    )
