"""Gangs that already have their admission: late members, replacements of lost ones, and members that no longer fit.

The record is never rewritten. A member that fills a slot of it where it was decided is told by the same Admit again; one
that takes the place of a lost pod, or must go to another node, is told alone by AdmitExtra.
"""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.engine.asks import single_request
from queuectl.engine.deadlines import returnable, withdraw
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit, Group, Zone
from queuectl.engine.standing import LIVE, Charge, Phase, Standing
from queuectl.engine.state import State
from queuectl.model.gangs import Member, Stage
from queuectl.model.plan import Action, Admit, AdmitExtra, Assignment, Cause
from queuectl.model.pools import OUTSIDE
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from queuectl.model.settings import Settings


def torn(standing: Standing) -> bool:
    """Some members of the record are released and others still gated: such gangs go first."""
    stages = {standing.members[uid].stage for uid in standing.slot_of}
    return Stage.GATED in stages and any(stage in stages for stage in LIVE)


def admit(standing: Standing) -> Admit:
    """The record as an action, naming the members that sit where it put them."""
    record = standing.placed
    filler = standing.filler()
    assignments = []
    for place in record.places if record else ():
        member = filler.get(place.slot)
        charge = standing.charges.get(place.slot)
        suits = place.slot not in standing.stuck and charge is not None and charge.node == place.node
        named = member is not None and suits and _releasable(member)
        assignments.append(Assignment(place.slot, place.node, member.uid if member is not None and named else None))
    standing.told.update(one.member for one in assignments if one.member is not None)
    return Admit(standing.uid, standing.round, record.decided_at if record else 0, tuple(assignments))


def renew(standing: Standing, state: State, placement: Placement, settings: Settings, now: int) -> tuple[Action, ...]:
    """What members of the record that were told nothing yet must hear. O(slots), and a placement for each lost node."""
    standing.stuck = frozenset()
    record = standing.placed
    if record is None or standing.withdrawn or standing.phase in (Phase.LEAVING, Phase.FINISHED):
        return ()
    if standing.broken is not None:
        return _give_back(standing, settings, now, standing.broken)
    home = {place.slot: place.node for place in record.places}
    actions: list[Action] = []
    again = False
    for slot, member in _untold(standing, home):
        charge = standing.charges[slot]
        within = not _exceeds(standing, state, slot, charge)
        fits = within and _fits(state, placement, charge)
        if fits and charge.node == home.get(slot) and slot not in standing.filled:
            again = True
            continue
        node = charge.node if fits else _elsewhere(standing, state, placement, slot, member) if within else None
        if node is not None:
            standing.moved[slot] = node
            state.promise(standing, member.uid, slot, node)
            actions.append(AdmitExtra(standing.uid, record.round, now, slot, node, member.uid))
            continue
        standing.stuck |= {slot}
        # A place never used, for a member that asks for other than was decided: the decision was wrong, and waiting mends
        # nothing. While only assumed there is nothing to give back yet.
        unlike = standing.reshaped.get(slot, charge.shape.requests) != charge.shape.requests
        if unlike and slot in home and slot not in standing.filled and standing.phase is not Phase.ASSUMED:
            misfit = Misfit(Reason.TORN, TextEvidence(member.name))
            if (given := _give_back(standing, settings, now, misfit)) != ():
                return given
    return (admit(standing), *actions) if again else tuple(actions)


def _releasable(member: Member) -> bool:
    return not member.foreign_gates and member.pinnable


def _untold(standing: Standing, home: dict[int, str]) -> list[tuple[int, Member]]:
    """Gated members that have a place, of the record or promised to them, and were not told it as they are now."""
    return [
        (slot, member)
        for slot, member in sorted(standing.filler().items())
        if (slot in home or member.uid in standing.extras)
        and slot not in standing.shed
        and slot in standing.charges
        and member.stage is Stage.GATED
        and not member.leaving
        and _releasable(member)
        and member.uid not in standing.told
        and member.uid not in standing.barred
    ]


def _give_back(standing: Standing, settings: Settings, now: int, misfit: Misfit) -> tuple[Action, ...]:
    """The record cannot be kept: give the gang back at once, or say why nobody can; one that is whole without goes on."""
    gang = standing.seen
    standing.broken = None
    if not standing.owed(standing.filler()):
        standing.notes = (misfit,)
    elif not returnable(standing):
        standing.notes = (misfit, Misfit(Reason.NOT_REQUEUEABLE, TextEvidence(gang.name)))
    else:
        detail = misfit.evidence.what if isinstance(misfit.evidence, TextEvidence) else ""
        return (withdraw(standing, settings, now, Cause.TORN, detail),)
    return ()


def _fits(state: State, placement: Placement, charge: Charge) -> bool:
    """Whether a slot, charged as it is, can still be used: its node is well, suits the shape and is not overcharged."""
    row = state.fleet.row.get(charge.node)
    return (
        row is not None
        and charge.node in state.fleet.nodes
        and bool(state.fleet.usable[row])
        and bool(placement.rooms.filters.mask(charge.shape)[row])
        and state.fleet.fits(charge.node, charge.shape.requests, 0)
    )


def _exceeds(standing: Standing, state: State, slot: int, charge: Charge) -> bool:
    """Whether the slot asks for more than was decided for it, and some limit on its queue's path is broken in that."""
    before, branch = standing.reshaped.get(slot), state.branches.branches.get(standing.charged_to)
    if before is None or branch is None:
        return False
    decided, here = dict(before), state.fleet.pools.of.get(charge.node, ())
    grown = {resource for resource, amount in charge.shape.requests if amount > decided.get(resource, 0)}
    return any(
        resource in grown and node.usage.get(resource, 0) > limit
        for node in branch.path
        for resource, limit in node.limits
    ) or any(
        pool in here and resource in grown and node.usage_in.get(pool, {}).get(resource, 0) > limit
        for node in branch.path
        for pool, resource, limit in node.limits_in
    )


def _elsewhere(standing: Standing, state: State, placement: Placement, slot: int, member: Member) -> str | None:
    pools = state.fleet.pools
    request = single_request(standing, slot, member.shape, pools)
    if request is None:
        return None
    for zones in _zones(standing, state, request.groups[0], slot) if pools else ((),):
        found = placement.place(request, zones)
        if isinstance(found, Fit):
            return found.nodes[0][0][0]
    return None


def _zones(standing: Standing, state: State, group: Group, slot: int) -> Iterator[tuple[Zone, ...]]:
    """Where a member may go instead of its node: the pools that its kin share, the smaller first, else its own, else any.

    Never into a pool where a limit is in the way, unless the member counts there already.
    """
    pools, branch = state.fleet.pools, state.branches.branches.get(standing.charged_to)
    here = pools.of.get(standing.charges[slot].node)
    shared = here if group.pools is None else group.pools
    full = {
        name
        for name in pools.pools.keys() - set(here or ())
        if branch is not None and state.branches.over_limit_in(branch, {name: group.shape.requests})
    }
    names = (*pools.pools, OUTSIDE) if shared is None else shared or (OUTSIDE,)
    for name in sorted(set(names) - full, key=lambda name: (name == OUTSIDE, pools.size(name), name)):
        yield (Zone((name,), tuple(sorted(full))),)
