"""Optional packages: whether one is installed, and the error that names its extra."""

from __future__ import annotations

from importlib.util import find_spec

from wheel_udf.common.errors import ConfigError


def missing_package(module: str, extra: str, field: str) -> ConfigError | None:
    """Returns the error for an optional package that is not installed; None if it is.

    Args:
        module: The module that is imported.
        extra: The extra of this package that installs it.
        field: The setting or class that needs it.
    """
    if find_spec(module) is not None:
        return None
    return ConfigError(
        f"the package {module} is not installed", field=field, hint=f"pip install 'wheel-udf[{extra}]'"
    )
