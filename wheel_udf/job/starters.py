"""The verb ``init``: writes a config for a common use, with a script that makes sample input for it, so that it runs as
it is.

::

    wheel-udf init                            the uses, each with the first line of its config
    wheel-udf init reminders                  writes reminders.yml and reminders_sample.py into this folder
    wheel-udf init retries --into trial       into another folder

The files come with the package, in ``conf/init``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from wheel_udf.common.errors import ConfigError
from wheel_udf.job.examples import copy_new, examples_folder, title_of

SUCCESS = 0
FOLDER = "init"


def execute(asked: argparse.Namespace, print_line: Callable[[str], None]) -> int:
    """Lists the uses, or writes the files of one.

    Args:
        asked: The arguments: ``use`` (None: list), ``into``.
        print_line: Takes the lines.

    Returns:
        0.

    Raises:
        ConfigError: There is no such use, the package came without its examples, or a file would be overwritten.
    """
    configs = {path.stem: path for path in sorted((examples_folder() / FOLDER).glob("*.yml"))}
    if asked.use is None:
        for name, path in configs.items():
            print_line(f"{name:<10} {title_of(path)}")
        print_line("wheel-udf init NAME writes the config, and a script that makes sample input for it")
        return SUCCESS
    if asked.use not in configs:
        raise ConfigError("no such use", field="NAME", value=asked.use, rule=f"one of {', '.join(configs)}")
    _write(configs[asked.use], asked.into, print_line)
    return SUCCESS


def _write(config: Path, into: Path, print_line: Callable[[str], None]) -> None:
    files = (config, config.with_name(f"{config.stem}_sample.py"))
    copy_new({path: into / path.name for path in files}, "--into", print_line)
    if into != Path():
        print_line(f"next, in {into}:")
    # The commands stand at the top of the config, between its first line and the first empty one.
    for line in config.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("#   "):
            print_line(f"  {line[4:]}")
        elif not line.startswith("#"):
            break
