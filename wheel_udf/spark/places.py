"""The place of a destination: a folder under the root of its sink."""

from __future__ import annotations

from typing import Final

from wheel_udf.common.errors import SinkError
from wheel_udf.common.names import NAME_RULE, is_destination_name
from wheel_udf.spark.files import local_folder

_LOG: Final = "_delta_log"


def place_of(root: str, destination: str | None) -> str:
    """The place of a destination: a folder under the root, whatever the name is. The root itself for None.

    Raises:
        SinkError: The name breaks the rule or is reserved by Delta, or a symbolic link leads out of the root.
    """
    if destination is None:
        return root.rstrip("/") or "/"
    if not is_destination_name(destination):
        raise SinkError("not a destination name", field="destination", value=destination, rule=NAME_RULE)
    if destination.lower() == _LOG:  # with such a folder in it, the root would look like one table
        raise SinkError("the name is reserved by Delta", field="destination", value=destination)
    folder = local_folder(root)
    if folder is not None and not (folder / destination).resolve().is_relative_to(folder.resolve()):
        raise SinkError(
            "the destination leads out of its folder",
            field="destination",
            value=destination,
            rule=f"under {root}",
        )
    return f"{root.rstrip('/')}/{destination}"
