"""Where a running job answers: a record that its own user alone can read.

::

    ~/.local/state/wheel_udf/jobs/NAME-0f3a....json   mode 0600: address, port, token, checkpoint     the key
    CHECKPOINT/wheel.api                              address, port, host, the path of the file above  for all to see

The file is found by the checkpoint (its hash is part of the name) or by the job's name, so that a question needs one
file on a local disk, whatever file system the checkpoint is in. The record beside the lease says where the job answers
to other machines and users; it holds no secret, so they bring the token in ``$WHEEL_UDF_TOKEN``. Both go when the run
ends; what a killed run leaves behind is replaced by the next one of the checkpoint, and until then nobody answers
there.

``$WHEEL_UDF_STATE`` is another folder than ``~/.local/state/wheel_udf``; ``$XDG_STATE_HOME`` counts too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from wheel_udf.common.errors import ConfigError
from wheel_udf.common.paths import local_path
from wheel_udf.spark.files import json_bytes, open_folder

RECORD: Final = "wheel.api"
"""The record beside the lease."""

_STATE_VARIABLE: Final = "WHEEL_UDF_STATE"
_TOKEN_VARIABLE: Final = "WHEEL_UDF_TOKEN"  # noqa: S105  # its name
_DIGITS: Final = 24
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104  # compared, not listened on


@dataclass(frozen=True)
class Place:
    """Where a job answers.

    Attributes:
        name: The job's name.
        checkpoint: Its checkpoint, absolute.
        address: The address on which it listens.
        port: The port.
        token: What a question has to bring.
        pid: The process.
        host: The machine.
    """

    name: str
    checkpoint: str
    address: str
    port: int
    token: str
    pid: int
    host: str

    @classmethod
    def of_this_process(cls, name: str, checkpoint: str, address: str, port: int, token: str) -> Place:
        """The place of a job that this process runs."""
        return cls(name, absolute(checkpoint), address, port, token, os.getpid(), socket.gethostname())

    @property
    def reached_at(self) -> str:
        """The address for a client; one that stands for all addresses of a machine is reached by another."""
        if self.address not in _ALL_ADDRESSES:
            return self.address
        return "localhost" if self.is_here else self.host

    @property
    def is_here(self) -> bool:
        """Whether the job runs on this machine."""
        return self.host == socket.gethostname()

    @property
    def may_live(self) -> bool:
        """False if the process is one of this machine and has ended: it was killed, and left its file."""
        if not self.is_here:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's
            pass
        return True

    @property
    def file(self) -> Path:
        """The file with the token."""
        return _file_of(self.name, self.checkpoint)

    def public(self) -> dict[str, object]:
        """The record beside the lease: everything but the token."""
        named = asdict(self)
        del named["token"]
        return named | {"token_file": str(self.file)}


def absolute(checkpoint: str) -> str:
    """A checkpoint by one name: a local path absolute, another one as it is."""
    path = local_path(checkpoint)
    return checkpoint.rstrip("/") if path is None else str(Path(path).resolve())


_PUBLIC: Final = tuple(each.name for each in fields(Place) if each.name != "token")


@contextmanager
def announced(place: Place) -> Iterator[None]:
    """Inside, the place is found. A record that cannot be written beside the lease is missing there, and no more."""
    file = place.file
    _write_private(file, json.dumps(asdict(place)).encode())
    for other, left in _all_files():
        # Of a run that was killed, under another name.
        if left.checkpoint == place.checkpoint and other != file:
            other.unlink(missing_ok=True)
    record = json_bytes(place.public())
    with suppress(Exception):
        open_folder(place.checkpoint).replace(RECORD, record)
    try:
        yield
    finally:
        with suppress(Exception):
            folder = open_folder(place.checkpoint)
            if folder.read(RECORD) == record:  # not that of a driver that has taken over
                folder.remove_files("", [RECORD])
        found = _read(file)
        if found is not None and found.token == place.token:  # not that of a later run
            file.unlink(missing_ok=True)


def place_of(checkpoint: str) -> Place | None:
    """Where the job of a checkpoint answers, if it has said so and this user may ask; it may have ended since."""
    found = [place for place in _all() if place.checkpoint == absolute(checkpoint)]
    return found[0] if found else _told_beside(checkpoint)


def _told_beside(checkpoint: str) -> Place | None:
    """By the record beside the lease, with a token of the environment."""
    token = os.environ.get(_TOKEN_VARIABLE)
    if not token:
        return None
    record = open_folder(checkpoint).read(RECORD)
    if record is None:
        return None
    try:
        named = json.loads(record)
        return Place(**{name: named[name] for name in _PUBLIC}, token=token)
    except (ValueError, KeyError, TypeError):
        return None


def place_by_name(name: str) -> Place | None:
    """As :func:`place_of`, by the job's name.

    Raises:
        ConfigError: Several jobs have this name.
    """
    named = [place for place in _all() if place.name == name]
    found = [place for place in named if place.may_live] or named
    if len(found) > 1:
        places = ", ".join(sorted(place.checkpoint for place in found))
        raise ConfigError(
            "several jobs have this name", field="name", value=name, hint=f"name the checkpoint: {places}"
        )
    return found[0] if found else None


def _all() -> Iterator[Place]:
    return (place for _, place in _all_files())


def _all_files() -> Iterator[tuple[Path, Place]]:
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be read
        for file in sorted(_folder().glob("*.json")):
            if (place := _read(file)) is not None:
                yield file, place


def _read(file: Path) -> Place | None:
    try:
        return Place(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _folder() -> Path:
    if given := os.environ.get(_STATE_VARIABLE):
        return Path(given) / "jobs"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "wheel_udf" / "jobs"


def _file_of(name: str, checkpoint: str) -> Path:
    digest = hashlib.sha256(checkpoint.encode()).hexdigest()[:_DIGITS]
    return _folder() / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:80]}-{digest}.json"


def _write_private(file: Path, content: bytes) -> None:
    """Replaces a file that nobody else can read, not even while it is written."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    draft.replace(file)
