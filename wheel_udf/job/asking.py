"""Asks the job that runs, if it runs, in place of starting Spark. Loads neither Spark nor pydantic.

The job answers by its own config. So it is not asked when ``--set`` changes the config, and of the config file only the
checkpoint is read. A file that cannot be read so is left to the loader, which says what is wrong with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wheel_udf.api import client
from wheel_udf.api.answer import Answer
from wheel_udf.api.place import Place, place_of
from wheel_udf.common.errors import WheelError
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import resolve
from wheel_udf.job.arguments import to_question
from wheel_udf.job.config_text import mapping_of_text, text_of


def was_answered(asked: argparse.Namespace, print_line: PrintLine) -> bool:
    """Prints the answer of the job that runs.

    Args:
        asked: The arguments of the command line.
        print_line: Takes the lines.

    Returns:
        False if no job that runs could be asked; then nothing was printed.

    Raises:
        RefusedError: The job has refused the question.
    """
    place = _place_of(asked)
    answer = None if place is None else client.ask(place, asked.verb, to_question(asked))
    if answer is None:
        return False
    print_answer(answer, asked, print_line)
    return True


def _place_of(asked: argparse.Namespace) -> Place | None:
    if asked.set or getattr(asked, "repeat", None) is not None:  # a rule is not the job's
        return None
    try:
        checkpoint = mapping_of_text(text_of(Path(asked.config)), asked.config).get("checkpoint")
        filled, faults = resolve({"checkpoint": checkpoint})
    except WheelError:
        return None
    found: Any = filled["checkpoint"]
    return place_of(found) if isinstance(found, str) and found and not faults else None


def print_answer(answer: Answer, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Prints an answer, and draws the picture of a forecast if one is asked for."""
    for line in answer.printed():
        print_line(line)
    if getattr(asked, "png", None) is not None:
        from wheel_udf.job.picture import finish

        finish(answer.rows, asked.png, print_line)
