"""Whether a job is healthy: the decision behind ``/healthz``.

::

    query not started, or stopped                             503  the query has stopped: ...
    oldest due entry due for longer than unhealthy_after      503  the oldest due entry is 320 s late
    no sign of life for longer than unhealthy_after           503  no batch has ended for 320 s
    otherwise                                                 200

A *sign of life* is the end of a batch, or a trigger that found nothing to do; Spark reports the latter every 10 s. So
an idle wheel is healthy, and a batch that does not end is noticed even if nothing was due.

Under the processing clock an entry is late by the wall clock. Under the event and the simulated clock, time is the
data's: a backfill is years behind and healthy. There an entry counts as late from the wall-clock instant at which the
same entry was first seen due.
"""

from __future__ import annotations


def unhealthy_reason(
    stopped: str | None, due_since_ms: int | None, alive_ms: int, *, now_ms: int, unhealthy_after_ms: int
) -> str | None:
    """Returns why a job is not healthy; None if it is.

    Args:
        stopped: Why no query runs; None while one runs.
        due_since_ms: Wall clock since when the oldest pending entry is, or will be, due; None if nothing is pending, or
            it is not known.
        alive_ms: Wall clock of the last sign of life.
        now_ms: The wall clock.
        unhealthy_after_ms: How late the oldest entry may be, and how long a batch may take.
    """
    if stopped is not None:
        return stopped
    late_ms = age_ms(due_since_ms, now_ms)
    if late_ms > unhealthy_after_ms:
        return f"the oldest due entry is {_seconds(late_ms)} late; limit: {_seconds(unhealthy_after_ms)}"
    silent_ms = now_ms - alive_ms
    if silent_ms > unhealthy_after_ms:
        return f"no batch has ended for {_seconds(silent_ms)}; limit: {_seconds(unhealthy_after_ms)}"
    return None


def age_ms(since_ms: int | None, now_ms: int) -> int:
    """Returns the time since an instant; 0 if it is None or still to come."""
    return 0 if since_ms is None else max(0, now_ms - since_ms)


def _seconds(span_ms: int) -> str:
    return f"{span_ms / 1_000:,.0f} s"
