"""The queue tree as it acts: paths, effective quotas, limits and usage of every node, and what is wrong with it.

Usage is kept by queue *name* where the gang is charged (``own``), and summed along the path; so a charge may come before
its queue, and a gang stays charged when its queue is deleted or given children. Usage in pools is kept beside it in the same
way: what is charged to a node of a pool, so that the sum over pools means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from queuectl.engine.pools import Pools
from queuectl.model.pools import ALL_POOLS, DEFAULT_POOL, counted
from queuectl.model.queues import Entry, Queue, QueueState
from queuectl.model.reasons import Misfit, QueueEvidence, Reason
from queuectl.model.resources import Amounts

MAX_DEPTH = 16  # deeper trees are taken for a mistake; every admission pays for each level
MISSING_PARENT = "its parent does not exist"
CYCLE = "its parents form a cycle"
TOO_DEEP = "more than 16 levels deep"
DELETING = "it is being deleted"
INVALID = "the object cannot be used"

Totals = dict[str, int]


class Branch:
    """One queue in the tree, with the usage of all below it. ``path`` goes from this queue up to its root child."""

    __slots__ = (
        "children", "eased", "limits", "limits_in", "misfits", "path", "queue", "quota", "quota_in", "usage", "usage_in",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.children: list[Branch] = []
        self.path: tuple[Branch, ...] = (self,)
        self.usage: Totals = {}
        self.usage_in: dict[str, Totals] = {}  # by pool
        self.quota: Totals = {}  # by counted resource of the cluster; listed or derived
        self.quota_in: dict[
            str, Totals
        ] = {}  # the same by pool, of those in which it lists a quota; with "*" if that too
        self.limits: tuple[tuple[str, int], ...] = ()
        self.limits_in: tuple[tuple[str, str, int], ...] = ()  # (pool, resource, limit)
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
        self.own: dict[str, Totals] = {}
        self.own_in: dict[str, dict[str, Totals]] = {}  # queue -> pool -> charged there
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

    def charge_in(self, name: str, pools: tuple[str, ...], requests: Amounts, count: int) -> None:
        """The part of a ``charge`` that is on nodes of these pools counts in each of them, too."""
        branch = self.branches.get(name)
        usages = [self.own_in.setdefault(name, {}), *(node.usage_in for node in (branch.path if branch else ()))]
        for usage in usages:
            _add_in(usage, pools, requests, count)
        if not self.own_in[name]:
            del self.own_in[name]

    def refresh(self, capacity: Totals, pools: Pools, *, resized: bool) -> bool:
        """Rebuild the tree if it was edited or capacity or pools changed (``resized``); true when it was edited."""
        edited, self._stale = self._stale, False
        if not (edited or resized):
            return False
        self.edition += 1
        self.eased += 1
        self.branches = {name: Branch(self.queues[name]) for name in sorted(self.queues)}
        self.roots = []
        for branch in self.branches.values():
            self._link(branch)
            self._entitle(branch, capacity, pools)
            branch.eased = self.eased
        for branch in self.branches.values():
            branch.misfits = self._path_misfits(branch, pools)
            name = branch.queue.name
            for node in branch.path:
                _add(node.usage, self.own.get(name, {}).items(), 1)
                for pool, own in self.own_in.get(name, {}).items():
                    _add_in(node.usage_in, (pool,), own.items(), 1)
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

    def over_limit_in(self, branch: Branch, adds: Mapping[str, Amounts]) -> tuple[Misfit, ...]:
        """The same of limits in pools, where so much is added to each."""
        wanted = {pool: dict(added) for pool, added in adds.items()}
        return tuple(
            Misfit(
                Reason.OVER_LIMIT,
                QueueEvidence(node.queue.name, resource, amount, limit - usage, limit, usage, pool=pool),
            )
            for node in branch.path
            for pool, resource, limit in node.limits_in
            if pool in wanted
            and (amount := wanted[pool].get(resource, 0))
            and (usage := node.usage_in.get(pool, {}).get(resource, 0)) + amount > limit
        )

    def _entitle(self, branch: Branch, capacity: Totals, pools: Pools) -> None:
        entries = tuple(_entries(branch.queue, pools))
        branch.limits = tuple((e.resource, e.limit) for e in entries if e.limit is not None and e.pool == ALL_POOLS)
        branch.limits_in = tuple(
            (e.pool, e.resource, e.limit) for e in entries if e.limit is not None and e.pool in pools.pools
        )
        branch.quota = _quota(entries, ALL_POOLS, capacity, counted)
        listed = {e.pool for e in entries if e.quota is not None}
        if listed - {ALL_POOLS}:
            branch.quota_in = {
                name: _quota(entries, name, pools.capacity[name], pools.pools[name].counts)
                for name in sorted(listed & pools.pools.keys())
            }
            if ALL_POOLS in listed:
                branch.quota_in[ALL_POOLS] = branch.quota

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

    def _path_misfits(self, branch: Branch, pools: Pools) -> tuple[Misfit, ...]:
        found: list[Misfit] = []

        def inactive(node: Branch, detail: str, pool: str = ALL_POOLS) -> None:
            found.append(Misfit(Reason.QUEUE_INACTIVE, QueueEvidence(node.queue.name, detail=detail, pool=pool)))

        for node in branch.path:
            if node.queue.blocked:
                inactive(node, INVALID)
                found.extend(node.queue.blocked)
            if node.queue.deleting:
                inactive(node, DELETING)
            # What a limit counts is not known, so nothing starts under it: half a limit would be none.
            for pool in sorted({entry.pool for entry in _entries(node.queue, pools)} - {ALL_POOLS, *pools.pools}):
                inactive(node, f"there is no Pool {pool}", pool)
            if node.queue.state is QueueState.HELD:
                found.append(Misfit(Reason.QUEUE_HELD, QueueEvidence(node.queue.name)))
        top = branch.path[-1]
        if top.queue.parent is not None:
            inactive(top, CYCLE if top.queue.parent in self.branches else MISSING_PARENT)
        if len(branch.path) > MAX_DEPTH:
            inactive(branch, TOO_DEEP)
        return tuple(found)


def _entries(queue: Queue, pools: Pools) -> Iterator[Entry]:
    """A queue's entries; those of the pool that there is while nobody has declared any count on all nodes."""
    for entry in queue.entries:
        implied = entry.pool == DEFAULT_POOL and not pools
        yield Entry(entry.resource, ALL_POOLS, entry.quota, entry.limit) if implied else entry


