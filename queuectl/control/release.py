"""A decision becomes writes, and survives any crash: ask, record, release, note; and back.

``Release`` is a pure step machine. ``next_writes`` derives from the mirror (``Source``) and the engine's intents what is
still to be written for each touched gang; ``on_reply`` says what an answer means to the engine. Nothing here waits, sends
or keeps a copy of the cluster: after a restart the same writes follow from the same objects, because every step leaves
its trace on an object before the next one begins.

    pending ── ask ── RECORD ── (resume owner) ── release each member ── note ── finish
                        │
                      EVICTED ── suspend owner ── (its pods go) ── RETURN ── resume owner ── pending

Order is the safety argument. A gate goes only after the record of that very round was read back from the API server
(P1). A record is compared and set on the version it was decided on. Giving back is written before the owner is touched,
and the owner's own annotation says, in the same write as ``spec.suspend``, that it was us and in which round.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from queuectl.contract import foreign, names, patches, translate
from queuectl.contract.foreign import Custom, Job, Kind
from queuectl.contract.owners import JOB
from queuectl.control.ports import ClusterError, Conflict, NotFound, Refused, Throttled, Unreachable
from queuectl.control.source import Source, Tracked
from queuectl.model.changes import Change, RecordSeen, WriteFailed
from queuectl.model.gangs import GiveBack, Place, Record, Stage
from queuectl.model.plan import Action, Admit, AdmitExtra, Refuse, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence

STALE_FENCE = "stale fence"  # what the fence policy answers: another process leads


class Fenced(Exception):
    """The API server refused a write because another process leads now: stop writing at once."""


class Step(enum.IntEnum):
    """Steps of the protocol; the number is the order in which waiting writes are sent: torn gangs come first."""

    RELEASE = 0  # pin and remove the gate of a member of a recorded gang
    RESUME = 1  # let an owner make its pods
    EXTRA = 2  # a member beyond the record, with its own record in the same patch
    EVICTED = 3  # say that the gang is given back
    SUSPEND = 4  # let the owner take its pods away
    RETURN = 5  # nothing is left: back in the queue
    RECORD = 6  # the decision
    ASK = 7  # would the API server accept the release? (dry run)
    CREATE = 8  # the PodGroup of an owner
    RESET = 9  # requeued by hand while waiting
    FINISH = 10
    NOTE = 11  # all have started
    BLOCKER = 12  # why it waits
    QUEUE = 13  # a queue's status


class Write(Struct, frozen=True):
    """One request. ``name`` of the object it goes to; ``gang`` and ``member`` say for whom."""

    step: Step
    kind: Kind
    namespace: str
    name: str
    body: dict[str, Any]
    gang: str
    round: int = 0
    member: str = ""
    subresource: str = ""
    dry_run: bool = False

    @property
    def target(self) -> tuple[str, str, str]:
        """The object it goes to."""
        return self.kind.plural, self.namespace, self.name


class Intent(Struct):
    """An admission that the engine has decided: what to make true. ``asked`` are the likenesses already accepted."""

    admit: Admit
    generation: int
    asked: set[object]


class Release:
    """The step machine. Cost of ``next_writes``: O(members of the gangs that were touched)."""

    def __init__(self, view: Source) -> None:
        self._view = view
        self.intents: dict[str, Intent] = {}
        self.extras: dict[str, AdmitExtra] = {}
        self.withdrawals: dict[str, Withdraw] = {}

    # ---- what the engine wants

    def accept(self, action: Action) -> None:
        """Take over one action of a plan. The latest admission of a gang replaces the one before."""
        match action:
            case Admit():
                before = self.intents.get(action.gang)
                group = self._view.groups.get(action.gang)
                asked = before.asked if before is not None and before.admit.round == action.round else set()
                generation = group.metadata.generation if group is not None else 0
                if before is not None and before.admit.round == action.round:
                    generation = before.generation
                self.intents[action.gang] = Intent(action, generation, asked)
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

    # ---- what is to be written now

    def next_writes(self, gang: str, fence: int, now: int) -> Iterator[Write]:
        """Every write that the state of one gang calls for now, independent of each other.

        ``now`` is wall-clock milliseconds, only for the times shown in status.
        """
        group = self._view.groups.get(gang)
        if group is None:
            yield from self._lone(gang, fence)
            return
        owner, status = self._view.owner(group), group.status or {}
        flags = translate.conditions(status)
        record = translate.record(status)
        if flags.get("Finished"):
            self.forget(gang)
        elif (owner is not None and JOB.finished(owner)) or self._all_over(gang):
            yield self._finish(gang, group, owner, fence, now)
        elif flags.get("Evicted") and record is not None:
            yield from self._give_back(gang, group, owner, record, fence, now)
        elif (withdraw := self.withdrawals.get(gang)) is not None:
            yield from self._withdraw(withdraw, group, record, fence, now)
        elif record is not None and owner is not None and translate.own_suspend(group, owner):
            if not self._live(gang):
                body = patches.returned(group, fence, now, Reason.SUSPENDED.value)
                yield self._on_group(Step.RETURN, gang, group, body, record.round)
        elif record is not None:
            yield from self._complete(gang, group, owner, record, fence, now)
        else:
            if flags.get("Deactivated") and int(status.get("observedGeneration") or 0) < group.metadata.generation:
                yield self._on_group(Step.RESET, gang, group, patches.reset(group, fence, now))  # edited: tried again
                return
            step = (owner.metadata.annotations or {}).get(names.SUSPENSION) if owner is not None else None
            if owner is not None and owner.spec.suspend and step == f"{status.get('round') or 0}:suspended":
                # Alone: a record made meanwhile would take this resume for its own, and later the user's suspend too.
                yield self._on_owner(Step.RESUME, gang, owner, int(status.get("round") or 0), fence, suspend=False)
                return
            yield from self._extras(gang, 0, fence)  # of a gang that ran before we knew of it
            intent = self.intents.get(gang)
            if intent is not None and intent.admit.round <= int(status.get("round") or 0):
                del self.intents[gang]  # a round is used once: this one was recorded and given back
            elif intent is not None:
                yield from self._admit(gang, group, owner, intent, fence)

    def _admit(self, gang: str, group: Custom, owner: Job | None, intent: Intent, fence: int) -> Iterator[Write]:
        """Not recorded yet: ask about one member of each likeness, then record."""
        admit = intent.admit
        asking = False
        seen: set[object] = set()
        for one in admit.assignments:
            tracked = self._view.pods.get(one.member or "")
            if tracked is None or tracked.member.stage is not Stage.GATED:
                continue
            if tracked.likeness in intent.asked or tracked.likeness in seen:
                continue
            seen.add(tracked.likeness)
            asking = True
            yield self._on_pod(Step.ASK, gang, tracked, one.node, admit.round, fence, dry_run=True)
        if not asking:
            resumes = owner is not None and owner.spec.suspend
            body = patches.record(group, admit.round, admit.decided_at, admit.places, fence, resumes=resumes)
            yield self._on_group(Step.RECORD, gang, group, body, admit.round)

    def _complete(
        self, gang: str, group: Custom, owner: Job | None, record: Record, fence: int, now: int
    ) -> Iterator[Write]:
        """Recorded: resume the owner, release every member that has its place, note when all have started."""
        status = group.status or {}
        if owner is not None and owner.spec.suspend and (status.get("requeue") or {}).get("suspendedByUs"):
            yield self._on_owner(Step.RESUME, gang, owner, record.round, fence, suspend=False)
        intent = self.intents.get(gang)
        if intent is not None and intent.admit.round == record.round:
            recorded = set(record.places)
            for one in intent.admit.assignments:
                tracked = self._view.pods.get(one.member or "")
                if tracked is None or not _ready(tracked) or Place(one.slot, one.node) not in recorded:
                    continue
                yield self._on_pod(Step.RELEASE, gang, tracked, one.node, record.round, fence)
        yield from self._extras(gang, record.round, fence)
        if not translate.conditions(status).get("Running") and self._all_started(gang, record):
            body = patches.note(group, self.counts(gang), fence, now)
            yield self._on_group(Step.NOTE, gang, group, body, record.round)

    def _extras(self, gang: str, round_: int, fence: int) -> Iterator[Write]:
        """Members beyond the record, and successors of lost ones."""
        for uid in self._view.members.get(gang, ()):
            extra = self.extras.get(uid)
            if extra is not None and extra.round == round_ and _ready(self._view.pods[uid]):
                yield self._with_record(Step.EXTRA, gang, self._view.pods[uid], extra, fence)

    def _lone(self, gang: str, fence: int) -> Iterator[Write]:
        """A group of one: decision, pin and release in one patch."""
        intent, tracked = self.intents.get(gang), self._view.pods.get(gang)
        if intent is None:
            return
        if tracked is None:
            self.forget(gang)
        elif _ready(tracked):
            one = intent.admit.assignments[0]
            extra = AdmitExtra(gang, intent.admit.round, intent.admit.decided_at, one.slot, one.node, gang)
            yield self._with_record(Step.RELEASE, gang, tracked, extra, fence)

    def _withdraw(
        self, withdraw: Withdraw, group: Custom, record: Record | None, fence: int, now: int
    ) -> Iterator[Write]:
        """The engine gives the gang back: say so first."""
        gang = withdraw.gang
        if record is None:
            yield self._on_group(Step.RESET, gang, group, patches.reset(group, fence, now))
        elif record.round != withdraw.round:
            del self.withdrawals[gang]  # of an earlier round, already done
        else:
            suspends = (known := self._view.gang(gang)) is not None and known.give_back is GiveBack.SUSPEND
            body = patches.evicted(group, withdraw, fence, now, suspends=suspends)
            yield self._on_group(Step.EVICTED, gang, group, body, withdraw.round)

    def _give_back(
        self, gang: str, group: Custom, owner: Job | None, record: Record, fence: int, now: int
    ) -> Iterator[Write]:
        """Evicted: have the owner take its pods away; when nothing is left, return the gang to its queue."""
        if owner is not None:
            step = (owner.metadata.annotations or {}).get(names.SUSPENSION)
            if step != f"{record.round}:suspended":
                yield self._on_owner(Step.SUSPEND, gang, owner, record.round, fence, suspend=True)
                return
            if owner.status.active:
                return
        if not self._live(gang):
            reason = str(((group.status or {}).get("requeue") or {}).get("reason") or "GivenBack")
            yield self._on_group(Step.RETURN, gang, group, patches.returned(group, fence, now, reason), record.round)

    def _finish(self, gang: str, group: Custom, owner: Job | None, fence: int, now: int) -> Write:
        failed = owner is not None and any(
            c.type == "Failed" and c.status == "True" for c in owner.status.conditions or ()
        )
        body = patches.finished(group, self.counts(gang), fence, now, "Failed" if failed else "Completed")
        return self._on_group(Step.FINISH, gang, group, body)

    def due(self, write: Write) -> bool:
        """Whether a write that has waited for its turn is still called for. O(1).

        It was derived from a state that may be over: its gang given back, deleted or decided anew. A version that is no
        longer the object's would be refused anyway; the gate of a gang that is gone would not.
        """
        if write.step in (Step.CREATE, Step.QUEUE):
            return True
        group, tracked = self._view.groups.get(write.gang), self._view.pods.get(write.member)
        version, intent = write.body["metadata"].get("resourceVersion"), self.intents.get(write.gang)
        decided = intent is not None and intent.admit.round == write.round
        if write.kind is foreign.PODS:
            if tracked is None or tracked.version != version:
                return False
            if write.gang == write.member:
                return decided
        if group is None or (write.kind is foreign.POD_GROUPS and group.metadata.resource_version != version):
            return False
        status = group.status or {}
        match write.step:
            case Step.ASK | Step.RECORD:
                return decided
            case Step.RELEASE | Step.EXTRA:
                given_back = write.gang in self.withdrawals or translate.conditions(status).get("Evicted")
                return not given_back and int((status.get("admission") or {}).get("round") or 0) == write.round
            case Step.RESUME:
                return (owner := self._view.owner(group)) is not None and owner.spec.suspend
            case _:
                return True

    # ---- what an answer means

    def on_reply(self, write: Write, reply: object) -> list[Change]:
        """Changes for the engine. ``reply`` is the object as stored, or the ClusterError.

        The caller has already put the object (or, after an error, the object as it was then read back) into the mirror,
        so that an unknown outcome is settled by what is there now. Raises Fenced.
        """
        if isinstance(reply, Refused) and STALE_FENCE in reply.message:
            raise Fenced(reply.message)
        self._view.touched.add(write.gang)
        if not isinstance(reply, ClusterError):
            return self._done(write)
        if isinstance(reply, Throttled | Unreachable):
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
                    intent.asked.add(tracked.likeness)
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
            case Step.EVICTED | Step.RESET | Step.FINISH:
                self.withdrawals.pop(write.gang, None)
            case _:
                pass
        return []

    def _asked_in_vain(self, write: Write, reply: Refused) -> list[Change]:
        """The dry run was refused: nothing was done, and trying again will not help."""
        if "does not support dry run" in reply.message:
            return self._done(write)
        tracked = self._view.pods.get(write.member)
        if tracked is None or not _ready(tracked):
            return []  # the pod changed under us; what is there now decides
        self.intents.pop(write.gang, None)
        return [WriteFailed(write.gang, write.round, _rejected(reply))]

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
        return [WriteFailed(write.gang, write.round, _rejected(reply))]

    def _release_failed(self, write: Write, reply: Refused) -> list[Change]:
        """A member that the API server will not let start: for a group of one nothing was written, a gang is given back."""
        tracked = self._view.pods.get(write.member)
        if tracked is None or not _ready(tracked):
            return []
        if write.step is Step.EXTRA:
            self.extras.pop(write.member, None)
            return [WriteFailed(write.gang, write.round, _rejected(reply), member=write.member)]
        self.intents.pop(write.gang, None)
        return [WriteFailed(write.gang, write.round, _rejected(reply))]

    # ---- looking at the mirror

    def counts(self, gang: str) -> dict[str, int]:
        """Members by stage, as status shows them."""
        stages = [self._view.pods[uid].member.stage for uid in self._view.members.get(gang, ())]
        return {
            "members": len(stages),
            "released": sum(stage is not Stage.GATED for stage in stages),
            "bound": sum(stage >= Stage.BOUND for stage in stages),
            "running": stages.count(Stage.RUNNING),
            "succeeded": stages.count(Stage.SUCCEEDED),
            "failed": stages.count(Stage.FAILED),
        }

    def _live(self, gang: str) -> bool:
        """Whether a pod of the gang still holds, or may come to hold, a node."""
        pods = (self._view.pods[uid].member for uid in self._view.members.get(gang, ()))
        return any(
            Stage.GATED < pod.stage < Stage.SUCCEEDED or (pod.leaving and pod.stage is Stage.GATED) for pod in pods
        )

    def _all_started(self, gang: str, record: Record) -> bool:
        started = sum(
            self._view.pods[uid].member.stage in (Stage.RUNNING, Stage.SUCCEEDED)
            for uid in self._view.members.get(gang, ())
        )
        return started >= len(record.places)

    def _all_over(self, gang: str) -> bool:
        """Whether a gang without a known owner has ended: every slot's member succeeded."""
        known = self._view.gang(gang)
        if known is None or known.give_back is not GiveBack.NONE:
            return False
        stages = [self._view.pods[uid].member.stage for uid in self._view.members.get(gang, ())]
        return stages.count(Stage.SUCCEEDED) >= max(known.maximum, 1)

    # ---- making writes

    def _on_group(self, step: Step, gang: str, group: Custom, body: dict[str, Any], round_: int = 0) -> Write:
        meta = group.metadata
        return Write(step, foreign.POD_GROUPS, meta.namespace, meta.name, body, gang, round_, subresource="status")

    def _on_owner(self, step: Step, gang: str, owner: Job, round_: int, fence: int, *, suspend: bool) -> Write:
        body = patches.suspension(owner, round_, fence, suspend=suspend)
        return Write(step, JOB.kind, owner.metadata.namespace, owner.metadata.name, body, gang, round_)

    def _on_pod(
        self, step: Step, gang: str, tracked: Tracked, node: str, round_: int, fence: int, *, dry_run: bool = False
    ) -> Write:
        member = tracked.member
        body = patches.release(member.uid, tracked.version, tracked.terms, node, fence)
        return Write(
            step, foreign.PODS, tracked.namespace, member.name, body, gang, round_, member.uid, dry_run=dry_run
        )

    def _with_record(self, step: Step, gang: str, tracked: Tracked, extra: AdmitExtra, fence: int) -> Write:
        member = tracked.member
        own = patches.own_record(extra.round, fence, extra.slot, extra.node, extra.decided_at)
        body = patches.release(member.uid, tracked.version, tracked.terms, extra.node, fence, own)
        return Write(step, foreign.PODS, tracked.namespace, member.name, body, gang, extra.round, member.uid)


def _ready(tracked: Tracked) -> bool:
    """Only our gate keeps the pod, and it is not on its way out."""
    member = tracked.member
    return member.stage is Stage.GATED and not member.foreign_gates and not member.leaving


def _rejected(reply: ClusterError) -> Misfit:
    return Misfit(Reason.PATCH_REJECTED, TextEvidence(reply.message[:500]))


def derive(view: Source, job: str) -> Write | None:
    """The PodGroup that a managed Job still lacks."""
    owner, queue = view.jobs.get(job), view.underived.get(job)
    if owner is None or queue is None:
        return None
    body = patches.derived_pod_group(JOB, owner, queue)
    meta = body["metadata"]
    return Write(Step.CREATE, foreign.POD_GROUPS, meta["namespace"], meta["name"], body, gang="", member=job)
