"""Executes the notebooks and writes their rendered ``.ipynb`` beside them (``make notebooks``).

::

    01_tour_of_the_wheel.py  --jupytext-->  cells  --nbclient, a kernel of this Python-->  01_tour_of_the_wheel.ipynb

The percent scripts are the source. A rendered notebook holds the same cells and their outputs, and nothing that
differs between two runs or two machines: no execution times, no version of Python, numbered cell ids. A notebook fails
if a cell raises, writes to standard error, or shows a warning, an error or a path of this machine.

A rendered notebook records a hash of what it was rendered from: its script, ``plots.py`` and the pinned packages.
``--changed`` renders those whose hash has changed, and :data:`SENTINEL` if there are none.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
LONGEST_CELL_S = 300
SENTINEL = "03"
"""The notebook that ``--changed`` renders where none has changed."""

JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""A notebook's JVM lives for a minute: the second compiler and a collector with threads cost more than they give. With
one compiler alone, Java makes room for 48 MB of code, and stops compiling when that is full."""

JVM_LINES = re.compile(
    r"^(NOTE: Picked up JDK_JAVA_OPTIONS:.*"
    r"|WARNING: Using incubator modules: .*"
    r"|Deleted \d+ files and directories in a total of \d+ directories\.)\n?",
    re.MULTILINE,
)
"""What Java prints when it starts, and Delta after each clean-up; it says nothing about the notebook."""

_UNWANTED = re.compile(
    r"\bWARN\b|\bWarning\b|Warning:|\bERROR\b|Traceback|[a-z]Error\b|(?<![\w.])/(?:tmp|home|root|work|Users|var|private)/"
)


def sources() -> list[Path]:
    """The percent scripts, in order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def inputs_of(script: Path) -> str:
    """The hash of what a notebook is rendered from."""
    parts = (script, FOLDER / "plots.py", FOLDER.parent / "conf" / "constraints.txt")
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()


def is_current(script: Path) -> bool:
    """Whether the rendered notebook was rendered from what is there now."""
    rendered = script.with_suffix(".ipynb")
    return rendered.exists() and inputs_of(script) == nbformat.read(rendered, 4).metadata.get("inputs")


def read_source(script: Path) -> NotebookNode:
    """The notebook of a percent script, without outputs, with numbered cell ids."""
    notebook: NotebookNode = jupytext.read(script)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = {}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def unwanted(notebook: NotebookNode) -> Iterator[str]:
    """What must not be in a rendered notebook: one line for each finding."""
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"cell {number}: {output.get('ename') or output.get('text')}"
            data = output.get("data", {})
            texts = [
                output.get("text", ""),
                *(text for kind, text in data.items() if kind.startswith("text/")),
            ]
            yield from (
                f"cell {number}: {found.group()}" for text in texts if (found := _UNWANTED.search(text))
            )


def executed(notebook: NotebookNode) -> NotebookNode:
    """Runs all cells in the notebooks' folder and returns the notebook with its outputs."""
    root = str(FOLDER.parent)
    # The kernel and Spark's Python workers find the package of this project first.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    os.environ["TZ"] = "UTC"
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
    client = NotebookClient(
        notebook, timeout=LONGEST_CELL_S, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False, coalesce_streams=True,  # a line may come in several pieces
        extra_arguments=["--log-level=40"],
    )  # fmt: skip
    client.execute(
        stderr=subprocess.DEVNULL
    )  # of the kernel's process; what cells write to it is in their outputs
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = cleaned(cell.outputs)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def cleaned(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    """The outputs without what the JVM prints, and without those that held nothing else."""
    kept = []
    for output in outputs:
        if "text" in output:
            output.text = JVM_LINES.sub("", output.text)
        if output.get("text", "x").strip():
            kept.append(output)
    return kept


def render(script: Path) -> bool:
    """Executes a notebook, writes its ``.ipynb``, and prints how long it took and what must not be in it; returns
    whether nothing is.
    """
    began_s = time.perf_counter()
    notebook = executed(read_source(script))
    notebook.metadata.inputs = inputs_of(script)
    nbformat.write(notebook, script.with_suffix(".ipynb"))
    found = list(unwanted(notebook))
    print(f"{script.name}: {time.perf_counter() - began_s:.0f} s", *found, sep="\n  ", flush=True)
    return not found


def main(names: list[str]) -> int:
    """Renders the notebooks whose names begin with one of these; all without names. Exit code 1 if one fails."""
    if names == ["--changed"]:
        names = [script.name for script in sources() if not is_current(script)] or [SENTINEL]
    asked = [script for script in sources() if not names or script.name.startswith(tuple(names))]
    # Two at a time, as one alone leaves much of two cores idle. From the last one, which takes longest.
    with ProcessPoolExecutor(2) as processes:
        rendered = list(processes.map(render, reversed(asked)))
    print(f"{len(rendered)} notebooks, {sum(rendered)} right")
    return int(not all(rendered))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
