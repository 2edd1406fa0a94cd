"""One id: which of its versions must be out, may be out, and must not be out.

A version is *beaten* by a higher one that was read before it fired and not forgotten when it was read itself::

    beaten for certain           read_by of the higher version < fired_at,  and forgotten is impossible
    forgotten is possible        the higher version was read first, and the lower one memory_ms after its end or later
    must be out                  no higher version can have beaten it
    undecided                    neither

All bounds are taken the way that favours the run: the earliest possible end of what is remembered, the latest possible
reading.
"""

from __future__ import annotations

from collections.abc import Sequence

from wheel_udf.testing.ledger.rows import ANY_TIME, GOOD, NEVER, OPEN, Command, Version
from wheel_udf.testing.ledger.rules import Rules


class Lives:
    """The commands of one id, all of known versions.

    Args:
        commands: Those that are not refused.
        rules: Of the check.

    Attributes:
        has_versions: Whether there is more than one version.
    """

    def __init__(self, commands: Sequence[Command], rules: Rules) -> None:
        self._commands = [each for each in commands if each.state in (GOOD, OPEN)]
        self._rules = rules
        self.has_versions = len({each.version for each in self._commands}) > 1
        self._released: list[tuple[Version, int]] = []
        self._ends: dict[Version, float] = {}

    def note(self, version: Version, at_ms: int) -> None:
        """Notes that a version was released: so it had been read, and its end is known."""
        self._released.append((version, at_ms))

    def copies(self, version: Version) -> list[Command]:
        """The commands of one version."""
        return [each for each in self._commands if each.version == version]

    def beaten_by(self, copies: Sequence[Command], at_ms: float, read_by_ms: float | None = None) -> str:
        """The version that has certainly beaten all of these copies, in words; empty if there is none.

        Args:
            copies: Those that a row can come from; of several versions (an act may change nothing that shows) the
                highest counts.
            at_ms: When it was released, or could be at the earliest.
            read_by_ms: When it was read at the latest; the default is `at_ms`.
        """
        read_by_ms = at_ms if read_by_ms is None else read_by_ms
        version = _highest(copies)
        for other in self._higher(version):
            if (
                self._is_before(other.read_by_ms, at_ms)
                and other.state == GOOD
                and not self._may_be_retry(other)
            ):
                end = self._earliest_end(other)
                if not any(self._may_forget(end, other.order, copy, read_by_ms) for copy in copies):
                    return f"{'CANCEL' if other.is_cancel else 'SCHEDULE'} {other.seq}"
        for other_version, ended_ms in self._released:
            is_higher = other_version > (version or other_version)
            if (
                is_higher
                and self._is_before(ended_ms, at_ms)
                and not any(self._may_forget(ended_ms, None, copy, read_by_ms) for copy in copies)
            ):
                return f"SCHEDULE {other_version.seq}"
        return ""

    def has_acts_on(self, version: Version) -> bool:
        """Whether there are higher versions of the same seq: a late one is shown as pending until its due time."""
        return any(
            other.version is not None and other.version.seq == version.seq for other in self._higher(version)
        )

    def may_be_late_act(self, version: Version) -> bool:
        """Whether an act's version may have come after the release of its target: then it changes nothing."""
        read_by_ms = min(copy.read_by_ms for copy in self.copies(version))
        return bool(version.amend) and any(
            lower.seq == version.seq and lower < version and not self._is_before(read_by_ms, at_ms)
            for lower, at_ms in self._released
        )

    def must_be_out(self, version: Version) -> bool:
        """Whether a version has to be released once it is due: no higher one can have beaten it."""
        return any(
            copy.state == GOOD and all(self._is_harmless(other, copy) for other in self._higher(version))
            for copy in self.copies(version)
        )

    def must_be_out_at(self, copies: Sequence[Command], due_ms: float) -> bool:
        """Whether an occurrence of a series has to be released: no higher version can have beaten it by then."""
        higher = self._higher(_highest(copies))
        return any(
            copy.state == GOOD and all(self._is_harmless(other, copy, due_ms) for other in higher)
            for copy in copies
        )

    def must_not_be_out(self, version: Version) -> bool:
        """Whether a version cannot be released at any time."""
        copies = self.copies(version)
        earliest = min(
            max(copy.read_from_ms, NEVER if copy.soonest_ms is None else copy.soonest_ms) for copy in copies
        )
        return bool(self.beaten_by(copies, earliest, ANY_TIME))

    def is_open(self, copies: Sequence[Command], at_ms: int) -> bool:
        """Whether a row that was released, rightly as far as is known, could also have been ended before."""
        version = _highest(copies)
        return any(
            other.read_from_ms <= at_ms and not all(self._is_harmless(other, copy) for copy in copies)
            for other in self._higher(version)
        )

    def may_start_again(self, copies: Sequence[Command], before_ms: int, at_ms: int) -> bool:
        """Whether a copy can have been read after an end of the same version was forgotten."""
        return any(self._may_forget(before_ms, None, copy, at_ms) for copy in copies)

    def _higher(self, version: Version | None) -> list[Command]:
        return [
            each for each in self._commands if version is not None and (each.version or version) > version
        ]

    def _is_before(self, read_by_ms: float, at_ms: float) -> bool:
        return read_by_ms < at_ms or (self._rules.clock_rises and read_by_ms == at_ms)

    def _may_forget(self, end_ms: float, order: int | None, copy: Command, read_by_ms: float) -> bool:
        """Whether an end may have been forgotten when a copy was read."""
        memory_ms = self._rules.memory_ms
        if memory_ms is None or (order is not None and copy.order is not None and order >= copy.order):
            return False
        return min(copy.read_by_ms, read_by_ms) - end_ms >= memory_ms

    def _earliest_end(self, command: Command) -> float:
        """The earliest instant at which the memory of this version, or of a higher one in its place, can have ended."""
        assert command.version is not None, "all versions are known"
        if command.version not in self._ends:
            others = [each for each in self._commands if (each.version or command.version) >= command.version]
            self._ends[command.version] = min(
                each.read_from_ms if each.is_cancel else max(each.soonest_ms or NEVER, each.read_from_ms)
                for each in others
            )
        return self._ends[command.version]

    def _latest_end(self, command: Command) -> float:
        within = self._rules.fires_within_ms
        if command.is_cancel:
            return command.read_by_ms
        if within is None or command.latest_ms is None:
            return ANY_TIME
        return max(command.latest_ms, command.read_by_ms) + within

    def _is_harmless(self, other: Command, copy: Command, due_ms: float | None = None) -> bool:
        """Whether a higher version was certainly read after the copy fired, or was forgotten by the copy's reading.

        `due_ms`: of a series, when the occurrence in question was due.
        """
        within, memory_ms = self._rules.fires_within_ms, self._rules.memory_ms
        due_ms = copy.latest_ms if due_ms is None else due_ms
        if within is not None and due_ms is not None:
            latest_ms = max(due_ms, copy.read_by_ms) + within
            if other.read_from_ms > latest_ms:
                return True
        # Commands of one batch see each other, however short the memory is.
        return memory_ms is not None and copy.read_from_ms >= self._latest_end(other) + max(memory_ms, 1)

    def may_be_retry(self, copies: Sequence[Command]) -> bool:
        """Whether one of them may have been dropped as a producer's retry."""
        return any(self._may_be_retry(each) for each in copies)

    def is_retry(self, copies: Sequence[Command]) -> bool:
        """Whether these must be dropped as a producer's retry: no ``seq``, and one due time for all versions."""
        dues = {each.due_ms for each in self._commands if not each.is_cancel}
        return len(dues) == 1 and None not in dues and not any(each.seq_given for each in copies)

    def _may_be_retry(self, command: Command) -> bool:
        """Whether it may have been dropped as a producer's retry: no ``seq``, and the due time of another version."""
        return not command.seq_given and any(
            each.due_ms == command.due_ms and each.version != command.version
            for each in self._commands
            if not each.is_cancel and not command.is_cancel
        )


def _highest(copies: Sequence[Command]) -> Version | None:
    return max((copy.version for copy in copies if copy.version is not None), default=None)
