"""Asks a running job.

A job that has ended, or was killed, has left the place where it answered: nobody listens there, or something else does.
Then there is no answer, and no error: the caller reads what the job has left on its disks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import quote

from wheel_udf.api.answer import Answer, RefusedError, too_long
from wheel_udf.api.place import Place
from wheel_udf.api.words import ARROW, CHECKPOINT, JSON, MOST_BYTES, PAGE, ROOT, SERVER

_LOOK_S: Final = 2.0
_OK: Final = 200


def ask(place: Place, verb: str, arguments: Mapping[str, Any]) -> Answer | None:
    """Asks a question.

    Args:
        place: Where the job answers.
        verb: The verb.
        arguments: Its arguments, by the names of the HTTP interface.

    Returns:
        The answer; None if no such job answers there.

    Raises:
        RefusedError: The job has refused the question, has failed to answer it, or has ended meanwhile.
    """
    content = _post(place, verb, arguments, JSON)
    return None if content is None else Answer.of_json(content)


def ask_arrow(place: Place, verb: str, arguments: Mapping[str, Any]) -> bytes | None:
    """As :func:`ask`, for the rows as an Arrow stream."""
    return _post(place, verb, arguments, ARROW)


def look(place: Place, name: str) -> dict[str, Any] | None:
    """What a job says of itself without being asked a question.

    Args:
        place: Where the job answers.
        name: ``job`` or ``status``.

    Returns:
        The JSON object; None if no such job answers there.
    """
    try:
        response, content = _exchange(place, "GET", name, None, JSON, _LOOK_S)
    except (OSError, HTTPException):
        return None
    if response.status != _OK or not response.getheader("Server", "").startswith(SERVER):
        return None
    found: dict[str, Any] = json.loads(content)
    return found


def answers(place: Place) -> bool:
    """Whether the job answers there: another one, or another program, may have got the port."""
    return look(place, "job") is not None


def serve_page(place: Place, arguments: Mapping[str, Any], begun: Callable[[Sequence[str]], None]) -> bool:
    """Lets a job serve its page as long as this call lasts: an interrupt ends both.

    Args:
        place: Where the job answers.
        arguments: Those of the verb ``ui``.
        begun: Takes what the job says of the page, when it is there.

    Returns:
        False if no such job answers there; True once the job has ended.

    Raises:
        RefusedError: The job cannot serve the page so.
    """
    if not answers(place):
        return False
    with closing(HTTPConnection(place.reached_at, place.port)) as connection:
        try:
            connection.request("POST", f"{ROOT}{PAGE}", json.dumps(dict(arguments)), _headers(place, JSON))
            response = connection.getresponse()
            first = response.readline()
        except (OSError, HTTPException):  # it ended at this moment
            return False
        with response:  # it holds the connection open
            if response.status != _OK:
                raise RefusedError.of_json(first)
            begun(json.loads(first)["lines"])
            with suppress(OSError, HTTPException):
                response.read()
    return True


def _post(place: Place, verb: str, arguments: Mapping[str, Any], accept: str) -> bytes | None:
    if not answers(place):
        return None
    body = json.dumps(dict(arguments))
    if len(body) > MOST_BYTES:
        raise too_long(len(body))
    try:
        # An answer takes as long as it takes.
        response, content = _exchange(place, "POST", verb, body, accept, None)
    except (OSError, HTTPException):
        # Not the same as no answer: the job may have done what it was asked to do.
        hint = "the same command again asks what it has left; of an act see first whether `acts` lists it"
        raise RefusedError(f"the job has ended while it answered {verb}; hint: {hint}", 1) from None
    if response.status != _OK:
        raise RefusedError.of_json(content)
    return content


def _exchange(
    place: Place, method: str, name: str, body: str | None, accept: str, patience_s: float | None
) -> tuple[HTTPResponse, bytes]:
    """One request and its whole answer, on a connection of its own, as the server wants it."""
    with closing(HTTPConnection(place.reached_at, place.port, timeout=patience_s)) as connection:
        connection.request(method, f"{ROOT}{quote(name)}", body, _headers(place, accept))
        response = connection.getresponse()
        return response, response.read()


def _headers(place: Place, accept: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {place.token}",
        CHECKPOINT: quote(place.checkpoint),
        "Accept": accept,
        "Content-Type": JSON,
    }
