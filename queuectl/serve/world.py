"""What a controller knows, as the JSON API's objects: one view of the engine, and the mirror for names and pods."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from queuectl.contract.times import to_wire
from queuectl.control.loop import Controller
from queuectl.engine.view import GangView, NodeView, QueueView, View
from queuectl.model import gangs as model
from queuectl.model.queues import ALL_POOLS
from queuectl.model.reasons import Misfit, Reason, by_dominance
from queuectl.model.resources import Amounts, amounts, show
from queuectl.serve import objects

MAX_AGE = 0.5  # seconds for which a view is used again, so that eager readers cannot keep the loop from deciding
PHASES = ("Pending", "Admitted", "Running", "Evicting", "Finished", "Deactivated")
_PUBLIC = {"Running": "Running", "Leaving": "Evicting", "Finished": "Finished"}  # all others are Admitted
NEAREST, LOOKED_AT = 3, 2000  # names offered after a 404; names compared for it: about 20 ms of work


class Absent(LookupError):
    """There is nothing of that name. ``nearest`` are names that look like it."""

    def __init__(self, message: str, nearest: list[str]) -> None:
        super().__init__(message)
        self.nearest = nearest


class World:
    """Reads a controller for others. Everything happens on the controller's own event loop; nothing is changed."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._view: View | None = None
        self._read_at = 0.0
        self._as_of = 0

    def view(self) -> View:
        """The engine's view, at most ``MAX_AGE`` old. O(gangs + queues + nodes) when it is read anew."""
        now = self.controller.clock.monotonic()
        if self._view is None or not 0 <= now - self._read_at < MAX_AGE:
            self._view, self._read_at = self.controller.view(), now
            self._as_of = self.controller.clock.now()
        return self._view

    def listing(self, kind: str, items: Any) -> objects.Listing:
        """A list with the time of the view."""
        return objects.Listing(
            kind=kind, as_of=to_wire(self._as_of), leading=self.controller.leading, items=list(items)
        )

    # ---- queues

    def queues(self) -> Iterator[objects.Queue]:
        """All queues as a tree: each after its parent, siblings by name."""
        queues = {queue.name: queue for queue in self.view().queues}
        below: dict[str | None, list[str]] = {}
        for queue in queues.values():
            below.setdefault(queue.parent if queue.parent in queues else None, []).append(queue.name)
        seen: set[str] = set()
        stack = sorted(below.get(None, ()), reverse=True)
        while stack:
            name = stack.pop()
            seen.add(name)
            yield self._queue(queues[name], queues)
            stack.extend(sorted(below.get(name, ()), reverse=True))
        for name in sorted(queues.keys() - seen):  # a cycle has no top
            yield self._queue(queues[name], queues)

    def queue(self, name: str) -> objects.Queue:
        """One queue. Raises Absent."""
        queues = {queue.name: queue for queue in self.view().queues}
        if name not in queues:
            raise Absent(f'queue "{name}" not found', nearest(name, queues))
        return self._queue(queues[name], queues)

    def _queue(self, view: QueueView, queues: dict[str, QueueView]) -> objects.Queue:
        reasons = {misfit.reason for misfit in view.misfits}
        state = "Inactive" if reasons - {Reason.QUEUE_HELD} else "Held" if reasons else "Open"
        mirrored = self.controller.source.queues.get(view.name)
        return objects.Queue(
            metadata=objects.Metadata(name=view.name, uid=mirrored.metadata.uid if mirrored is not None else ""),
            parent=view.parent,
            path=[one.name for one in path(view.name, queues)][::-1],
            leaf=view.leaf,
            weight=view.weight,
            priority=view.priority,
            state=state,
            counts=objects.QueueCounts(
                pending=view.gangs_pending, admitted=view.gangs_admitted, running=view.gangs_running
            ),
            resources=list(resources(view)),
            blockers=[objects.blocker(misfit) for misfit in by_dominance(view.misfits)],
        )

    # ---- gangs

    def gangs(self, namespace: str = "", queue: str = "", phase: str = "") -> list[objects.Gang]:
        """Gangs by namespace and name. ``queue`` takes in all below it."""
        view = self.view()
        queues = {one.name: one for one in view.queues}
        found = [
            gang
            for gang in view.gangs
            if (not namespace or gang.namespace == namespace)
            and (not queue or gang.queue == queue or any(one.name == queue for one in path(gang.queue, queues)))
            and (not phase or public_phase(gang) == phase)
        ]
        return [self.describe(gang) for gang in sorted(found, key=lambda gang: (gang.namespace, gang.name, gang.uid))]

    def gang(self, namespace: str, name: str) -> GangView:
        """The gang of a PodGroup's name, its owner's name, or a pod's name. Raises Absent.

        Several may have had the same owner name: the one that is not finished is meant, else the youngest.
        """
        gangs = self.view().gangs
        here = [gang for gang in gangs if gang.namespace == namespace]
        source = self.controller.source
        found = [gang for gang in here if gang.name == name]
        found = found or [gang for gang in here if (owner := self._owner(gang.uid)) and owner.name == name]
        if not found:
            pods = {
                tracked.member.gang
                for tracked in source.pods.values()
                if tracked.namespace == namespace and tracked.member.name == name
            }
            found = [gang for gang in here if gang.uid in pods]
        if found:
            return max(found, key=lambda gang: (public_phase(gang) != "Finished", gang.queued_at, gang.uid))
        elsewhere = sorted({gang.namespace for gang in gangs if name in self._names(gang)})[:NEAREST]
        message = f'gang "{name}" not found in namespace "{namespace}"'
        if elsewhere:
            message += f"; there is one in {', '.join(elsewhere)}"
        raise Absent(message, nearest(name, (known for gang in here for known in self._names(gang))))

    def _names(self, gang: GangView) -> list[str]:
        owner = self._owner(gang.uid)
        return [owner.name, gang.name] if owner else [gang.name]

    def _owner(self, uid: str) -> objects.Owner | None:
        """The Job a gang was derived from; also of pods that wait for their Job's PodGroup."""
        source = self.controller.source
        if uid in source.groups:
            for reference in source.groups[uid].metadata.owner_references:
                if reference.kind == "Job":
                    return objects.Owner(kind="Job", name=reference.name)
        elif uid.startswith("missing/") and (job := source.jobs.get(uid.rpartition("/")[2])) is not None:
            return objects.Owner(kind="Job", name=job.metadata.name)
        return None

    def describe(self, view: GangView, *, pods: bool = False) -> objects.Gang:
        """A gang; with ``pods`` its members too."""
        source = self.controller.source
        gang = source.gang(view.uid)
        members = [source.pods[uid].member for uid in source.members.get(view.uid, ()) if uid in source.pods]
        words = [objects.blocker(misfit) for misfit in by_dominance(self._misfits(view))[:1]]
        return objects.Gang(
            metadata=objects.Metadata(name=view.name, namespace=view.namespace, uid=view.uid),
            owner=self._owner(view.uid),
            single=gang is not None and gang.lone,
            queue=view.queue,
            phase=public_phase(view),
            reason=words[0].reason if words else "",
            message=words[0].sentence if words else "",
            position=view.position or None,
            priority=view.priority,
            min_member=view.minimum,
            max_member=gang.maximum if gang is not None else view.minimum,
            counts=counts(view),
            nodes=[objects.Share(name=node, pods=count) for node, count in view.nodes],
            required=gang.required if gang is not None else None,
            preferred=gang.preferred if gang is not None else None,
            created_at=_time(gang.created if gang is not None else 0),
            queued_at=_time(view.queued_at),
            admitted_at=_admitted(gang, members),
            round=view.round,
            requeues=gang.requeues if gang is not None else 0,
            roles=[_role(role, members) for role in (gang.roles if gang is not None else ())],
            pods=[_pod(member) for member in sorted(members, key=_by_rank)] if pods else UNSET,
        )

    def _misfits(self, view: GangView) -> tuple[Misfit, ...]:
        """What is known against it. A gang without slots (no PodGroup, or one that cannot be used) says why itself."""
        gang = self.controller.source.gang(view.uid)
        return view.misfits or (gang.blocked if gang is not None and not gang.roles else ())

    def explain(self, view: GangView) -> objects.Explanation:
        """Why it waits, or where it runs."""
        gang = self.describe(view)
        queues = {queue.name: queue for queue in self.view().queues}
        misfits = by_dominance(self.controller.explain(view.uid) or self._misfits(view))
        return objects.Explanation(
            as_of=to_wire(self._as_of),
            leading=self.controller.leading,
            metadata=gang.metadata,
            owner=gang.owner,
            queue=gang.queue,
            phase=gang.phase,
            summary=summary(gang),
            position=gang.position,
            waiting=sum(other.queue == view.queue and other.position > 0 for other in self.view().gangs),
            queued_at=gang.queued_at,
            admitted_at=gang.admitted_at,
            counts=gang.counts,
            min_member=gang.min_member,
            nodes=gang.nodes,
            path=[self._queue(queue, queues) for queue in path(view.queue, queues)],
            blockers=[objects.blocker(misfit) for misfit in misfits],
        )

    # ---- nodes

    def nodes(self) -> list[objects.Node]:
        """All nodes by name."""
        return [_node(node) for node in self.view().nodes]

    def node(self, name: str) -> objects.Node:
        """One node with its gangs. Raises Absent."""
        found = next((node for node in self.view().nodes if node.name == name), None)
        if found is None:
            raise Absent(f'node "{name}" not found', nearest(name, (node.name for node in self.view().nodes)))
        node = _node(found)
        node.gangs = [
            objects.Share(name=gang.name, namespace=gang.namespace, pods=count)
            for gang in sorted(self.view().gangs, key=lambda gang: (gang.namespace, gang.name))
            for where, count in gang.nodes
            if where == name
        ]
        return node


