"""Files of data that lie beside the modules; also in a package that is a zip."""

from __future__ import annotations

import pkgutil
import tomllib
from typing import Any


def content_of(module: str, name: str) -> bytes:
    """The content of a file in the folder of a module.

    Raises:
        OSError: There is no such file.
    """
    content = pkgutil.get_data(module, name)
    assert content is not None, "Python's own loaders read files"
    return content


def toml_of(module: str, name: str) -> dict[str, Any]:
    """The tables of a TOML file in the folder of a module. Errors are those of :func:`content_of`."""
    return tomllib.loads(content_of(module, name).decode())
