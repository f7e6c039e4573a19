"""Requests in flight: one per object at a time, and when an object may be written again after a failure.

It holds no capacity and no decision: what to write is always derived anew from the mirror.
"""

from __future__ import annotations

from msgspec import Struct

from queuectl.control.steps import Target

FIRST_RETRY = 0.2  # seconds; doubles with every failure in a row
LAST_RETRY = 30.0
FORGET = 300.0  # seconds after which failures no longer count as in a row: most of these objects are gone


class Failures(Struct):
    """Failures in a row of one object, and the monotonic time before which it is left alone."""

    count: int = 0
    until: float = 0.0


class Ledger:
    """Who is being written, and who must wait. All operations are O(1) but ``next_due``: O(objects that failed)."""

    def __init__(self) -> None:
        self._flying: set[Target] = set()
        self._failed: dict[Target, Failures] = {}

    def __len__(self) -> int:
        return len(self._flying)

    def free(self, target: Target, now: float) -> bool:
        """Whether the object may be written now (``now``: monotonic seconds)."""
        if target in self._flying:
            return False
        failures = self._failed.get(target)
        return failures is None or failures.until <= now

    def sent(self, target: Target) -> None:
        """A request is on its way."""
        self._flying.add(target)

    def answered(self, target: Target) -> None:
        """It was answered, whatever the answer: the object's failures are forgotten."""
        self._flying.discard(target)
        self._failed.pop(target, None)

    def failed(self, target: Target, now: float, retry_after: float = 0.0) -> None:
        """It failed in a way that may heal: wait ``retry_after`` seconds, or twice as long as the last time."""
        self._flying.discard(target)
        failures = self._failed.setdefault(target, Failures())
        failures.count += 1
        wait = min(FIRST_RETRY * 2 ** min(failures.count - 1, 16), LAST_RETRY)
        failures.until = now + max(wait, retry_after)

    def raced(self, target: Target, now: float) -> None:
        """A precondition did not hold: the first time in a row it may be tried at once, on what was read back."""
        self._flying.discard(target)
        if target in self._failed:
            self.failed(target, now)
        else:
            self._failed[target] = Failures(until=now)

    def dropped(self, target: Target) -> None:
        """It was not sent after all."""
        self._flying.discard(target)

    def next_due(self, now: float) -> float | None:
        """When (monotonic seconds) the next of those that must wait may be written again; those that already may do not count."""
        for target in [target for target, f in self._failed.items() if f.until < now - FORGET]:
            del self._failed[target]
        waiting = (f.until for target, f in self._failed.items() if f.until > now and target not in self._flying)
        return min(waiting, default=None)