def public_phase(gang: GangView) -> str:
    """The published word for the engine's phase. A gang without slots and places waits: for its PodGroup to be usable."""
    if gang.phase == "Pending" or (gang.minimum == 0 and not gang.nodes and gang.phase == "Running"):
        return "Deactivated" if any(misfit.reason is Reason.DEACTIVATED for misfit in gang.misfits) else "Pending"
    return _PUBLIC.get(gang.phase, "Admitted")


def path(name: str, queues: dict[str, QueueView]) -> list[QueueView]:
    """The queue and those above it, as far as they exist; a cycle is walked once."""
    found: list[QueueView] = []
    seen: set[str] = set()
    above: str | None = name
    while above is not None and above in queues and above not in seen:
        seen.add(above)
        found.append(queues[above])
        above = queues[above].parent
    return found


def resources(queue: QueueView) -> Iterator[objects.QueueResource]:
    """Every resource that the queue uses, lists or is asked for, but for the count of pods."""
    used, pending = dict(queue.usage), dict(queue.pending)
    listed = {entry.resource: entry for entry in queue.entries if entry.pool == ALL_POOLS}
    for name in sorted((used.keys() | pending.keys() | listed.keys()) - {"pods"}):
        entry = listed.get(name)
        quota, limit = (entry.quota, entry.limit) if entry is not None else (None, None)
        yield objects.QueueResource(
            name=name,
            used=show(name, used.get(name, 0)),
            quota=None if quota is None else show(name, quota),
            limit=None if limit is None else show(name, limit),
            pending=show(name, pending.get(name, 0)),
        )


