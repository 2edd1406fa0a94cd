"""The manifest of an export: its format, the account, the clock, the positions of the sources.

``manifest.json`` is written last, so a folder with one is a whole export.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from wheel_udf import __version__
from wheel_udf.common.errors import TransferError
from wheel_udf.common.records import typed_record
from wheel_udf.spark.files import json_bytes, open_folder, parsed_json

FORMAT_VERSION: Final = 1
"""Raised when the tables or the manifest change; an import reads this one."""

MANIFEST_FILE: Final = "manifest.json"
WAITS: Final = ("entries", "operations", "held")
"""The tables whose rows are pending."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an export holds.

    Attributes:
        format: Version of its format.
        package_version: The release that made it.
        export_id: A random id.
        mode: ``direct``, ``tiered`` or ``purgatory``.
        wheel: Fingerprint of the geometry.
        shards: Number of shards.
        clock: Kind of clock.
        app_id: Id of the checkpoint's transactions.
        batch: Its last committed batch.
        clock_ms: Its latest clock (UTC epoch ms); None if it has none.
        counts: Rows by outcome since the beginning, all shards together.
        rows: Number of rows of each table.
        positions: Where each source of commands stands, in the order of the query, as Spark's log has it; None:
            nothing was read of it.
    """

    format: int = FORMAT_VERSION
    package_version: str = __version__
    export_id: str
    mode: str
    wheel: str
    shards: int
    clock: str
    app_id: str
    batch: int
    clock_ms: int | None
    counts: dict[str, int]
    rows: dict[str, int]
    positions: list[Any]

    @property
    def pending(self) -> int:
        """Number of pending entries, or operations."""
        return sum(self.rows.get(name, 0) for name in WAITS)


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Writes the manifest; with it the export is complete."""
    open_folder(folder).replace(MANIFEST_FILE, json_bytes(asdict(manifest)))


def find_manifest(folder: str) -> Manifest | None:
    """The manifest of a folder; None if it has none.

    Raises:
        TransferError: It is damaged or of another format.
    """
    content = open_folder(folder).read(MANIFEST_FILE)
    if content is None:
        return None
    found = parsed_json(content)
    if isinstance(found, dict) and found.get("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise TransferError(
            "the export is of another format",
            field=f"{folder}/{MANIFEST_FILE}",
            value=found["format"],
            rule=str(FORMAT_VERSION),
            hint=f"release {found.get('package_version')} made it and can import it",
        )
    manifest = typed_record(Manifest, found)
    if manifest is None or any(
        type(count) is not int for count in (*manifest.counts.values(), *manifest.rows.values())
    ):
        raise TransferError("the manifest of the export is damaged", field=f"{folder}/{MANIFEST_FILE}")
    return manifest


def read_manifest(folder: str, positions: Sequence[Any] | None = None, *, purgatory: bool) -> Manifest:
    """The manifest of an export of a purgatory, or of a wheel, with other positions of the sources if there are any.

    Raises:
        TransferError: There is none, or it is damaged, of another format, or of the other kind of job.
    """
    manifest = find_manifest(folder)
    if manifest is None:
        raise TransferError(
            "there is no complete export here", field=f"{folder}/{MANIFEST_FILE}", hint="run the export again"
        )
    if (manifest.mode == "purgatory") != purgatory:
        rule = "purgatory" if purgatory else "direct or tiered"
        raise TransferError(
            "the export is of another kind of job", field=folder, value=manifest.mode, rule=rule
        )
    return manifest if positions is None else replace(manifest, positions=list(positions))
