"""The arguments of the command line: one parser for all verbs, and the texts of ``--help``. Read without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wheel_udf import __version__
from wheel_udf.common.instants import parse_instant_ms

PROGRAM: Final = "wheel-udf"

RUN_VERBS: Final = {
    "run": "runs the scheduler or the purgatory of a config file",
    "dry-run": "checks config, source, destinations, checkpoint, and where the job will write, "
    "and prints the geometry; leaves nothing behind",
}
PENDING_VERBS: Final = {
    "pending": "lists or counts pending entries (of a purgatory: operations), by id, by a condition or all",
    "forecast": "counts the entries that fall due in each step of time, by destination, as lines and as a picture",
    "history": "reports what happened to an id: whether it fired or why not, when, and through which levels",
    "acts": "lists what the three verbs below have changed, by whom and when",
    "cancel": "ends pending entries without delivering them",
    "move": "gives pending entries another due time",
    "reroute": "gives pending entries another destination",
}
MOVE_VERBS: Final = {
    "export": "writes all that a stopped job holds into a folder: pending, remembered, counted, "
    "its place in the source",
    "import": "begins a new checkpoint (and store) from such a folder: other shards, wheel, mode, clock, "
    "release or path",
}
REPAIR_VERB: Final = {
    "repair": "finds what is damaged in the checkpoint of a stopped job, and repairs what can be proved harmless"
}
FORGET_VERB: Final = {
    "forget": "removes what is stored about ids (pending, remembered, acts, rows of Delta tables), "
    "and says what is left where"
}
UI_VERB: Final = {
    "ui": "serves a page in the browser: the wheel, what falls due, lateness, the account, rejects, "
    "the history of an id"
}
EXPLAIN_VERB: Final = {
    "explain": "prints the wheel of a config, and what it will hold and cost at a given rate; starts nothing"
}
INIT_VERB: Final = {
    "init": "writes a config for a common use, with sample input, that runs as it is; without a name it lists the uses"
}
BROKER_VERB: Final = {
    "broker": "starts a Kafka broker on this machine, to try the scheduler with, until Ctrl-C"
}
CONF_VERB: Final = {"conf": "lists, prints or copies the example configs that come with the package"}
VERBS: Final = (
    RUN_VERBS
    | PENDING_VERBS
    | UI_VERB
    | MOVE_VERBS
    | REPAIR_VERB
    | FORGET_VERB
    | EXPLAIN_VERB
    | INIT_VERB
    | CONF_VERB
    | BROKER_VERB
)

_TASKS: Final[Mapping[str, tuple[str, ...]]] = {
    "run a job": ("run", "dry-run", "explain"),
    "look at pending entries": ("pending", "forecast", "history", "acts", "ui"),
    "change pending entries": ("cancel", "move", "reroute"),
    "move a job": ("export", "import"),
    "repair a job": ("repair",),
    "delete what is stored about an id": ("forget",),
    "start from an example": ("init", "conf", "broker"),
}

_OPTIONS_OF_RUNS: Final = ("--config", "--set", "--trigger", "--until")
"""Options of ``run`` and ``dry-run`` that take a value."""

_UNTIL: Final = """\
--until, by clock and trigger (the clock never goes back: a command that arrives after it has reached until and
is due before until fires at once):
  clock       trigger        meaning
  event       available-now  reads all input, then the clock runs to the later of the watermark and until;
                             what is due by then fires, any backlog is drained, the run ends
  event       interval       stops once the watermark has reached until and nothing due by then is left
  processing  available-now  reads all input, then the clock is the later of the wall clock and until
                             (the run does not wait for until); the run ends
  processing  interval       stops after the first batch whose clock is at until or later with nothing due left
  simulated   available-now  a step (or an instant of the list) for each batch while input lasts, then the clock
                             jumps to until; the run ends
  simulated   interval       steps to until, then stops
