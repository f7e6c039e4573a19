"""Whose turn it is: at every inner queue the child that is furthest below what it is due, counting what it asks for.

Version 0 of engine.md §3: the entitlement of a queue is its quota. Shares are compared as exact ratios by
cross-multiplication. A child's key holds while its own usage and head hold, so an admission re-keys one path only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from queuectl.engine.branches import Branch, Branches, Totals
from queuectl.engine.lines import Batch, Line, Offer
from queuectl.engine.pools import Pools
from queuectl.engine.request import Request, Way
from queuectl.model.pools import ALL_POOLS, OUTSIDE, counted
from queuectl.model.resources import Amounts


class Ratio:
    """An exact non-negative ratio; a zero denominator is infinity. Only ever compared."""

    __slots__ = ("bottom", "top")

    def __init__(self, top: int, bottom: int) -> None:
        self.top, self.bottom = top, bottom

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ratio) and self.top * other.bottom == other.top * self.bottom

    def __lt__(self, other: Ratio) -> bool:
        return self.top * other.bottom < other.top * self.bottom

    __hash__ = None  # type: ignore[assignment]  # equal ratios have many forms; nobody needs them in a set


ZERO = Ratio(0, 1)
Key = tuple[int, int, int, Ratio, int, str, int]
"""Class (0 within quota, 1 above), minus queue priority, 1 for weight 0, share, queue time, gang UID, slot."""


def within(branch: Branch, need: Amounts) -> bool:
    """Whether usage with ``need`` stays within the quota in every counted resource that is needed: class (a)."""
    usage, quotas = branch.usage, branch.quota
    for resource, amount in need:
        quota = quotas.get(resource)
        if quota is not None and usage.get(resource, 0) + amount > quota:
            return False
    return True


def key(branch: Branch, offer: Offer, need: Amounts, capacity: dict[str, int]) -> Key:
    """What a queue's siblings compare: shares.md and engine.md §3, with quota for E. O(resources)."""
    weightless = 0
    inside = within(branch, need)
    top, bottom = ZERO.top, ZERO.bottom  # the largest share so far, compared as ``Ratio`` does
    if inside:
        for resource, amount in need:
            if resource in branch.quota:
                used, quota = branch.usage.get(resource, 0) + amount, branch.quota[resource]
                if top * quota < used * bottom:
                    top, bottom = used, quota
    else:
        wanted = dict(need)
        # Weight 0 ranks last, and among its like by the unweighted share (engine.md §5: ∞ compared as a pair).
        weight = branch.queue.weight or 1
        weightless = int(branch.queue.weight == 0)
        for resource, quota in branch.quota.items():
            above = branch.usage.get(resource, 0) + wanted.get(resource, 0) - quota
            # A resource of capacity 0 is full from the start: infinitely large.
            whole = capacity.get(resource, 0) * weight
            if above > 0 and top * whole < above * bottom:
                top, bottom = above, whole
    share = Ratio(top, bottom)
    return (int(not inside), -branch.queue.priority, weightless, share, offer.queued_at, offer.gang, offer.slot)


def keeps_within(branch: Branch, way: Way, need: Amounts, capacity: Totals, pools: Pools) -> bool:
    """As ``within``, for a request that goes this way: in every pool that then holds it and in which the queue has quotas."""
    if not branch.quota_in:
        return within(branch, need)
    return _measured(branch, way, need, capacity, pools)[0]


def _measured(branch: Branch, way: Way, need: Amounts, capacity: Totals, pools: Pools) -> tuple[bool, Ratio]:
    """Whether a queue with quotas in pools stays within them if a request goes this way, and its largest share then.

    Within quota a share is what is used of the quota, else what is used above it, of the pool's capacity.
    """
    parts = list(_parts(branch, way, need, capacity, pools))
    inside = all(
        usage.get(resource, 0) + amount <= quota[resource]
        for usage, quota, added, _ in parts
        for resource, amount in added
        if resource in quota
    )
    share = ZERO
    for usage, quota, added, whole in parts:
        wanted = dict(added)
        for resource, entitled in quota.items():
            used = usage.get(resource, 0) + wanted.get(resource, 0)
            if inside and resource in wanted:
                share = max(share, Ratio(used, entitled))
            elif not inside and used > entitled:
                # A resource of capacity 0 is full from the start: infinitely large.
                share = max(share, Ratio(used - entitled, whole.get(resource, 0) * (branch.queue.weight or 1)))
    return inside, share


def _parts(
    branch: Branch, way: Way, need: Amounts, capacity: Totals, pools: Pools
) -> Iterator[tuple[Totals, Totals, Amounts, Totals]]:
    """(usage, quota, added, capacity) of each pool by which a queue is measured. Where it lists nothing its quota is 0."""
    for pool, quota in branch.quota_in.items():
        if pool == ALL_POOLS:
            yield branch.usage, quota, need, capacity
        elif pool in way.adds:
            yield branch.usage_in.get(pool, {}), quota, way.adds[pool], pools.capacity[pool]
    if ALL_POOLS in branch.quota_in:
        return
    for pool, around in zip(way.pools, way.around, strict=True):
        if branch.quota_in.keys().isdisjoint(around):
            whole, usage, added, counts = capacity, branch.usage, need, counted
            if pool != OUTSIDE:
                whole, usage = pools.capacity[pool], branch.usage_in.get(pool, {})
                added, counts = way.adds[pool], pools.pools[pool].counts
            yield usage, {name: 0 for name in {*whole, *dict(added)} if counts(name)}, added, whole


