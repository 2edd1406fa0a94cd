"""The recorded terminal session of the README: a first job, from ``init`` to its account, typed for real.

::

    python -m tests.terminal.session     writes docs/img/session.txt, and session.svg, which draws it (4 minutes)

The job runs in the background of the same terminal, so its lines come between those of the questions to it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from wheel_udf.job.phases import LONG_S

FOLDER: Final = Path(__file__).parents[2] / "docs" / "img"
TEXT, PICTURE = FOLDER / "session.txt", FOLDER / "session.svg"
PROMPT: Final = "$ "
_WIDTH: Final = 144
_PATIENCE_S: Final = 300
_NO_TERMINAL: Final = f" takes longer than {LONG_S} s\n"
"""On a terminal these lines are one that moves, and is gone when the job has started."""
_CONFIG: Final = "--config reminders.yml"


class Terminal:
    """What a user types, and what is printed meanwhile, in the order in which it comes."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._folder = folder
        # Of these options Java says on a line of its own that it has read them.
        plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
        self._environment = plain | {
            "WHEEL_UDF_STATE": str(folder / "state"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHONUNBUFFERED": "1",
        }

    def _put(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def type(self, command: str) -> None:
        """Types a command and waits for its end."""
        self._put(PROMPT + command)
        process = self._started(command)
        self._read(process)
        if process.wait() != 0:
            raise RuntimeError(f"{command} failed:\n" + "\n".join(self.lines))

    def begin(self, command: str) -> subprocess.Popen[str]:
        """Types a command that runs in the background."""
        self._put(f"{PROMPT}{command} &")
        process = self._started(command)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        """Ends a command in the background, as ``kill`` does."""
        self._put(f"{PROMPT}kill %1")
        process.send_signal(signal.SIGTERM)
        process.wait()
        self.wait_for("  identities ")

    def wait_for(self, *parts: str) -> None:
        """Waits for a line that has all of these texts."""

        def is_there() -> bool:
            return any(all(part in line for part in parts) for line in self.lines)

        with self._changed:
            if not self._changed.wait_for(is_there, timeout=_PATIENCE_S):
                raise TimeoutError(f"no line with {parts}:\n" + "\n".join(self.lines))

    def _started(self, command: str) -> subprocess.Popen[str]:
        program, *words = command.split()
        module = {"wheel-udf": ["-m", "wheel_udf"], "python": []}[program]
        return subprocess.Popen(
            [sys.executable, *module, *words],
            cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None, "a pipe"
        with process.stdout as lines:
            for line in lines:
                if not line.endswith(_NO_TERMINAL):
                    self._put(line.rstrip("\n"))


def recorded() -> list[str]:
    """Types the session; returns its lines."""
    with tempfile.TemporaryDirectory(prefix="wheel-session-") as name:
        terminal = Terminal(Path(name))
        terminal.type("wheel-udf init reminders")
        terminal.type("python reminders_sample.py")
        job = terminal.begin(f"wheel-udf run {_CONFIG}")
        try:
            terminal.wait_for("pending, the next one is due at")
            terminal.type(f"wheel-udf pending {_CONFIG} --limit 2")
            terminal.type(f"wheel-udf cancel {_CONFIG} --id reminder-4 --dry-run")
            terminal.type(f"wheel-udf cancel {_CONFIG} --id reminder-4")
            terminal.wait_for("| pending         0 |")
            terminal.end(job)
        finally:
            job.kill()
        return terminal.lines


def svg_of(lines: Sequence[str]) -> str:
    """Draws the session."""
    console = Console(
        record=True, width=_WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for line in lines:
        console.print(Text(line, style="bold green" if line.startswith(PROMPT) else ""), soft_wrap=False)
    return console.export_svg(title="a first job", unique_id="session")


def shapes(lines: Sequence[str]) -> dict[str, set[str]]:
    """The lines after each command, without what is another one with each run: numbers, instants, units, spaces. Those of
    the job in the background stand under its own command, since they may come a line earlier or later.
    """
    found: dict[str, set[str]] = {}
    command = job = ""
    for line in lines:
        if line.startswith(PROMPT):
            command = line
            job = line if line.endswith("&") else job
        else:
            shape = re.sub(r"\s+", " ", re.sub(r"-(?= |$)|\d[\d,.:TZ-]*( (ms|s|min)\b)?", "N", line))
            is_of_job = bool(job) and not line.startswith(("{", "would ", "cancelled 1 "))
            found.setdefault(job if is_of_job else command, set()).add(shape)
    return found


def main() -> None:
    """Records the session anew."""
    lines = recorded()
    TEXT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    PICTURE.write_text(svg_of(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