Without --until, available-now ends at the watermark, the wall clock or the last step, and an interval runs until
it is stopped. With an interval, an idle wheel runs a batch each clock.heartbeat, so it may stop that much later.
"""

_EPILOG: Final = f"""\
kinds of config: a scheduler has a section source. A purgatory has the sections operations and events: operations
wait for events until they are complete, cancelled or expired ({PROGRAM} conf unpaid_orders). A purgatory has the
verbs run, dry-run, explain, pending, ui, cancel, acts, export, import, repair and forget. An outcome is decided when
the clock has passed its instant, so --until has to be later than the last instant that matters.

{_UNTIL}
secrets: ${{env:NAME}} and ${{file:/path}} in any text of the config are replaced when it is read, and printed as ***

exit codes:
  0  success; also after SIGINT (Ctrl-C) or SIGTERM, when the running batch has finished and the summary is printed.
     Under spark-submit such a signal ends the JVM at once, with 130 or 143; the next start repeats the batch
  1  the run failed (Spark, a sink, the checkpoint is in use, anything unexpected); repair: something cannot be
     repaired; forget: the job runs, so its checkpoint is left
  2  an error in usage, config, command contract or checkpoint; records of a topic are lost; another driver writes the
     checkpoint: change something before the next start
  130  Ctrl-C ended a verb other than run: nothing is half done, and the last line says how to go on

examples:
  {PROGRAM} conf --copy conf
  {PROGRAM} dry-run --config conf/scheduler.yml --set wheel.shards=8
  {PROGRAM} run --config conf/scheduler.yml --trigger available-now --until 2014-01-02
  {PROGRAM} pending --config conf/scheduler.yml --where "destination LIKE 'orders%'" --limit 50
  spark-submit jobs/delay_scheduler.py run --config conf/scheduler.yml
  ... --set 'destinations."reminders.*".path=data/out'      put a key that contains dots in double quotes
  ... --set 'source.options."kafka.bootstrap.servers"=${{env:KAFKA}}'   (single quotes keep the shell from expanding it)
"""

COLUMNS: Final = (
    "schedule_id, seq, amend, deliver_at, scheduled_at, delay_level_ms, destination, key, value, headers, "
    "max_lateness_ms, source, place"
)
"""Of pending entries; the same as in :mod:`wheel_udf.pending`, which needs Spark."""

OPERATION_COLUMNS: Final = (
    "op_id, group, keys, rule, event_time, deadline, limit, present, total, generation, destination, key, value, "
    "headers, source, place"
)
"""Of pending operations, likewise."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments without the program's name.

    Raises:
        SystemExit: The usage is wrong, or help or version was printed.
    """
    parser, (verb, rest) = _parser(), _verb_of(argv)
    if verb in RUN_VERBS:
        return parser.parse_args([verb, *rest])
    if verb in VERBS and verb != argv[0]:
        parser.error(f"the verb {verb} comes first: {PROGRAM} {verb} ...")
    return parser.parse_args(argv)


def _verb_of(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The verb (the first argument that is neither an option nor its value), and all other arguments.

    The options of ``run`` and ``dry-run`` may come before the verb.
    """
    values = False
    for place, argument in enumerate(argv):
        if argument.startswith("-"):
            values = argument in _OPTIONS_OF_RUNS
        elif values:
            values = False
        else:
            return argument, [*argv[:place], *argv[place + 1 :]]
    return None, [*argv]


