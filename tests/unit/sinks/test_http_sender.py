"""What a task sends to webhooks, against a real server that fails, hangs, drips and asks for patience."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.receiver import DRIP, DRIP_HEADER, HANG, Receiver, Says, receiver
from wheel_udf.sinks.http_endpoint import Plan
from wheel_udf.sinks.http_sender import send_partition

SCHEMA = pa.schema(
    {
        "destination": pa.string(),
        "fire_id": pa.string(),
        "body": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
PATIENT = Plan("", (), "Idempotency-Key", timeout_s=20, retries=3, backoff_s=0.01, budget_s=60, concurrency=4)
HASTY = Plan("", (), "Idempotency-Key", timeout_s=0.5, retries=1, backoff_s=0.01, budget_s=10, concurrency=4)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def plan(server: Receiver, patience: Plan = PATIENT) -> Plan:
    headers = (("Authorization", "Bearer s3cr3t"),)
    return replace(patience, url=f"{server.url}/{{destination}}", headers=headers)


def rows(destination: str, count: int, headers: list[tuple[str, bytes | None]] | None = None) -> list[dict]:
    pairs = None if headers is None else [{"key": key, "value": value} for key, value in headers]
    return [
        {"destination": destination, "fire_id": f"{destination}{i}", "body": b"x", "headers": pairs}
        for i in range(count)
    ]


def sent(plan: Plan, *batches: list[dict]) -> tuple[dict[str, str], dict[str, str]]:
    """Sends batches; returns the reasons of refused rows by fire id, and of endpoints that are to rest by destination."""
    report = send_partition(iter([pa.RecordBatch.from_pylist(each, SCHEMA) for each in batches]), plan)
    found = [row for batch in report for row in batch.to_pylist()]
    refused = {row["fire_id"]: row["reason"] for row in found if row["fire_id"] is not None}
    return refused, {row["destination"]: row["reason"] for row in found if row["rests"]}


def test_rows_go_to_the_url_of_their_destination_with_the_fire_id_as_the_key(server: Receiver) -> None:
    assert sent(plan(server), rows("a", 2), rows("b", 1)) == ({}, {})

    assert sorted(each.key for each in server.came) == ["a0", "a1", "b0"]
    assert {(each.path, each.headers["authorization"], each.body) for each in server.came} == {
        ("/a", "Bearer s3cr3t", b"x"),
        ("/b", "Bearer s3cr3t", b"x"),
    }


def test_one_row_at_a_time_goes_in_order(server: Receiver) -> None:
    one = replace(PATIENT, concurrency=1)
    server.at("/a", Says(), Says(503), Says())
    assert sent(plan(server, one), rows("a", 4)) == ({}, {})
    assert server.keys("/a") == ["a0", "a1", "a1", "a2", "a3"]
    assert server.most_at_once == 1


def test_a_row_that_fails_is_tried_again_with_the_same_key(server: Receiver) -> None:
    server.at("/a", Says(500), Says(429), Says(502), Says(204))
    assert sent(plan(server), rows("a", 1)) == ({}, {})
    assert server.keys("/a") == ["a0"] * 4


def test_a_row_is_given_up_after_the_last_try_and_others_go_on(server: Receiver) -> None:
    one = replace(PATIENT, concurrency=1)
    server.at("/a", *[Says(500, text="out of\norder \x07")] * 4, Says())
    refused, failed = sent(plan(server, one), rows("a", 2))
    assert refused == {"a0": "HTTP 500: out of order (4 tries)"}
    assert (failed, server.keys("/a")) == ({}, ["a0"] * 4 + ["a1"])


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 301, 304, 501])
def test_a_row_that_is_refused_for_what_it_is_is_not_tried_again(server: Receiver, status: int) -> None:
    server.at("/a", Says(status, {"Location": "/b"}))
    refused, failed = sent(plan(server), rows("a", 20))
    assert set(refused.values()) == {f"HTTP {status}"}
    assert (len(server.came), server.keys("/b"), failed) == (20, [], {})


def test_a_hanging_endpoint_delays_nobody_and_is_not_tried_for_ever(server: Receiver) -> None:
    server.at("/bad", HANG)
    patience = replace(PATIENT, timeout_s=1, retries=1, concurrency=5)
    refused, rest = sent(plan(server, patience), rows("bad", 40) + rows("good", 30), rows("good", 10))
    assert set(refused) == {f"bad{i}" for i in range(40)}
    assert set(refused.values()) <= {
        "no answer within 1 s (2 tries)",
        "no answer within 1 s (not tried again)",  # the breaker opened between its two tries
        "not sent: the endpoint failed before, no answer within 1 s (2 tries)",
    }
    assert rest == {"bad": "the endpoint failed before, no answer within 1 s (2 tries)"}
    # Five rows given up in a row open the breaker; by then each of the five workers may have begun another one.
    assert len(server.keys("/bad")) <= 20
    assert len(set(server.keys("/good"))) == 30


def test_headers_that_never_end_are_no_answer(server: Receiver) -> None:
    server.at("/a", DRIP_HEADER)
    refused, _ = sent(plan(server, replace(HASTY, retries=0)), rows("a", 1))
    assert refused == {"a0": "no answer within 0.5 s (1 try)"}


def test_a_good_status_is_a_delivery_even_if_its_text_never_ends(server: Receiver) -> None:
    server.at("/a", DRIP)
    assert sent(plan(server, replace(PATIENT, timeout_s=3)), rows("a", 1)) == ({}, {})
    assert server.keys("/a") == ["a0"]


def test_a_long_answer_is_not_read_to_its_end(server: Receiver) -> None:
    server.at("/a", Says(400, text="x" * 100_000))
    refused, _ = sent(plan(server), rows("a", 2))
    assert {len(reason) for reason in refused.values()} == {len("HTTP 400: ") + 200}


def test_an_endpoint_that_is_not_there_is_a_reason(server: Receiver) -> None:
    nowhere = replace(plan(server, HASTY), url="http://127.0.0.1:9/{destination}")
    refused, failed = sent(nowhere, rows("a", 20))
    assert len(refused) == 20
    assert refused["a0"] == "All connection attempts failed (2 tries)"
    assert list(failed) == ["a"]


def test_retry_after_makes_all_rows_of_the_endpoint_wait_and_no_other(server: Receiver) -> None:
    # The date of the answer and the date of Retry-After are the server's: one second apart.
    dates = {"Date": "Mon, 23 Nov 2026 10:00:00 GMT", "Retry-After": "Mon, 23 Nov 2026 10:00:01 GMT"}
    server.at("/a", Says(429, dates), Says())
    began = time.monotonic()
    assert sent(plan(server, replace(PATIENT, concurrency=1)), rows("a", 3) + rows("b", 5)) == ({}, {})
    assert time.monotonic() - began >= 1
    assert server.keys("/a") == ["a0", "a0", "a1", "a2"]
    places = [place for place, each in enumerate(server.came) if each.path == "/a"]
    assert places[1] > 5  # after all of the other endpoint


def test_retry_after_beyond_the_budget_is_not_waited_for(server: Receiver) -> None:
    server.at("/a", Says(429, {"Retry-After": "3600"}))
    refused, failed = sent(plan(server, replace(PATIENT, concurrency=1)), rows("a", 3))
    why = "the endpoint asks for 3600 s without requests, HTTP 429"
    assert refused == {
        "a0": "HTTP 429 (not tried again)",
        "a1": f"not sent: {why}",
        "a2": f"not sent: {why}",
    }
    assert (failed, len(server.came)) == ({"a": why}, 1)


@pytest.mark.parametrize("text", ["99999999999999999999", "9" * 400])
def test_a_retry_after_of_ages_failed_the_whole_batch(server: Receiver, text: str) -> None:
    server.at("/a", Says(503, {"Retry-After": text}))
    refused, failed = sent(plan(server, replace(PATIENT, concurrency=1)), rows("a", 1))
    assert refused == {"a0": "HTTP 503 (not tried again)"}
    assert list(failed) == ["a"]


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "٣"])
def test_a_retry_after_that_cannot_be_read_is_the_usual_back_off(server: Receiver, text: str) -> None:
    header = {"Retry-After": text.encode().decode("latin-1")}
    server.at("/a", Says(429, header), Says())
    assert sent(plan(server), rows("a", 1)) == ({}, {})


def test_a_slow_endpoint_that_answers_is_cut_off_at_its_budget_and_has_not_failed(server: Receiver) -> None:
    server.at("/a", Says(), Says(), HANG)
    hasty = Plan("", (), "Idempotency-Key", timeout_s=5, retries=0, backoff_s=0, budget_s=0.5, concurrency=1)
    refused, failed = sent(plan(server, hasty), rows("a", 5))
    assert list(refused) == ["a2", "a3", "a4"]
    assert refused["a4"] == "not sent: the 0.5 s of the endpoint for this batch were used up"
    assert failed == {}


def test_after_a_failure_one_row_is_tried_once_before_the_others(server: Receiver) -> None:
    server.at("/a", Says(500))
    tried = replace(plan(server), on_probation=frozenset({"a"}))
    refused, failed = sent(tried, rows("a", 10))
    assert (server.keys("/a"), len(refused)) == (["a0"], 10)
    assert (refused["a0"], list(failed)) == ("HTTP 500 (1 try)", ["a"])

    server.came.clear()
    server.at("/a", Says())
    assert sent(tried, rows("a", 10)) == ({}, {})
    assert server.keys("/a")[0] == "a0"


def test_an_endpoint_that_took_no_row_is_doubted(server: Receiver) -> None:
    server.at("/a", Says(500))
    server.at("/b", *[Says(500)] * 4, Says())
    one = replace(PATIENT, concurrency=1)
    batch = pa.RecordBatch.from_pylist(rows("a", 1) + rows("b", 2), SCHEMA)
    lines = [row for report in send_partition(iter([batch]), plan(server, one)) for row in report.to_pylist()]

    assert [(row["destination"], row["reason"], row["rests"]) for row in lines if row["fire_id"] is None] == [
        ("a", "HTTP 500 (4 tries)", False)
    ]


def test_headers_of_a_row_are_passed_on_unless_they_speak_for_the_sender(server: Receiver) -> None:
    headers = [
        ("trace", b"\x01\xff"),
        ("wheel-id", "öl 7%".encode()),
        ("X-Plain", b" a b "),
        ("authorization", b"Bearer forged"),
        ("idempotency-key", b"forged"),
        ("Host", b"forged"),
        ("Content-Length", b"0"),
        ("X-Forwarded-For", b"forged"),
        ("a b", b"not a name"),
        ("a\r\nb", b"not a name"),
        ("split", b"a\r\nforged: b"),
        ("", b"x"),
        ("none", None),
    ]
    assert sent(plan(server), rows("a", 1, headers)) == ({}, {})
    (came,) = server.came
    assert came.key == "a0"
    shown = {
        name: came.headers.get(name)
        for name in ("trace", "wheel-id", "x-plain", "authorization", "split", "none")
    }
    assert shown == {
        "trace": "%01%FF",
        "wheel-id": "%C3%B6l 7%25",
        "x-plain": "a b",
        "authorization": "Bearer s3cr3t",
        "split": "a%0D%0Aforged: b",
        "none": "",
    }
    assert not {"forged", "x-forwarded-for", "a b"} & came.headers.keys()
    assert came.headers["host"].startswith("127.0.0.1")
