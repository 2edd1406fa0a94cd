"""The content of a shard's state: its chunks, or the text that holds them.

A state that was read has the text, and splits it when a step asks for chunks. The state that a step returns has
chunks, and joins their text when its row is written. Both have the store of texts outside the row
(:mod:`wheel_udf.shard.chunk_store`), if there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from wheel_udf.shard.chunk_store import ChunkStore
from wheel_udf.shard.chunks import Chunk
from wheel_udf.shard.id_index import trusted
from wheel_udf.shard.shard_text import chunks_from_text, chunks_to_text


class Content:
    """The chunks of a shard, or the text that holds them; one is made from the other on first use."""

    def __init__(
        self, text: str | None = None, chunks: Sequence[Chunk] = (), texts: ChunkStore | None = None
    ) -> None:
        self._text, self._chunks, self.texts = text, chunks, texts

    @staticmethod
    def empty(texts: ChunkStore | None = None) -> Content:
        """Of a shard that holds nothing."""
        return Content("", texts=texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # as of any mutable

    @cached_property
    def text(self) -> str:
        """The column ``chunks`` of the state's row; empty without chunks."""
        if self._text is not None:
            return self._text
        return chunks_to_text(self._chunks, self.texts)

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks."""
        return trusted(self._chunks if self._text is None else chunks_from_text(self._text, self.texts))

    def followed_by(self, chunks: Sequence[Chunk]) -> Content:
        """The content of the next state."""
        return Content(chunks=chunks, texts=self.texts)
