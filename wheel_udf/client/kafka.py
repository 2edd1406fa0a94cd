"""Commands as Kafka records: the arguments of confluent-kafka's ``Producer.produce``. Any other client takes the same
three values.

::

    producer.produce("commands", **kafka.schedule("order-7", delay="30 minutes", destination="close", value=b"7"))
    producer.produce("commands", **kafka.cancel("order-7"))
    producer.produce("commands", **kafka.fire_now("order-8"))
    producer.produce("commands", **kafka.put_back(delivery, delay="5 minutes"))
    producer.produce("commands", **kafka.retry(delivery, error="out of stock"))

    preset     key of the record        value                          headers
    native     key, by default the id   value                          wheel-id, wheel-op, ... and those of `headers`
    json       the id                   one object: schedule_id, ...   those of `headers`

Versions. Without `seq` the offset is the version, so all commands of an id belong in one partition. The key of the
record decides the partition: ``json`` sends the id, ``native`` the `key` that is delivered, by default the id. With
another `key` in ``native``, pass the same one to all commands of the id (also to :func:`cancel`), or set `seq`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from wheel_udf.client import checks
from wheel_udf.client.checks import Duration, Instant, OnFold, OnGap, OnMissed
from wheel_udf.common.command_facts import COMMAND_HEADERS, FIRE_ID_HEADER, OUR_PREFIX
from wheel_udf.common.errors import ContractError

if TYPE_CHECKING:
    from confluent_kafka import Message

Preset = Literal["native", "json"]
Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

_PRESETS: Final = ("native", "json")


class Record(TypedDict):
    """The arguments of ``Producer.produce`` beside the topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def schedule(  # noqa: PLR0913  # one for each column of the contract
    schedule_id: str | int,
    *,
    delay: Duration | None = None,
    deliver_at: Instant | None = None,
    destination: str | None = None,
    value: Any = None,
    key: bytes | str | None = None,
    headers: Headers = (),
    seq: int | None = None,
    event_time: Instant | None = None,
    max_lateness: Duration | None = None,
    spread: Duration | None = None,
    repeat: str | None = None,
    time_zone: str | None = None,
    starts_at: Instant | None = None,
    until: Instant | None = None,
    count: int | None = None,
    on_missed: OnMissed | None = None,
    on_gap: OnGap | None = None,
    on_fold: OnFold | None = None,
    preset: Preset = "native",
    op: Literal["SCHEDULE", "REPLACE"] = "SCHEDULE",
) -> Record:
    """Builds the record of a SCHEDULE.

    Args:
        schedule_id: Identity of the entry; 1 to 512 bytes of UTF-8.
        delay: Due time, counted from `event_time`; or
        deliver_at: the absolute due time, with a time zone.
        destination: Where the row goes when it is due; None if the job has a default.
        value: The payload: bytes or text; with ``json`` text or any value of JSON.
        key: The key that is delivered; by default the id.
        headers: The headers that are delivered: a mapping or pairs.
        seq: Version of the id; by default the offset of the record.
        event_time: When the command was made; by default the timestamp of the record.
        max_lateness: Past this lateness the row becomes a reject, ``missed``.
        spread: The due time is moved by a hash of the id, by less than this.
        repeat: The rule of a series, such as ``0 9 * * 1-5``, ``every 15 minutes``, ``R/PT15M``; then no due time is
            needed.
        time_zone: Of the rule, such as ``Europe/Paris``; by default that of the job.
        starts_at: The series has no occurrence before it; by default, none up to `event_time`.
        until: The series has no occurrence after it.
        count: How many occurrences there are.
        on_missed: Which of the occurrences are delivered that were over when the wheel came to them.
        on_gap: What becomes of a local time that does not exist.
        on_fold: At which of the two instants of a local time that comes twice.
        preset: The preset of the job that reads the topic.
        op: See :func:`replace`.

    Returns:
        The arguments of ``Producer.produce``.

    Raises:
        ContractError: An argument breaks the contract.
    """
    given = {
        "seq": seq,
        "event_time": event_time,
        "deliver_at": deliver_at,
        "delay": delay,
        "destination": destination,
        "max_lateness": max_lateness,
        "spread": spread,
        "repeat": repeat,
        "time_zone": time_zone,
        "starts_at": starts_at,
        "until": until,
        "count": count,
        "on_missed": on_missed,
        "on_gap": on_gap,
        "on_fold": on_fold,
    }
    checks.due_time(given)
    return _record(_fields(op, schedule_id, **given), value, key, headers, preset)


