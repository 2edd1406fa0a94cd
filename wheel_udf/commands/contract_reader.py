"""What the readers of commands, operations and events share: how they find the columns, and why rows are rejected.

::

    batch --_given--> Given --> (each reader's own) --> rules --first_broken--> numbers --_reasons--> row, Reason
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wheel_udf.commands.contract import Contract
from wheel_udf.commands.inputs import Given
from wheel_udf.commands.records import Records
from wheel_udf.commands.rules import GOOD, Messages, Rule


class Reason(NamedTuple):
    """Why a row is rejected, and the JSON of the row."""

    error_code: str | None
    error_message: str
    record: str


@dataclass(frozen=True)
class ContractReader:
    """Reads batches of rows under a contract.

    Args:
        names: Of all columns, as the user spells them.
        places: Of the known ones among them, by their names in lower case.
        contract: The limits to check against.
    """

    names: tuple[str, ...]
    places: dict[str, int]
    contract: Contract

    def _given(self, batch: pa.RecordBatch) -> Given:
        """The known columns of a batch."""
        return Given({name: batch.column(place) for name, place in self.places.items()}, batch.num_rows)

    def _reasons(
        self,
        texts: Mapping[str, str],
        records: Records,
        rules: Sequence[Rule],
        broken: npt.NDArray[np.int64],
        sizes: pa.Int64Array | None = None,
    ) -> Iterator[tuple[int, Reason]]:
        """The rejected rows by their numbers.

        Args:
            texts: The messages by the codes of the rules.
            records: The rows, as they were received.
            rules: The rules.
            broken: The number of the rule that each row breaks first.
            sizes: Bytes of the payloads; a record is without one that is larger than the contract allows. Each copy of
                a row of many MiB counts, and a rejected command keeps its payload in its own columns.
        """
        messages, most = Messages(self.contract, texts), self.contract.max_value_bytes
        for row in np.flatnonzero(broken != GOOD).tolist():
            rule = rules[broken[row]]
            is_small = sizes is None or most is None or sizes[row].as_py() <= most
            yield row, Reason(rule.code, messages.of(rule, row), records.of(row, with_payload=is_small))
