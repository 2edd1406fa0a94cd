"""Where the bytes of chunks are stored, and how they are read in part.

The text of a chunk is in the row of its shard's state, or in a file beside the checkpoint to which the row refers::

    row     <directory> <small chunk><small chunk>...          moved by Spark with each batch
    files   17-3f0a...  19-c41b...                             written once, read where a chunk is opened

:class:`ChunkStore` is the interface; :class:`wheel_udf.shard.chunk_files.ChunkFiles` implements it with files.
Without one, all texts are in the row, which Spark moves whole with each batch, although most chunks stay closed.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ChunkBytes(Protocol):
    """Characters of ASCII that are read in part: a ``str``, or a file."""

    def __getitem__(self, part: slice, /) -> str: ...

    def index(self, character: str, start: int, /) -> int:
        """The first place of a character from `start` on."""


class ChunkStore(Protocol):
    """Stores texts outside the row of a state. A name stands for one text for ever."""

    @property
    def least(self) -> int | None:
        """Length from which on a text is kept; None: no text is kept, and earlier ones go back into the row."""

    def open(self, name: str) -> ChunkBytes:
        """The text of a name; it is read when a part of it is asked for."""

    def keep(self, text: str) -> str:
        """Keeps a text and returns its name. The same text, kept by the same batch, has the same name."""


class Span(NamedTuple):
    """A part of a text, which is not copied before it is read."""

    whole: ChunkBytes
    start: int
    end: int

    @staticmethod
    def of(text: str) -> Span:
        """All of a text."""
        return Span(text, 0, len(text))

    def __str__(self) -> str:
        return self.whole[self.start : self.end]