replace: Final = partial(schedule, op="REPLACE")
"""Builds the record of a REPLACE, which replaces an earlier version as a whole; otherwise as :func:`schedule`."""


def cancel(
    schedule_id: str | int,
    *,
    key: bytes | str | None = None,
    seq: int | None = None,
    event_time: Instant | None = None,
    preset: Preset = "native",
) -> Record:
    """Builds the record of a CANCEL.

    Args:
        schedule_id: The id.
        key: With ``native``, the key that the schedule was sent with, if that was not the id.
        seq: Version that the cancel ends, with all below it; by default the offset of the record.
        event_time: When the command was made; by default the timestamp of the record.
        preset: The preset of the job that reads the topic.

    Returns:
        The arguments of ``Producer.produce``.

    Raises:
        ContractError: An argument breaks the contract.
    """
    fields = _fields("CANCEL", schedule_id, seq=seq, event_time=event_time)
    return _record(fields, None, key, (), preset)


def fire_now(
    schedule_id: str | int,
    *,
    key: bytes | str | None = None,
    seq: int | None = None,
    event_time: Instant | None = None,
    preset: Preset = "native",
) -> Record:
    """Builds the record of a FIRE_NOW: what waits under the id is released at once; of a series the next occurrence.

    Args:
        schedule_id: The id.
        key: As in :func:`cancel`.
        seq: The highest version that it releases; by default the offset of the record.
        event_time: When the command was made; by default the timestamp of the record.
        preset: The preset of the job that reads the topic.

    Returns:
        The arguments of ``Producer.produce``.

    Raises:
        ContractError: An argument breaks the contract.
    """
    fields = _fields("FIRE_NOW", schedule_id, seq=seq, event_time=event_time)
    return _record(fields, None, key, (), preset)


def put_back(
    delivery: Message,
    *,
    delay: Duration | None = None,
    deliver_at: Instant | None = None,
    destination: str | None = None,
    seq: int | None = None,
    max_lateness: Duration | None = None,
    preset: Preset = "native",
) -> Record:
    """Builds the record that schedules a delivery again: its id, key, value and headers, without the scheduler's own
    headers (``wheel-*``).

    Those headers describe the earlier delivery: its due time would be a second one, and the scheduler would drop its
    ``wheel-seq``, a version that has fired, as a duplicate.

    Args:
        delivery: A message from a topic of deliveries.
        delay: Due time, counted from the timestamp of the new record; or
        deliver_at: the absolute due time, with a time zone.
        destination: Where it goes when it is due; by default the topic that it came from.
        seq: Version; by default the next one after the delivery's. So a delivery that is put back twice is scheduled
            once, and a newer command of the producer stays the newer one.
        max_lateness: Past this lateness the row becomes a reject, ``missed``.
        preset: The preset of the job that reads the topic.

    Returns:
        The arguments of ``Producer.produce``.

    Raises:
        ContractError: An argument breaks the contract, or the message is not a delivery, or is one of a series: another
            version of its id would end the series.
    """
    headers, ours = _ours(delivery)
    if (occurrence := ours.get(COMMAND_HEADERS["occurrence"])) is not None:
        hint = "retry gives it back, and the series goes on; schedule takes it under another id"
        value = occurrence.decode(errors="replace")
        raise ContractError(
            "an occurrence of a series cannot be put back", field="occurrence", value=value, hint=hint
        )
    was = ours.get(COMMAND_HEADERS["seq"])
    record = schedule(
        ours[COMMAND_HEADERS["schedule_id"]].decode(),
        delay=delay,
        deliver_at=deliver_at,
        destination=delivery.topic() if destination is None else destination,
        value=delivery.value(),
        key=delivery.key(),
        headers=headers,
        seq=int(was) + 1 if seq is None and was else seq,
        max_lateness=max_lateness,
        preset=preset,
    )
    return _with_its_key(record, delivery, preset)


