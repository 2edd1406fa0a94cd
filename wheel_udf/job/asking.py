"""Asks the job that runs, if it runs, in place of starting Spark. Loads neither Spark nor pydantic.

The job answers by its own config. So it is not asked when ``--set`` changes the config, and of the config file only the
checkpoint is read. A file that cannot be read so is left to the loader, which says what is wrong with it.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
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


def was_done(asked: argparse.Namespace, print_line: PrintLine) -> bool:
    """Lets the job that runs do what is asked: prints its answer, or lets it serve its page until an interrupt.

    Args:
        asked: The arguments of the command line.
        print_line: Takes the lines.

    Returns:
        False if no job runs that could do it, or if it has ended before its page: it is to be done without a job.

    Raises:
        RefusedError: The job has refused the question, or cannot serve the page so.
        ConfigError: The token of the page cannot be read.
    """
    place = _place_of(asked)
    if asked.verb == "ui":
        # A job elsewhere would serve it there.
        return place is not None and place.is_here and _page_was_served(place, asked, print_line)
    answer = None if place is None else client.ask(place, asked.verb, to_question(asked))
    if answer is None:
        return False
    print_answer(answer, asked, print_line)
    return True


def _page_was_served(place: Place, asked: argparse.Namespace, print_line: PrintLine) -> bool:
    end_on_sigterm()
    filled, faults = resolve({"--token": asked.token})
    for fault in faults.values():
        raise fault

    def begun(lines: Sequence[str]) -> None:
        for line in lines:
            print_line(line)

    try:
        was_served = client.serve_page(place, to_question(asked) | {"token": filled["--token"]}, begun)
    except KeyboardInterrupt:
        return True
    if was_served:
        print_line("the job has ended; the page goes on from what it has left")
    return False


def end_on_sigterm() -> None:
    """From now on SIGTERM interrupts, as Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _place_of(asked: argparse.Namespace) -> Place | None:
    if asked.set or getattr(asked, "repeat", None) is not None:  # a rule is not the job's
        return None
    try:
        checkpoint = mapping_of_text(text_of(Path(asked.config)), asked.config).get("checkpoint")
        filled, faults = resolve({"checkpoint": checkpoint})
        found: Any = filled["checkpoint"]
        return place_of(found) if isinstance(found, str) and found and not faults else None
    except (WheelError, ValueError):  # a path with a NUL
        return None


def print_answer(answer: Answer, asked: argparse.Namespace, print_line: PrintLine) -> None:
    """Prints an answer, and draws the picture of a forecast if one is asked for."""
    for line in answer.printed():
        print_line(line)
    if getattr(asked, "png", None) is not None:
        from wheel_udf.job.picture import finish

        finish(answer.rows, asked.png, print_line)
