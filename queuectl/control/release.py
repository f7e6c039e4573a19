"""A decision becomes writes, and survives any crash: ask, record, release, note; and back.

``Release`` is a pure step machine. ``next_writes`` derives from the mirror (``Source``) and the engine's intents what is
still to be written for each touched gang; ``on_reply`` says what an answer means to the engine. Nothing here waits, sends
or keeps a copy of the cluster: after a restart the same writes follow from the same objects, because every step leaves
its trace on an object before the next one begins.

    pending ── ask ── RECORD ── (resume owner) ── release each member ── note ── finish
                        │
                      EVICTED ── suspend owner ── (its pods go) ── RETURN ── resume owner ── pending
          budgets ───── EVICTED ── evict each member ── (they go) ── RETURN ── pending

Order is the safety argument. A gate goes only after the record of that very round was read back from the API server
(P1). A record is compared and set on the version it was decided on. Giving back is written before the owner is touched,
and the owner's own annotation says, in the same write as ``spec.suspend``, that it was us and in which round. An eviction
names the UID of a pod that was released in the round being given back: whatever has its name later is not meant. A place is
free when no release of its member can be carried out any more, not even one that was never answered (``lost.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from queuectl.contract import foreign, owners, patches, translate
from queuectl.contract.foreign import Custom, Workload
from queuectl.contract.owners import shorten
from queuectl.control import muster
from queuectl.control.answers import is_stale_fence, lacks_rights, rejected
from queuectl.control.lost import LostReleases
from queuectl.control.ports import ClusterError, Conflict, NotFound, Refused, Throttled, Unreachable
from queuectl.control.source import Source
from queuectl.control.steps import (
    Fenced,
    Step,
    Target,
    Write,
    ask_budgets,
    eviction,
    on_group,
    on_owner,
    on_pod,
    pod_target,
    with_record,
)
from queuectl.model.changes import Change, RecordSeen, WriteFailed
from queuectl.model.gangs import GiveBack, Place, Record, Stage
from queuectl.model.plan import Action, Admit, AdmitExtra, Cause, Refuse, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence

ASK_AGAIN = 10_000  # milliseconds for which the answer to a dry run holds for all pods of its kind: policies may change
SPARED = 2_000  # … and that budgets let a gang go: others use them up too, so only while the write that follows is made
KINDS_KEPT = 4096  # answers remembered; more only means to ask again


class Intent(Struct):
    """An admission that the engine has decided: what to make true. ``asked`` are kinds of pods already accepted for it."""

    admit: Admit
    generation: int
    asked: set[object]


def _any(_: Target) -> bool:
    return True


class Release:
    """The step machine. Cost of ``next_writes``: O(members of the gang)."""

    def __init__(self, view: Source) -> None:
        self._view = view
        self.intents: dict[str, Intent] = {}
        self.extras: dict[str, AdmitExtra] = {}
        self.withdrawals: dict[str, Withdraw] = {}
        self.protected: dict[str, Misfit] = {}  # gangs that are to be given back and may not yet → why
        self.lost = LostReleases()
        self._returning: dict[str, Write] = {}  # gangs that their users took away → what was sent to return them
        self._spared: dict[str, int] = {}  # gangs → when budgets let all their members go
        self._accepted: dict[object, int] = {}  # kind of pods → when the API server last accepted a dry run of one
        self._now = 0

    # ---- what the engine wants

    def accept(self, action: Action) -> None:
        """Take over one action of a plan. The latest admission of a gang replaces the one before."""
        match action:
            case Admit():
                before = self.intents.get(action.gang)
                group = self._view.groups.get(action.gang)
                if before is not None and before.admit.round == action.round:
                    self.intents[action.gang] = Intent(action, before.generation, before.asked)
                else:
                    self.intents[action.gang] = Intent(action, group.metadata.generation if group else 0, set())
            case AdmitExtra():
                self.extras[action.member] = action
            case Withdraw():
                self.withdrawals[action.gang] = action
                self.intents.pop(action.gang, None)
            case Refuse():
                return
        self._view.touched.add(action.gang)

    def forget(self, gang: str) -> None:
        """The gang no longer exists."""
        self.intents.pop(gang, None)
        self.withdrawals.pop(gang, None)
        self.protected.pop(gang, None)
        self._spared.pop(gang, None)
        self._returning.pop(gang, None)
        for member in [uid for uid, extra in self.extras.items() if extra.gang == gang]:
            del self.extras[member]

    # ---- what is to be written now

    def next_writes(self, gang: str, fence: int, now: int, free: Callable[[Target], bool] = _any) -> Iterator[Write]:
        """Every write that the state of one gang calls for now, independent of each other.

        ``now`` is wall-clock milliseconds, for the times shown in status and the age of answers to dry runs. Releases of
        pods that are not ``free`` (on their way, or to be left alone for now) are not even made.
        """
        self._now = now
        group = self._view.groups.get(gang)
        if group is None:
            yield from self._lone(gang, fence)
            return
        owner, status = self._view.owner(group), group.status or {}
        flags = translate.conditions(status)
        record = translate.record(status)
        if gang in self.withdrawals and not _stands(self.withdrawals[gang], record):
            del self.withdrawals[gang]
        if not (flags.get("Evicted") or gang in self.withdrawals):
            self.protected.pop(gang, None)  # given back, or not to be any more
        if flags.get("Finished"):
            self.forget(gang)
        elif self._over(gang, owner):
            yield self._finish(group, owner, fence, now)
        elif flags.get("Evicted") and record is not None:
            self.withdrawals.pop(gang, None)  # said, whatever became of the answer
            yield from self._give_back(group, owner, record, fence, now, free)
        elif (returning := self._returning.pop(gang, None)) is not None and self.due(returning):
            self._returning[gang] = (
                returning  # whoever resumes it now: what was sent once may be carried out at any moment
            )
            yield returning
        elif record is not None and owner is not None and translate.own_suspend(group, owner):
            # Its user takes it away already, and means it. Whoever resumes it in time is still answered what was asked before.
            if not muster.live(self._view, gang) and self._settled(gang, free):
                body = patches.returned(group, fence, now, Reason.SUSPENDED.value)
                self._returning[gang] = on_group(Step.RETURN, group, body, record.round)
                yield self._returning[gang]
        elif (withdraw := self.withdrawals.get(gang)) is not None:
            yield from self._withdraw(withdraw, group, record, fence, now)
        elif record is not None:
            yield from self._complete(group, owner, record, fence, now, free)
        else:
            yield from self._pending(group, owner, fence, now)

    def _pending(self, group: Custom, owner: Workload | None, fence: int, now: int) -> Iterator[Write]:
        """No record: undo what a give-back left behind, or carry out the engine's admission."""
        gang, status = group.metadata.uid, group.status or {}
        round_ = int(status.get("round") or 0)
        edited = int(status.get("observedGeneration") or 0) < group.metadata.generation
        if edited and translate.conditions(status).get("Deactivated"):
            yield on_group(Step.RESET, group, patches.reset(group, fence, now))
            return
        suspended = translate.awaits_resume(owner)
        if owner is not None and suspended and translate.suspension_step(owner, gang, round_) == "suspended":
            # Alone: a record made meanwhile would take this resume for its own, and later the user's suspend too.
            yield on_owner(Step.RESUME, gang, owner, round_, fence)
            return
        yield from self._extras(gang, 0, fence)  # of a gang that ran before we knew of it
        intent = self.intents.get(gang)
        if intent is not None and intent.admit.round <= round_:
            del self.intents[gang]  # a round is used once: this one was recorded and given back
        elif intent is not None:
            yield from self._admit(group, owner, intent, fence)

    def _admit(self, group: Custom, owner: Workload | None, intent: Intent, fence: int) -> Iterator[Write]:
        """Not recorded yet: ask about one member of each kind, then record."""
        admit = intent.admit
        asking: set[object] = set()
        for one in admit.assignments:
            tracked = self._view.pods.get(one.member or "")
            if tracked is None or tracked.member.stage is not Stage.GATED:
                continue
            kind = tracked.kind
            if not self._answered(intent, kind) and kind not in asking:
                asking.add(kind)
                yield on_pod(Step.ASK, tracked, one.node, admit.round, fence)
        if not asking:
            resumes = translate.awaits_resume(owner)
            body = patches.record(group, admit.round, admit.decided_at, admit.places, fence, resumes=resumes)
            yield on_group(Step.RECORD, group, body, admit.round)

    def _answered(self, intent: Intent, kind: object) -> bool:
        """Whether the release of such a pod was accepted: once for this admission, or just now for another gang's."""
        if kind not in intent.asked and self._now - self._accepted.get(kind, -ASK_AGAIN) < ASK_AGAIN:
            intent.asked.add(kind)
        return kind in intent.asked

    def _complete(
        self,
        group: Custom,
        owner: Workload | None,
        record: Record,
        fence: int,
        now: int,
        free: Callable[[Target], bool],
    ) -> Iterator[Write]:
        """Recorded: resume the owner, release every member that has its place, note when all have started."""
        gang, status = group.metadata.uid, group.status or {}
        waits = bool((status.get("requeue") or {}).get("suspendedByUs"))  # for our resume, which comes before the note
        waits = waits and owner is not None and not translate.resumed(owner, gang, record.round)
        if waits and owner is not None:
            # Also where its user was faster: the annotation is what tells the user's next suspend from the one before.
            yield on_owner(Step.RESUME, gang, owner, record.round, fence)
        intent = self.intents.get(gang)
        if intent is not None and intent.admit.round == record.round:
            recorded = set(record.places)
            for one in intent.admit.assignments:
                tracked = self._view.pods.get(one.member or "")
                if tracked is None or not muster.ready(tracked) or Place(one.slot, one.node) not in recorded:
                    continue
                if free(pod_target(tracked)):
                    yield on_pod(Step.RELEASE, tracked, one.node, record.round, fence)
        yield from self._extras(gang, record.round, fence)
        if not (waits or translate.conditions(status).get("Running")) and muster.all_started(self._view, gang, record):
            body = patches.note(group, muster.counts(self._view, gang), fence, now)
            yield on_group(Step.NOTE, group, body, record.round)

    def _extras(self, gang: str, round_: int, fence: int) -> Iterator[Write]:
        """Members beyond the record, and successors of lost ones."""
        for uid in self._view.members.get(gang, ()):
            extra = self.extras.get(uid)
            if extra is not None and extra.round == round_ and muster.ready(self._view.pods[uid]):
                yield with_record(Step.EXTRA, self._view.pods[uid], extra, fence)

    def _lone(self, gang: str, fence: int) -> Iterator[Write]:
        """A group of one: decision, pin and release in one patch; given back by its eviction, after which nothing is left."""
        intent, tracked = self.intents.get(gang), self._view.pods.get(gang)
        if intent is None:
            if (withdraw := self.withdrawals.get(gang)) is not None:
                yield from (eviction(one, withdraw.round) for one in muster.evictable(self._view, gang))
            return
        if tracked is None:
            self.forget(gang)
        elif muster.ready(tracked):
            one = intent.admit.assignments[0]
            extra = AdmitExtra(gang, intent.admit.round, intent.admit.decided_at, one.slot, one.node, gang)
            yield with_record(Step.RELEASE, tracked, extra, fence)

    def _withdraw(
        self, withdraw: Withdraw, group: Custom, record: Record | None, fence: int, now: int
    ) -> Iterator[Write]:
        """The engine gives the gang back: say so first. A waiting gang only gets its status cleared, when it asked for that."""
        gang = withdraw.gang
        if record is None:
            yield on_group(Step.RESET, group, patches.reset(group, fence, now))
        elif (known := self._view.gang(gang)) is not None and known.give_back is GiveBack.EVICT and self._guarded(gang):
            yield ask_budgets(group, withdraw.round)
            yield from self._excuse(group, fence)
        else:
            body = patches.evicted(group, withdraw, fence, now)
            yield on_group(Step.EVICTED, group, body, withdraw.round)

    def _guarded(self, gang: str) -> bool:
        """Whether budgets must be asked first: they guard what runs, and the answer does not hold for long."""
        if self._now - self._spared.get(gang, -SPARED) < SPARED:
            return False
        return next(muster.evictable(self._view, gang, running=True), None) is not None

    def _excuse(self, group: Custom, fence: int) -> Iterator[Write]:
        """Say why the gang is not given back yet, where its status does not."""
        if (misfit := self.protected.get(group.metadata.uid)) is not None:
            body = patches.blocker(group, (misfit,), fence)
            if (group.status or {}).get("blocker") != body["status"]["blocker"]:
                yield on_group(Step.BLOCKER, group, body)

    def _give_back(
        self,
        group: Custom,
        owner: Workload | None,
        record: Record,
        fence: int,
        now: int,
        free: Callable[[Target], bool],
    ) -> Iterator[Write]:
        """Evicted: have the owner take its pods away, or evict them; when nothing is left, return the gang to its queue.

        What ``spec.suspend`` and the annotation of an owner say in this round:

        - not suspended: we do it, and again where somebody has resumed it while pods of the round live;
        - suspended, marked "suspended": by us, to be resumed when the gang has returned;
        - suspended, marked "resumed": by its user since. It is left alone, and the gang returns as Suspended;
        - suspended, not marked: by its user too if it ran when it was admitted; if it was queued suspended, it still is, and
          we take it over.

        What is evicted is made anew behind our gate at once, so here a release that is still on its way could let go of a
        pod of the next round: the gang returns only when there is none.
        """
        gang = group.metadata.uid
        live = muster.live(self._view, gang)
        reason = str(((group.status or {}).get("requeue") or {}).get("reason") or "GivenBack")
        table = owners.of(owner) if owner is not None else None
        if owner is not None and table is not None and table.give_back is GiveBack.SUSPEND:
            suspended = translate.suspension_step(owner, gang, record.round) == "suspended"
            if translate.own_suspend(group, owner):
                reason = Reason.SUSPENDED.value
            elif not suspended or (live and not table.suspended(owner)):
                yield on_owner(Step.SUSPEND, gang, owner, record.round, fence)
                return
            if table.suspended(owner) and not table.vacated(owner):
                return
        elif live and (known := self._view.gang(gang)) is not None and known.give_back is GiveBack.EVICT:
            yield from (eviction(tracked, record.round) for tracked in muster.evictable(self._view, gang))
            yield from self._excuse(group, fence)
            return
        if not live and self._settled(gang, free):
            yield on_group(Step.RETURN, group, patches.returned(group, fence, now, reason), record.round)

    def _settled(self, gang: str, free: Callable[[Target], bool]) -> bool:
        """Whether no release of this round can be carried out any more: none is on its way, and of none is the fate unknown."""
        return not self.lost.lingers(self._view, gang=gang) and all(map(free, muster.gated(self._view, gang)))

    def _over(self, gang: str, owner: Workload | None) -> bool:
        """Whether nothing of the gang is still to come: its owner has ended or is gone, or every member succeeded."""
        known = self._view.gang(gang)
        ended = owners.of(owner).finished(owner) if owner is not None else muster.all_over(self._view, gang)
        return ended or (known is not None and known.finished)

    def _finish(self, group: Custom, owner: Workload | None, fence: int, now: int) -> Write:
        reason = "Failed" if owner is not None and owners.of(owner).failed(owner) else "Completed"
        found = muster.counts(self._view, group.metadata.uid)
        return on_group(Step.FINISH, group, patches.finished(group, found, fence, now, reason))

    def due(self, write: Write) -> bool:
        """Whether a write that has waited for its turn is still called for. O(1).

        It was derived from a state that may be over: its gang given back, deleted or decided anew. A version that is no
        longer the object's would be refused anyway; the gate of a gang that is gone would not.
        """
        if write.step in (Step.CREATE, Step.QUEUE):
            return True
        if write.step is Step.BUDGETS:
            return write.gang in self.withdrawals
        group, tracked = self._view.groups.get(write.gang), self._view.pods.get(write.member)
        version, intent = write.body["metadata"].get("resourceVersion"), self.intents.get(write.gang)
        decided = intent is not None and intent.admit.round == write.round
        if write.kind is foreign.PODS:
            if tracked is None or (tracked.version != version and write.step is not Step.EVICT):
                return False
            if write.step in (Step.VOID, Step.BLOCKER):
                return True
            if write.gang == write.member:
                return write.gang in self.withdrawals if write.step is Step.EVICT else decided
        if group is None or (write.kind is foreign.POD_GROUPS and group.metadata.resource_version != version):
            return False
        status = group.status or {}
        match write.step:
            case Step.ASK:
                return decided and not (tracked and intent and self._answered(intent, tracked.kind))
            case Step.RECORD:
                return decided
            case Step.RELEASE | Step.EXTRA:
                given_back = write.gang in self.withdrawals or translate.conditions(status).get("Evicted")
                recorded = int((status.get("admission") or {}).get("round") or 0) == write.round
                return recorded and not (given_back or translate.own_suspend(group, self._view.owner(group)))
            case Step.EVICT:
                record = translate.record(status)
                evicted = translate.conditions(status).get("Evicted") and record is not None
                leaving = tracked is None or tracked.member.leaving
                return bool(evicted and not leaving and record and record.round == write.round)
            case Step.RESUME:
                return (owner := self._view.owner(group)) is not None and not translate.resumed(
                    owner, write.gang, write.round
                )
            case _:
                return True

    # ---- what an answer means

    def on_reply(self, write: Write, reply: object) -> list[Change]:
        """Changes for the engine. ``reply`` is the object as stored, or the ClusterError.

        The caller has already put the object (or, after an error, the object as it was then read back) into the mirror,
        so that an unknown outcome is settled by what is there now. Raises Fenced.
        """
        if isinstance(reply, Refused) and is_stale_fence(reply.message):
            raise Fenced(reply.message)
        self._view.touched.add(write.gang)
        if not isinstance(reply, ClusterError):
            return self._done(write)
        if write.step in (Step.BUDGETS, Step.EVICT) and isinstance(reply, Throttled | Refused):
            self.protected[write.gang] = Misfit(Reason.VICTIM_PROTECTED, TextEvidence(shorten(reply.message, 300)))
            return []
        if isinstance(reply, Unreachable) and write.step in (Step.RELEASE, Step.EXTRA):
            self.lost.note(self._view, write, self._now)
        if isinstance(reply, Throttled | Unreachable) or lacks_rights(reply):
            return []
        match write.step:
            case Step.ASK if isinstance(reply, Refused):
                return self._asked_in_vain(write, reply)
            case Step.RECORD:
                return self._record_failed(write, reply)
            case Step.RELEASE | Step.EXTRA if isinstance(reply, Refused):
                return self._release_failed(write, reply)
            case _:
                return []

    def _done(self, write: Write) -> list[Change]:
        match write.step:
            case Step.ASK:
                if (intent := self.intents.get(write.gang)) and (tracked := self._view.pods.get(write.member)):
                    intent.asked.add(tracked.kind)
                    if len(self._accepted) >= KINDS_KEPT:
                        self._accepted.clear()
                    self._accepted[tracked.kind] = self._now
            case Step.RECORD:
                group = self._view.groups.get(write.gang)
                record = translate.record(group.status or {}) if group is not None else None
                if record is not None and record.round == write.round:
                    return [RecordSeen(write.gang, record)]
            case Step.RELEASE if write.gang == write.member and (intent := self.intents.get(write.gang)):
                admit = intent.admit
                return [RecordSeen(write.gang, Record(admit.round, admit.places, admit.decided_at))]
            case Step.EXTRA:
                self.extras.pop(write.member, None)
            case Step.BUDGETS:
                self._spared[write.gang] = self._now
                self.protected.pop(write.gang, None)
            case Step.EVICT:
                self.protected.pop(write.gang, None)
            case Step.EVICTED | Step.RESET | Step.FINISH:
                self._spared.pop(write.gang, None)
                self.withdrawals.pop(write.gang, None)
            case _:
                pass
        return []

    def _asked_in_vain(self, write: Write, reply: Refused) -> list[Change]:
        """The dry run was refused: nothing was done, and trying again will not help."""
        if "does not support dry run" in reply.message:
            return self._done(write)
        tracked = self._view.pods.get(write.member)
        if tracked is None or not muster.ready(tracked):
            return []  # the pod changed under us; what is there now decides
        self._accepted.pop(tracked.kind, None)
        self.intents.pop(write.gang, None)
        return [WriteFailed(write.gang, write.round, rejected(reply))]

    def _record_failed(self, write: Write, reply: ClusterError) -> list[Change]:
        """Lost a race, or refused. A gang whose spec is still the one decided on is recorded again; else it is decided anew."""
        intent, group = self.intents.get(write.gang), self._view.groups.get(write.gang)
        if intent is None or group is None:
            self.intents.pop(write.gang, None)
            return []
        record = translate.record(group.status or {})
        if record is not None and record.round == write.round:
            return [RecordSeen(write.gang, record)]
        same = group.metadata.generation == intent.generation
        if (
            isinstance(reply, Conflict | NotFound)
            and same
            and int((group.status or {}).get("round") or 0) < write.round
        ):
            return []
        del self.intents[write.gang]
        if isinstance(reply, Conflict | NotFound):
            lost = Misfit(Reason.PATCH_REJECTED, TextEvidence("the PodGroup changed while it was admitted"))
            return [WriteFailed(write.gang, write.round, lost, retry=True)]
        return [WriteFailed(write.gang, write.round, rejected(reply))]

    def _release_failed(self, write: Write, reply: Refused) -> list[Change]:
        """A member that the API server will not let start: for a group of one nothing was written, a gang is given back.

        One that cannot be given back stays torn, which the engine says, and is tried again, more and more seldom.
        Of one that was sent before without an answer, the first may still be carried out: that is ruled out before.
        """
        tracked = self._view.pods.get(write.member)
        if tracked is None or not muster.ready(tracked) or self.lost.refuse(self._view, write.member):
            return []
        self._accepted.pop(tracked.kind, None)
        if write.step is Step.EXTRA:
            self.extras.pop(write.member, None)
            return [WriteFailed(write.gang, write.round, rejected(reply), member=write.member)]
        known = self._view.gang(write.gang)
        if known is None or known.lone or known.give_back is not GiveBack.NONE:
            self.intents.pop(write.gang, None)
        return [WriteFailed(write.gang, write.round, rejected(reply))]


def _stands(withdraw: Withdraw, record: Record | None) -> bool:
    """Whether a withdrawal is of the round that is recorded; of a waiting gang a request by hand is answered too."""
    return record.round == withdraw.round if record is not None else withdraw.cause is Cause.REQUESTED
