"""The command line of the job: arguments in, exit code out.

::

    delay_scheduler.py run     --config FILE [--set a.b=c]... [--trigger T] [--until INSTANT]    runs the wheel
    delay_scheduler.py dry-run --config FILE ...                                                 checks everything, runs nothing
    delay_scheduler.py pending | forecast | cancel | move | reroute | acts --config FILE ...     what is pending (wheel_udf.desk)

Standard output carries the lines of :mod:`wheel_udf.job` (a line for each batch, the summary), standard error the ``error:`` lines.
What goes wrong is told in sentences (:mod:`wheel_udf.failures`); ``--debug`` adds the stack trace. No line holds a secret of the config
(:mod:`wheel_udf.secrets`).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from wheel_udf import config as config_file
from wheel_udf import desk_arguments
from wheel_udf.errors import ConfigErrors
from wheel_udf.failures import explain
from wheel_udf.secrets import hide
from wheel_udf.settings import AnyJobConfig, JobConfig
from wheel_udf.watch_settings import WatchJobConfig

SUCCESS = 0
USAGE = 2

_EPILOG = """\
what --until means, by clock and trigger (what arrives later than until is past due):
  clock       trigger        meaning
  event       available-now  reads all input, then the clock runs on to the later of the watermark and until;
                             what is due by then fires, any backlog is drained, the run ends
  event       interval       stops once the watermark has reached until and nothing due by then is left
  processing  available-now  reads all input, then the clock is the later of the wall clock and until
                             (until is not waited for); the run ends
  processing  interval       stops after the first batch whose clock is at until or later with nothing due left
  simulated   available-now  a step (or an instant of the list) for each batch while input lasts, then the clock
                             jumps on to until; the run ends
  simulated   interval       steps to until, then stops
Without --until, available-now ends at the clock's own time and an interval runs until it is stopped. With an
interval an idle wheel runs a batch each clock.heartbeat, so its stop may come that much later.

what a config runs: with a section source, a scheduler; with sections operations and events, a purgatory, in which operations wait for
events until they are complete, cancelled or over (conf/unpaid_orders.yml and its neighbours; run and dry-run only). Its outcomes are
decided when the clock is past them, so --until has to be later than the last instant that matters

secrets: ${env:NAME} and ${file:/path} in any text of the config are replaced when it is read, and printed as ***

exit codes:
  0  success; also after SIGINT (Ctrl-C) or SIGTERM: the running batch is finished, the summary printed (with spark-submit the JVM is the
     process, and such a signal ends it at once, with 130 or 143: the next start does that batch again)
  1  the run failed (Spark, a sink, the checkpoint is in use, anything unexpected)
  2  usage, config, command contract or checkpoint do not fit: something to change before the next try

examples:
  spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml
  spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml --trigger available-now --until 2014-01-02
  python jobs/delay_scheduler.py dry-run --config conf/scheduler.yml --set wheel.shards=8
  ... --set 'destinations."reminders.*".path=data/out'      a key that holds dots stands in double quotes
  ... --set 'source.options."kafka.bootstrap.servers"=${env:KAFKA}'      (in single quotes, or the shell reads it)
"""

Verb = Callable[[AnyJobConfig, int | None, Callable[[str], None]], int]
"""What a verb does: (config, until in UTC epoch ms, where lines go) -> exit code."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """The two verbs; tests put their own here."""

    run: Verb
    dry_run: Verb


def main(
    argv: Sequence[str], *, verbs: Verbs | None = None, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Runs the job as the arguments say.

    Args:
        argv: Arguments without the program's name.
        verbs: What ``run`` and ``dry-run`` do; default those of :mod:`wheel_udf.job` and
            :mod:`wheel_udf.dry_run`.
        out: Where progress and summary go; default standard output.
        err: Where errors go; default standard error.

    Returns:
        The exit code: 0 success, 1 the run failed, 2 something to change (usage, config, contract, checkpoint).
    """
    try:
        arguments = _parse(argv)
    except SystemExit as end:  # argparse has said why, or has printed the help
        return end.code if isinstance(end.code, int) else USAGE
    errors = err or sys.stderr
    try:
        trigger = getattr(arguments, "trigger", None)
        overrides = [*arguments.set, *([f"trigger={trigger}"] if trigger else [])]
        config = config_file.load(arguments.config, overrides)
        if arguments.verb in desk_arguments.VERBS:
            return _desk(config, arguments, line_printer(out or sys.stdout))
        chosen = verbs or _verbs()
        verb = chosen.run if arguments.verb == "run" else chosen.dry_run
        return verb(config, arguments.until, line_printer(out or sys.stdout))
    except Exception as error:  # noqa: BLE001  # the last place that can turn an error into a sentence
        if arguments.debug:
            print(hide("".join(traceback.format_exception(error))), end="", file=errors)
        return _tell(error, errors, debug=arguments.debug)


def line_printer(stream: TextIO) -> Callable[[str], None]:
    """A function that writes a line, its secrets hidden, and flushes it. A reader that has gone away does not end the run."""
    gone = False

    def write(line: str) -> None:
        nonlocal gone
        if not gone:
            try:
                print(hide(line), file=stream, flush=True)
            except BrokenPipeError:
                gone = True

    return write


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    if argv and argv[0] in desk_arguments.VERBS:
        return desk_arguments.parse(argv)
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.verb in desk_arguments.VERBS:  # found behind options, which are those of `run`
        parser.error(f"the verb {arguments.verb} comes first: {parser.prog} {arguments.verb} --config ...")
    return arguments


def _desk(config: AnyJobConfig, arguments: argparse.Namespace, say: Callable[[str], None]) -> int:
    from wheel_udf import desk

    if isinstance(config, WatchJobConfig):
        return desk.run_watch(config, arguments, say)
    assert isinstance(config, JobConfig), "there are two kinds"
    return desk.run(config, arguments, say)


def _verbs() -> Verbs:
    # Only now: --help and the faults of a config need neither Spark nor Java.
    from wheel_udf import dry_run, job

    return Verbs(run=job.run, dry_run=dry_run.run)


def _tell(error: Exception, stream: TextIO, *, debug: bool) -> int:
    failure = explain(error)
    sentences = (
        [str(fault) for fault in error.faults] if isinstance(error, ConfigErrors) else [failure.sentence]
    )
    for sentence in sentences:
        print(hide(f"error: {sentence}"), file=stream)
    if not debug and failure.exit_code != USAGE:
        print("(--debug shows the stack trace)", file=stream)
    return failure.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="delay_scheduler.py",
        description="A delay scheduler on Spark: commands wait in a timing wheel and go to their destination when due.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "verb",
        choices=("run", "dry-run", *desk_arguments.VERBS),
        metavar="VERB",
        help="run: runs the job; dry-run: checks config, source, destinations and checkpoint, prints the geometry, and ends; "
        f"{', '.join(desk_arguments.VERBS)}: what is pending (VERB --help)",
    )
    desk_arguments.add_common(parser)
    parser.add_argument("--trigger", metavar="T", help='an interval such as "5 seconds", or available-now')
    parser.add_argument(
        "--until",
        type=desk_arguments.instant,
        metavar="INSTANT",
        help="runs the clock on to this ISO instant (UTC where it names no zone); see below",
    )
    return parser
