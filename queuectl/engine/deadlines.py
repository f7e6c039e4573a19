"""What a gang must reach in time after its admission, and what happens when it does not.

Every slot has a clock of its own, started by the first decision that sees its state; the core's first steps forward give
all of them more time, so that a large gang is not cut off while it gets ahead. Only slots without which the gang is not
whole can end it: of extras, and of replacements that the gang does well without, lateness is told and no more.
"""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.engine.standing import LIVE, Phase, Standing, Wait
from queuectl.model.gangs import GiveBack, Member, Stage
from queuectl.model.plan import Cause, Withdraw
from queuectl.model.reasons import CountEvidence, Misfit, Reason, TextEvidence
from queuectl.model.settings import Settings

# What counts as a step forward: for a pod that must yet be created also that others run, because staged creators make
# the next pods only then; for all others only that pods are released and bound.
_STEPS = (Stage.RELEASED, Stage.BOUND)
_SLOW = (None, Stage.BOUND)  # creating a pod and starting one take long: start_timeout; releasing and binding do not


def stamp(standing: Standing, settings: Settings, now: int) -> None:
    """Note progress and set ``due``: when ``overdue`` has something to say, None for never. O(slots + members)."""
    gang = standing.gang
    standing.due = None
    if gang is None:
        return
    if gang.finished:
        standing.notes = standing.delays = ()
        return
    if standing.phase is Phase.PENDING:
        standing.due = gang.not_before if now < gang.not_before else None
        return
    if standing.placed is None or standing.assumed is not None or standing.phase is Phase.LEAVING:
        return
    filler = standing.filler()
    _step(standing, filler, now)
    before, standing.waits = standing.waits, dict(_waits(standing, filler, now))
    if standing.waits != before:
        standing.notes = ()
        standing.late = {slot for slot in standing.late if standing.waits.get(slot) == before.get(slot)}
        standing.delays = _delays(standing)
    if not standing.withdrawn:
        times = _deadlines(standing, settings)
        standing.due = min((at for slot, at in times.items() if slot not in standing.late), default=None)


def overdue(standing: Standing, settings: Settings, now: int) -> Withdraw | None:
    """Give the gang back if it is not whole in time; if its owner cannot, or it is, only tell. Call when ``due`` is up."""
    if standing.gang is None or standing.phase is Phase.PENDING or standing.withdrawn:
        return None
    times = _deadlines(standing, settings)
    late = {slot: wait for slot, wait in standing.waits.items() if times[slot] <= now}
    owed = {slot: wait for slot, wait in late.items() if wait.decides}
    if owed and returnable(standing):
        slot = min(owed, key=lambda one: (times[one], one))
        stage = owed[slot].stage
        cause = Cause.START_DEADLINE if stage is Stage.BOUND else Cause.BIND_DEADLINE
        if slot in standing.stuck:
            cause = Cause.TORN if slot in standing.reshaped else Cause.NODE_LOST
        return withdraw(standing, settings, now, cause, _detail(standing, owed, stage))
    standing.late.update(late)
    standing.delays = _delays(standing)
    return None


def returnable(standing: Standing) -> bool:
    """Whether the gang's pods can be taken back: by their owner, or by us where their deletion is accepted."""
    return standing.seen.give_back is not GiveBack.NONE


def withdraw(standing: Standing, settings: Settings, now: int, cause: Cause, detail: str) -> Withdraw:
    """Give a returnable gang back with the back-off it has earned; once a round."""
    gang = standing.seen
    standing.withdrawn = True
    wait = min(
        settings.backoff << min(gang.requeues, 62), settings.backoff_limit
    )  # doubled each time; 62: stay in range
    return Withdraw(
        gang=gang.uid,
        round=standing.round or gang.round,
        cause=cause,
        detail=detail,
        not_before=now + wait,
        deactivate=gang.requeues + 1 > settings.max_requeues,
    )


