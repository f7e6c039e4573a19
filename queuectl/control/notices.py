"""What people read in status: why a gang waits, and what a queue holds. Written late, seldom, and never in anyone's way."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from queuectl.contract import foreign, patches
from queuectl.control.source import Source
from queuectl.control.steps import Step, Write, on_group
from queuectl.engine.view import QueueView
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts, show

BUDGET = 10.0  # blocker writes a second over all gangs, with as many saved up: far below what an API server notices


class Blockers:
    """Dominant reasons that are still to be written, each gang's at most every ``interval`` seconds.

    One is wanted until the mirror shows it: a write that was refused, lost or never sent is made again. Each operation is
    O(log gangs that have something to be said).
    """

    def __init__(self, view: Source, interval: float) -> None:
        self._view, self._interval = view, interval
        self._wanted: dict[str, tuple[Misfit, ...]] = {}
        self._written: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []  # heap of (monotonic seconds, gang); stale entries are skipped
        self._tokens, self._at = BUDGET, 0.0

    def refuse(self, gang: str, misfits: Sequence[Misfit]) -> None:
        """These reasons are true of the gang now; none: what was said before is to be taken back."""
        if gang not in self._wanted:
            heapq.heappush(self._due, (self._written.get(gang, float("-inf")) + self._interval, gang))
        self._wanted[gang] = tuple(misfits)

    def forget(self, gang: str) -> None:
        """The gang was admitted (its record clears the reason) or is gone."""
        self._wanted.pop(gang, None)
        self._written.pop(gang, None)

    def next_writes(self, fence: int, now: float) -> Iterator[Write]:
        """Those that are due (``now``: monotonic seconds), as far as the budget goes; a gang's first is due at once."""
        self._tokens = min(BUDGET, self._tokens + (now - self._at) * BUDGET)
        self._at = now
        while self._due and self._due[0][0] <= now and self._tokens >= 1:
            gang = heapq.heappop(self._due)[1]
            group = self._view.groups.get(gang)
            if gang not in self._wanted or group is None:
                self._wanted.pop(gang, None)
                continue
            body = patches.blocker(group, self._wanted[gang], fence)
            if (group.status or {}).get("blocker") == body["status"]["blocker"]:
                del self._wanted[gang]
                continue
            self._tokens -= 1
            self._written[gang] = now
            heapq.heappush(self._due, (now + self._interval, gang))
            yield on_group(Step.BLOCKER, group, body)

    def next_due(self, now: float) -> float | None:
        """When (monotonic seconds) ``next_writes`` has something again."""
        return max(self._due[0][0], now + 1 / BUDGET) if self._due else None


class QueueStatuses:
    """Queue statuses, each written on change only and at most every ``interval`` seconds, until the mirror shows it."""

    def __init__(self, view: Source, interval: float) -> None:
        self._view, self._interval = view, interval
        self._last: dict[str, tuple[float, dict[str, Any], Misfit | None]] = {}
        self._changed: set[str] = set()

    def show(self, queue: QueueView) -> None:
        """What the queue holds now."""
        name, fields, problem = queue.name, _fields(queue), queue.misfits[0] if queue.misfits else None
        at, before, why = self._last.get(name, (float("-inf"), {}, None))
        if (fields, problem) != (before, why) or at == float("-inf"):
            self._last[name] = (at, fields, problem)
            self._changed.add(name)

    def next_writes(self, fence: int, now: float, wall: int) -> Iterator[Write]:
        """Those that changed and are due (``now``: monotonic seconds; ``wall``: milliseconds)."""
        for name in sorted(self._changed):
            at, fields, problem = self._last[name]
            if now - at < self._interval:
                continue
            queue = self._view.queues.get(name)
            if queue is None:
                self._changed.discard(name)
                del self._last[name]
                continue
            body = patches.queue_status(queue, fields, problem, fence, wall)
            if _same(queue.status, body["status"]):
                self._changed.discard(name)
            else:
                self._last[name] = (now, fields, problem)
                yield Write(Step.QUEUE, foreign.QUEUES, "", name, body, gang="", subresource="status")

    def next_due(self, now: float) -> float | None:
        """When (monotonic seconds) ``next_writes`` has something again."""
        return min((max(self._last[name][0] + self._interval, now) for name in self._changed), default=None)


def _same(before: dict[str, Any] | None, after: dict[str, Any]) -> bool:
    """Whether a write would change nothing but the fence."""
    return before is not None and all(before.get(key) == value for key, value in after.items() if key != "fence")


def _fields(queue: QueueView) -> dict[str, Any]:
    """A queue's status, but for its conditions."""
    return {
        "allocated": _listed(queue.usage),
        "pending": _listed(queue.pending),
        "counts": {
            "pending": queue.gangs_pending,
            "admitted": queue.gangs_admitted,
            "running": queue.gangs_running,
        },
    }


def _listed(vector: Amounts) -> list[dict[str, str]]:
    return [{"name": name, "pool": "*", "amount": show(name, amount)} for name, amount in vector if name != "pods"]
