"""Arguments of the command line as those of a question, and back; the same from a program's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wheel_udf.common.errors import ConfigError
from wheel_udf.job.arguments import ASKED, of_question, parse, to_question
from wheel_udf.job.openapi import openapi_of

LINES = [
    "pending --limit 3 --where seq>1 --payload",
    "pending --count --id a --id b --as-of 2026-01-01",
    "forecast --every 1m --horizon 1d --png x.png",
    "history --id a",
    "acts",
    "next --id a -n 3",
    "cancel --id a --dry-run",
    "move --where true --to deliver_at",
    "reroute --id a --to mail",
    "fire-now --id a",
    "skip --id a",
    "pause --id a",
    "resume --id a",
    "backfill --id a --from 2026-01-01 --to 2026-01-02 --most 5",
    "redrive --id a --rate 100/s --from dead",
]


def test_each_verb_that_a_job_answers_has_a_line_here() -> None:
    assert sorted({line.split()[0] for line in LINES}) == sorted(ASKED)


@pytest.mark.parametrize("line", LINES)
def test_a_question_has_the_arguments_of_its_command_line(line: str) -> None:
    verb, *rest = line.split()
    asked = parse([verb, "--config", "job.yml", *rest])
    question = json.loads(json.dumps(to_question(asked)))
    again = vars(of_question(verb, question))
    local = {"config", "set", "png"}
    assert {name: value for name, value in again.items() if name not in local} == {
        name: value for name, value in vars(asked).items() if name not in local
    }


@pytest.mark.parametrize("line", LINES)
def test_the_openapi_document_describes_what_a_command_line_asks(line: str) -> None:
    verb, *rest = line.split()
    document = openapi_of(ASKED)
    body = document["paths"][f"/v1/{verb}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    Draft202012Validator.check_schema(body)
    question = to_question(parse([verb, "--config", "job.yml", *rest]))
    Draft202012Validator(body).validate(json.loads(json.dumps(question)))


def test_a_program_names_instants_and_rates_as_people_do() -> None:
    asked = of_question("backfill", {"id": "a", "from": "2026-01-01T00:00:00Z", "to": 1_767_312_000_000})
    assert (asked.id, asked.begin, asked.end) == (["a"], 1_767_225_600_000, 1_767_312_000_000)
    assert of_question("redrive", {"rate": "30/min"}).rate == 0.5
    assert of_question("pending", {}).limit == 20


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("pending", {"wher": "true"}, r"no such argument: wher = 'true'; rule: as_of, id, where, limit"),
        ("pending", {"limit": "3"}, r"another type: limit = '3'; rule: a whole number"),
        ("pending", {"limit": True}, r"another type: limit = True"),
        ("pending", {"count": 1}, r"another type: count = 1; rule: true or false"),
        ("pending", {"id": [1]}, r"another type: id = \[1\]; rule: a list of texts"),
        ("pending", {"as_of": "yesterday"}, r"not an ISO instant.*yesterday"),
        ("pending", {"config": "x"}, r"no such argument: config"),
        ("move", {"id": "a"}, r"an argument is missing: to"),
        ("redrive", {"rate": "fast"}, r"not a rate: 'fast'"),
        ("redrive", {"rate": 0}, r"not a rate: rate = 0; rule: a number a second, from 0.000001 to 1000000"),
        ("redrive", {"rate": 1e9}, r"not a rate: rate = 1000000000.0"),
        ("backfill", {"id": "a", "from": -(10**30), "to": 0}, r"out of range: from = -10{30}"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(verb: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of_question(verb, arguments)
