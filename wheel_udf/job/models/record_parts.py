"""Settings of the section ``contract`` that say where in a Kafka record the parts of a command are
(:mod:`wheel_udf.commands.header_names`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import InitErrorDetails

from wheel_udf.commands.header_names import CONSTANT, HEADER, KEY, OFFSET, SETTINGS, header_of
from wheel_udf.job.models.section import Rule, Section
from wheel_udf.job.models.values import Span, Text, fault, fault_at


def _part_of_a_record(*others: str) -> tuple[Any, ...]:
    """Metadata of a text that names a header, or is one of the other values."""
    rule = ", ".join((f"one of {HEADER}NAME" if others else f"{HEADER}NAME", *others))

    def check(value: str) -> str:
        if value not in others and not header_of(value):
            raise fault("not a part of a record", rule=rule, hint=_HINT)
        return value

    schema = {"type": "string", "examples": [f"{HEADER}eta", *others]}
    return AfterValidator(check), WithJsonSchema(schema)


_HINT: Final = f"{HEADER}eta reads the header eta"
HeaderName = Annotated[Text, *_part_of_a_record()]
IdPart = Annotated[Text, *_part_of_a_record(KEY, OFFSET)]
SeqPart = Annotated[Text, *_part_of_a_record(CONSTANT)]


def _one_header_has_one_use(due_from: str | None, delay_from: str | None) -> Iterator[InitErrorDetails]:
    if due_from is not None and due_from == delay_from:
        what, rule = "one header with two uses", "not the header of due_from"
        yield fault_at("delay_from", what=what, value=delay_from, rule=rule)


def _unit_has_a_delay(delay_unit: str | None, delay_from: str | None) -> Iterator[InitErrorDetails]:
    if delay_unit is not None and delay_from is None:
        rule = "with contract.delay_from"
        yield fault_at("delay_unit", what="a setting without effect", value=delay_unit, rule=rule)


class RecordPartsConfig(Section):
    """Where in a Kafka record the parts of a command are, for producers that do not write ``wheel-*`` headers."""

    id_from: IdPart | None = None
    """Preset native: where the id is: header:NAME, key (the record's) or offset. Default: the header wheel-id."""

    due_from: HeaderName | None = None
    """Preset native: the header of the due time, header:NAME: ISO text or epoch ms. Default: wheel-deliver-at."""

    delay_from: HeaderName | None = None
    """Preset native: the header of the delay, header:NAME. Default: wheel-delay."""

    delay_unit: Literal["ms", "s", "level"] | None = None
    """What a number without a unit in delay_from is; level: a number of levels.list, else of RocketMQ's 18 levels."""

    destination_from: HeaderName | None = None
    """Preset native: the header of the destination, header:NAME. Default: wheel-target."""

    seq_from: SeqPart | None = None
    """Preset native: where the version is: header:NAME, or constant (the first command of an id counts)."""

    key_from: HeaderName | None = None
    """Preset native: the header of the key to deliver, header:NAME. Default: the record's key."""

    default_delay_ms: Span | None = Field(None, alias="default_delay")
    """Kafka sources: the delay of commands that name no due time. Default: they are rejected."""

    rules: ClassVar[tuple[Rule, ...]] = (_one_header_has_one_use, _unit_has_a_delay)

    @property
    def named_headers(self) -> dict[str, str]:
        """The settings that name headers of other systems, as they are written."""
        given = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in given.items() if value is not None}
