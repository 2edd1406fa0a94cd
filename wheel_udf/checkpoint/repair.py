"""Repairs a checkpoint: decides what can be proved harmless, and does it. See :func:`decide_repair`.

A checkpoint goes on from the newest batch whose files are all sound (:mod:`wheel_udf.checkpoint.inspection`). What was
recorded after that batch is taken out, so these batches are planned again::

    commit 7 is gone or damaged               batch 7 is repeated, with the rows of its plan: tables skip rows they have
    state 8 is damaged, made by batch 7       likewise; commit 7 and the plan of batch 8, if there is one, are taken out
    plan 8 is damaged, batch 8 uncommitted    batch 8 is planned anew

Proof
    * A batch that is repeated has the rows that it had: its plan names them. A table skips what it holds of it, a
      topic gets the same ``fire_id`` again, which is what "at least once" allows in any case.
    * A batch that is planned anew may have other rows. So nothing may hold rows of the earlier plan, which a table
      shows by its transactions. A topic or a folder of files does not show it; but a batch writes to its sinks only
      after all partitions have stored its state.
    * No table may hold a batch beyond the ones that are kept: it would skip the rows of a new batch of that number.

What is taken out is copied first, to a folder beside the checkpoint. The files are removed by falling batch: a repair
that is killed leaves a checkpoint that is refused, or damaged as before, and the next repair goes on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wheel_udf.checkpoint.checksums import companions
from wheel_udf.checkpoint.inspection import Inspection, Resume
from wheel_udf.checkpoint.move_marks import IMPORTED
from wheel_udf.checkpoint.returned_files import returned_after
from wheel_udf.checkpoint.spark_logs import RESTORE
from wheel_udf.checkpoint.state_files import Finding
from wheel_udf.spark.files import open_folder
from wheel_udf.spark.folder import Folder


@dataclass(frozen=True)
class Evidence:
    """The evidence outside the checkpoint.

    Attributes:
        held: Place of each table to the newest batch that it holds.
        blind: Destinations that do not show which batches they have: topics, files.
        repeat_risk: Why a repeated batch may read fewer rows than at first, as a clause; None if it cannot.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    blind: Sequence[str] = ()
    repeat_risk: str | None = None


@dataclass(frozen=True)
class Decision:
    """The faults of a checkpoint and their remedy.

    Attributes:
        resume: How it goes on; None if it cannot, or has no batch yet.
        harmless: What is damaged and not needed.
        damage: What is damaged and needed.
        steps: What the repair does, as sentences without a full stop.
        remove: The files that it takes out, in this order.
        new_id: Whether it writes a new ``metadata``.
        refusals: Why there is no repair, each with what to do.
    """

    resume: Resume | None
    harmless: tuple[Finding, ...] = ()
    damage: tuple[Finding, ...] = ()
    steps: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    new_id: bool = False
    refusals: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.damage or self.refusals or self.remove or self.new_id)


def decide_repair(found: Inspection, evidence: Evidence) -> Decision:
    """Decides how a checkpoint goes on, and what has to be taken out for that.

    Args:
        found: The checkpoint.
        evidence: What is known outside of it.
    """
    resume = next((each for each in found.resumes() if not any(found.obstacles(each))), None)
    if found.newest is None:
        return Decision(None)
    removed = tuple(_removed(found, resume)) if resume is not None else ()
    needed = _needed(found, resume)
    other = tuple(each for each in found.damage if each not in needed)
    refusals = [_irreplaceable(each) for each in found.irreplaceable]
    if resume is None:
        refusals.append(f"no batch is left from which the checkpoint can go on; {RESTORE}")
    else:
        refusals += _refusals(found, resume, evidence, removed)
    metadata = () if found.metadata is None else (found.metadata,)
    return Decision(
        resume,
        harmless=other,
        damage=(*metadata, *found.irreplaceable, *needed),
        steps=() if refusals or resume is None else tuple(_steps(found, resume, evidence, removed)),
        remove=() if refusals else removed,
        new_id=bool(metadata) and not refusals,
        refusals=tuple(refusals),
    )


def _needed(found: Inspection, resume: Resume | None) -> tuple[Finding, ...]:
    """The reasons why no smaller part can be taken out."""
    lacking: list[Finding] = []
    for each in found.resumes():
        if each == resume:
            break
        lacking += found.obstacles(each)
    # A newest batch without a commit is a planned one.
    ordinary = {f"commits/{found.newest}"} if found.newest not in found.commits else set()
    return tuple(dict.fromkeys(each for each in lacking if each.name not in ordinary))