class Turns:
    """The heads of all leaves under the queue tree. ``head`` is O(1) after ``refresh``, which re-keys changed paths."""

    def __init__(self, branches: Branches, pools: Pools, ways: Callable[[Request], tuple[Way, ...]]) -> None:
        """``ways`` are asked only for queues that have quotas in pools."""
        self._branches, self._pools, self._ways = branches, pools, ways
        self.lines: dict[str, Line] = {}
        self._edition = -1
        self._order: dict[str, list[tuple[Key, str]]] = {}  # inner queue ("" the root) -> its children, sorted
        self._entry: dict[str, tuple[Key, Batch]] = {}  # queue -> its key and the batch that speaks for it
        self._stale: set[str] = set()
        self._busy: set[str] = set()  # leaves with an offer that was not refused

    def line(self, queue: str) -> Line:
        """A leaf's line, made on demand; call ``touch`` after changing it."""
        if queue not in self.lines:
            self.lines[queue] = Line()
        return self.lines[queue]

    def touch(self, queue: str) -> None:
        """The head of this leaf may have changed."""
        self._stale.add(queue)
        if self.lines[queue].idle:
            self._busy.discard(queue)
        else:
            self._busy.add(queue)

    def head(self, capacity: dict[str, int]) -> Batch | None:
        """The batch whose first offer is next, after catching up with usage and lines. O(changed paths × log children)."""
        branches = self._branches
        if not self._busy:  # the end of every decision: nobody has a key, and whoever comes gets a new one
            self._order.clear()
            self._entry.clear()
            self._stale.clear()
            branches.shifted.clear()
            return None
        if len(self._busy) == 1:  # nobody to compare with; what is stale stays so until there is
            (queue,) = self._busy
            only = branches.branches.get(queue)
            return self.lines[queue].head() if only is not None and only.leaf and not only.misfits else None
        if self._edition != branches.edition:
            self._edition = branches.edition
            self._order.clear()
            self._entry.clear()
            self._stale.update(self.lines)
        self._stale |= branches.shifted
        branches.shifted.clear()
        paths: dict[str, Branch] = {}
        for queue in self._stale:
            if (leaf := branches.branches.get(queue)) is None or leaf.misfits:
                continue
            speaks = queue in self._busy or queue in self._entry
            for branch in leaf.path:
                if speaks or branch.queue.name in self._entry:  # without a speaker, usage alone moves nothing
                    paths[branch.queue.name] = branch
        self._stale.clear()
        # Deepest first: an inner queue's speaker is one of its children's, which must be right by then.
        for branch in sorted(paths.values(), key=lambda one: (-len(one.path), one.queue.name)):
            self._rekey(branch, capacity)
        order = self._order.get("")
        return self._entry[order[0][1]][1] if order else None

    def _rekey(self, branch: Branch, capacity: dict[str, int]) -> None:
        name, parent = branch.queue.name, branch.queue.parent or ""
        batch = self._speaker(branch, capacity)
        order = self._order.setdefault(parent, [])
        if (old := self._entry.pop(name, None)) is not None:
            del order[bisect_left(order, (old[0], name))]
        if batch is not None:
            entry = self._key(branch, batch, capacity), batch
            self._entry[name] = entry
            insort(order, (entry[0], name))

    def _speaker(self, branch: Branch, capacity: Totals) -> Batch | None:
        """Who represents a queue: the leaf's own head, or the first child whose head is within *this* queue's quota.

        O(children) only when the first are not within and some resource has room left; mostly O(1).
        """
        name = branch.queue.name
        if branch.leaf:
            line = self.lines.get(name)
            return line.head() if line else None
        order = self._order.get(name)
        if not order:
            return None
        quotas = branch.quota.items()
        if branch.quota_in or any(branch.usage.get(resource, 0) < quota for resource, quota in quotas):
            for _, child in order:
                batch = self._entry[child][1]
                if self._within(branch, batch, capacity):
                    return batch
        return self._entry[order[0][1]][1]

    def _within(self, branch: Branch, batch: Batch, capacity: Totals) -> bool:
        if not branch.quota_in:
            return within(branch, batch.need)
        ways = self._ways(batch.request)
        return any(_measured(branch, way, batch.need, capacity, self._pools)[0] for way in ways)

    def _key(self, branch: Branch, batch: Batch, capacity: Totals) -> Key:
        """As ``key``; where the queue has quotas in pools, by the pool in which it stands best."""
        if not branch.quota_in:
            return key(branch, batch.head, batch.need, capacity)
        offer = batch.head
        ways = self._ways(batch.request)
        measured = (_measured(branch, way, batch.need, capacity, self._pools) for way in ways)
        inside, share = min(measured, key=lambda one: (not one[0], one[1]), default=(False, ZERO))
        weightless = int(not inside and branch.queue.weight == 0)
        return (int(not inside), -branch.queue.priority, weightless, share, offer.queued_at, offer.gang, offer.slot)
