"""The headers of a batch of Kafka records, looked up by name in all records at once.

::

    headers      [(id, a), (x, 1), (id, b)]   null   [(x, 2)]
    value(id)    b                            null   null       the last of repeated ones, or if asked the first
    others(id)   [(x, 1)]                     null   [(x, 2)]   those that are not read, as they came

A name is compared as bytes, once for each different name of the batch. No name or value has to be UTF-8.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from wheel_udf.commands.inputs import UnfitTypeError
from wheel_udf.commands.readers import are_octets


class RecordHeaders:
    """The headers of n records.

    Args:
        headers: Lists of structs with a key and a value, as in Kafka's connector; any of them may be null.
        names: Of the headers that are looked up.
        last: Which of repeated headers counts: the last one, as with Kafka's ``lastHeader``, or the first.

    Raises:
        UnfitTypeError: They are of another type.
    """

    def __init__(self, headers: pa.ListArray, names: Collection[str], *, last: bool = True) -> None:
        kind = headers.type
        if not _are_headers(kind):
            raise UnfitTypeError("headers", "array<struct<key, value>>, of strings or binaries")
        self._kind: Final = kind
        self._last: Final = last
        self._records: Final = len(headers)
        self._nothing: Final = pa.nulls(len(headers), pa.binary())
        self._pairs: Final = pc.list_flatten(headers)
        self._rows: Final = pc.list_parent_indices(headers).to_numpy()
        keys, self._values = (
            pc.struct_field(self._pairs, kind.value_type.get_field_index(part)).cast(pa.binary())
            for part in ("key", "value")
        )
        encoded = keys.dictionary_encode()
        self._names: Final = encoded.dictionary
        self._codes: Final = pc.fill_null(encoded.indices, -1).to_numpy()
        codes = pc.index_in(_octets(names), value_set=self._names).to_pylist()
        self._code_of: Final = dict(zip(names, codes, strict=True))

    def value(self, name: str) -> pa.BinaryArray:
        """The value of a header; null where it is missing."""
        places = self._places(name)
        if places is None:
            return self._nothing
        return self._values.take(pa.array(places, mask=places < 0))

    def are_there(self, name: str) -> pa.BooleanArray | None:
        """Which records have a header, be its value null; None if there is none in the whole batch."""
        places = self._places(name)
        return None if places is None else pa.array(places >= 0)

    def others(self, prefixes: Collection[str], names: Collection[str] = ()) -> pa.ListArray:
        """The headers without those whose names begin with a prefix or are listed, in their own type; null for none."""
        is_read = pc.is_in(self._names, value_set=_octets(names))
        for prefix in prefixes:
            is_read = pc.or_(is_read, pc.starts_with(self._names, prefix))
        # At last, for the number -1: what has no name is not passed on.
        kept = np.append(~is_read.to_numpy(zero_copy_only=False), np.False_)[self._codes]
        if not kept.any():
            return pa.nulls(self._records, self._kind)
        pairs = self._pairs if kept.all() else self._pairs.filter(pa.array(kept))
        sizes = np.bincount(self._rows[kept], minlength=self._records)
        ends = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
        return pa.ListArray.from_arrays(ends, pairs, type=self._kind, mask=pa.array(sizes == 0))

    def _places(self, name: str) -> npt.NDArray[np.int64] | None:
        """Where each record has the header that counts, among all headers of the batch; -1 for nowhere."""
        code = self._code_of[name]
        if code is None:
            return None
        found = np.flatnonzero(self._codes == code)
        if not self._last:
            found = found[::-1]
        places = np.full(self._records, -1, np.int64)
        places[self._rows[found]] = found  # of several of a record, the last assignment stays
        return places


def _are_headers(kind: pa.DataType) -> bool:
    if not (kinds.is_list(kind) and kinds.is_struct(kind.value_type)):
        return False
    fields = kind.value_type
    places = [fields.get_field_index(part) for part in ("key", "value")]
    return min(places) >= 0 and all(are_octets(fields.field(place).type) for place in places)


def _octets(words: Collection[str]) -> pa.BinaryArray:
    return pa.array([each.encode() for each in words], pa.binary())
