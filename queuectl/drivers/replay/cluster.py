"""The cluster's side of a replay: nodes, queues, gangs with their pods, and what owners, binder and kubelet do to them.

It holds the facts and tells every change of them; what it is told to do comes from a script (``steps``), from our own
side (``release``), or from the agenda. Delays are those of ``Delays``, none unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from queuectl.contract.seats import LEADER
from queuectl.drivers.replay.agenda import Agenda, Turn
from queuectl.drivers.replay.binding import Ledger
from queuectl.drivers.replay.life import (
    BACKOFF_LIMIT,
    FAILURE_BACKOFF,
    FAILURE_BACKOFF_LIMIT,
    HOLDING,
    Delays,
    Life,
    Seat,
    core,
)
from queuectl.drivers.replay.submission import Owner, Part, Submission
from queuectl.model.changes import (
    Change,
    GangGone,
    GangSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
)
from queuectl.model.gangs import Member, Place, Record, Stage
from queuectl.model.resources import Amounts
from queuectl.model.topology import Node


class Cluster:
    """All facts. ``gangs`` by UID; ``names`` finds the latest gang of a name."""

    def __init__(self, tell: Callable[[Change], None], agenda: Agenda, delays: Delays, *, forget: bool) -> None:
        self.nodes: dict[str, Node] = {}
        self.gangs: dict[str, Life] = {}
        self.names: dict[str, str] = {}
        self.ledger = Ledger()
        self._tell, self._agenda, self._delays, self._forget = tell, agenda, delays, forget
        self._home: dict[str, Life] = {}  # pod -> its gang
        self._unbound: dict[str, None] = {}
        self._on: dict[str, dict[str, None]] = {}  # node -> bound pods
        self._unheard: dict[str, list[tuple[Life, str]]] = {}  # node -> pods that ended while it was silent
        self._unmanaged: dict[str, tuple[str, Amounts]] = {}
        self._created = 0
        self._stirred = False
        self.ended: Callable[[Life], None] = lambda _: None

    # ---- nodes, and pods of others

    def see_node(self, node: Node) -> None:
        """A node appears or changes; one that is ready again finds its pods as it left them, but for those deleted."""
        self.nodes[node.name] = node
        self._stirred = True
        self._tell(NodeSeen(node))
        if node.ready:
            for uid in [uid for uid in self._on.get(node.name, ()) if self._home[uid].pods[uid].leaving]:
                life = self._home[uid]
                self._remove_pod(life, uid)
                self._replace_later(life)
            for life, uid in self._unheard.pop(node.name, ()):
                self._agenda.after(0, partial(self._ran, life, [uid]), Turn.COMPLETION)

    def silent(self, name: str) -> None:
        """A node that went silent: its pods stay as they were last seen, until Kubernetes gives them up."""
        self._agenda.after(self._delays.give_up, partial(self._give_up, name), Turn.NODE)

    def remove_node(self, name: str) -> None:
        """A node is deleted, and its pods with it."""
        del self.nodes[name]
        self._tell(NodeGone(name))
        for uid in list(self._on.get(name, ())):
            life = self._home[uid]
            self._remove_pod(life, uid)
            self._replace_later(life)

    def occupy(self, uid: str, node: str, requests: Amounts) -> None:
        """A pod of somebody else runs on a node."""
        self._unmanaged[uid] = (node, requests)
        self.ledger.charge(node, requests, 1)
        self._tell(OccupantSeen(uid, node, requests))

    def vacate(self, uid: str) -> None:
        """That pod is gone."""
        self.ledger.charge(*self._unmanaged.pop(uid), -1)
        self._stirred = True
        self._tell(OccupantGone(uid))

    def occupied(self, uid: str) -> bool:
        """Whether that pod is there."""
        return uid in self._unmanaged

    def _give_up(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.ready:
            return
        for uid in list(self._on.get(name, ())):
            life = self._home[uid]
            if not life.pods[uid].leaving:
                self._set(life, replace(life.pods[uid], leaving=True))
                if life.submission.owner not in (Owner.STATEFUL_SET, Owner.LWS):  # these wait until it is really gone
                    self._leave_seat(life, uid)
                self._replace_later(life)

    # ---- gangs

    def create(self, submission: Submission) -> Life:
        """Somebody submits a gang. Its UID rises with the order of creation."""
        self._created += 1
        uid = f"{self._created:06d}-{submission.name}"
        life = Life(submission, submission.gang(uid, self._agenda.now), suspended=submission.suspended)
        self.gangs[uid], self.names[submission.name] = life, uid
        self._tell(GangSeen(life.gang))
        if not life.suspended:
            self._agenda.after(self._delays.create, partial(self.make_pods, life))
        return life

    def found_running(self, submission: Submission, nodes: list[str], *, recorded: bool) -> Life:
        """A gang that runs already: seat by seat on these nodes, with our record of round 1 or without any."""
        life = self.create(submission)
        for part in submission.parts:
            for index in range(part.size):
                self._make_pod(life, part, (part.role, index))
        if recorded:
            places = tuple(Place(slot, node) for slot, node in enumerate(nodes) if slot in core(submission))
            self.change(life, record=Record(1, places, self._agenda.now), round=1)
        for slot, (uid, node) in enumerate(zip(list(life.pods), nodes, strict=True)):
            beyond = recorded and (submission.lone or slot not in core(submission))
            record = Record(1, (Place(slot, node),), self._agenda.now) if beyond else None
            self._set(life, replace(life.pods[uid], stage=Stage.RELEASED, pinned=node, record=record))
            self._hold(life, uid, node)
        self._start(life, list(life.pods))
        return life

    def change(self, life: Life, **what: object) -> None:
        """The gang changes in some fields."""
        life.gang = replace(life.gang, **what)
        self._tell(GangSeen(life.gang))

    def edit(self, life: Life, submission: Submission) -> None:
        """Somebody edits what was submitted: queue, size, minimum, levels, hold, gates, as far as the API lets them."""
        before, life.submission = life.submission, submission
        life.generation += 1
        held = [one for one in life.gang.blocked if one not in before.gang("", 0).blocked]
        new = submission.gang(life.gang.uid, life.gang.created)
        self.change(life, queue=new.queue, roles=new.roles, required=new.required, preferred=new.preferred,
                    best_effort=new.best_effort, blocked=(*new.blocked, *held))  # fmt: skip
        for uid in life.live():
            member = life.pods[uid]
            role, index = life.seat_of[uid]
            if index >= next((part.size for part in submission.parts if part.role == role), 0):
                self._remove_pod(life, uid)
            elif member.stage is Stage.GATED and member.foreign_gates != submission.gates:
                self._set(life, replace(member, foreign_gates=submission.gates))
        if not life.suspended:
            self._agenda.after(self._delays.create, partial(self.make_pods, life))

    def delete(self, life: Life) -> None:
        """The gang and everything of it is deleted."""
        self.gangs.pop(life.gang.uid, None)
        for uid in list(life.pods):
            self._remove_pod(life, uid)
        self._tell(GangGone(life.gang.uid))

    def finish(self, life: Life, *, failed: bool = False) -> None:
        """The whole gang ends: what runs ends with it, what never started is deleted."""
        for uid in life.live():
            if life.pods[uid].stage in HOLDING:
                self._end_pod(life, uid, Stage.FAILED if failed else Stage.SUCCEEDED)
            else:
                self._remove_pod(life, uid)
        if not life.gang.finished:
            life.ended_at = self._agenda.now
            self.change(life, finished=True)
            self.ended(life)
        if self._forget:
            self.delete(life)

    # ---- pods

    def make_pods(self, life: Life) -> None:
        """The owner makes the pods that are missing: each index once, and again when its pod is lost; in its order."""
        if life.suspended or life.gang.finished or self.gangs.get(life.gang.uid) is not life:
            return
        if life.retry_at > self._agenda.now:
            self._agenda.at(life.retry_at, Turn.WRITE, partial(self.make_pods, life))
            return
        for part in life.submission.parts:
            for index in range(part.size):
                seat = (part.role, index)
                if seat not in life.seats and seat not in life.done and self._turn(life, seat):
                    self._make_pod(life, part, seat)

    def end_pod(self, life: Life, seat: Seat, *, failed: bool) -> str:
        """One member ends by itself; the answer is why it cannot, "" when it did."""
        uid = life.seats.get(seat)
        if uid is None or life.pods[uid].stage is not Stage.RUNNING:
            return "that member does not run"
        self._end_pod(life, uid, Stage.FAILED if failed else Stage.SUCCEEDED)
        if life.submission.owner.keeps and life.submission.owner is not Owner.REPLICA_SET:
            self._remove_pod(life, uid)  # to be made again under its name
        if failed and life.submission.owner is Owner.JOB:
            life.retry_at = self._agenda.now + min(FAILURE_BACKOFF << life.failures, FAILURE_BACKOFF_LIMIT)
            life.failures += 1
            if life.failures > BACKOFF_LIMIT:
                self.finish(life, failed=True)
        self._conclude(life)
        return ""

    def release(self, life: Life, uid: str, node: str, record: Record | None) -> bool:
        """Our patch of one pod: pinned and without our gate. False when there is nothing left to release."""
        member = life.pods.get(uid)
        if member is None or member.stage is not Stage.GATED or member.leaving or member.foreign_gates:
            return False
        self._set(life, replace(member, stage=Stage.RELEASED, pinned=node, record=record))
        return True

    def bind_later(self, life: Life, uids: list[str]) -> None:
        """The binder takes up what was released."""
        self._agenda.after(self._delays.bind, partial(self._bind, life, uids))

    def suspend(self, life: Life, then: Callable[[], None]) -> None:
        """The owner takes its pods away; ``then`` once the last one is gone."""
        life.suspended, life.emptied = True, then
        for uid in life.live():
            if life.pods[uid].stage in HOLDING:
                self._set(life, replace(life.pods[uid], leaving=True))
                self._agenda.after(self._delays.stop, partial(self._stopped, life, uid), Turn.COMPLETION)
            else:
                self._remove_pod(life, uid)
        self._check_empty(life)

    def evict(self, life: Life, then: Callable[[], None]) -> None:
        """Every pod that was released is told to go; ``then`` once the last one has. Who makes them again does so at once."""
        life.emptied = then
        for uid in life.live():
            if (pod := life.pods.get(uid)) is not None and pod.stage is not Stage.GATED:
                self._take(life, uid)
        self._check_empty(life)

    def _take(self, life: Life, uid: str) -> None:
        """Delete a pod: at once where it is on no node."""
        if life.pods[uid].leaving:
            return
        if life.pods[uid].stage in HOLDING:
            self._set(life, replace(life.pods[uid], leaving=True))
            self._agenda.after(self._delays.stop, partial(self._stopped, life, uid), Turn.COMPLETION)
        else:
            self._remove_pod(life, uid)
            self._replace_later(life)

    def resume(self, life: Life) -> None:
        """The owner makes its pods again."""
        life.suspended = False
        if life.gang.resumes:
            self.change(life, resumes=False)
        self._agenda.after(self._delays.create, partial(self.make_pods, life))

    def rebind(self) -> None:
        """Pods that no node took are tried again, if anything has changed since. O(such pods)."""
        if self._stirred and self._unbound:
            for life, uids in self._by_gang(self._unbound):
                self._bind(life, uids)
        self._stirred = False

    def _by_gang(self, uids: Iterable[str]) -> Iterator[tuple[Life, list[str]]]:
        found: dict[str, list[str]] = {}
        for uid in uids:
            found.setdefault(self._home[uid].gang.uid, []).append(uid)
        for gang, members in found.items():
            yield self.gangs[gang], members

    def _make_pod(self, life: Life, part: Part, seat: Seat) -> None:
        life.born += 1
        submission = life.submission
        uid = life.gang.uid if submission.lone else f"{life.gang.uid}/{seat[0]}{seat[1]}.{life.born}"
        name = submission.name if submission.lone else "-".join(filter(None, (submission.name, seat[0], str(seat[1]))))
        life.seats[seat] = uid
        life.seat_of[uid] = seat
        self._home[uid] = life
        self._set(
            life,
            Member(
                uid=uid,
                gang=life.gang.uid,
                name=name,
                shape=part.shape,
                stage=Stage.GATED,
                role=part.role,
                rank=seat[1] if submission.owner.ranked else None,
                foreign_gates=submission.gates,
                created=self._agenda.now,
                pinnable=part.pinnable,
            ),
        )

    def _set(self, life: Life, member: Member) -> None:
        life.pods[member.uid] = member
        self._tell(MemberSeen(member))

    def _bind(self, life: Life, uids: list[str]) -> None:
        bound = []
        for uid in uids:
            member = life.pods.get(uid)
            if member is None or member.stage is not Stage.RELEASED:
                continue
            node = self.nodes.get(member.pinned or "")
            if trouble := self.ledger.objection(node, member.shape):
                self._unbound[uid] = None
                if trouble != member.trouble:
                    self._set(life, replace(member, trouble=trouble))
            elif node is not None:
                self._hold(life, uid, node.name)
                bound.append(uid)
        if bound:
            self._agenda.after(self._delays.start, partial(self._start, life, bound))

    def _hold(self, life: Life, uid: str, node: str) -> None:
        self._unbound.pop(uid, None)
        self._on.setdefault(node, {})[uid] = None
        self.ledger.charge(node, life.pods[uid].shape.requests, 1)
        self._set(life, replace(life.pods[uid], stage=Stage.BOUND, node=node, trouble=""))

    def _start(self, life: Life, uids: list[str]) -> None:
        started = [uid for uid in uids if (pod := life.pods.get(uid)) and pod.stage is Stage.BOUND and not pod.leaving]
        for uid in started:
            self._set(life, replace(life.pods[uid], stage=Stage.RUNNING))
        if life.started_at is None:
            running = sum(pod.stage is Stage.RUNNING for pod in life.pods.values())
            if running + len(life.done) >= life.submission.minimum:
                life.started_at = self._agenda.now
        if started and life.submission.run is not None:
            self._agenda.after(life.submission.run, partial(self._ran, life, started), Turn.COMPLETION)
        if started and life.submission.owner in (Owner.STATEFUL_SET, Owner.LWS):
            self._replace_later(life)  # those whose turn comes after these

    def _ran(self, life: Life, uids: list[str]) -> None:
        """These pods have done their work; of those on a silent node nobody knows before it is back."""
        for uid in uids:
            pod = life.pods.get(uid)
            if pod is None or pod.stage is not Stage.RUNNING or pod.leaving:
                continue
            if self._heard(pod):
                self._end_pod(life, uid, Stage.SUCCEEDED)
            else:
                self._unheard.setdefault(pod.node or "", []).append((life, uid))
        self._conclude(life)

    def _heard(self, pod: Member) -> bool:
        node = self.nodes.get(pod.node or "")
        return node is not None and node.ready

    def _conclude(self, life: Life) -> None:
        """The gang is over when every pod that it is to have has succeeded."""
        if not life.gang.finished and len(life.done) >= life.submission.size:
            self.finish(life)
        elif not life.gang.finished:
            self._replace_later(life)

    def _end_pod(self, life: Life, uid: str, stage: Stage) -> None:
        pod = life.pods[uid]
        self._free(pod)
        seat = life.seat_of[uid]
        self._leave_seat(life, uid)
        if stage is Stage.SUCCEEDED:
            life.done.add(seat)
        self._set(life, replace(pod, stage=stage))

    def _remove_pod(self, life: Life, uid: str) -> None:
        pod = life.pods.pop(uid)
        self._free(pod)
        self._leave_seat(life, uid)
        del life.seat_of[uid], self._home[uid]
        self._unbound.pop(uid, None)
        self._tell(MemberGone(uid))
        if life.submission.owner is Owner.LWS and pod.role == LEADER and self.gangs.get(life.gang.uid) is life:
            for worker in life.live():  # their StatefulSet was the leader's
                self._take(life, worker)
        self._check_empty(life)

    def _free(self, pod: Member) -> None:
        if pod.stage in HOLDING and pod.node is not None:
            self.ledger.charge(pod.node, pod.shape.requests, -1)
            del self._on[pod.node][pod.uid]
            self._stirred = True

    def _leave_seat(self, life: Life, uid: str) -> None:
        if life.seats.get(life.seat_of[uid]) == uid:
            del life.seats[life.seat_of[uid]]

    def _stopped(self, life: Life, uid: str) -> None:
        """A deleted pod has ended; where its node is silent, nobody will say so before it is back."""
        if uid in life.pods and self._heard(life.pods[uid]):
            self._remove_pod(life, uid)
            self._replace_later(life)

    def _replace_later(self, life: Life) -> None:
        if life.submission.owner is not Owner.PODS and not life.suspended:
            self._agenda.after(self._delays.create, partial(self.make_pods, life))

    def _turn(self, life: Life, seat: Seat) -> bool:
        """Whether the owner makes this pod now: in a StatefulSet when all before it run, in an LWS when the leader does."""
        role, index = seat
        match life.submission.owner:
            case Owner.STATEFUL_SET:
                before = [life.pods.get(life.seats.get((role, one), "")) for one in range(index)]
            case Owner.LWS if role != LEADER:
                before = [life.pods.get(life.seats.get((LEADER, 0), ""))]
            case Owner.LWS:
                return not life.live()  # its workers of before are gone with their StatefulSet
            case _:
                return True
        return all(one is not None and one.stage is Stage.RUNNING and not one.leaving for one in before)

    def _check_empty(self, life: Life) -> None:
        """Nothing is left of what was suspended, or of what was evicted: behind our gate the next round begins already."""
        held = [uid for uid in life.live() if life.suspended or life.pods[uid].stage is not Stage.GATED]
        if life.emptied is not None and not held:
            then, life.emptied = life.emptied, None
            then()