def _instant(text: str) -> int:
    """An ISO instant in UTC epoch ms."""
    try:
        return parse_instant_ms(text)
    except ValueError:
        message = f"not an ISO instant such as 2014-01-02T00:00:00Z: {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} VERB --config FILE [options]",
        description=_description(),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    verbs = parser.add_subparsers(
        dest="verb", prog=PROGRAM, required=True, metavar="VERB", help=argparse.SUPPRESS
    )
    _add_run_verbs(verbs)
    _add_pending_verbs(verbs)
    _add_ui_verb(verbs)
    _add_move_verbs(verbs)
    repair = verbs.add_parser(
        "repair", parents=[_of_config()], description=_sentence("repair"), allow_abbrev=False
    )
    repair.add_argument("--dry-run", action="store_true", help="says what would be done and changes nothing")
    _add_forget(verbs)
    _add_explain(verbs)
    conf = verbs.add_parser("conf", description=_sentence("conf"), allow_abbrev=False)
    conf.add_argument("name", nargs="?", metavar="NAME", help="prints this file, such as scheduler")
    conf.add_argument(
        "--copy", type=Path, metavar="FOLDER", help="copies all files into this folder; overwrites none"
    )
    conf.set_defaults(debug=False)
    init = verbs.add_parser("init", description=_sentence("init"), allow_abbrev=False)
    init.add_argument("use", nargs="?", metavar="NAME", help="the use, such as reminders")
    init.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="default: the folder of the shell; overwrites none",
    )
    init.set_defaults(debug=False)
    _add_broker(verbs)
    return parser


def _description() -> str:
    lines = [
        "A delay scheduler on Spark: commands wait in a timing wheel and go to their destination when they are due."
    ]
    for task, names in _TASKS.items():
        lines += ["", f"{task}:", *(f"  {name:<10} {VERBS[name]}" for name in names)]
    return "\n".join([*lines, "", f"{PROGRAM} VERB --help shows the options of a verb."])


def _sentence(verb: str) -> str:
    return f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}."


def _parent() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(add_help=False, allow_abbrev=False)


def _of_config() -> argparse.ArgumentParser:
    parent = _parent()
    parent.add_argument("--config", required=True, metavar="FILE", help="the config file of the job (YAML)")
    parent.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        help="sets a value of the config (an empty value removes the setting); repeatable",
    )
    parent.add_argument("--debug", action="store_true", help="shows the stack trace of an error")
    return parent


_Verbs = argparse._SubParsersAction  # noqa: SLF001  (argparse has no public name for it)


