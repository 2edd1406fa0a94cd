"""The verbs ``conf`` and ``init``: list, print or copy the example configs that come with the package.

::

    wheel-udf conf                            the names, each with the first line of its file
    wheel-udf conf scheduler                  prints scheduler.yml
    wheel-udf conf --copy conf                copies all files into a folder: configs, their JSON Schema, settings of
                                              Spark and Log4j, and delay_scheduler.py, the file for spark-submit
    wheel-udf init                            the common uses, likewise
    wheel-udf init retries --into trial       copies retries.yml, and retries_sample.py, which makes sample input for it
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.progress import PrintLine
from wheel_udf.spark import jars


def execute(asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Executes one of the two verbs.

    Args:
        asked: The arguments: ``name`` (with or without its suffix; None: list), and ``copy`` or ``into``, a folder.
        print_line: Takes the lines.

    Raises:
        ConfigError: There is no such file, the package came without its examples, or a file would be overwritten.
    """
    folder = jars.conf_folder()
    if folder is None:
        raise ConfigError(
            "the package is installed without its example configs", hint="install the wheel or use a checkout"
        )
    if asked.verb == "init":
        folder = folder / "init"
    configs = {path.stem: path for path in sorted(folder.glob("*.yml"))}
    if asked.verb == "conf" and asked.copy is not None:
        _copy_all(folder, asked.copy, print_line)
    elif asked.name is None:
        for name, path in configs.items():
            print_line(f"{name:<15} {_title(path)}")
        if asked.verb == "init":
            print_line("wheel-udf init NAME writes the config, and a script that makes sample input for it")
    elif asked.verb == "init":
        _write(_named(asked.name, configs, configs), asked.into, print_line)
    else:
        known = {key: path for path in _files(folder) for key in (path.name, path.stem)}
        print_line(_named(asked.name, known, configs).read_text(encoding="utf-8").rstrip("\n"))


def _named(name: str, known: Mapping[str, Path], shown: Mapping[str, Path]) -> Path:
    if name not in known:
        rule = f"one of {', '.join(shown)}"
        raise ConfigError("there is no such example config", field="NAME", value=name, rule=rule)
    return known[name]


def _title(path: Path) -> str:
    """The first line of a config that describes its purpose."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ") and "$schema" not in line), "")


def _files(folder: Path) -> list[Path]:
    """All files; that for spark-submit is beside ``_conf`` in an installed package, beside ``conf`` in a checkout."""
    own = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "init")
    entry_points = [folder.parent / jobs / "delay_scheduler.py" for jobs in ("_jobs", "jobs")]
    return sorted(own) + [path for path in entry_points if path.is_file()][:1]


def _copy_all(folder: Path, to: Path, print_line: PrintLine) -> None:
    targets = {
        path: to / (path.relative_to(folder) if path.is_relative_to(folder) else path.name)
        for path in _files(folder)
    }
    _copy_new(targets, "--copy", print_line)


def _write(config: Path, into: Path, print_line: PrintLine) -> None:
    files = (config, config.with_name(f"{config.stem}_sample.py"))
    _copy_new({path: into / path.name for path in files}, "--into", print_line)
    if into != Path():
        print_line(f"next, in {into}:")
    # The commands stand at the top of the config, between its first line and the first empty one.
    for line in config.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("#   "):
            print_line(f"  {line[4:]}")
        elif not line.startswith("#"):
            break


def _copy_new(targets: Mapping[Path, Path], option: str, print_line: PrintLine) -> None:
    """Copies files to their targets, and names each; copies none if one would be overwritten."""
    if existing := [str(target) for target in targets.values() if target.exists()]:
        raise ConfigError(
            "files would be overwritten",
            field=option,
            value=", ".join(existing),
            hint="choose another folder",
        )
    for path, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        except OSError as fault:
            what = f"a file cannot be written ({fault.strerror or fault})"
            raise ConfigError(what, field=option, value=str(target), hint="choose another folder") from None
        print_line(str(target))
