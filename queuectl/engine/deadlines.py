"""What a gang must reach in time after its admission, and what happens when it does not.

Progress is stamped with the time of the first decision that sees it, so every deadline is a plain sum of integers.
"""

from __future__ import annotations

from queuectl.engine.standing import LIVE, Phase, Standing
from queuectl.model.gangs import GiveBack, Member, Stage
from queuectl.model.plan import Cause, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from queuectl.model.settings import Settings

_BINDING, _STARTING, _STUCK = 1, 2, 3


def stamp(standing: Standing, settings: Settings, now: int) -> None:
    """Note progress and set ``due``: the time at which ``overdue`` has something to say, None for never. O(members)."""
    gang = standing.gang
    standing.due = None
    if gang is None or gang.finished:
        return
    if standing.phase is Phase.PENDING:
        standing.due = gang.not_before if now < gang.not_before else None
        return
    if standing.placed is None or standing.assumed is not None or standing.phase is Phase.LEAVING:
        return
    stages = [member.stage for member in standing.members.values() if member.stage in LIVE]
    if Stage.RELEASED in stages:
        # Any step of any member is progress towards being bound.
        progress = (_BINDING, standing.round, *(sum(stage >= one for stage in stages) for one in LIVE))
    elif Stage.BOUND in stages:
        progress = (_STARTING, standing.round)
    elif standing.stuck:
        progress = (_STUCK, standing.round)
    else:
        progress = ()
    if progress != standing.progress:
        standing.progress, standing.since, standing.notes = progress, now, ()
    if progress and not standing.withdrawn and not standing.notes:
        limit = settings.start_timeout if progress[0] == _STARTING else settings.bind_timeout
        standing.due = standing.since + limit


def overdue(standing: Standing, settings: Settings, now: int) -> Withdraw | None:
    """Give the gang back if its deadline has passed; with an owner that cannot, only note it. Call when ``due`` is up."""
    gang = standing.gang
    if gang is None or standing.phase is Phase.PENDING or not standing.progress:
        return None
    kind = standing.progress[0]
    late = Stage.BOUND if kind == _STARTING else Stage.RELEASED
    members = sorted(
        (member for member in standing.members.values() if member.stage is late), key=lambda one: (one.name, one.uid)
    )
    detail = _detail(members)
    if gang.give_back is GiveBack.NONE:
        reason = Reason.NOT_STARTING if kind == _STARTING else Reason.NOT_BINDING
        standing.notes = (
            Misfit(reason, TextEvidence(detail)),
            Misfit(Reason.NOT_REQUEUEABLE, TextEvidence(gang.name)),
        )
        return None
    cause = {_BINDING: Cause.BIND_DEADLINE, _STARTING: Cause.START_DEADLINE, _STUCK: Cause.NODE_LOST}[kind]
    return withdraw(standing, settings, now, cause, detail)


def withdraw(standing: Standing, settings: Settings, now: int, cause: Cause, detail: str) -> Withdraw:
    """Give the gang back with the back-off it has earned; once a round."""
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
    """The answer to a requeue asked for by hand, once per request: at once, and without counting against the gang."""
    gang = standing.gang
    if gang is None or not gang.requested or gang.requested in (gang.handled, standing.handled):
        return None
    if standing.phase is Phase.ASSUMED or standing.withdrawn or standing.phase is Phase.LEAVING:
        return None  # answered when that has ended
    standing.handled = gang.requested
    held = standing.phase is not Phase.PENDING
    if gang.finished or (held and gang.give_back is GiveBack.NONE):
        standing.notes = () if gang.finished else (Misfit(Reason.NOT_REQUEUEABLE, TextEvidence(gang.name)),)
        return None
    waits = any(misfit.reason in (Reason.BACKOFF, Reason.DEACTIVATED) for misfit in standing.blockers)
    if not held and not waits:
        return None
    standing.withdrawn = held
    return Withdraw(gang.uid, standing.round or gang.round, Cause.REQUESTED, gang.requested, now)


def _detail(members: list[Member]) -> str:
    """Names of what is late: the pod, its node, and the cluster's own words about it."""
    if not members:
        return ""
    first = members[0]
    return " ".join(word for word in (first.name, first.node or first.pinned or "", first.trouble) if word)
