"""The versions of a shard's state. Apart from the state itself, so that the look at a checkpoint before a start loads no pandas."""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 8
"""Version of a shard's state and of the identity file of its checkpoint. Raised when either layout changes."""

READABLE_VERSIONS: Final = frozenset({5, 6, 7, FORMAT_VERSION})
"""The versions that this release goes on with; a checkpoint of another one is refused. A row of version 7 has all chunks in it. A row of version 5 has chunks of any
size and no index of ids, and the index of version 6 does not say in which row an id is. The first step with something to do splits large chunks, makes
the index, and writes the present version. A chunk of versions 5 and 6 has no keys before it is written anew."""