def _removed(found: Inspection, resume: Resume) -> Iterator[str]:
    """The files of batches that are taken out, newest first; then the state that they have made."""
    first_plan = resume.batch + 1 if resume.repeats else resume.batch
    batches = sorted({*found.plans, *found.commits}, reverse=True)
    names = [
        name
        for batch in batches
        for log, entries, first in (
            ("offsets", found.plans, first_plan),
            ("commits", found.commits, resume.batch),
        )
        if batch in entries and batch >= first
        for name in _with_checksums(found.files, f"{log}/{batch}")
    ]
    yield from names
    if names or not resume.repeats:
        for listed in found.state.partitions.values():
            for each in listed:
                if each.version > resume.batch:
                    yield from _with_checksums(found.files, each.name)
        yield from found.chunks.notes_from(resume.batch)
        # A batch that is planned anew has other rows that come back.
        yield from returned_after(found.files, resume.batch)


def _with_checksums(files: Folder, name: str) -> list[str]:
    return [name, *companions(files, name)]


def _irreplaceable(finding: Finding) -> str:
    if finding.name == "wheel-settings.json":
        more = "if no setting was changed before the last start, delete it"
    else:
        more = "nothing in the checkpoint replaces it"
    return f"{finding.name}: {finding.what}; restore the file from a copy; {more}"


def _refusals(found: Inspection, resume: Resume, evidence: Evidence, removed: Sequence[str]) -> Iterator[str]:
    """Why it cannot be proved that a way to go on is harmless."""
    newest_kept = resume.batch if resume.repeats else resume.batch - 1
    for place, batch in evidence.held.items():
        if batch > newest_kept:
            yield (
                f"{place} holds batch {batch}, and the checkpoint can only go on after batch {newest_kept}: "
                "a new batch of that number would be taken for written, and its rows would be lost; "
                f"restore the checkpoint from a copy that has batch {batch}"
            )
    if not removed:
        return
    assert found.newest is not None, "something was planned"
    lost = range(newest_kept + 1, found.newest + 1)
    forgotten = [batch for batch in lost if found.state.is_computed(batch)]
    if evidence.blind and forgotten:
        yield (
            f"batch {forgotten[0]} would be planned anew, and it cannot be known whether "
            f"{', '.join(evidence.blind)} has rows of it; "
            f"restore the checkpoint from a copy that has batch {forgotten[0]}"
        )
    if resume.repeats and found.commits.get(resume.batch, "") is None:
        yield from _repeat_refusals(found, resume.batch, evidence)


def _repeat_refusals(found: Inspection, batch: int, evidence: Evidence) -> Iterator[str]:
    """Why a committed batch may not be repeated."""
    if batch == 0 and found.files.read(IMPORTED) is not None:
        yield "batch 0 was made by an import; delete the checkpoint (and the store), and import again"
    if evidence.repeat_risk is not None:
        yield f"batch {batch} would be repeated, and {evidence.repeat_risk}; restore the checkpoint from a copy"
    if not found.knows_settings_of(batch):
        yield (
            f"batch {batch} would be repeated, and its settings are not on record any more; "
            "restore the checkpoint from a copy"
        )


def _steps(found: Inspection, resume: Resume, evidence: Evidence, removed: Sequence[str]) -> Iterator[str]:
    if found.metadata is not None:
        yield "the query gets a new id: nothing that is kept depends on the old one"
    if not removed:
        return
    if resume.repeats:
        again = "; topics get its rows a second time, with the same fire_id" if evidence.blind else ""
        yield f"batch {resume.batch} is repeated with the rows of its plan: tables skip what they have of it{again}"
    assert found.newest is not None, "something was planned"
    anew = range(resume.batch + resume.repeats, found.newest + 1)
    if anew:
        which = f"batch {anew[0]} is" if len(anew) == 1 else f"batches {anew[0]} to {anew[-1]} are"
        yield f"{which} planned anew: nothing was delivered of {'it' if len(anew) == 1 else 'them'}"


def apply_repair(
    path: str, decision: Decision, aside: str, require_lease: Callable[[], None] = lambda: None
) -> int:
    """Executes a decision. The caller holds the lease.

    Args:
        path: The checkpoint folder.
        decision: Without refusals.
        aside: A new folder on the same file system; gets a copy of everything that is taken out or replaced.
        require_lease: Raises a LeaseError if the lease is lost; called before each change.

    Returns:
        How many files were copied.
    """
    folder, copies = open_folder(path), open_folder(aside)
    replaced = ["metadata", ".metadata.crc"] if decision.new_id else []
    names = []
    for name in (*decision.remove, *replaced):
        content = folder.read(name)
        if content is not None:
            copies.create(name, content)
            names.append(name)
    for name in names:
        require_lease()
        folder.remove(name)
    if decision.new_id:
        require_lease()
        folder.replace("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    return len(names)
