"""Settings of destinations, by name or pattern of the allow-list: those of a name, and of a column of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from wheel_udf.common.names import AllowList

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class ByDestination(Generic[Setting]):
    """Settings of destinations.

    Attributes:
        by_pattern: The settings.
        among: All names and patterns of the allow-list, in their order: the first that matches a name counts.
    """

    by_pattern: Mapping[str, Setting] = field(default_factory=dict, hash=False)
    among: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.by_pattern)

    @cached_property
    def _allowed(self) -> AllowList:
        return AllowList(self.among or tuple(self.by_pattern))

    def of(self, name: str | None) -> Setting | None:
        """The setting of a destination; None if it has none."""
        return None if name is None else self.by_pattern.get(self._allowed.first(name) or "")


def of_each(names: pa.ChunkedArray, of: Callable[[str | None], object], kind: pa.DataType) -> pa.Array:
    """A value for each of many names, of which few are distinct: it is asked once for each of these."""
    distinct = pc.unique(names)
    found = pa.array([of(name) for name in distinct.to_pylist()], kind)
    return found.take(pc.index_in(names, value_set=distinct).combine_chunks())
