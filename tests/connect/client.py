"""A client of Spark Connect in a process of its own, as the tests use it."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.connect.environment import ROOT, client_python, client_variables

_PROGRAM: Final = ROOT / "tests" / "connect" / "client_program.py"


class ToldError(Exception):
    """An error of the client's program."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class Client:
    """A client, with the schema of a test as its current one.

    Args:
        url: The server.
        schema: The schema.
        log: What it prints beside its answers.
    """

    def __init__(self, url: str, schema: str, log: Path) -> None:
        self.schema = schema
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(client_python()), str(_PROGRAM), url, schema],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, cwd=ROOT, env=client_variables(), text=True,
            )  # fmt: skip
        assert self.answer() == "ready"

    def begin(self, call: str, *args: Any, **settings: Any) -> None:
        """Tells the client to call something."""
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(json.dumps({"call": call, "args": args, **settings}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What the call has returned."""
        assert self._process.stdout is not None, "a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise EOFError("the client has ended")
        found = json.loads(line)
        if "error" in found:
            raise ToldError(found["error"], found["message"])
        return found["result"]

    def call(self, call: str, *args: Any, **settings: Any) -> Any:
        """Calls something and waits for the answer."""
        self.begin(call, *args, **settings)
        return self.answer()

    def sql(self, text: str) -> list[list[Any]]:
        """The rows of a statement."""
        found: list[list[Any]] = self.call("sql", text)
        return found

    def is_there(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kills it, as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
