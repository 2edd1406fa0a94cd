"""The JSON Schema of the config files, for editors and other programs, and the OpenAPI document of a running job.

::

    conf/schema/scheduler.schema.json     AnySchedulerConfig
    conf/schema/purgatory.schema.json     PurgatoryConfig
    conf/schema/openapi.json              the HTTP interface of a running job (wheel_udf.job.openapi)

The first line of a config in ``conf/`` is ``# yaml-language-server: $schema=schema/scheduler.schema.json``. The
files are generated from the models; a test compares them. ``python -m tests.schema conf/schema`` writes them
again.

The schema has names, types, bounds, defaults and descriptions, and which settings belong to which variant of a
section. Rules between several settings are not in it: ``dry-run`` checks all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from wheel_udf.job.arguments import ASKED
from wheel_udf.job.models.purgatory import PurgatoryConfig
from wheel_udf.job.models.scheduler import AnySchedulerConfig
from wheel_udf.job.openapi import openapi_of

_KINDS: Final[dict[str, tuple[str, Any]]] = {
    "scheduler": ("Config of a scheduler", AnySchedulerConfig),
    "purgatory": ("Config of a purgatory", PurgatoryConfig),
}


def schemas() -> dict[str, str]:
    """Returns the text of each schema by the name of its file."""
    return {f"{kind}.schema.json": _text(title, model) for kind, (title, model) in _KINDS.items()}


def interface() -> str:
    """Returns the text of the OpenAPI document."""
    return json.dumps(openapi_of(ASKED), indent=2) + "\n"


def _text(title: str, model: Any) -> str:
    schema = TypeAdapter(model).json_schema()
    top = {"$schema": GenerateJsonSchema.schema_dialect, "title": title}
    return json.dumps(top | {key: value for key, value in schema.items() if key != "title"}, indent=2) + "\n"


def write(folder: Path) -> None:
    """Writes them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**schemas(), "openapi.json": interface()}.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
