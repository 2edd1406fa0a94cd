"""The notebooks: a percent script and its rendered notebook are the same, and outputs hold nothing of the machine that
made them.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

FOLDER = Path(__file__).parents[3] / "notebooks"
sys.path.insert(0, str(FOLDER))

import render  # noqa: E402  # from the notebooks' folder

SCRIPTS = render.sources()


def rendered(script: Path) -> nbformat.NotebookNode:
    return nbformat.read(script.with_suffix(".ipynb"), as_version=4)


def test_there_are_six_notebooks_and_each_is_rendered() -> None:
    assert [path.stem for path in SCRIPTS] == [
        "01_tour_of_the_wheel",
        "02_a_day_of_departures",
        "03_pending_as_a_table",
        "04_the_purgatory_by_example",
        "05_choosing_a_wheel",
        "06_again",
    ]
    assert sorted(FOLDER.glob("*.ipynb")) == [path.with_suffix(".ipynb") for path in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_and_notebook_have_the_same_cells(script: Path) -> None:
    source = render.read_source(script)

    assert [(cell.cell_type, cell.source) for cell in rendered(script).cells] == [
        (cell.cell_type, cell.source) for cell in source.cells
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_cell_was_run_in_order_and_pictures_are_there(script: Path) -> None:
    cells = [cell for cell in rendered(script).cells if cell.cell_type == "code"]

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_outputs_hold_no_error_no_warning_and_no_path_of_a_machine(script: Path) -> None:
    assert list(render.unwanted(rendered(script))) == []


@pytest.mark.parametrize(
    "text",
    [
        "/Users/ann/x.parquet",
        "file in '/tmp/tmpabc/commands'",
        "26/01/01 10:00:00 WARN Utils: something",
        "x.py:3: UserWarning: something",
        "ValueError: something",
    ],
)
def test_what_must_not_be_in_an_output_is_found(text: str) -> None:
    cell = new_code_cell("x", outputs=[new_output("stream", name="stdout", text=text)])

    assert len(list(render.unwanted(new_notebook(cells=[cell])))) == 1


@pytest.mark.parametrize(
    "text", ["error_code", "1/2", "https://example.org/home/x", "data/tmp/x", "early: 0"]
)
def test_ordinary_outputs_pass(text: str) -> None:
    cell = new_code_cell("x", outputs=[new_output("stream", name="stdout", text=text)])

    assert list(render.unwanted(new_notebook(cells=[cell]))) == []


def test_what_java_prints_is_taken_out_and_an_output_of_nothing_else_goes() -> None:
    java = "NOTE: Picked up JDK_JAVA_OPTIONS: -X\nWARNING: Using incubator modules: jdk.incubator.vector\n"
    both = new_output("stream", name="stdout", text=f"first\n{java}second\n")
    assert render.cleaned([new_output("stream", name="stderr", text=f"{java}\n"), both]) == [both]
    assert both.text == "first\nsecond\n"


@pytest.mark.parametrize("file", [*SCRIPTS, FOLDER / "plots.py"], ids=lambda file: file.stem)
def test_what_a_notebook_uses_of_the_package_is_there(file: Path) -> None:
    # A function that only a notebook used had been removed; CI renders changed notebooks alone.
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wheel_udf")
        for alias in node.names
    }
    parts = [
        f"{used[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in used
    ]
    for name in (*used.values(), *parts):
        assert pkgutil.resolve_name(name) is not None
