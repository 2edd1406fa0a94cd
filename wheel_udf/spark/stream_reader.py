"""The base of the package's streaming sources: one way to say "what comes next", on each Spark 4.

Spark 4.2 asks a Python source for the offset after a given one, and tells it when the input is bounded. Spark 4.0 and
4.1 ask for "the latest offset" without saying where the next batch begins. They do say it elsewhere::

    a fresh checkpoint      initialOffset()                      the first batch begins there
    a planned batch         partitions(start, end)               the next one begins at `end`
    a start, nothing open   partitions(last, last)               Spark shows the last offset of the log (SPARK-47107)

An offset that a reader offers is written to the log before anything else is planned, so the last one offered or shown
is where the next batch begins.

Loaded in the process that plans a source, which must not import numpy, pandas or pyarrow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ModuleNotFoundError:  # new in Spark 4.2

        class SupportsTriggerAvailableNow:
            """In its place: a source without bounded input."""


Offset = dict[str, Any]

BOUNDS_SOURCES = SupportsTriggerAvailableNow.__module__ != __name__
"""Whether this Spark tells a Python source that its input is bounded; see :mod:`wheel_udf.spark.queries`."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that is told where the next batch begins. Its offsets are JSON objects."""

    _begins: Offset | None = None

    @abstractmethod
    def first_offset(self) -> Offset:
        """The offset before the first batch of a checkpoint."""

    @abstractmethod
    def next_offset(self, start: Offset) -> Offset:
        """The end of the next batch, which begins at `start`; `start` itself if there is nothing new."""

    @abstractmethod
    def parts(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What tasks read of a batch."""

    def initialOffset(self) -> Offset:
        """Asked by Spark; before 4.2 after the first :meth:`latestOffset`."""
        return self.first_offset()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: ARG002
        """Asked by Spark, before 4.2 without arguments. All that is new is taken, whatever the limit."""
        begins = self._begins if start is None else start
        self._begins = self.next_offset(self.first_offset() if begins is None else begins)
        return self._begins

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Asked by Spark."""
        self._begins = end
        return [] if start == end else self.parts(start, end)

    def prepareForTriggerAvailableNow(self) -> None:
        """Called by Spark when the input is bounded."""
