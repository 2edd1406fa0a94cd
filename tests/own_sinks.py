"""Classes that configs of tests name as their sinks: good ones, and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.documents import blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Lines:
    """A file of lines for each destination: keeps to the protocol."""

    folder: str
    end: str = "\n"

    def missing_reason(self, spark: Any, destination: str | None, shape: Any = None) -> str | None:
        return "it takes no rejects" if destination is None else None

    def write(
        self, frame: DataFrame, destination: str | None, *, app_id: str, batch_id: int, shape: Any = None
    ) -> None:
        lines = [f"{row.schedule_id}{self.end}" for row in frame.collect()]
        Path(self.folder, f"{destination}-{batch_id}").write_text("".join(lines), encoding="utf-8")

    def holds(self, spark: Any, destination: str | None, *, app_id: str, batch_id: int) -> bool:
        return False


@dataclass(frozen=True)
class Picky(Lines):
    """It is made with a good folder only."""

    def __post_init__(self) -> None:
        if self.folder != "good":
            what = f"no such folder, password={self.folder}"
            raise ValueError(what)


class WithoutHolds:
    """One method of the protocol is missing."""

    def missing_reason(self, *_: Any) -> None:
        """Takes anything."""

    def write(self, frame: Any, destination: Any, **_: Any) -> None:
        """Takes anything."""


class Unhashable(Lines):
    """Writes all destinations at once, and cannot be told from others."""

    __hash__ = None  # type: ignore[assignment]

    def write_all(
        self, frame: Any, rows_to: Mapping[str, int], *, largest_to: Any = None, shape: Any = None
    ) -> Any:
        """Writes nothing."""


not_a_class = 7


def __getattr__(name: str) -> Any:
    """The class of the guide, from its code block."""
    if name != "OfTheGuide":
        raise AttributeError(name)
    (program,) = blocks("docs/sinks.md", "python")
    namespace: dict[str, Any] = {}
    exec(compile(program, "docs/sinks.md", "exec"), namespace)
    return namespace["LineSink"]
