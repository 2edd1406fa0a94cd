"""Asks a running job.

A job that has ended, or was killed, has left the place where it answered: nobody listens there, or something else does.
Then there is no answer, and no error: the caller reads what the job has left on its disks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote

from wheel_udf.api.answer import Answer, RefusedError
from wheel_udf.api.place import Place
from wheel_udf.api.words import ARROW, CHECKPOINT, JSON, ROOT, SERVER

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


def answers(place: Place) -> bool:
    """Whether the job answers there: another one, or another program, may have got the port."""
    return _about(place) is not None


def _about(place: Place) -> HTTPConnection | None:
    """A connection on which the job has said what it is."""
    connection = HTTPConnection(place.reached_at, place.port, timeout=_LOOK_S)
    try:
        connection.request("GET", f"{ROOT}job", headers=_headers(place, JSON))
        response = connection.getresponse()
        response.read()
    except (OSError, HTTPException):
        connection.close()
        return None
    if response.status == _OK and response.getheader("Server", "").startswith(SERVER):
        return connection
    connection.close()
    return None


def _post(place: Place, verb: str, arguments: Mapping[str, Any], accept: str) -> bytes | None:
    connection = _about(place)
    if connection is None:
        return None
    try:
        if connection.sock is not None:
            connection.sock.settimeout(None)  # an answer takes as long as it takes
        connection.timeout = None
        content = json.dumps(dict(arguments))
        connection.request("POST", f"{ROOT}{quote(verb)}", content, _headers(place, accept))
        response = connection.getresponse()
        found = response.read()
    except (OSError, HTTPException):
        # Not the same as no answer: the job may have done what it was asked to do.
        sentence = (
            f"the job has ended while it answered {verb}; hint: the same command again asks what it has left"
        )
        raise RefusedError(sentence, 1) from None
    finally:
        connection.close()
    if response.status != _OK:
        raise RefusedError.of_json(found)
    return found


def _headers(place: Place, accept: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {place.token}",
        CHECKPOINT: quote(place.checkpoint),
        "Accept": accept,
        "Content-Type": JSON,
    }
