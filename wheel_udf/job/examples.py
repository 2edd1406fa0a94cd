"""The verb ``conf``: lists, prints or copies the example configs that come with the package.

::

    wheel-udf conf                    the names, each with the first line of its file
    wheel-udf conf scheduler          prints scheduler.yml
    wheel-udf conf --copy conf        copies all files into a folder: configs, their JSON Schema, settings of Spark and
                                      Log4j, and delay_scheduler.py, the file for spark-submit
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from wheel_udf.common.errors import ConfigError
from wheel_udf.spark import jars

SUCCESS = 0


def show(name: str | None, copy: Path | None, print_line: Callable[[str], None]) -> int:
    """Lists the example configs, or prints one, or copies all files.

    Args:
        name: The file to print, with or without its suffix; None: none.
        copy: The folder to copy all files to; None: none is copied.
        print_line: Takes the lines.

    Returns:
        0.

    Raises:
        ConfigError: There is no such file, the package came without its examples, or a file would be overwritten.
    """
    folder = examples_folder()
    if copy is not None:
        _copy(folder, copy, print_line)
    elif name is not None:
        print_line(_file(folder, name).read_text(encoding="utf-8").rstrip("\n"))
    else:
        for path in sorted(folder.glob("*.yml")):
            print_line(f"{path.stem:<15} {title_of(path)}")
    return SUCCESS


def examples_folder() -> Path:
    """The folder of the example configs.

    Raises:
        ConfigError: The package came without them.
    """
    folder = jars.conf_folder()
    if folder is None:
        raise ConfigError(
            "the package is installed without its example configs", hint="install the wheel or use a checkout"
        )
    return folder


def title_of(path: Path) -> str:
    """The first line of a config that describes its purpose."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ") and "$schema" not in line), "")


def _file(folder: Path, name: str) -> Path:
    known = {key: path for path in _files(folder) for key in (path.name, path.stem)}
    if name not in known:
        names = ", ".join(sorted(path.stem for path in folder.glob("*.yml")))
        raise ConfigError("there is no such example config", field="NAME", value=name, rule=f"one of {names}")
    return known[name]


def _files(folder: Path) -> list[Path]:
    own = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "init")
    return sorted(own) + _entry_points(folder)


def _entry_points(folder: Path) -> list[Path]:
    """The file for spark-submit: beside ``_conf`` in an installed package, beside ``conf`` in a checkout."""
    paths = [folder.parent / jobs / "delay_scheduler.py" for jobs in ("_jobs", "jobs")]
    return [path for path in paths if path.is_file()][:1]


def _copy(folder: Path, to: Path, print_line: Callable[[str], None]) -> None:
    targets = {
        path: to / (path.relative_to(folder) if path.is_relative_to(folder) else path.name)
        for path in _files(folder)
    }
    copy_new(targets, "--copy", print_line)


def copy_new(targets: Mapping[Path, Path], option: str, print_line: Callable[[str], None]) -> None:
    """Copies files, and names each target.

    Args:
        targets: The target of each file.
        option: The option that chose the folder, for the error.
        print_line: Takes the lines.

    Raises:
        ConfigError: A file would be overwritten; none is copied.
    """
    if existing := [str(target) for target in targets.values() if target.exists()]:
        raise ConfigError(
            "files would be overwritten",
            field=option,
            value=", ".join(existing),
            hint="choose another folder",
        )
    for path, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        print_line(str(target))