def counts(view: GangView) -> objects.GangCounts:
    """How far the members have come."""
    return objects.GangCounts(
        members=view.members,
        released=view.released,
        bound=view.bound,
        running=view.running,
        succeeded=view.succeeded,
    )


def summary(gang: objects.Gang) -> str:
    """One sentence that says where the gang stands."""
    pods = "1 pod" if gang.min_member == 1 else f"{gang.min_member} pods"
    spread = f"{len(gang.nodes)} node{'' if len(gang.nodes) == 1 else 's'}"
    match gang.phase:
        case "Pending" if gang.position:
            return f"waits in queue {gang.queue}, position {gang.position}, for a place for {pods} at once"
        case "Pending":
            return f"waits in queue {gang.queue} and is not ready to be placed"
        case "Deactivated":
            return f"was given back {gang.requeues} times and is not tried again"
        case "Admitted":
            started = f"{gang.counts.bound} of {gang.counts.members} pods bound, {gang.counts.running} running"
            return f"is admitted to {spread} and starts: {started}"
        case "Running":
            return f"runs on {spread}: {gang.counts.running} of {gang.counts.members} pods running"
        case "Evicting":
            return f"is being given back: {gang.counts.released} pods are still there"
        case _:
            return "is finished"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three names like this one: those it begins, then those that differ by a few letters."""
    names = sorted(set(known))
    begins = [one for one in names if name and one.startswith(name)]
    alike = difflib.get_close_matches(name, names[:LOOKED_AT], NEAREST) if len(name) <= 253 else []
    return list(dict.fromkeys([*begins, *alike]))[:NEAREST]


def _time(at: int) -> str | None:
    return to_wire(at) if at else None


def _admitted(gang: model.Gang | None, members: list[model.Member]) -> str | None:
    """When the admission in force was decided."""
    if gang is None:
        return None
    record = gang.record or next((member.record for member in members if gang.lone and member.record), None)
    return _time(record.decided_at) if record is not None else None


def _role(role: model.Role, members: list[model.Member]) -> objects.Role:
    shape = role.shape or next((member.shape for member in members if member.role == role.name), None)
    return objects.Role(
        name=role.name,
        min_member=role.minimum,
        max_member=role.maximum,
        requests=None if shape is None else {name: show(name, amount) for name, amount in shape.requests},
        required=role.required,
        preferred=role.preferred,
    )


def _by_rank(member: model.Member) -> tuple[str, int, str]:
    return member.role, -1 if member.rank is None else member.rank, member.name


def _pod(member: model.Member) -> objects.Pod:
    return objects.Pod(
        name=member.name,
        role=member.role,
        rank=member.rank,
        stage="Leaving" if member.leaving else member.stage.name.capitalize(),
        node=member.node or member.pinned,
        gates=list(member.foreign_gates),
        trouble=member.trouble,
    )


def _node(view: NodeView) -> objects.Node:
    allocatable, used = dict(view.allocatable), dict(view.used)
    names = (name for name, _ in union(view.allocatable, view.used))
    return objects.Node(
        metadata=objects.Metadata(name=view.name),
        usable=view.usable,
        domains=[objects.Domain(level=level, name=name) for level, name in view.domains],
        resources=[
            objects.NodeResource(
                name=name,
                allocatable=show(name, allocatable.get(name, 0)),
                used=show(name, used.get(name, 0)),
                free=show(name, max(0, allocatable.get(name, 0) - used.get(name, 0))),
            )
            for name in names
        ],
    )


def union(one: Amounts, other: Amounts) -> Amounts:
    """All resources of both."""
    return amounts({**dict(other), **dict(one)})
