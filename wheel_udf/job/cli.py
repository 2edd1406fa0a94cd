"""The command line: arguments in, exit code out.

::

    wheel-udf VERB --config FILE [options]    arguments, by verbs.toml ---> loader ---> module of the verb
                                              no --config: init, conf, broker, next --> module of the verb
                                              the job runs, and the verb asks it -----> its answer is printed

``python -m wheel_udf`` and ``spark-submit jobs/delay_scheduler.py`` take the same arguments
(:mod:`wheel_udf.job.arguments`). Standard output has the lines of the verb (of a run one for each batch, and the
summary), standard error the ``warning:`` and ``error:`` lines. Errors are put into sentences
(:mod:`wheel_udf.spark.failures`); ``--debug`` adds the stack trace. No line holds a secret of the config
(:mod:`wheel_udf.common.secrets`).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Final, TextIO

from wheel_udf.api.answer import RefusedError
from wheel_udf.common.errors import ConfigErrors
from wheel_udf.common.interrupts import INTERRUPTED, is_interrupt
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import hide
from wheel_udf.job.arguments import ASKED, VERBS, parse

USAGE = 2
_DEBUG: Final = "WHEEL_UDF_DEBUG"


def main(argv: Sequence[str], *, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Executes the verb of the arguments.

    Args:
        argv: Arguments without the program's name.
        out: Where progress and summary go; default standard output.
        err: Where errors go; default standard error.

    Returns:
        The exit code: 0 success, 1 the run failed (or cannot be repaired), 2 something to change (usage, config,
        contract, checkpoint), 130 interrupted (Ctrl-C).
    """
    try:
        arguments = parse(argv)
    except SystemExit as end:  # argparse has printed the error or the help
        _has_reader(sys.stdout)
        return end.code if isinstance(end.code, int) else USAGE
    warn = line_printer(err or sys.stderr)
    try:
        with _all_warnings() if arguments.debug else nullcontext():
            return _execute(arguments, line_printer(out or sys.stdout), warn)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the last place that can report an error
        if arguments.debug:
            warn("".join(traceback.format_exception(error)).rstrip("\n"))
        if is_interrupt(error):
            warn(_interrupt_text(arguments.verb, dry_run=getattr(arguments, "dry_run", False)))
            return INTERRUPTED
        return _report(error, warn, debug=arguments.debug)


@contextmanager
def _all_warnings() -> Iterator[None]:
    """Inside, Spark is started with all its warnings (:func:`wheel_udf.spark.session.shows_all_warnings`)."""
    before = os.environ.get(_DEBUG)
    os.environ[_DEBUG] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_DEBUG]
        else:
            os.environ[_DEBUG] = before


def console() -> int:
    """The console command ``wheel-udf``."""
    return main(sys.argv[1:])


def line_printer(stream: TextIO) -> PrintLine:
    """Returns a function that writes a line, its secrets hidden, and flushes it. A closed pipe does not end the run."""
    closed = False

    def write(line: str) -> None:
        nonlocal closed
        closed = closed or not _has_reader(stream, f"{hide(line)}\n")

    return write


def _has_reader(stream: TextIO, text: str = "") -> bool:
    """Writes a text and all that is held back; returns whether the stream has a reader."""
    try:
        print(text, end="", file=stream, flush=True)
    except BrokenPipeError:
        with suppress(OSError):
            # At its end, Python writes what it still holds, and prints that this failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


def _execute(arguments: argparse.Namespace, print_line: PrintLine, warn: PrintLine) -> int:
    # Each verb imports what it needs: --help needs no pydantic, the errors of a config need neither Spark nor Java.
    module = f"wheel_udf.job.{VERBS[arguments.verb]['module']}"
    if getattr(arguments, "config", None) is None:
        return int(import_module(module).execute(arguments, print_line) or 0)
    if arguments.verb in (*ASKED, "ui"):
        from wheel_udf.job import asking

        if asking.was_done(arguments, print_line):
            return 0
    from wheel_udf.job import loader

    trigger = getattr(arguments, "trigger", None)
    overrides = [*arguments.set, *([f"trigger={trigger}"] if trigger else [])]
    config = loader.load(arguments.config, overrides)
    if arguments.verb == "pending":
        from wheel_udf.job import without_spark

        if without_spark.was_answered(config, arguments, print_line):
            return 0
    if "until" not in arguments:
        return int(import_module(module).execute(config, arguments, print_line) or 0)
    if arguments.until is not None:
        from wheel_udf.job import until

        if (warning := until.warning_of(config, arguments.until)) is not None:
            warn(f"warning: {warning}")
    return int(import_module(module).run(config, arguments.until, print_line) or 0)


def _interrupt_text(verb: str, *, dry_run: bool) -> str:
    """The state after Ctrl-C, as a line."""
    after = None if dry_run else VERBS[verb].get("interrupted")
    return f"{verb}: interrupted" if after is None else f"{verb}: interrupted; {after}"


def _report(error: BaseException, warn: PrintLine, *, debug: bool) -> int:
    if isinstance(error, RefusedError):
        warn(f"error: {error.sentence}")
        return error.exit_code
    from wheel_udf.spark.failures import explain

    failure = explain(error)
    for sentence in map(str, error.faults) if isinstance(error, ConfigErrors) else [failure.sentence]:
        warn(f"error: {sentence}")
    if not debug and failure.exit_code != USAGE:
        warn("(--debug shows the stack trace)")
    return failure.exit_code
