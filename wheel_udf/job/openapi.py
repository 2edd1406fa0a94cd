"""The HTTP interface of a running job as an OpenAPI document, from ``verbs.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import wheel_udf
from wheel_udf.api.words import ARROW, JSON, PAGE, ROOT
from wheel_udf.job.arguments import VERBS, WITH_ROWS, asked_options

_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "instant": {
        "oneOf": [
            {"type": "string", "format": "date-time"},
            {"type": "integer", "description": "UTC epoch ms"},
        ]
    },
    "rate": {"oneOf": [{"type": "string"}, {"type": "number", "description": "a second"}]},
}

_ANSWER: Final = {
    "type": "object",
    "required": ["rows", "counts", "lines"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Rows; columns that are null are left out.",
        },
        "counts": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "pending and stored of a count; changed of an act, picked of its dry run.",
        },
        "lines": {"type": "array", "items": {"type": "string"}, "description": "Sentences for a person."},
    },
}
_REFUSAL: Final = {
    "type": "object",
    "required": ["error", "exit_code", "kind", "parts"],
    "properties": {
        "error": {"type": "string", "description": "One sentence."},
        "exit_code": {"type": "integer", "description": "2: something to change; 1: anything else."},
        "kind": {"type": "string", "description": "The class of the error."},
        "parts": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "what, field, value, rule, hint, as far as there are any.",
        },
    },
}


_JOB: Final = "what the job is: name, mode, checkpoint, version, process, and the verbs that it answers"
_PAGE: Final = "serves the page of the job until the connection is closed; the lines name its address"
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_STATUS: Final = (
    "how the job is now: at_ms, unhealthy (why, or null), last (line of its last batch), samples (metrics)"
)


def openapi_of(verbs: Sequence[str]) -> dict[str, Any]:
    """The document for some verbs."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "A running wheel-udf job",
            "version": wheel_udf.__version__,
            "description": "The token and the address are in the job's file (docs/api-http.md).",
        },
        "security": [{"token": []}],
        "paths": {
            f"{ROOT}job": {"get": _get("job", _JOB, "The job.")},
            f"{ROOT}status": {"get": _get("status", _STATUS, "The state of the job.")},
            "/metrics": {
                "get": _watch("metrics", "metrics for Prometheus", "501", "prometheus-client is missing.")
            },
            "/healthz": {
                "get": _watch("healthz", "whether the job is healthy", "503", "It is not; the reason.")
            },
            **{f"{ROOT}{verb}": {"post": _post(verb)} for verb in verbs},
            f"{ROOT}{PAGE}": {"post": _post("ui") | {"operationId": PAGE, "summary": _PAGE}},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Answer": _ANSWER, "Refusal": _REFUSAL},
        },
    }


def _get(name: str, summary: str, text: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": _content(JSON, {"type": "object"}, text),
            "401": _refused("The token is wrong."),
        },
    }


def _watch(name: str, summary: str, otherwise: str, text: str) -> dict[str, Any]:
    """An address without a token."""
    responses = {
        "200": {"description": "Text.", "content": _TEXT},
        otherwise: {"description": text, "content": _TEXT},
    }
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def _post(verb: str) -> dict[str, Any]:
    options = asked_options(verb)
    required = [name for name, keywords in options.items() if keywords.get("required")]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(keywords) for name, keywords in options.items()},
    }
    if required:
        schema["required"] = required
    answer = _content(JSON, {"$ref": "#/components/schemas/Answer"}, "The answer.")
    if verb in WITH_ROWS:
        answer["content"][ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {
        "operationId": verb.replace("-", "_"),
        "summary": VERBS[verb]["help"],
        "requestBody": {"required": bool(required), "content": {JSON: {"schema": schema}}},
        "responses": {
            "200": answer,
            "400": _refused("The question cannot be answered as it is."),
            "401": _refused("The token is wrong."),
            "409": _refused("It is about another job."),
            "411": _refused("Its length is not given."),
            "413": _refused("It is too long."),
            "500": _refused("The answer has failed."),
            "503": _refused("Too many questions wait, or the run ends."),
        },
    }


def _property(keywords: Mapping[str, Any]) -> dict[str, Any]:
    about = {"description": keywords["help"]}
    if "default" in keywords and keywords["default"] is not None:
        about["default"] = keywords["default"]
    if keywords.get("action") == "store_true":
        return {"type": "boolean", "default": False, **about}
    if keywords.get("action") == "append":
        return {"type": "array", "items": {"type": "string"}, **about}
    return {**_TYPES.get(keywords.get("type", ""), {"type": "string"}), **about}


def _content(kind: str, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _refused(text: str) -> dict[str, Any]:
    return _content(JSON, {"$ref": "#/components/schemas/Refusal"}, text)