def _quota(entries: Iterable[Entry], pool: str, capacity: Totals, counts: Callable[[str], bool]) -> Totals:
    """Quota of every resource counted in a pool: as listed, else capacity × the largest listed fraction, 0 without any entry.

    Of two for one resource (in "*" and in the only pool there is) the smaller counts.
    """
    listed: Totals = {}
    for entry in entries:
        if entry.quota is not None and entry.pool == pool and counts(entry.resource):
            listed[entry.resource] = min(entry.quota, listed.get(entry.resource, entry.quota))
    resources = {resource for resource in capacity if counts(resource)} | set(listed)
    top, bottom = 0, 1  # the largest listed fraction, compared by cross-multiplication
    for resource, quota in listed.items():
        if (have := capacity.get(resource, 0)) and quota * bottom > top * have:
            top, bottom = quota, have
    return {
        resource: listed.get(resource, capacity.get(resource, 0) * top // bottom if listed else 0)
        for resource in sorted(resources)
    }


def _add(totals: Totals, requests: Iterable[tuple[str, int]], count: int) -> None:
    for resource, amount in requests:
        total = totals.get(resource, 0) + amount * count
        if total:
            totals[resource] = total
        elif resource in totals:
            del totals[resource]


def _add_in(totals: dict[str, Totals], pools: Iterable[str], requests: Iterable[tuple[str, int]], count: int) -> None:
    amounts = tuple(requests)
    for pool in pools:
        _add(one := totals.setdefault(pool, {}), amounts, count)
        if not one:
            del totals[pool]
