"""Exports of a package that are imported on first use (PEP 562).

A room lists the names that other rooms use, by module. Importing the room imports none of these modules; the
first use of a name imports its module and keeps the value. So a Python worker of Spark that needs one light
name of a room does not load pyspark, and the command line prints its help without loading anything heavy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from wheel_udf.common.errors import missing_spark


def exports(
    package: str, names: Mapping[str, tuple[str, ...]], *, modules: tuple[str, ...] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: The package's ``__name__``.
        names: Module of the package to the names that it exports.
        modules: Modules that are exports themselves, used as namespaces (``delta_log.snapshot``).

    Returns:
        The two functions. The first raises ``AttributeError`` for a name that is not listed, and ``SessionError``
        for one whose module needs pyspark or delta-spark where they are not installed; the second lists all exports.
    """
    home_of = {name: module for module, exported in names.items() for name in exported}

    def getattribute(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        try:
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        except ImportError as fault:
            raise missing_spark(fault) or fault from None
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*home_of, *modules})

    sys.modules[package].__dict__["__all__"] = listed()
    return getattribute, listed