def _add_run_verbs(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    config = _of_config()
    for name in RUN_VERBS:
        verb = verbs.add_parser(
            name,
            parents=[config],
            description=_sentence(name),
            epilog=_UNTIL,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        verb.add_argument("--trigger", metavar="T", help='an interval such as "5 seconds", or available-now')
        verb.add_argument(
            "--until",
            type=_instant,
            metavar="INSTANT",
            help="runs the clock to this ISO instant (UTC if it has no zone); see below",
        )


def _selection(name: str, columns: str) -> argparse.ArgumentParser:
    """The options that select pending entries, or operations."""
    parent = _parent()
    parent.add_argument("--id", action="append", metavar="ID", help=f"{name}; repeatable")
    parent.add_argument("--where", metavar="SQL", help=f"an SQL condition over {columns}")
    return parent


def _add_pending_verbs(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    config, then, dry = _of_config(), _parent(), _parent()
    which = _selection("a schedule_id", COLUMNS)
    then.add_argument(
        "--as-of",
        type=_instant,
        metavar="INSTANT",
        help="shows what was pending at this earlier instant, such as 2026-01-01T10:00",
    )
    dry.add_argument("--dry-run", action="store_true", help="counts the entries and changes nothing")

    def add(name: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name, parents=[config, *parents], description=_sentence(name), allow_abbrev=False
        )

    either = _selection(
        "a schedule_id (of a purgatory: an op_id)", f"{COLUMNS} (of a purgatory: {OPERATION_COLUMNS})"
    )
    listed = add("pending", either, then)
    listed.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="lists at most N rows, the earliest due time first (default 20)",
    )
    listed.add_argument(
        "--count",
        action="store_true",
        help="prints the exact count only; in mode tiered also that of the rows in the store, from its log",
    )
    listed.add_argument("--payload", action="store_true", help="also prints key and value, as text")
    coming = add("forecast", which, then)
    coming.add_argument(
        "--every", default="1 minute", metavar="TIME", help="width of a step (default 1 minute)"
    )
    coming.add_argument("--png", type=Path, metavar="FILE", help="draws the forecast into this file")
    add("history").add_argument("--id", required=True, metavar="ID", help="a schedule_id")
    add("acts")
    add("cancel", which, dry)
    add("move", which, dry).add_argument(
        "--to",
        required=True,
        metavar="SQL",
        help="the new due time: \"timestamp'2026-01-01 10:00:00'\", 'deliver_at + interval 1 hour'",
    )
    add("reroute", which, dry).add_argument("--to", required=True, metavar="NAME", help="the new destination")


def _add_ui_verb(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    verb = verbs.add_parser("ui", parents=[_of_config()], description=_sentence("ui"), allow_abbrev=False)
    verb.add_argument(
        "--port", type=int, default=8440, help="port to listen on (default 8440; 0: any free one)"
    )
    verb.add_argument(
        "--address",
        default="127.0.0.1",
        help="address to listen on (default 127.0.0.1; one that other machines reach needs --token)",
    )
    verb.add_argument("--allow-acts", action="store_true", help="lets the page cancel, move and reroute")
    verb.add_argument(
        "--token", help="what has to be typed to see the page; '${env:NAME}' and '${file:/path}' are replaced"
    )
    verb.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name by which the page is opened, such as that of a proxy; repeatable",
    )


def _add_forget(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    forget = verbs.add_parser(
        "forget", parents=[_of_config()], description=_sentence("forget"), allow_abbrev=False
    )
    forget.add_argument(
        "--id",
        action="append",
        required=True,
        metavar="ID",
        help="a schedule_id (of a purgatory: an op_id, or the key or group of events); repeatable",
    )
    forget.add_argument("--dry-run", action="store_true", help="counts the rows and changes nothing")


def _add_broker(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    broker = verbs.add_parser("broker", description=_sentence("broker"), allow_abbrev=False)
    broker.add_argument("--port", type=int, default=9092, metavar="N", help="port for clients (default 9092)")
    broker.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="keeps its data and log here; default: a temporary folder",
    )
    broker.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="creates this topic; repeatable"
    )
    broker.add_argument(
        "--partitions", type=int, default=2, metavar="N", help="partitions of these topics (default 2)"
    )
    broker.set_defaults(debug=False)


def _add_explain(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    explain = verbs.add_parser(
        "explain", parents=[_of_config()], description=_sentence("explain"), allow_abbrev=False
    )
    explain.add_argument(
        "--rate", type=float, default=100, metavar="N", help="commands a second (default 100)"
    )
    explain.add_argument(
        "--horizon",
        default="1 day",
        metavar="TIME",
        help="the longest delay; due times are evenly spread over it (default 1 day)",
    )
    explain.add_argument("--bytes", type=int, default=200, metavar="N", help="bytes of a value (default 200)")
    explain.add_argument("--mermaid", action="store_true", help="prints a mermaid flow chart of the wheel")


def _add_move_verbs(verbs: _Verbs[argparse.ArgumentParser]) -> None:
    config = _of_config()
    leaving, coming = (
        verbs.add_parser(name, parents=[config], description=_sentence(name), allow_abbrev=False)
        for name in MOVE_VERBS
    )
    leaving.add_argument("--to", dest="folder", required=True, metavar="FOLDER", help="a new folder")
    leaving.add_argument(
        "--keep",
        action="store_true",
        help="leaves the old checkpoint as it is; else it refuses to start, so that nothing is delivered twice",
    )
    coming.add_argument("--from", dest="folder", required=True, metavar="FOLDER", help="that of an export")
    coming.add_argument(
        "--anew",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic of the source that was created again: it is read from its earliest record; may be repeated",
    )
