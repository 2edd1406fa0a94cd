"""The version of a shard's state; a module of its own, so that checking a checkpoint does not import pandas."""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 12
"""Version of a shard's state and of its checkpoint's identity. Checkpoints of another version are refused."""
