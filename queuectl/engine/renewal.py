"""Gangs that already have their admission: late members, replacements of lost ones, and members that no longer fit.

The record is never rewritten. A member that fills a slot of it where it was decided is told by the same Admit again; one
that takes the place of a lost pod, or must go to another node, is told alone by AdmitExtra.
"""

from __future__ import annotations

from queuectl.engine.asks import single_request
from queuectl.engine.deadlines import returnable, withdraw
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit
from queuectl.engine.standing import LIVE, Charge, Extra, Phase, Standing
from queuectl.engine.state import State
from queuectl.model.gangs import Member, Stage
from queuectl.model.plan import Action, Admit, AdmitExtra, Assignment, Cause
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
        named = member is not None and charge is not None and charge.node == place.node and not member.foreign_gates
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
        fits = _fits(state, placement, charge)
        if slot in standing.reshaped and not fits:
            return _give_back(standing, settings, now, Misfit(Reason.TORN, TextEvidence(member.name)))
        if fits and charge.node == home[slot] and slot not in standing.filled:
            again = True
            continue
        node = charge.node if fits else _elsewhere(standing, placement, slot)
        if node is None:
            standing.stuck |= {slot}
            continue
        standing.moved[slot] = node
        standing.extras[member.uid] = Extra(slot, node)
        standing.told.add(member.uid)
        state.settle(standing.uid)
        actions.append(AdmitExtra(standing.uid, record.round, now, slot, node, member.uid))
    return (admit(standing), *actions) if again else tuple(actions)


def _untold(standing: Standing, home: dict[int, str]) -> list[tuple[int, Member]]:
    return [
        (slot, member)
        for slot, member in sorted(standing.filler().items())
        if slot in home
        and slot not in standing.shed
        and slot in standing.charges
        and member.stage is Stage.GATED
        and not member.leaving
        and not member.foreign_gates
        and member.uid not in standing.told
        and member.uid not in standing.barred
    ]


def _give_back(standing: Standing, settings: Settings, now: int, misfit: Misfit) -> tuple[Action, ...]:
    """The record cannot be kept: give the gang back at once, or say why nobody can; one that is whole without goes on."""
    gang = standing.seen
    standing.broken = None
    if not standing.owed():
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


def _elsewhere(standing: Standing, placement: Placement, slot: int) -> str | None:
    request = single_request(standing, slot)
    found = placement.place(request) if request is not None else None
    return found.nodes[0][0][0] if isinstance(found, Fit) else None
