"""The queue tree as it acts: paths, effective quotas, limits and usage of every node, and what is wrong with it.

Usage is kept by queue *name* where the gang is charged (``own``), and summed along the path; so a charge may come before
its queue, and a gang stays charged when its queue is deleted or given children.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.model.queues import ALL_POOLS, Queue, QueueState
from queuectl.model.reasons import Misfit, QueueEvidence, Reason
from queuectl.model.resources import CPU, MEMORY, Amounts

MAX_DEPTH = 16  # deeper trees are taken for a mistake; every admission pays for each level
MISSING_PARENT = "its parent does not exist"
CYCLE = "its parents form a cycle"
TOO_DEEP = "more than 16 levels deep"
DELETING = "it is being deleted"
INVALID = "the object cannot be used"


def counted(resource: str) -> bool:
    """Whether a resource plays a part in shares: cpu, memory and extended resources (shares.md, Definitions)."""
    return resource in (CPU, MEMORY) or ("/" in resource and not resource.startswith("hugepages-"))


class Branch:
    """One queue in the tree, with the usage of all below it. ``path`` goes from this queue up to its root child."""

    __slots__ = ("children", "eased", "limits", "misfits", "path", "queue", "quota", "usage")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.children: list[Branch] = []
        self.path: tuple[Branch, ...] = (self,)
        self.usage: dict[str, int] = {}
        self.quota: dict[str, int] = {}  # by counted resource of the cluster; listed or derived
        self.limits: tuple[tuple[str, int], ...] = ()
        self.misfits: tuple[Misfit, ...] = ()  # why it admits nothing, from its whole path
        self.eased = 0  # grows whenever its usage falls

    @property
    def leaf(self) -> bool:
        """Only leaves hold gangs."""
        return not self.children


class Branches:
    """All queues. Charges are O(depth × resources); an edit of the tree rebuilds it, O(queues × (depth + resources))."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.own: dict[str, dict[str, int]] = {}
        self.branches: dict[str, Branch] = {}
        self.roots: list[Branch] = []
        self.edition = 0
        self.eased = 0
        self.shifted: set[str] = set()  # queues charged since the order of turns last looked
        self._stale = True

    def see(self, queue: Queue) -> None:
        """Take in a queue."""
        if self.queues.get(queue.name) != queue:
            self.queues[queue.name] = queue
            self._stale = True

    def lose(self, name: str) -> None:
        """A queue is gone."""
        if self.queues.pop(name, None) is not None:
            self._stale = True

    def charge(self, name: str, requests: Amounts, count: int) -> None:
        """Charge ``count`` times ``requests`` to a queue and all above it (negative: give back)."""
        own = self.own.setdefault(name, {})
        _add(own, requests, count)
        if not own:
            del self.own[name]
        self.shifted.add(name)
        branch = self.branches.get(name)
        if branch is not None:
            for node in branch.path:
                _add(node.usage, requests, count)
                if count < 0:
                    self.eased += 1
                    node.eased = self.eased

    def refresh(self, capacity: dict[str, int], *, resized: bool) -> bool:
        """Rebuild the tree if it was edited or the capacity changed (``resized``); true when it was edited."""
        edited, self._stale = self._stale, False
        if not (edited or resized):
            return False
        self.edition += 1
        self.eased += 1
        self.branches = {name: Branch(self.queues[name]) for name in sorted(self.queues)}
        self.roots = []
        for branch in self.branches.values():
            self._link(branch)
            branch.limits = tuple(
                (entry.resource, entry.limit)
                for entry in branch.queue.entries
                if entry.limit is not None and entry.pool == ALL_POOLS
            )
            branch.quota = _quota(branch.queue, capacity)
            branch.eased = self.eased
        for branch in self.branches.values():
            branch.misfits = self._path_misfits(branch)
            for node in branch.path:
                _add(node.usage, self.own.get(branch.queue.name, {}).items(), 1)
        return edited

    def misfits(self, name: str) -> tuple[Misfit, ...]:
        """Why a gang of queue ``name`` cannot be admitted for reasons of the queue tree alone."""
        branch = self.branches.get(name)
        if branch is None:
            return (Misfit(Reason.QUEUE_MISSING, QueueEvidence(name)),)
        inner = () if branch.leaf else (Misfit(Reason.QUEUE_NOT_LEAF, QueueEvidence(name)),)
        return inner + branch.misfits

    def over_limit(self, branch: Branch, need: Amounts) -> tuple[Misfit, ...]:
        """Every limit on the path that ``need`` more would break, leaf first. O(depth × limits)."""
        wanted = dict(need)
        return tuple(
            Misfit(Reason.OVER_LIMIT, QueueEvidence(node.queue.name, resource, amount, limit - usage, limit, usage))
            for node in branch.path
            for resource, limit in node.limits
            if (amount := wanted.get(resource, 0)) and (usage := node.usage.get(resource, 0)) + amount > limit
        )

    def _link(self, branch: Branch) -> None:
        """Walk up from ``branch``; a broken way up leaves it a path of its own that ends where the tree does."""
        path, seen, node = [branch], {branch.queue.name}, branch
        while node.queue.parent is not None:
            above = self.branches.get(node.queue.parent)
            if above is None or above.queue.name in seen:
                break
            seen.add(above.queue.name)
            path.append(above)
            node = above
        branch.path = tuple(path)
        parent = None if branch.queue.parent is None else self.branches.get(branch.queue.parent)
        if parent is not None:
            parent.children.append(branch)
        elif branch.queue.parent is None:
            self.roots.append(branch)

    def _path_misfits(self, branch: Branch) -> tuple[Misfit, ...]:
        found: list[Misfit] = []

        def inactive(node: Branch, detail: str) -> None:
            found.append(Misfit(Reason.QUEUE_INACTIVE, QueueEvidence(node.queue.name, detail=detail)))

        for node in branch.path:
            if node.queue.blocked:
                inactive(node, INVALID)
                found.extend(node.queue.blocked)
            if node.queue.deleting:
                inactive(node, DELETING)
            if node.queue.state is QueueState.HELD:
                found.append(Misfit(Reason.QUEUE_HELD, QueueEvidence(node.queue.name)))
        top = branch.path[-1]
        if top.queue.parent is not None:
            inactive(top, CYCLE if top.queue.parent in self.branches else MISSING_PARENT)
        if len(branch.path) > MAX_DEPTH:
            inactive(branch, TOO_DEEP)
        return tuple(found)


def _quota(queue: Queue, capacity: dict[str, int]) -> dict[str, int]:
    """Quota of every counted resource: as listed, else capacity × the largest listed fraction, 0 without any entry."""
    listed = {
        entry.resource: entry.quota
        for entry in queue.entries
        if entry.quota is not None and entry.pool == ALL_POOLS and counted(entry.resource)
    }
    resources = {resource for resource in capacity if counted(resource)} | set(listed)
    top, bottom = 0, 1  # the largest listed fraction, compared by cross-multiplication
    for resource, quota in listed.items():
        if (have := capacity.get(resource, 0)) and quota * bottom > top * have:
            top, bottom = quota, have
    return {
        resource: listed.get(resource, capacity.get(resource, 0) * top // bottom if listed else 0)
        for resource in sorted(resources)
    }


def _add(totals: dict[str, int], requests: Iterable[tuple[str, int]], count: int) -> None:
    for resource, amount in requests:
        total = totals.get(resource, 0) + amount * count
        if total:
            totals[resource] = total
        elif resource in totals:
            del totals[resource]
