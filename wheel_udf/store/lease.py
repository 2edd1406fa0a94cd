"""The lease of a slot store. A module of its own, because a run takes it before it loads Spark and Delta."""

from __future__ import annotations

from wheel_udf.checkpoint.lease import Lease


def leased(path: str) -> str:
    """The folder in a store whose lease is that of the store."""
    return f"{path}/_wheel"


def store_lease(path: str) -> Lease:
    """The lease of a store: its holder is the one job that writes to it."""
    return Lease(leased(path))
