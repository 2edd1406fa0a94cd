"""The command line: arguments in, exit code out.

::

    wheel-udf run | dry-run --config FILE [--set a.b=c]... [--trigger T] [--until INSTANT]     begin, dry_run
    wheel-udf explain --config FILE [--rate N] [--horizon TIME] [--bytes N] [--mermaid]       explain
    wheel-udf pending | forecast | history | acts | cancel | move | reroute --config FILE ...  verbs
    wheel-udf export --to FOLDER | import --from FOLDER  --config FILE                         moves
    wheel-udf repair --config FILE [--dry-run]                                                 repair
    wheel-udf forget --config FILE --id ID [--id ID]... [--dry-run]                            forget
    wheel-udf conf [NAME] [--copy FOLDER]                                                      examples
    wheel-udf init [NAME] [--into FOLDER]                                                      starters
    wheel-udf broker [--port N] [--folder FOLDER] [--topic NAME]...                            broker

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from wheel_udf.common.errors import ConfigErrors
from wheel_udf.common.interrupts import INTERRUPTED, is_interrupt
from wheel_udf.common.progress import PrintLine
from wheel_udf.common.secrets import hide
from wheel_udf.job.arguments import FORGET_VERB, MOVE_VERBS, PENDING_VERBS, REPAIR_VERB, parse

if TYPE_CHECKING:
    from wheel_udf.job.models.scheduler import JobConfig

SUCCESS = 0
USAGE = 2

Verb = Callable[["JobConfig", int | None, PrintLine], int]
"""The action of a verb: (config, until in UTC epoch ms, where lines go) -> exit code."""


_MODULES = {
    "explain": "explain",
    "ui": "ui",
    **dict.fromkeys(PENDING_VERBS, "verbs"),
    **dict.fromkeys(MOVE_VERBS, "moves"),
    **dict.fromkeys(REPAIR_VERB, "repair"),
    **dict.fromkeys(FORGET_VERB, "forget"),
}
"""Verbs with a function ``execute(config, arguments, print_line)``, and the modules of this room that have it."""
_WITHOUT_CONFIG = {"broker": "broker", "init": "starters"}
"""Likewise, with a function ``execute(arguments, print_line)``."""

_RECORDED = "an act is done completely or not at all: `wheel-udf acts` shows whether it was"
_AFTER_INTERRUPT = {
    "export": "the export is not used until it is complete: the same command again makes or completes it",
    "import": "the new checkpoint does not start until the import is complete: the same command again completes it",
    "repair": "the same command again goes on",
    "run": "the next start goes on from the checkpoint",
    **dict.fromkeys(("cancel", "move", "reroute"), _RECORDED),
}
"""The state after Ctrl-C, for verbs that write."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """The two verbs that run a config; tests put their own here."""

    run: Verb
    dry_run: Verb


def _run(config: JobConfig, until_ms: int | None, print_line: PrintLine) -> int:
    from wheel_udf.job import begin

    return begin.run(config, until_ms, print_line)


def _dry_run(config: JobConfig, until_ms: int | None, print_line: PrintLine) -> int:
    from wheel_udf.job import dry_run

    return dry_run.run(config, until_ms, print_line)


_VERBS = Verbs(_run, _dry_run)


def main(
    argv: Sequence[str], *, verbs: Verbs | None = None, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Executes the verb of the arguments.

    Args:
        argv: Arguments without the program's name.
        verbs: The actions of ``run`` and ``dry-run``; default those of :mod:`wheel_udf.job.begin` and
            :mod:`wheel_udf.job.dry_run`.
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
        return _execute(arguments, verbs, line_printer(out or sys.stdout), warn)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the last place that can report an error
        if arguments.debug:
            warn("".join(traceback.format_exception(error)).rstrip("\n"))
        if is_interrupt(error):
            warn(_interrupt_text(arguments.verb, dry_run=getattr(arguments, "dry_run", False)))
            return INTERRUPTED
        return _report(error, warn, debug=arguments.debug)


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


def _execute(
    arguments: argparse.Namespace, verbs: Verbs | None, print_line: PrintLine, warn: PrintLine
) -> int:
    # Each verb imports what it needs: --help needs no pydantic, the errors of a config need neither Spark nor Java.
    if arguments.verb == "conf":
        from wheel_udf.job import examples

        return examples.show(arguments.name, arguments.copy, print_line)
    if arguments.verb in _WITHOUT_CONFIG:
        return int(
            import_module(f"wheel_udf.job.{_WITHOUT_CONFIG[arguments.verb]}").execute(arguments, print_line)
        )
    from wheel_udf.job import loader

    trigger = getattr(arguments, "trigger", None)
    overrides = [*arguments.set, *([f"trigger={trigger}"] if trigger else [])]
    config = loader.load(arguments.config, overrides)
    if arguments.verb in _MODULES:
        return int(
            import_module(f"wheel_udf.job.{_MODULES[arguments.verb]}").execute(config, arguments, print_line)
        )
    chosen = verbs or _VERBS
    if arguments.until is not None:
        from wheel_udf.job import until

        if (warning := until.warning_of(config, arguments.until)) is not None:
            warn(f"warning: {warning}")
    start = chosen.run if arguments.verb == "run" else chosen.dry_run
    return start(config, arguments.until, print_line)


def _interrupt_text(verb: str, *, dry_run: bool) -> str:
    """The state after Ctrl-C, as a line."""
    after = None if dry_run else _AFTER_INTERRUPT.get(verb)
    return f"{verb}: interrupted" if after is None else f"{verb}: interrupted; {after}"


def _report(error: BaseException, warn: PrintLine, *, debug: bool) -> int:
    from wheel_udf.spark.failures import explain

    failure = explain(error)
    sentences = (
        [str(fault) for fault in error.faults] if isinstance(error, ConfigErrors) else [failure.sentence]
    )
    for sentence in sentences:
        warn(f"error: {sentence}")
    if not debug and failure.exit_code != USAGE:
        warn("(--debug shows the stack trace)")
    return failure.exit_code
