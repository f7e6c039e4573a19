"""Whether a waiting gang may be tried at all. Every blocker is collected, never only the first."""

from __future__ import annotations

from collections.abc import Callable

from queuectl.engine.asks import levels
from queuectl.engine.branches import Branches
from queuectl.engine.standing import Standing
from queuectl.model.reasons import CountEvidence, Misfit, Reason, TextEvidence
from queuectl.model.settings import Settings

UNPINNABLE = "its node affinity cannot be tightened to one node"


def blockers(
    standing: Standing, branches: Branches, known: Callable[[str], bool], settings: Settings, now: int
) -> tuple[Misfit, ...]:
    """What keeps the gang from being tried, whatever the nodes: its own state, then its queue's. O(members)."""
    gang = standing.gang
    if gang is None:
        return ()
    found = list(gang.blocked)
    if standing.refused is not None:
        found.append(standing.refused)
    core, shapes, filler = standing.core(), standing.shapes(), standing.filler()
    if standing.waiting and (have := sum(count for shape, count in shapes if shape is not None)) < len(core):
        found.append(Misfit(Reason.WAITING_FOR_MEMBERS, CountEvidence(len(core), have)))
    members = [filler[slot] for slot in core if slot in filler] if filler else []
    texts = [(Reason.FOREIGN_GATE, gate) for member in members for gate in member.foreign_gates]
    if standing.waiting and any(role.gates for role in gang.roles):
        # A pod that does not exist yet will come with the gates of its template, and could not be released.
        empty = {standing.role_of(slot) for slot in core if slot not in filler}
        texts += [(Reason.FOREIGN_GATE, gate) for role in gang.roles if role in empty for gate in role.gates]
    if not gang.best_effort:
        texts += [(Reason.UNMODELLED, what) for shape, _ in shapes if shape is not None for what in shape.unmodelled]
    texts += [(Reason.UNKNOWN_LEVEL, level) for level in levels(standing) if not known(level)]
    texts += [(Reason.INVALID_REQUEST, UNPINNABLE) for member in members if not member.pinnable]
    found += [Misfit(reason, TextEvidence(what)) for reason, what in dict.fromkeys(texts)]
    deactivated = any(misfit.reason is Reason.DEACTIVATED for misfit in gang.blocked)
    if gang.requeues > settings.max_requeues and not deactivated:
        found.append(Misfit(Reason.DEACTIVATED, CountEvidence(settings.max_requeues, gang.requeues)))
    elif now < gang.not_before:
        found.append(Misfit(Reason.BACKOFF, CountEvidence(gang.not_before, gang.requeues)))
    return (*found, *branches.misfits(gang.queue))
