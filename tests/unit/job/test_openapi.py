"""The shipped OpenAPI document is that of the verbs, and a client that was generated from it asks a job."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.schema import interface
from tests.unit.metrics.jobs import meter
from wheel_udf.api.answer import Answer
from wheel_udf.api.server import ApiServer, Job
from wheel_udf.common.errors import ActError
from wheel_udf.job.arguments import of_question

SHIPPED = Path(__file__).parents[3] / "conf" / "schema" / "openapi.json"


def test_the_shipped_document_is_that_of_the_verbs() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == interface(), "run: python -m tests.schema conf/schema"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a package that a generator has made of the document."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "settings.yml").write_text("post_hooks: []\n")
    command = f"generate --path {SHIPPED} --config settings.yml --meta none --output-path asking_wheel --fail-on-warning"
    subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command.split()],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    sys.path.insert(0, str(folder))
    yield "asking_wheel"
    sys.path.remove(str(folder))


def answer(verb: str, arguments: Mapping[str, Any]) -> Answer:
    """Answers with what was understood."""
    asked = of_question(verb, arguments)
    if verb == "move":
        raise ActError("the new due time cannot be used", field="to", value=asked.to)
    if verb == "pending":
        return Answer(rows=[{"schedule_id": "a", "limit": asked.limit, "where": asked.where}])
    return Answer(counts={"picked": 3}, lines=[f"would {verb} 3 entries (dry run)"])


def test_a_generated_client_asks_and_is_refused(made: str) -> None:
    api, models = f"{made}.api.default", importlib.import_module(f"{made}.models")
    client_of = importlib.import_module(made).AuthenticatedClient
    about, verbs = {"name": "x", "checkpoint": "/x"}, ["pending", "cancel", "move"]
    with closing(ApiServer("127.0.0.1", 0)) as server:
        job = Job(about, verbs, answer, lambda _verb, _arguments: b"", {}, lambda _: nullcontext([]))
        server.answer(job, meter())
        with client_of(base_url=server.url, token=server.token) as client:

            def ask(verb: str, **arguments: Any) -> Any:
                body = getattr(models, f"{verb.title()}Body")(**arguments)
                return importlib.import_module(f"{api}.{verb}").sync(client=client, body=body)

            found = ask("pending", where="seq > 1", limit=7)
            assert [row.to_dict() for row in found.rows] == [
                {"schedule_id": "a", "limit": 7, "where": "seq > 1"}
            ]
            found = ask("cancel", id=["a"], dry_run=True)
            assert (found.counts.to_dict(), found.lines) == (
                {"picked": 3},
                ["would cancel 3 entries (dry run)"],
            )
            refused = ask("move", id=["a"], to="nothing")
            assert (refused.exit_code, refused.kind) == (2, "ActError")
            assert refused.error.startswith("the new due time cannot be used")
        with client_of(base_url=server.url, token="another") as client:
            refused = importlib.import_module(f"{api}.job").sync(client=client)
            assert "token" in refused.error
