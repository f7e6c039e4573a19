"""What our own side does with a plan, without a wire: record, release, and take back.

The steps and their order are those of ``control/release.py``; here every write succeeds after its delay, unless the gang
was edited between the decision and its record, which is the one race that a single controller meets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from queuectl.drivers.replay.agenda import Agenda
from queuectl.drivers.replay.cluster import Cluster
from queuectl.drivers.replay.life import Delays, Life
from queuectl.model.changes import Change, RecordSeen, WriteFailed
from queuectl.model.gangs import GiveBack, Place, Record
from queuectl.model.plan import Action, Admit, AdmitExtra, Cause, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence

_LOST = Misfit(Reason.PATCH_REJECTED, TextEvidence("the PodGroup changed while it was admitted"))


class GivenBack(Struct, frozen=True):
    """A gang was given back at ``at`` (ms) for ``cause``."""

    at: int
    gang: str
    cause: Cause


class Release:
    """Carries actions out on a cluster. ``given_back`` is the history of what was taken back, oldest first."""

    def __init__(self, cluster: Cluster, tell: Callable[[Change], None], agenda: Agenda, delays: Delays) -> None:
        self._cluster, self._tell, self._agenda, self._delays = cluster, tell, agenda, delays
        self.given_back: list[GivenBack] = []

    def accept(self, action: Action) -> None:
        """Take over one action of a plan. Refusals are only told, which nobody hears here."""
        life = self._cluster.gangs.get(action.gang)
        if life is None:
            return
        match action:
            case Admit():
                admit = action
                if life.submission.lone:
                    self._agenda.after(self._delays.release, partial(self._release_lone, life, admit))
                elif life.gang.round >= admit.round:
                    self._agenda.after(self._delays.release, partial(self._release, life, admit))
                else:
                    self._agenda.after(self._delays.record, partial(self._record, life, admit, life.generation))
            case AdmitExtra():
                self._agenda.after(self._delays.release, partial(self._extra, life, action))
            case Withdraw():
                self._agenda.after(self._delays.record, partial(self._withdraw, life, action))
            case _:
                pass

    def _gone(self, life: Life) -> bool:
        return self._cluster.gangs.get(life.gang.uid) is not life

    def _record(self, life: Life, admit: Admit, generation: int) -> None:
        if self._gone(life):
            return
        gang = life.gang
        if gang.round < admit.round:
            if life.generation != generation:
                self._tell(WriteFailed(gang.uid, admit.round, _LOST, retry=True))
                return
            record = Record(admit.round, admit.places, admit.decided_at)
            # A requeue asked for while it waited is answered by the record.
            self._cluster.change(life, record=record, round=admit.round, handled=gang.requested)
            self._tell(RecordSeen(gang.uid, record))
            if life.suspended:
                self._cluster.resume(life)
        self._agenda.after(self._delays.release, partial(self._release, life, admit))

    def _release(self, life: Life, admit: Admit) -> None:
        record = life.gang.record
        if self._gone(life) or life.gang.evicted or record is None or record.round != admit.round:
            return
        pinned = [(one.member, one.node) for one in admit.assignments if one.member is not None]
        released = [uid for uid, node in pinned if self._cluster.release(life, uid, node, None)]
        if released:
            self._cluster.bind_later(life, released)

    def _release_lone(self, life: Life, admit: Admit) -> None:
        """A group of one: decision, pin and release in one patch."""
        uid, node = life.gang.uid, admit.places[0].node
        record = Record(admit.round, admit.places, admit.decided_at)
        if not self._gone(life) and self._cluster.release(life, uid, node, record):
            self._cluster.change(life, record=record, round=admit.round)
            self._tell(RecordSeen(uid, record))
            self._cluster.bind_later(life, [uid])

    def _extra(self, life: Life, extra: AdmitExtra) -> None:
        if self._gone(life) or life.gang.evicted:
            return
        record = Record(extra.round, (Place(extra.slot, extra.node),), extra.decided_at)
        if self._cluster.release(life, extra.member, extra.node, record):
            self._cluster.bind_later(life, [extra.member])

    def _withdraw(self, life: Life, withdraw: Withdraw) -> None:
        gang = life.gang
        if self._gone(life) or gang.finished:
            return
        by_hand = withdraw.cause is Cause.REQUESTED
        blocked = tuple(one for one in gang.blocked if one.reason is not Reason.DEACTIVATED)
        if gang.record is None:
            if by_hand:
                self._cluster.change(life, requeues=0, not_before=0, handled=gang.requested, blocked=blocked)
            return
        if gang.record.round != withdraw.round:
            return
        requeues = 0 if by_hand else gang.requeues + 1
        if withdraw.deactivate:
            text = f"given back {requeues} times, last for {withdraw.cause}"
            blocked = (*blocked, Misfit(Reason.DEACTIVATED, TextEvidence(text)))
        self.given_back.append(GivenBack(self._agenda.now, gang.name, withdraw.cause))
        not_before = 0 if by_hand else withdraw.not_before
        self._cluster.change(
            life, evicted=True, requeues=requeues, not_before=not_before, handled=gang.requested, blocked=blocked
        )
        take = self._cluster.suspend if gang.give_back is GiveBack.SUSPEND else self._cluster.evict
        take(life, partial(self._returned, life))

    def _returned(self, life: Life) -> None:
        """Nothing of it is left: back in its queue at its old place. Of a pod on its own there is nothing to come back."""
        if life.submission.lone:
            self._cluster.delete(life)
            return
        self._cluster.change(life, record=None, evicted=False)
        if life.suspended:
            self._cluster.resume(life)
