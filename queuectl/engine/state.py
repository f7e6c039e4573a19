"""The one mutable world: facts, the ledger of nodes, the usage of queues, and where every gang stands.

Only this file and the two ledgers below it (``fleet``, ``branches``) change anything. Facts are stored as they come and
their gang is marked; ``settle`` then derives what the gang is charged and applies the difference. So the outcome depends
on the latest facts and not on the order in which they came, and nothing is ever charged twice.
"""

from __future__ import annotations

from queuectl.engine.branches import Branches
from queuectl.engine.fleet import BOUND, Fleet
from queuectl.engine.slots import match
from queuectl.engine.standing import LIVE, Charge, Extra, Phase, Standing
from queuectl.model.changes import (
    Change,
    GangGone,
    GangSeen,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
    QueueGone,
    QueueSeen,
    RecordSeen,
    WriteFailed,
)
from queuectl.model.gangs import Member, Record, Shape, Stage
from queuectl.model.resources import Amounts


class State:
    """Facts in by ``apply``; derived by ``settle``; trial charges between ``checkpoint`` and ``rollback``."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.branches = Branches()
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
                    _tell_anew(standing, member)
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
            case LevelsSeen(levels):
                self.fleet.set_levels(levels)
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
        standing.placed = _record(standing)
        if standing.gang is None or standing.round != (standing.placed.round if standing.placed else 0):
            _forget_round(standing)
        standing.slot_of, closed = match(standing)
        if standing.gang is not None and standing.placed is not None and not standing.gang.rolling:
            standing.done |= closed
        standing.closed = closed | (standing.done - set(standing.slot_of.values()))
        if standing.gang is not None and standing.gang.roles and standing.placed is not None:
            standing.shed |= {p.slot for p in standing.placed.places if standing.role_of(p.slot) is None}
        self._recharge(standing, _charges(standing))
        standing.phase = _phase(standing)
        if standing.gang is None and not standing.members:
            del self.gangs[uid]

    def _recharge(self, standing: Standing, target: dict[int | str, Charge]) -> None:
        """Apply the difference between what is charged and what should be; the queue is charged with the nodes."""
        queue = standing.gang.queue if standing.gang else ""
        old, same = standing.charges, queue == standing.charged_to
        for key, charge in old.items():
            if not same or target.get(key) != charge:
                self.charge(standing.charged_to, charge.node, charge.shape, -1)
        for key, charge in target.items():
            if not same or old.get(key) != charge:
                self.charge(queue, charge.node, charge.shape, 1)
            if key in old and isinstance(key, int) and old[key].shape != charge.shape:
                standing.reshaped.setdefault(key, old[key].shape.requests)
        for uid, slot in standing.slot_of.items() if standing.reshaped else ():
            if standing.members[uid].stage is not Stage.GATED:
                standing.reshaped.pop(slot, None)  # what runs is a fact, and our own pin is part of its shape
        standing.charges, standing.charged_to = target, queue

    def promise(self, standing: Standing, uid: str, slot: int, node: str) -> None:
        """Move the slot of a gated member to a node, or put it there first. O(resources): nothing else changes by it."""
        standing.extras[uid] = Extra(slot, node)
        standing.told.add(uid)
        charge, old = Charge(node, standing.members[uid].shape), standing.charges.get(slot)
        if old is not None:
            self.charge(standing.charged_to, old.node, old.shape, -1)
        self.charge(standing.charged_to, node, charge.shape, 1)
        standing.charges[slot] = charge

    def charge(self, queue: str, node: str, shape: Shape, count: int) -> None:
        """Charge ``count`` pods to a node and to a queue's path (none when ""). O(depth × resources)."""
        self.fleet.charge(node, shape.requests, count)
        if queue:
            self.branches.charge(queue, shape.requests, count)

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
        _same(self._trial, [])
        _same(nodes, self.fleet.used)
        _same(own, self.branches.own)
        usage: dict[str, dict[str, int]] = {name: {} for name in self.branches.branches}
        for name, amounts in own.items():
            for branch in self.branches.branches[name].path if name in self.branches.branches else ():
                add(usage, branch.queue.name, tuple(amounts.items()))
        held = {name: branch.usage for name, branch in self.branches.branches.items()}
        _same(usage, held)
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


def _same(kept: object, recomputed: object) -> None:
    if kept != recomputed:
        raise AssertionError((kept, recomputed))


