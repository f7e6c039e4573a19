"""What people read in status: why a gang waits, and what a queue holds. Written late, seldom, and never in anyone's way."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from queuectl.contract import foreign, patches, translate
from queuectl.control import muster
from queuectl.control.source import Source
from queuectl.control.steps import Step, Write, on_group, on_pod_status
from queuectl.engine.view import QueueView
from queuectl.model.gangs import Stage
from queuectl.model.plan import Admit, Plan, Refuse, Withdraw
from queuectl.model.pools import ALL_POOLS
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts, show

BUDGET = 10.0  # blocker writes a second over all gangs, with as many saved up: far below what an API server notices
STATUS_AMOUNTS = 64  # what the schema lets a list of amounts hold
RELEASED_WITHIN = 1.0  # seconds after which a pod that was admitted is looked at again: its release is under way


class Blockers:
    """Dominant reasons that are still to be written, each gang's at most every ``interval`` seconds.

    A gang's is in the status of its PodGroup; a group of one has none, and has it as a condition of its pod. One is wanted
    until the mirror shows it: a write that was refused, lost or never sent is made again. Each operation is O(log gangs that
    have something to be said).
    """

    def __init__(self, view: Source, interval: float) -> None:
        self._view, self._interval = view, interval
        self._wanted: dict[str, tuple[Misfit, ...]] = {}
        self._written: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []  # heap of (monotonic seconds, gang); stale entries are skipped
        self._tokens, self._at = BUDGET, 0.0
        self._recalled = False

    def refuse(self, gang: str, misfits: Sequence[Misfit]) -> None:
        """These reasons are true of the gang now; none: what was said before is to be taken back."""
        if gang not in self._wanted:
            heapq.heappush(self._due, (self._written.get(gang, float("-inf")) + self._interval, gang))
        self._wanted[gang] = tuple(misfits)

    def admit(self, gang: str) -> None:
        """The gang was admitted. Its record clears the reason; a pod's has still to be taken back, once it is released."""
        pod = self._view.pods.get(gang)
        said = pod is not None and (pod.waiting is not None or gang in self._written)
        self.forget(gang)
        if said:
            self.refuse(gang, ())

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._wanted.pop(gang, None)
        self._written.pop(gang, None)

    def recall(self, plan: Plan) -> None:
        """After the first decision, which has looked at every gang: what an earlier process said and this one does not is over.

        An admission that is still to be recorded takes the reason back itself, and while a gang is being given back, what
        keeps its pods is for the release machine to say. O(gangs + pods), once.
        """
        if self._recalled:
            return
        self._recalled = True
        told = {action.gang for action in plan.actions if isinstance(action, Refuse | Withdraw)}
        admitted = {action.gang for action in plan.actions if isinstance(action, Admit)}
        for uid, group in self._view.groups.items():
            status = group.status or {}
            recording = uid in admitted and not status.get("admission")
            if status.get("blocker") and not (uid in told or recording or translate.conditions(status).get("Evicted")):
                self.refuse(uid, ())
        for uid, pod in self._view.pods.items():
            if pod.waiting is not None and uid not in told:
                self.refuse(uid, ())

    def next_writes(self, fence: int, now: float, wall: int) -> Iterator[Write]:
        """Those that are due, as far as the budget goes; a gang's first is due at once.

        ``now`` is in monotonic seconds, ``wall`` in milliseconds.
        """
        self._tokens = min(BUDGET, self._tokens + (now - self._at) * BUDGET)
        self._at = now
        while self._due and self._due[0][0] <= now and self._tokens >= 1:
            gang = heapq.heappop(self._due)[1]
            if gang not in self._wanted:
                continue
            if self._early(gang):
                heapq.heappush(self._due, (now + RELEASED_WITHIN, gang))
                continue
            write = self._write(gang, fence, wall)
            if write is None:
                del self._wanted[gang]
                continue
            self._tokens -= 1
            self._written[gang] = now
            heapq.heappush(self._due, (now + self._interval, gang))
            yield write

    def next_due(self, now: float) -> float | None:
        """When (monotonic seconds) ``next_writes`` has something again."""
        return max(self._due[0][0], now + 1 / BUDGET) if self._due else None

    def _early(self, gang: str) -> bool:
        """Whether a pod was admitted and its release is still to come, which this would only hold up."""
        pod = self._view.pods.get(gang)
        return pod is not None and not self._wanted[gang] and muster.ready(pod)

    def _write(self, gang: str, fence: int, wall: int) -> Write | None:
        """What makes the cluster say what is wanted; None where it says so already, or nobody is there to say it of."""
        if (group := self._view.groups.get(gang)) is not None:
            body = patches.blocker(group, self._wanted[gang], fence)
            same = (group.status or {}).get("blocker") == body["status"]["blocker"]
            return None if same else on_group(Step.BLOCKER, group, body)
        pod = self._view.pods.get(gang)
        if pod is None or pod.member.leaving:
            return None
        # What was released says itself how far it has come.
        blocker = patches.worded(self._wanted[gang]) if pod.member.stage is Stage.GATED else None
        if blocker == pod.waiting:
            return None
        return on_pod_status(pod, patches.waiting(gang, pod.version, pod.waiting, blocker, wall))


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
    """A queue's status, but for its conditions: over all nodes, and in the pools in which it has quotas or limits."""
    listed = {entry.pool for entry in queue.entries}
    return {
        "allocated": [
            *_listed(queue.usage),
            *(one for pool, usage in queue.pools if pool in listed for one in _listed(usage, pool)),
        ][:STATUS_AMOUNTS],
        "pending": _listed(queue.pending),
        "counts": {
            "pending": queue.gangs_pending,
            "admitted": queue.gangs_admitted,
            "running": queue.gangs_running,
        },
    }


def _listed(vector: Amounts, pool: str = ALL_POOLS) -> list[dict[str, str]]:
    return [{"name": name, "pool": pool, "amount": show(name, amount)} for name, amount in vector if name != "pods"]
