"""What follows from the facts of one gang: the record in force, what it is charged, and how far it has come.

Pure but for the memories of a round, which end here when the round does. ``State.settle`` calls these in order.
"""

from __future__ import annotations

from functools import reduce

from queuectl.engine.standing import LIVE, Charge, Phase, Standing
from queuectl.model.gangs import Member, Record, Shape, Stage
from queuectl.model.resources import Amounts, plus, times


def tell_anew(standing: Standing, member: Member) -> None:
    """A gated member that was told its place and has changed since may no longer suit it."""
    old = standing.members.get(member.uid)
    if old is not None and member.stage is Stage.GATED and (old.shape, old.pinnable) != (member.shape, member.pinnable):
        standing.told.discard(member.uid)


def record_of(standing: Standing) -> Record | None:
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
    found = [gang.record, standing.known, standing.assumed]
    if gang.lone:
        found.extend(member.record for member in standing.members.values() if member.stage is not Stage.FAILED)
    best: Record | None = None
    for record in found:
        if record is not None and (best is None or record.round > best.round):
            best = record
    standing.last_round = max(standing.last_round, gang.round, best.round if best is not None else 0)
    return best


def forget_round(standing: Standing) -> None:
    """Another round is in force, or none: nothing that was remembered of the one before counts."""
    standing.round = standing.placed.round if standing.placed else 0
    standing.slot_of, standing.moved, standing.extras = {}, {}, {}
    standing.filled, standing.told, standing.reshaped, standing.shed = set(), set(), {}, set()
    standing.barred, standing.broken = set(), None
    standing.done, standing.late, standing.stuck = set(), set(), frozenset()
    standing.waits, standing.reached, standing.steps = {}, {}, {}
    standing.notes = standing.delays = ()
    standing.withdrawn = standing.unanswered = False


def charges(standing: Standing) -> dict[int | str, Charge]:
    """One charge for every live pod where it is, and for every slot of the record that no live pod holds."""
    target: dict[int | str, Charge] = {}
    for uid, member in standing.members.items():
        if member.stage in (Stage.SUCCEEDED, Stage.FAILED):
            standing.extras.pop(uid, None)
        if member.stage in LIVE and (node := member.node or member.pinned) is not None:
            slot = standing.slot_of.get(uid)
            target[uid if slot is None else slot] = Charge(node, member.shape)
            standing.extras.pop(uid, None)  # the promise is kept: from here on the pod says itself where it is
            if slot is not None and standing.placed is not None:
                standing.remember(uid)
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


def phase(standing: Standing) -> Phase:
    """How far the core has come: as far as its last member. Extras play no part."""
    gang = standing.gang
    if gang is None:
        return Phase.PENDING
    if gang.finished:
        return Phase.FINISHED
    if gang.evicted:
        return Phase.LEAVING
    if standing.placed is None and not gang.roles:  # no PodGroup, or one that cannot be used: only what runs counts
        return Phase.RUNNING if any(member.stage in LIVE for member in standing.members.values()) else Phase.PENDING
    stages = _stages(standing)
    if standing.placed is None and Stage.GATED in stages:
        return Phase.PENDING
    if standing.assumed is not None:
        return Phase.ASSUMED
    lowest, highest = min(stages, default=Stage.RUNNING), max(stages, default=Stage.RUNNING)
    if lowest >= Stage.RUNNING:
        return Phase.RUNNING
    if lowest >= Stage.BOUND:
        return Phase.BOUND
    return Phase.RECORDED if highest is Stage.GATED else Phase.RELEASED


def _stages(standing: Standing) -> set[Stage]:
    """How far the slots of the core have come that have not succeeded; one without a pod is gated. O(core), O(1) without pods."""
    core, closed = standing.core(), standing.closed
    if not standing.slot_of:
        return {Stage.GATED} if len(core) > len(closed) or not closed.issuperset(core) else set()
    filler = standing.filler()
    return {filler[slot].stage if slot in filler else Stage.GATED for slot in core if slot not in closed}


def need(standing: Standing) -> Amounts:
    """What a gang that waits asks for: the slots of its core that it does not hold yet, as far as their shape is known."""
    needs = [times(shape.requests, len(slots)) for _, shape, slots in standing.vacant() if shape is not None]
    return reduce(plus, needs) if needs else ()
