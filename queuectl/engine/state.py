"""The one mutable world: facts, the ledger of nodes, the usage of queues, and where every gang stands.

Only this file and the two ledgers below it (``fleet``, ``branches``) change anything. Facts are stored as they come and
their gang is marked; ``settle`` then derives what the gang is charged and applies the difference. So the outcome depends
on the latest facts and not on the order in which they came, and nothing is ever charged twice.
"""

from __future__ import annotations

from queuectl.engine.branches import Branches
from queuectl.engine.counts import Counts
from queuectl.engine.derive import charges, forget_round, need, phase, record_of, tell_anew
from queuectl.engine.fleet import BOUND, Fleet
from queuectl.engine.slots import match
from queuectl.engine.standing import Charge, Extra, Standing
from queuectl.model.changes import (
    Change,
    GangGone,
    GangSeen,
    LevelsGone,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
    PoolGone,
    PoolSeen,
    QueueGone,
    QueueSeen,
    RecordSeen,
    WriteFailed,
)
from queuectl.model.gangs import Shape, Stage
from queuectl.model.resources import Amounts


class State:
    """Facts in by ``apply``; derived by ``settle``; trial charges between ``checkpoint`` and ``rollback``."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.branches = Branches()
        self.counts = Counts()
        self.gangs: dict[str, Standing] = {}
        self.dirty: set[str] = set()
        self.changed = True  # anything at all since the last decision
        self._gang_of: dict[str, str] = {}  # member -> gang
        self._occupants: dict[str, tuple[str, Amounts]] = {}
        self._trial: list[tuple[str, Amounts, int]] = []

    # -- facts in ------------------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Take in one fact. O(1), but for edits of the topology or the queue tree, which are rebuilt at the next decision."""
        self.changed = True
        match change:
            case MemberSeen(member):
                if (old := self._gang_of.get(member.uid)) is not None and old != member.gang:
                    self._drop_member(member.uid)
                standing = self._standing(member.gang)
                if standing.members.get(member.uid) != member:
                    standing.news()
                    standing.barred.discard(member.uid)
                    standing.remember(member.uid)
                    tell_anew(standing, member)
                standing.members[member.uid] = member
                self._gang_of[member.uid] = member.gang
            case MemberGone(uid):
                self._drop_member(uid)
            case GangSeen(gang):
                standing = self._standing(gang.uid)
                if standing.gang != gang:
                    standing.news()
                    standing.barred.clear()
                standing.gang = gang
            case GangGone(uid):
                if uid in self.gangs:
                    standing = self._standing(uid)
                    standing.gang = standing.known = standing.assumed = None
            case RecordSeen(uid, record):
                standing = self._standing(uid)
                if standing.known is None or standing.known.round <= record.round:
                    standing.known = record
            case WriteFailed():
                self._write_failed(change)
            case OccupantSeen(uid, node, requests):
                self._drop_occupant(uid)
                self._occupants[uid] = (node, requests)
                self.fleet.charge(node, requests, 1)
            case OccupantGone(uid):
                self._drop_occupant(uid)
            case NodeSeen(node):
                self.fleet.see(node)
            case NodeGone(name):
                self.fleet.lose(name)
            case LevelsSeen(levels, topology):
                self.fleet.set_levels(topology, levels)
            case LevelsGone(topology):
                self.fleet.set_levels(topology, None)
            case PoolSeen(pool):
                self.fleet.set_pool(pool.name, pool)
            case PoolGone(name):
                self.fleet.set_pool(name, None)
            case QueueSeen(queue):
                self.branches.see(queue)
            case QueueGone(name):
                self.branches.lose(name)

    def _standing(self, uid: str) -> Standing:
        self.dirty.add(uid)
        if uid not in self.gangs:
            self.gangs[uid] = Standing(uid=uid)
        return self.gangs[uid]

    def _drop_member(self, uid: str) -> None:
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            standing = self._standing(gang)
            standing.news()
            standing.barred.discard(uid)
            standing.remember(uid)
            del standing.members[uid]
            standing.extras.pop(uid, None)
            standing.told.discard(uid)

    def _drop_occupant(self, uid: str) -> None:
        if (old := self._occupants.pop(uid, None)) is not None:
            self.fleet.charge(old[0], old[1], -1)

    def _write_failed(self, failed: WriteFailed) -> None:
        if failed.gang not in self.gangs:
            return
        standing = self._standing(failed.gang)
        if failed.member is not None:
            self._member_write_failed(standing, failed.member, failed)
        elif standing.assumed is not None and standing.assumed.round == failed.round:
            standing.assumed = None
            standing.refused = None if failed.retry else failed.misfit
        elif standing.placed is None or standing.round != failed.round:
            return  # the late reply to a round that is over
        elif standing.withdrawn:
            standing.withdrawn, standing.unanswered = not failed.retry, not failed.retry
        elif failed.retry:
            standing.told.clear()
        else:
            standing.broken = failed.misfit

    def _member_write_failed(self, standing: Standing, member: str, failed: WriteFailed) -> None:
        extra = standing.extras.pop(member, None)
        core = extra is None or (standing.placed and any(extra.slot == place.slot for place in standing.placed.places))
        if extra is not None:
            standing.moved.pop(extra.slot, None)
        standing.told.discard(member)
        if not failed.retry:
            standing.barred.add(member)
            if core and standing.placed is not None:
                standing.broken = failed.misfit

    # -- facts to charges ----------------------------------------------------------------------------------------------

    def settle(self, uid: str) -> None:
        """Derive the record in force, who fills which slot, the charges and the phase. O(slots + members) of the gang."""
        standing = self.gangs[uid]
        if standing.gang is None and not standing.members:
            self._charge_all(standing.charged_to, [*standing.charges.values()], -1)
            self._count(standing)
            del self.gangs[uid]
            return
        standing.placed = record_of(standing)
        if standing.gang is None or standing.round != (standing.placed.round if standing.placed else 0):
            forget_round(standing)
        standing.slot_of, closed = match(standing)
        if standing.gang is not None and standing.placed is not None and not standing.gang.rolling:
            standing.done |= closed
        standing.closed = closed | standing.done.difference(standing.slot_of.values()) if standing.done else closed
        if standing.gang is not None and standing.gang.roles and standing.placed is not None:
            slots = standing.gang.maximum
            standing.shed |= {place.slot for place in standing.placed.places if place.slot >= slots}
        self._recharge(standing, charges(standing))
        standing.phase = phase(standing)
        standing.edition += 1
        self._count(standing)

    def _recharge(self, standing: Standing, target: dict[int | str, Charge]) -> None:
        """Apply the difference between what is charged and what should be; the queue is charged with the nodes."""
        queue = standing.gang.queue if standing.gang else ""
        old, same = standing.charges, queue == standing.charged_to
        if old or target:
            gone = [charge for key, charge in old.items() if not same or target.get(key) != charge]
            come = [charge for key, charge in target.items() if not same or old.get(key) != charge]
            self._charge_all(standing.charged_to, gone, -1)
            self._charge_all(queue, come, 1)
        for key, before in old.items():
            if isinstance(key, int) and (after := target.get(key)) is not None and before.shape != after.shape:
                standing.reshaped.setdefault(key, before.shape.requests)
        for uid, slot in standing.slot_of.items() if standing.reshaped else ():
            if standing.members[uid].stage is not Stage.GATED:
                standing.reshaped.pop(slot, None)  # what runs is a fact, and our own pin is part of its shape
        standing.charges, standing.charged_to = target, queue

    def _count(self, standing: Standing) -> None:
        """Keep the counters of its queue in step with what the gang is now. O(1) unless it waits, else O(core)."""
        gang, counted = standing.gang, None
        if gang is not None:
            counted = gang.queue, standing.phase, need(standing) if standing.waiting else ()
        if counted != standing.counted:
            if standing.counted is not None:
                self.counts.add(*standing.counted, -1)
            if counted is not None:
                self.counts.add(*counted, 1)
            standing.counted = counted

    def promise(self, standing: Standing, uid: str, slot: int, node: str) -> None:
        """Move the slot of a gated member to a node, or put it there first. O(resources): nothing else changes by it."""
        standing.edition += 1
        standing.extras[uid] = Extra(slot, node)
        standing.told.add(uid)
        charge, old = Charge(node, standing.members[uid].shape), standing.charges.get(slot)
        if old is not None:
            self.charge(standing.charged_to, old.node, old.shape, -1)
        self.charge(standing.charged_to, node, charge.shape, 1)
        standing.charges[slot] = charge

    def _charge_all(self, queue: str, pods: list[Charge], sign: int) -> None:
        """Charge a gang's pods, alike ones together: O(pods) to count them, a ledger's entry for each node and shape."""
        shapes: dict[int, tuple[Shape, dict[str, int]]] = {}  # by identity: hashing thousands costs more than it saves
        shape, nodes = None, dict[str, int]()
        for pod in pods:
            if pod.shape is not shape:
                shape, nodes = shapes.setdefault(id(pod.shape), (pod.shape, {}))
            nodes[pod.node] = nodes.get(pod.node, 0) + 1
        for shape, nodes in shapes.values():
            for node, count in nodes.items():
                self.fleet.charge(node, shape.requests, count * sign)
            if queue:
                self.branches.charge(queue, shape.requests, sum(nodes.values()) * sign)
                if self.fleet.pools:
                    self._charge_in(queue, nodes, shape.requests, sign)

    def charge(self, queue: str, node: str, shape: Shape, count: int) -> None:
        """Charge ``count`` pods to a node and to a queue's path (none when ""). O(depth × resources)."""
        self.fleet.charge(node, shape.requests, count)
        if queue:
            self.branches.charge(queue, shape.requests, count)
            if self.fleet.pools:
                self._charge_in(queue, {node: count}, shape.requests, 1)

    def _charge_in(self, queue: str, nodes: dict[str, int], requests: Amounts, sign: int) -> None:
        """Charge a queue in the pools of these nodes, so many pods on each."""
        counts: dict[tuple[str, ...], int] = {}
        for node, count in nodes.items():
            if pools := self.fleet.pools.of.get(node):
                counts[pools] = counts.get(pools, 0) + count
        for pools, count in counts.items():
            self.branches.charge_in(queue, pools, requests, count * sign)

    def recount(self) -> bool:
        """Count anew what queues use in pools, if that may be other than it was; true when it was done. O(charges)."""
        if not self.fleet.pools.moved:
            return False
        self.fleet.pools.moved = False
        self.branches.own_in.clear()
        for branch in self.branches.branches.values():
            branch.usage_in.clear()
        for standing in self.gangs.values() if self.fleet.pools else ():
            for charge in standing.charges.values() if standing.charged_to else ():
                self._charge_in(standing.charged_to, {charge.node: 1}, charge.shape.requests, 1)
        return True

    # -- trials --------------------------------------------------------------------------------------------------------

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._trial)

    def try_charge(self, node: str, requests: Amounts, count: int) -> None:
        """Charge a node for a trial; ends with ``rollback``."""
        self._trial.append((node, requests, count))
        self.fleet.charge(node, requests, count)

    def rollback(self, mark: int) -> None:
        """Undo every trial charge since the mark, last first."""
        while len(self._trial) > mark:
            node, requests, count = self._trial.pop()
            self.fleet.charge(node, requests, -count, undo=True)

    # -- proof ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Recompute every aggregate from scratch; AssertionError with the difference. For tests; O(everything)."""
        nodes: dict[str, dict[str, int]] = {}
        own: dict[str, dict[str, int]] = {}

        def add(totals: dict[str, dict[str, int]], name: str, requests: Amounts) -> None:
            one = totals.setdefault(name, {})
            for resource, amount in requests:
                one[resource] = one.get(resource, 0) + amount

        for node, requests in self._occupants.values():
            add(nodes, node, requests)
        for standing in self.gangs.values():
            for charge in standing.charges.values():
                add(nodes, charge.node, charge.shape.requests)
                if standing.charged_to:
                    add(own, standing.charged_to, charge.shape.requests)
        counts = Counts()
        for standing in self.gangs.values():
            if standing.gang is not None:
                asked = need(standing) if standing.waiting else ()
                counts.add(standing.gang.queue, standing.phase, asked, 1)
        _same(counts.queues, self.counts.queues)
        _same(self._trial, [])
        _same(nodes, self.fleet.used)
        _same(own, self.branches.own)
        usage: dict[str, dict[str, int]] = {name: {} for name in self.branches.branches}
        for name, amounts in own.items():
            for branch in self.branches.branches[name].path if name in self.branches.branches else ():
                add(usage, branch.queue.name, tuple(amounts.items()))
        held = {name: branch.usage for name, branch in self.branches.branches.items()}
        _same(usage, held)
        self._check_pools()
        capacity: dict[str, dict[str, int]] = {}
        for one in self.fleet.nodes.values():
            add(capacity, "", one.allocatable)
        _same(capacity.get("", {}), self.fleet.capacity)
        for name, row in self.fleet.row.items():
            if name in self.fleet.nodes and self.fleet.tree.nodes[row] == name:
                allocatable = dict(self.fleet.nodes[name].allocatable)
                for resource, column in self.fleet.free.items():
                    want = min(allocatable.get(resource, 0), BOUND) - nodes.get(name, {}).get(resource, 0)
                    _same((name, resource, int(column[row])), (name, resource, max(want, -BOUND)))
        homes = {member: uid for uid, standing in self.gangs.items() for member in standing.members}
        _same(homes, self._gang_of)

    def _check_pools(self) -> None:
        fleet, branches = self.fleet, self.branches
        labels = {name: dict(node.labels) for name, node in fleet.nodes.items()} if fleet.pools else {}
        homes = {
            name: tuple(pool for pool, one in sorted(fleet.pools.pools.items()) if one.holds(carried))
            for name, carried in labels.items()
        }
        _same(fleet.pools.of, homes)
        capacity: dict[str, dict[str, int]] = {pool: {} for pool in fleet.pools.pools}
        own: dict[str, dict[str, dict[str, int]]] = {}
        for name, pools in homes.items():
            for pool in pools:
                _sum(capacity[pool], fleet.nodes[name].allocatable)
        _same(capacity, fleet.pools.capacity)
        for standing in self.gangs.values():
            for charge in standing.charges.values() if standing.charged_to else ():
                for pool in homes.get(charge.node, ()):
                    _sum(own.setdefault(standing.charged_to, {}).setdefault(pool, {}), charge.shape.requests)
        _same(own, branches.own_in)
        usage: dict[str, dict[str, dict[str, int]]] = {name: {} for name in branches.branches}
        for name, used in own.items():
            for branch in branches.branches[name].path if name in branches.branches else ():
                for pool, amounts in used.items():
                    _sum(usage[branch.queue.name].setdefault(pool, {}), tuple(amounts.items()))
        _same(usage, {name: branch.usage_in for name, branch in branches.branches.items()})


def _sum(totals: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts:
        totals[resource] = totals.get(resource, 0) + amount


def _same(kept: object, recomputed: object) -> None:
    if kept != recomputed:
        raise AssertionError((kept, recomputed))