def _tell_anew(standing: Standing, member: Member) -> None:
    """A gated member that was told its place and has changed since may no longer suit it."""
    old = standing.members.get(member.uid)
    if old is not None and member.stage is Stage.GATED and (old.shape, old.pinnable) != (member.shape, member.pinnable):
        standing.told.discard(member.uid)


def _record(standing: Standing) -> Record | None:
    """The admission in force: the newest of what the cluster says, what we were told, and what we assume.

    A gang without a record whose round has reached ours was given back. An older round is a stale echo: no news.
    """
    gang = standing.gang
    if gang is None:
        return None
    if standing.known is not None and standing.assumed is not None and standing.known.round >= standing.assumed.round:
        standing.assumed = None
    reached = max(gang.round, gang.record.round if gang.record else 0)
    if standing.assumed is not None and reached >= standing.assumed.round:
        standing.assumed = None
    if gang.record is None and standing.known is not None and gang.round >= standing.known.round:
        standing.known = None
    found = [record for record in (gang.record, standing.known, standing.assumed) if record is not None]
    if gang.lone:
        found.extend(
            member.record for member in standing.members.values() if member.record and member.stage is not Stage.FAILED
        )
    best = max(found, key=lambda record: record.round, default=None)
    if best is not None:
        standing.last_round = max(standing.last_round, best.round)
    standing.last_round = max(standing.last_round, gang.round)
    return best


def _forget_round(standing: Standing) -> None:
    standing.round = standing.placed.round if standing.placed else 0
    standing.slot_of, standing.moved, standing.extras = {}, {}, {}
    standing.filled, standing.told, standing.reshaped, standing.shed = set(), set(), {}, set()
    standing.barred, standing.broken = set(), None
    standing.done, standing.late, standing.stuck = set(), set(), frozenset()
    standing.waits, standing.reached, standing.steps = {}, {}, {}
    standing.notes = standing.delays = ()
    standing.withdrawn = standing.unanswered = False


def _charges(standing: Standing) -> dict[int | str, Charge]:
    """One charge for every live pod where it is, and for every slot of the record that no live pod holds."""
    target: dict[int | str, Charge] = {}
    for uid, member in standing.members.items():
        if member.stage in LIVE and (node := member.node or member.pinned) is not None:
            slot = standing.slot_of.get(uid)
            target[uid if slot is None else slot] = Charge(node, member.shape)
            if slot is not None and standing.placed is not None:
                standing.remember(uid)
                standing.extras.pop(uid, None)
    if standing.gang is None or standing.gang.finished:
        return target
    filler = standing.filler()
    peers: dict[str, Shape] = {}
    for slot in sorted(filler):
        if (role := standing.role_of(slot)) is not None:
            peers.setdefault(role.name, filler[slot].shape)
    for place in standing.placed.places if standing.placed else ():
        if place.slot in target or place.slot in standing.closed or place.slot in standing.shed:
            continue
        shape = standing.shape_of(place.slot, filler.get(place.slot))
        if shape is None and (role := standing.role_of(place.slot)) is not None:
            shape = peers.get(role.name)
        if shape is not None:
            target[place.slot] = Charge(standing.moved.get(place.slot, place.node), shape)
    for uid, extra in standing.extras.items():
        if extra.slot not in target:
            target[extra.slot] = Charge(extra.node, standing.members[uid].shape)
    return target


def _phase(standing: Standing) -> Phase:
    gang = standing.gang
    if gang is None:
        return Phase.PENDING
    if gang.finished:
        return Phase.FINISHED
    if gang.evicted:
        return Phase.LEAVING
    if standing.placed is None and not gang.roles:  # no PodGroup, or one that cannot be used: only what runs counts
        return Phase.RUNNING if any(member.stage in LIVE for member in standing.members.values()) else Phase.PENDING
    core = [slot for slot in standing.core() if slot not in standing.closed]
    filler = standing.filler()
    stages = [filler[slot].stage if slot in filler else Stage.GATED for slot in core]
    if standing.placed is None and any(stage is Stage.GATED for stage in stages):
        return Phase.PENDING
    if standing.assumed is not None:
        return Phase.ASSUMED
    lowest, highest = min(stages, default=Stage.RUNNING), max(stages, default=Stage.RUNNING)
    if lowest >= Stage.RUNNING:
        return Phase.RUNNING
    if lowest >= Stage.BOUND:
        return Phase.BOUND
    return Phase.RECORDED if highest is Stage.GATED else Phase.RELEASED
