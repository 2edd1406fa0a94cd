"""``init``: a config for a common use, with a script for sample input; both complete, none overwritten."""

from __future__ import annotations

import io
import json
import re
import runpy
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.documents import ROOT
from wheel_udf.common.durations import parse_duration_ms
from wheel_udf.job.cli import main
from wheel_udf.job.loader import load
from wheel_udf.job.models.purgatory import PurgatoryConfig

USES = ["months", "orders", "recurring", "reminders", "retries", "schedules"]


def init(*arguments: str) -> tuple[int, list[str], str]:
    out, err = io.StringIO(), io.StringIO()
    return main(["init", *arguments], out=out, err=err), out.getvalue().splitlines(), err.getvalue()


def test_without_a_name_it_lists_the_uses() -> None:
    code, lines, err = init()
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in lines] == [*USES, "wheel-udf"]
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("use", USES)
def test_a_use_is_a_valid_config_a_script_and_the_commands_to_type_next(use: str, tmp_path: Path) -> None:
    code, lines, err = init(use, "--into", str(tmp_path / "new"))
    assert (code, err) == (0, "")
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [f"{use}.yml", f"{use}_sample.py"]
    assert load(str(tmp_path / "new" / f"{use}.yml"), []).name == use
    compile((tmp_path / "new" / f"{use}_sample.py").read_text(), use, "exec")
    commands = [line.strip() for line in lines]
    assert any(line.startswith(f"python {use}_sample.py ") for line in commands)
    assert any(line.startswith(f"wheel-udf run --config {use}.yml ") for line in commands)
    assert not any(line.startswith("#") for line in commands)


def rows_of(use: str, folder: str) -> list[dict[str, str]]:
    """The rows that the script of a use writes as files of JSON lines, into this folder."""
    with redirect_stdout(io.StringIO()):
        runpy.run_path(str(ROOT / "conf" / "init" / f"{use}_sample.py"))
    return [json.loads(line) for file in Path(folder).iterdir() for line in file.read_text().splitlines()]


def test_the_first_row_of_a_sample_is_due_after_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    began = datetime.now(UTC)
    due = [datetime.fromisoformat(row["deliver_at"]) for row in rows_of("months", "data/months/commands")]
    orders = load(str(ROOT / "conf" / "init" / "orders.yml"), [])
    placed = [datetime.fromisoformat(row["placed_at"]) for row in rows_of("orders", "data/orders/placed")]
    assert isinstance(orders, PurgatoryConfig)
    due += [
        each + timedelta(milliseconds=parse_duration_ms(orders.operations.columns["deadline"][1:-1]))
        for each in placed
    ]
    assert min(due) >= began + timedelta(minutes=2)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "orders.yml").write_text("mine")
    code, lines, err = init("orders", "--into", str(tmp_path))
    assert (code, lines) == (2, [])
    assert "files would be overwritten: --into = " in err
    assert (tmp_path / "orders.yml").read_text() == "mine"
    assert not (tmp_path / "orders_sample.py").exists()


def test_a_folder_that_cannot_be_made_is_an_error_of_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = init("orders", "--into", str(tmp_path / "file"))
    assert code == 2
    assert "a file cannot be written (" in err
    assert "--into = " in err


def test_an_unknown_use_is_refused_with_the_known_ones() -> None:
    code, _, err = init("remindrs")
    assert (code, err.strip()) == (
        2,
        "error: there is no such example config: NAME = 'remindrs'; rule: one of months, orders, recurring, reminders, retries, schedules",
    )


def test_the_copy_of_all_example_configs_leaves_the_starters_out(tmp_path: Path) -> None:
    out = io.StringIO()
    assert main(["conf", "--copy", str(tmp_path)], out=out) == 0
    assert (ROOT / "conf" / "init").is_dir()
    assert not (tmp_path / "init").exists()


def test_no_two_of_the_examples_of_a_new_user_share_a_folder() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = {use: folders_of((ROOT / "conf" / "init" / f"{use}.yml").read_text("utf-8")) for use in USES}
    folders["the example of the README"] = folders_of(readme[readme.index("```python") :].split("```")[1])
    named = [name for each in folders.values() for name in each]
    assert sorted(named) == sorted(set(named)), folders


def folders_of(text: str) -> set[str]:
    return set(re.findall(r"data/(\w+)/", text))
