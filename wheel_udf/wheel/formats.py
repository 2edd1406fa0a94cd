"""The version of a shard's state. Apart from the state itself, so that the look at a checkpoint before a start loads
no pandas.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 9
"""Version of a shard's state and of the identity file of its checkpoint. Raised when either layout changes; a
checkpoint of another one is refused.
"""