def retry(delivery: Message, *, error: str, preset: Preset = "native") -> Record:
    """Builds the record that gives a delivery back, because the consumer could not handle it. The job decides when it
    is delivered again, or that it is a dead letter (``retries`` of its destination); sent twice it counts once.

    Args:
        delivery: A message from a topic of deliveries of a job with ``retries``.
        error: Why it could not be handled; up to 500 characters are kept.
        preset: The preset of the job that reads the topic.

    Returns:
        The arguments of ``Producer.produce``.

    Raises:
        ContractError: The message is not a delivery of such a job.
    """
    headers, ours = _ours(delivery, COMMAND_HEADERS["attempt"])
    told = {name: ours[header].decode() for name, header in COMMAND_HEADERS.items() if header in ours}
    fields = {**told, "op": "RETRY", "destination": delivery.topic() or "", "error": checks.error(error)}
    return _with_its_key(_record(fields, delivery.value(), delivery.key(), headers, preset), delivery, preset)


def _with_its_key(record: Record, delivery: Message, preset: Preset) -> Record:
    """A record with the key of a delivery, also if it has none; a JSON object has the key in itself."""
    return record if preset == "json" else {**record, "key": delivery.key()}


def _ours(delivery: Message, *needed: str) -> tuple[list[tuple[str, bytes | None]], dict[str, bytes]]:
    """The headers of a delivery: those of the producer, and the scheduler's by name.

    Raises:
        ContractError: The message is not a delivery.
    """
    headers: Any = delivery.headers() or []
    ours = {name: value or b"" for name, value in headers if name.startswith(OUR_PREFIX)}
    wanted = (COMMAND_HEADERS["schedule_id"], FIRE_ID_HEADER, *needed)
    if not ours.keys() >= set(wanted):
        rule = f"a message with the headers {' and '.join(wanted)}"
        raise ContractError("not a delivery", field="delivery", value=sorted(ours), rule=rule)
    return [(name, value) for name, value in headers if name not in ours], ours


def _fields(op: str, schedule_id: str | int, **given: Any) -> dict[str, str]:
    more = {name: checks.CHECKS[name](value) for name, value in given.items() if value is not None}
    return {"schedule_id": checks.schedule_id(schedule_id), "op": op, **more}


def _record(
    fields: dict[str, str], value: Any, key: bytes | str | None, headers: Headers, preset: Preset
) -> Record:
    if preset not in _PRESETS:
        rule = f"one of {', '.join(_PRESETS)}"
        raise ContractError("not a preset of this client", field="preset", value=preset, rule=rule)
    own = _own_headers(headers)
    if preset == "json":
        return {"key": fields["schedule_id"].encode(), "value": _object(fields, value, key), "headers": own}
    ours = [(COMMAND_HEADERS[name], text.encode()) for name, text in fields.items()]
    sent = _octets(key, "key")
    return {
        "key": fields["schedule_id"].encode() if sent is None else sent,
        "value": _octets(value, "value"),
        "headers": [*ours, *own],
    }


def _octets(value: Any, field: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            pass
    hint = "preset json takes values of JSON" if field == "value" else None
    raise ContractError("not a payload", field=field, value=value, rule="bytes, or text in UTF-8", hint=hint)


def _object(fields: Mapping[str, str], value: Any, key: bytes | str | None) -> bytes:
    payload = {"key": _text(key, "key"), "value": _text(value, "value")}
    given = {name: each for name, each in payload.items() if each is not None}
    try:
        text = json.dumps({**fields, **given}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError):
        rule = "bytes or text in UTF-8, or a value of JSON"
        raise ContractError("not a payload", field="value", value=value, rule=rule) from None


def _text(value: Any, field: str) -> Any:
    """Bytes as text, because JSON has no bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        rule, hint = "text in UTF-8 with preset json", "preset native takes any bytes"
        raise ContractError("not a payload", field=field, value=value, rule=rule, hint=hint) from None


def _own_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    for name, _ in pairs:
        if not isinstance(name, str) or name.startswith(OUR_PREFIX):
            rule = f"a text that does not begin with {OUR_PREFIX}, which are the scheduler's own"
            hint = "drop them; put_back schedules a delivery again"
            raise ContractError("not a header to deliver", field="headers", value=name, rule=rule, hint=hint)
    return [(name, _octets(value, f"headers.{name}")) for name, value in pairs]