def requested(standing: Standing, now: int) -> Withdraw | None:
    """The answer to a requeue asked for by hand, once per request: at once, and without counting against the gang.

    A gang that waits has nothing to give back, but is answered too: only so the request ends in its status.
    """
    gang = standing.gang
    if gang is None or not gang.requested or gang.requested in (gang.handled, standing.handled):
        return None
    if standing.phase is Phase.ASSUMED or standing.withdrawn or standing.phase is Phase.LEAVING:
        return None  # answered when that has ended
    standing.handled = gang.requested
    held = standing.phase is not Phase.PENDING
    if gang.finished or (held and not returnable(standing)):
        standing.notes = () if gang.finished else (Misfit(Reason.NOT_REQUEUEABLE, TextEvidence(gang.name)),)
        return None
    standing.refused = None
    standing.withdrawn = held
    return Withdraw(gang.uid, standing.round or gang.round, Cause.REQUESTED, gang.requested, now)


def _step(standing: Standing, filler: dict[int, Member], now: int) -> None:
    """Whatever a slot of the core reaches for the first time in this round is a step; its successors' pods take none."""
    reached = standing.reached
    for slot in standing.duties():
        member = filler.get(slot)
        if member is not None and member.stage is not Stage.GATED:
            before = reached.get(slot, Stage.GATED)
            if member.stage > before:
                reached[slot] = member.stage
                standing.steps.update((one, now) for one in LIVE if before < one <= member.stage)


def _waits(standing: Standing, filler: dict[int, Member], now: int) -> Iterator[tuple[int, Wait]]:
    """Slots that are not running, with the time since when each is in that state."""
    owed = standing.owed(filler)
    slots = {
        slot
        for slot, member in filler.items()
        if member.stage is Stage.RELEASED or member.stage is Stage.BOUND or member.uid in standing.extras
    }
    for slot in sorted(owed | slots):
        member = filler.get(slot)
        stage, uid = (None, None) if member is None else (member.stage, member.uid)
        wait = standing.waits.get(slot)
        if wait is None or wait.member != uid or wait.stage is not stage or wait.decides != (slot in owed):
            wait = Wait(stage, uid, now, slot in owed)
        yield slot, wait


def _deadlines(standing: Standing, settings: Settings) -> dict[int, int]:
    """When each slot that is not running is late."""
    reached = max(standing.steps.get(one, 0) for one in _STEPS)
    anything = max(standing.steps.values(), default=0)
    times = {}
    for slot, wait in standing.waits.items():
        step = anything if wait.stage is None else reached
        limit = settings.start_timeout if wait.stage in _SLOW else settings.bind_timeout
        times[slot] = max(wait.since, step) + limit
    return times


def _delays(standing: Standing) -> tuple[Misfit, ...]:
    """What is to be told of the slots that are late, one misfit a kind."""
    late = {slot: wait for slot, wait in standing.waits.items() if slot in standing.late}
    found = []
    for stage in sorted({wait.stage for wait in late.values() if wait.stage is not None}):
        reason = Reason.NOT_STARTING if stage is Stage.BOUND else Reason.NOT_BINDING
        found.append(Misfit(reason, TextEvidence(_detail(standing, late, stage))))
    if missing := sum(wait.stage is None for wait in late.values()):
        total = len(standing.duties())
        found.append(Misfit(Reason.WAITING_FOR_MEMBERS, CountEvidence(total, total - missing)))
    if any(wait.decides for wait in late.values()):
        found.append(Misfit(Reason.NOT_REQUEUEABLE, TextEvidence(standing.seen.name)))
    return tuple(found)


def _detail(standing: Standing, late: dict[int, Wait], stage: Stage | None) -> str:
    """What is missing: how many pods, or the first late one with its node and the cluster's own words about it."""
    slots = [slot for slot, wait in late.items() if wait.stage is stage]
    if stage is None:
        return f"{len(slots)} of {len(standing.duties())} pods were not created"
    filler = standing.filler()
    members = sorted((filler[slot] for slot in slots if slot in filler), key=lambda one: (one.name, one.uid))
    if not members:
        return ""
    first = _words(members[0])
    return f"{len(members)} of {len(standing.duties())} pods not released: {first}" if stage is Stage.GATED else first


def _words(member: Member) -> str:
    gates = f"gates {', '.join(member.foreign_gates)}" if member.foreign_gates else ""
    return " ".join(word for word in (member.name, member.node or member.pinned or "", gates, member.trouble) if word)
