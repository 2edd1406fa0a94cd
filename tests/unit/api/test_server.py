"""Both ends of a question over HTTP: answers, refusals, and who may ask."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.documents import blocks
from tests.unit.api.served import served, stream_of
from tests.unit.metrics.jobs import meter
from wheel_udf.api import client
from wheel_udf.api.answer import Answer, RefusedError
from wheel_udf.api.job import Job as RunningJob
from wheel_udf.api.place import Place
from wheel_udf.api.watch_handler import WatchHandler
from wheel_udf.common.errors import ActError, ConfigError, WheelError
from wheel_udf.common.secrets import hide_from_now_on

VERBS = ["pending", "cancel", "move", "history"]
FOUND = Answer(rows=[{"schedule_id": "é", "seq": 1}], counts={"pending": 1}, lines=["0 acts"])


@dataclass
class Asked:
    """A job without Spark: it notes the questions, and answers them with what it is told to."""

    questions: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    fails: BaseException | None = None
    waits_for: threading.Event | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Answer:
        self.questions.append((verb, arguments))
        if self.waits_for is not None:
            assert self.waits_for.wait(30)
        if self.fails is not None:
            raise self.fails
        return FOUND

    def arrow(self, verb: str, arguments: Mapping[str, Any]) -> bytes:
        self.answer(verb, arguments)
        return stream_of(pa.table({"n": [1, 2]}))

    @contextmanager
    def page(self, arguments: Mapping[str, Any]) -> Iterator[list[str]]:
        self.questions.append(("ui", arguments))
        if self.fails is not None:
            raise self.fails
        yield ["http://127.0.0.1:1/"]
        self.questions.append(("ui", {"closed": True}))
        self.closed.set()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def place(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    openapi = {"openapi": "3.1.0"}
    with served(str(tmp_path / "check point"), VERBS, asked, openapi, meter(), asked.page) as place:
        yield place


def raw(place: Place, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(place.address, place.port, timeout=10)
    given = {"Authorization": f"Bearer {place.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request(method, path, body or None, given)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content)


def test_a_question_is_answered_with_rows_counts_and_lines(place: Place, asked: Asked) -> None:
    assert client.ask(place, "pending", {"limit": 3}) == FOUND
    assert asked.questions == [("pending", {"limit": 3})]
    assert list(FOUND.printed()) == ['{"schedule_id":"é","seq":1}', "0 acts"]


def test_a_program_gets_the_rows_as_a_table(place: Place, asked: Asked) -> None:
    job = RunningJob.connect("orders")
    assert job.pending("seq > 1", ids=("a", "b")).to_pydict() == {"n": [1, 2]}
    assert job.count() == 1
    assert job.cancel(ids=["a"], dry_run=True) == 1
    assert [arguments for _, arguments in asked.questions] == [
        {"where": "seq > 1", "id": ["a", "b"], "limit": 1_000_000, "payload": False},
        {"count": True},
        {"id": ["a"], "dry_run": True},
    ]


def test_the_example_of_the_guide_asks_the_job(place: Place, asked: Asked) -> None:
    (program,) = blocks("docs/api-http.md", "python")
    exec(compile(program, "docs/api-http.md", "exec"), {})  # the guide's own text
    assert [verb for verb, _ in asked.questions] == ["pending", "pending", "cancel", "move", "history"]


def test_a_refusal_is_one_sentence_with_its_exit_code_and_the_same_error_for_a_program(
    place: Place, asked: Asked
) -> None:
    asked.fails = ActError(
        "no such place", field="to", value="x", rule="a destination", hint="see the config"
    )
    with pytest.raises(RefusedError) as refused:
        client.ask(place, "cancel", {})
    assert refused.value.sentence == str(asked.fails)
    assert refused.value.exit_code == 2
    with pytest.raises(ActError, match="no such place") as found:
        RunningJob.connect(place.checkpoint).cancel(where="true")
    assert (found.value.field, found.value.rule, found.value.hint) == (
        "to",
        "a destination",
        "see the config",
    )


def test_an_error_of_python_is_a_failure_and_no_secret_leaves_with_it(place: Place, asked: Asked) -> None:
    hide_from_now_on("pa55word")
    asked.fails = RuntimeError("login with pa55word failed")
    with pytest.raises(RefusedError) as refused:
        client.ask(place, "pending", {})
    assert (refused.value.exit_code, "pa55word" in refused.value.sentence) == (1, False)
    with pytest.raises(WheelError, match=r"login with \*\*\* failed"):
        RunningJob.connect("orders").count()


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "part"),
    [
        ("POST", "/v1/pending", "{}", {"Authorization": "Bearer x"}, 401, "token"),
        ("POST", "/v1/pending", "{}", {"Authorization": ""}, 401, "token"),
        ("GET", "/v1/job", "", {"Authorization": "Bearer x"}, 401, "token"),
        ("POST", "/v1/pending", "{}", {"Wheel_Checkpoint": "/another"}, 409, "another checkpoint"),
        ("POST", "/v1/destroy", "{}", {}, 404, "pending, cancel, move, history"),
        ("POST", "/elsewhere", "{}", {}, 404, "pending, cancel, move, history"),
        ("GET", "/", "", {}, 404, "/v1/job"),
        ("POST", "/v1/pending", "[]", {}, 400, "JSON object"),
        ("POST", "/v1/pending", "{", {}, 400, "JSON object"),
        ("POST", "/v1/pending", "[" * 100_000, {}, 400, "JSON object"),
        (
            "POST",
            "/v1/pending",
            "{}",
            {"Content_Length": "99999999"},
            413,
            "99,999,999 bytes; rule: up to 4,000,000",
        ),
        ("POST", "/v1/pending", "{}", {"Content_Length": "x"}, 411, "Content-Length"),
        ("POST", "/v1/pending", "", {"Transfer_Encoding": "chunked"}, 411, "Content-Length"),
    ],
)
def test_what_is_no_question_to_this_job_is_refused(
    place: Place,
    asked: Asked,
    method: str,
    path: str,
    body: str,
    headers: dict[str, str],
    status: int,
    part: str,
) -> None:
    found, refusal = raw(place, method, path, body, **headers)
    assert found == status
    assert part in refusal["error"]
    assert asked.questions == []


def test_the_interface_describes_itself_without_a_token_and_the_job_with_one(place: Place) -> None:
    assert raw(place, "GET", "/v1/openapi.json", Authorization="") == (200, {"openapi": "3.1.0"})
    assert raw(place, "GET", "/v1/job")[1]["name"] == "orders"


def test_of_too_many_questions_the_last_ones_are_refused_and_the_others_answered(
    place: Place, asked: Asked
) -> None:
    asked.waits_for = threading.Event()
    found: list[int] = []

    def ask() -> None:
        found.append(raw(place, "POST", "/v1/pending", "{}")[0])

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    while len(found) < 8 and any(thread.is_alive() for thread in threads):
        threading.Event().wait(0.01)
    asked.waits_for.set()
    for thread in threads:
        thread.join()
    assert (found.count(200), found.count(503)) == (22, 8)


def test_where_nobody_or_another_program_or_another_job_listens_there_is_no_answer(place: Place) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        free = silent.getsockname()[1]
    assert client.ask(replace(place, port=free), "pending", {}) is None
    assert client.ask(replace(place, checkpoint="/another"), "pending", {}) is None
    assert client.ask(replace(place, token="of an earlier run"), "pending", {}) is None

    with closing(socket.create_server(("127.0.0.1", 0))) as other:

        def hang_up() -> None:
            other.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        assert client.ask(replace(place, port=other.getsockname()[1]), "pending", {}) is None
    with pytest.raises(ConfigError, match="no such job runs here"):
        RunningJob.connect("unknown")


def test_a_job_that_ends_while_it_answers_is_not_taken_for_one_that_rests(
    place: Place, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = WatchHandler.begin

    def ends(handler: WatchHandler, *given: Any) -> None:
        if asked.questions:
            raise ConnectionAbortedError  # the thread of the request ends without an answer
        begin(handler, *given)

    monkeypatch.setattr(WatchHandler, "begin", ends)
    said = r"the job has ended while it answered cancel; .* of an act see first whether `acts` lists it"
    with pytest.raises(RefusedError, match=said):
        client.ask(place, "cancel", {})
    assert asked.questions == [("cancel", {})]


def test_an_act_whose_client_has_hung_up_before_its_turn_is_not_done(place: Place, asked: Asked) -> None:
    asked.waits_for = threading.Event()
    busy = [threading.Thread(target=raw, args=(place, "POST", "/v1/pending", "{}")) for _ in range(2)]
    for thread in busy:
        thread.start()
    while len(asked.questions) < 2:
        threading.Event().wait(0.01)
    connection = HTTPConnection(place.address, place.port)
    connection.request("POST", "/v1/cancel", "{}", {"Authorization": f"Bearer {place.token}"})
    last = HTTPConnection(place.address, place.port, timeout=30)
    connection.close()
    last.request("POST", "/v1/history", "{}", {"Authorization": f"Bearer {place.token}"})
    asked.waits_for.set()
    assert last.getresponse().status == 200
    last.close()
    for thread in busy:
        thread.join()
    assert [verb for verb, _ in asked.questions] == ["pending", "pending", "history"]


def test_questions_that_wait_when_the_run_ends_are_told_so(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    asked.waits_for = threading.Event()
    found: list[tuple[int, Any]] = []
    with served(str(tmp_path), VERBS, asked, {}, meter()) as place:
        ask = [
            threading.Thread(target=lambda: found.append(raw(place, "POST", "/v1/move", "{}")))
            for _ in range(5)
        ]
        for thread in ask:
            thread.start()
        while len(asked.questions) < 2:
            threading.Event().wait(0.01)
        threading.Timer(0.2, asked.waits_for.set).start()
    for thread in ask:
        thread.join()
    assert sorted(status for status, _ in found) == [200, 200, 503, 503, 503]
    assert {refusal["error"] for status, refusal in found if status == 503} == {
        "the run ends; hint: the same question again, to its next start"
    }


def test_a_question_without_a_body_has_no_arguments(place: Place, asked: Asked) -> None:
    assert raw(place, "POST", "/v1/pending")[0] == 200
    assert asked.questions == [("pending", {})]


def test_a_refusal_may_tell_of_a_text_that_is_no_utf_8(place: Place, asked: Asked) -> None:
    asked.fails = ConfigError("no such argument", field="\ud800", value=1)
    status, refusal = raw(place, "POST", "/v1/pending", "{}")
    assert (status, refusal["parts"]["field"]) == (400, "\ud800")


def test_too_many_ids_are_refused_before_the_job_is_asked(place: Place, asked: Asked) -> None:
    job = RunningJob.connect("orders")
    with pytest.raises(
        WheelError, match=r"too long: .* bytes; rule: up to 4,000,000; hint: fewer ids at a time"
    ):
        job.cancel(ids=[f"order-{number:020}" for number in range(200_000)])
    assert asked.questions == []


def test_a_page_is_served_until_its_reader_hangs_up(place: Place, asked: Asked) -> None:
    def begun(lines: Sequence[str]) -> None:
        assert lines == ["http://127.0.0.1:1/"]
        assert not asked.closed.is_set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.serve_page(place, {"port": 0}, begun)
    assert asked.closed.wait(30)
    assert asked.questions == [("ui", {"port": 0}), ("ui", {"closed": True})]


def test_the_end_of_the_job_ends_its_pages_and_tells_their_readers(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEEL_UDF_STATE", str(tmp_path / "state"))
    is_there, has_ended = threading.Event(), threading.Event()

    def look() -> None:
        assert client.serve_page(place, {}, lambda _: is_there.set())
        has_ended.set()

    with served(str(tmp_path), VERBS, asked, {}, meter(), asked.page) as place:
        threading.Thread(target=look, daemon=True).start()
        assert is_there.wait(30)
    assert asked.closed.is_set()  # closed before the server's end, which the job's session follows
    assert has_ended.wait(30)
    assert not client.serve_page(place, {}, lambda _: None)


def test_a_page_that_cannot_be_served_so_is_refused_as_a_question_is(place: Place, asked: Asked) -> None:
    asked.fails = ConfigError("cannot listen here", field="--port", value=80)
    with pytest.raises(RefusedError, match="cannot listen here: --port = 80") as refused:
        client.serve_page(place, {"port": 80}, lambda _: None)
    assert refused.value.exit_code == 2
    assert raw(place, "POST", "/v1/page", "{}", Authorization="Bearer x")[0] == 401
