"""A job in a folder whose name means something to a URI, to a pattern and to SQL: each verb finds what the run has
written there, and nothing lies elsewhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.delta.pending.verbs import ask
from tests.hostile import PATH_NAME
from tests.spark.streams import add_files, due

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""A run sets it on a local path; the other verbs read with Spark's default, which takes paths in another way."""


def test_each_verb_works_on_a_job_whose_folders_have_hostile_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / PATH_NAME
    folder.mkdir()

    def place(name: str) -> str:
        return str(folder / f"{name} {PATH_NAME}")

    settings = {
        "source": {"format": "parquet", "path": place("in"), "options": {"maxFilesPerTrigger": "1"}},
        "destinations": {
            "out": {"sink": "delta", "path": place("tables"), "create": True},
            "log": {"sink": "json", "path": place("files")},
        },
        "rejects": {"sink": "delta", "path": place("rejects")},
        "checkpoint": place("checkpoint"),
        "store": {"path": place("store")},
    }

    def told(verb: str, *more: str) -> list[str]:
        spark.conf.unset(FILE_MANAGER)
        code, out, err = ask(folder, verb, *more, **settings)
        assert (code, err) == (0, []), (verb, err)
        return out

    def ids(lines: list[str]) -> list[str]:
        return [json.loads(line)["schedule_id"] for line in lines]

    far = [due(name, 3_000, 0) for name in ("b", "c", "d")]
    ends = [due("a", 5, 0), due("e", 7, 0, destination="log"), due("x", 5, 0, destination="nowhere")]
    add_files(folder / f"in {PATH_NAME}", [*ends, *far], [due("near", 25, 20)])
    assert f"  checkpoint    {place('checkpoint')}: new: the first start creates it" in told("dry-run")
    out = "\n".join(told("run", "--trigger", "available-now"))
    assert "schedules   7 = 1 near + 3 far + 2 fired + 0 missed" in out, out

    assert ids(told("pending")) == ["near", "b", "c", "d"]
    assert [json.loads(line)["rows"] for line in told("forecast", "--every", "1 hour")] == [4]
    assert "fired" in [json.loads(line)["what"] for line in told("history", "--id", "a")]
    assert told("repair", "--dry-run")[-1] == "nothing to repair"
    forgotten = told("forget", "--id", "c", "--id", "a", "--id", "e")
    (files,) = [line for line in forgotten if line.startswith(f"json {place('files')}/log ")]
    assert files.endswith(" 1  all: files are not changed")
    assert ids(told("pending", "--as-of", "2100-01-01")) == ["near", "b", "d"]
    assert told("export", "--to", place("export"))[:2] == [
        f"exported {place('export')}",
        "  account   3 pending; counted so far: 2 fired, 1 cancelled, 1 rejected, 1 applied",
    ]

    settings |= {"checkpoint": place("new"), "store": {"path": place("new store")}}
    assert told("import", "--from", place("export"))[0] == f"imported {place('export')} into {place('new')}"
    assert told("cancel", "--id", "b") == ["cancelled 1 entry"]
    assert ids(told("pending")) == ["near", "d"]
    names = ("checkpoint", "export", "files", "in", "new", "new store", "rejects", "store", "tables")
    found = {path.name.removesuffix("-batches") for path in folder.iterdir()}
    assert found == {f"{name} {PATH_NAME}" for name in names} | {"job.yml"}
    assert [path.name for path in tmp_path.iterdir()] == [PATH_NAME]
