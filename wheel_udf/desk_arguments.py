"""The arguments of the verbs of :mod:`wheel_udf.desk`, and those that all verbs have; read without Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wheel_udf.setting_values import parse_instant_ms

VERBS: Final = {
    "pending": "what is pending: list, get by id, count; of a purgatory, its operations",
    "forecast": "the load to come, by step of time and destination, as lines and as a picture",
    "cancel": "ends pending entries without firing them (tiered mode)",
    "move": "gives pending entries another due time (tiered mode)",
    "reroute": "gives pending entries another destination (tiered mode)",
    "acts": "what has been cancelled, moved and rerouted, by whom and when",
    "history": "what became of an id: why it fired or not, when, and through which levels",
}
_OF_OPERATIONS = "op_id, group, keys, rule, event_time, deadline, limit, present, total, generation, destination, place, ..."
_COLUMNS = "schedule_id, seq, deliver_at, destination, key, value, headers, max_lateness_ms, source, place"


def instant(text: str) -> int:
    """An ISO instant of the command line in UTC epoch ms."""
    try:
        return parse_instant_ms(text)
    except ValueError:
        message = f"not an ISO instant such as 2014-01-02T00:00:00Z: {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds what every verb of the job takes: ``--config``, ``--set``, ``--debug``."""
    parser.add_argument("--config", required=True, metavar="FILE", help="the YAML file of the job")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        help="sets a value of the config; repeatable; an empty value removes the setting",
    )
    parser.add_argument("--debug", action="store_true", help="shows the stack trace of an error")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of these verbs; ends the process on a fault, as argparse does."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_common(common)
    which = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    which.add_argument(
        "--id", action="append", metavar="ID", help="a schedule_id (of a purgatory an op_id); repeatable"
    )
    which.add_argument(
        "--where",
        metavar="SQL",
        help=f"true for the rows that are meant, over: {_COLUMNS} (of a purgatory: {_OF_OPERATIONS})",
    )
    then = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    then.add_argument(
        "--as-of",
        type=instant,
        metavar="INSTANT",
        help="what was pending then instead, such as 2026-01-01T10:00",
    )
    dry = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    dry.add_argument("--dry-run", action="store_true", help="counts what is meant and changes nothing")
    top = argparse.ArgumentParser(prog="delay_scheduler.py", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name, parents=[common, *parents], help=VERBS[name], description=VERBS[name], allow_abbrev=False
        )

    listed = verb("pending", which, then)
    listed.add_argument(
        "--limit", type=int, default=20, metavar="N", help="most rows, by due time (default 20)"
    )
    listed.add_argument(
        "--count", action="store_true", help="only how many, exactly; and how many the store holds"
    )
    listed.add_argument("--payload", action="store_true", help="key and value too, as text")
    coming = verb("forecast", which, then)
    coming.add_argument(
        "--every", default="1 minute", metavar="TIME", help="width of a step (default 1 minute)"
    )
    coming.add_argument("--png", type=Path, metavar="FILE", help="draws it")
    verb("cancel", which, dry)
    verb("move", which, dry).add_argument(
        "--to",
        required=True,
        metavar="SQL",
        help="a timestamp: \"timestamp'2026-01-01 10:00:00'\", 'deliver_at + interval 1 hour'",
    )
    verb("reroute", which, dry).add_argument("--to", required=True, metavar="NAME", help="a destination")
    verb("acts")
    verb("history").add_argument("--id", required=True, metavar="ID", help="a schedule_id")
    return top.parse_args(argv)
