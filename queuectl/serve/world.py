"""What a controller knows, as the JSON API's objects: one view of the engine, and the mirror for names and pods."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from queuectl.contract import owners
from queuectl.contract.foreign import Workload
from queuectl.contract.times import to_wire
from queuectl.control.loop import Controller
from queuectl.engine.view import GangView, QueueView, View
from queuectl.model.reasons import Reason, by_dominance
from queuectl.serve import forms, objects
from queuectl.serve.choice import Choice, choose
from queuectl.serve.occupancy import Occupants, devices, occupancy
from queuectl.serve.readiness import readiness
from queuectl.serve.slices import Making, Steps, each

MAX_AGE = 0.5  # seconds for which a view is used again, so that eager readers cannot keep the loop from deciding;
RESTRAINT = 4  # and so many times longer than it took to read it and to make lists of it (5000 gangs: 0.25 s)
FEW = 200  # waiting gangs, up to which the reasons of all are looked at anew for a list: 40 ms
KEPT = 256  # answers kept while a view stands; whoever asks for more different ones pays for each
# From one step to the next about half a millisecond: gangs whose reasons are looked at anew, gangs or nodes that are
# described, parts of a list that are encoded.
LOOKED, DESCRIBED, ENCODED = 3, 25, 50


class Absent(LookupError):
    """There is nothing of that name. ``nearest`` are names that look like it."""

    def __init__(self, message: str, nearest: list[str]) -> None:
        super().__init__(message)
        self.nearest = nearest


class Unready(Exception):
    """The cluster was not read yet, so that a list would lack objects that exist."""


S = TypeVar("S", bound=objects.Single)


class Kept(Struct, frozen=True):
    """An answer, and a tag: answers with equal tags differ in nothing but the time at which they were so."""

    body: bytes
    tag: str


class World:
    """Reads a controller for others. Everything happens on the controller's own event loop; nothing is changed.

    How long a view is used again is a question of real time, whatever the controller's clock says.
    """

    def __init__(self, controller: Controller, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.controller = controller
        self._monotonic = monotonic
        self._view: View | None = None
        self._read_at = 0.0
        self._as_of = 0
        self._revision = 0
        self._looked: dict[str, GangView] = {}
        self._reading: Making[bool] | None = None
        self._answers: dict[tuple[object, ...], Making[Kept]] = {}
        self._devices: list[str] | None = None  # of this view, once somebody asked
        self._spent = 0.0

    def view(self) -> View:
        """The engine's view, at most ``MAX_AGE`` old where it is cheap. O(gangs + queues + nodes) when it is read anew."""
        if self._view is None or not self._current():
            began = self._monotonic()
            prepared = self._reading.spent if self._reading is not None else 0.0
            self._view, self._as_of = self.controller.view(), self.controller.clock.now()
            self._revision = self.controller.revision
            self._reading = None
            self._answers.clear()
            self._looked.clear()
            self._devices = None
            self._read_at = self._monotonic()
            self._spent = prepared + self._read_at - began
        return self._view

    def reading(self) -> Making[bool] | None:
        """None while there is a view that is used again; else the next one in the making, for all who wait for it.

        Whoever asks for a view without this gets one, too, and holds the loop for as long as that takes.
        """
        if self._current():
            return None
        if self._reading is None:
            self._reading = Making(self._read(), self._monotonic)
        return self._reading

    def _read(self) -> Steps[bool]:
        yield from self.controller.prepare()
        self.view()
        return True

    def _current(self) -> bool:
        """Whether there is a view that is used again."""
        age = self._monotonic() - self._read_at
        spent = self._spent + self._answering()
        return self._view is not None and 0 <= age < max(MAX_AGE, RESTRAINT * spent)

    def _answering(self) -> float:
        """Seconds of work on the answers that are kept."""
        return sum(making.spent for making in self._answers.values())

    def answer(self, make: Callable[[], Steps[objects.Object]], *about: object) -> Making[Kept]:
        """What ``make`` gives: made once for all who ask ``about`` it while this view stands, in the making.

        Raises what ``make`` raises. What a step looks up beyond the view (owners, pods) may be a little later than that.
        """
        self.view()
        about = (*about, self.controller.leading)
        if about not in self._answers:
            if len(self._answers) >= KEPT:
                self._spent += self._answering()
                self._answers.clear()
            self._answers[about] = Making(_encoded(make(), to_wire(self._as_of)), self._monotonic)
        return self._answers[about]

    # ---- the controller itself

    def state(self) -> objects.Controller:
        """What the controller does, and which state of the cluster an answer given now would show. Microseconds.

        ``revision`` only grows once a new view can be read: whoever asks after seeing it gets that state or a later one.
        """
        controller = self.controller
        found = readiness(controller)
        return objects.Controller(
            as_of=to_wire(controller.clock.now()),
            revision=self._revision if self._current() else controller.revision,
            leading=controller.leading,
            role=found.role,
            leader=found.leader,
            ready=found.ready,
            missing=found.missing,
            behind=int(controller.behind),
        )

    def ready(self) -> None:
        """Return if the first state of every kind was read. Raises Unready, which names the others."""
        missing = [informer.kind.plural for informer in self.controller.informers if not informer.synced.is_set()]
        if missing:
            raise Unready(f"the controller has not read the cluster yet: no {', '.join(missing)}; /readyz says more")

    def alone(self, found: S) -> S:
        """An object with the time of the view."""
        found.as_of, found.leading = to_wire(self._as_of), self.controller.leading
        return found

    def listing(self, kind: str, items: Any) -> objects.Listing:
        """A list with the time of the view."""
        return objects.Listing(
            kind=kind, as_of=to_wire(self._as_of), leading=self.controller.leading, items=list(items)
        )

    def gang_listing(self, choice: Choice) -> Steps[objects.GangListing]:
        """The gangs that were asked for: all are counted, the first ``limit`` are described.

        With a limit, reasons are looked at anew, for a decision only looks at a gang again when it might help: of those
        that are described, and of all that wait where these are few, so that counts, order and search agree with them.
        """
        return self._gang_listing(self.view(), choice, to_wire(self._as_of), leading=self.controller.leading)

    def _gang_listing(self, view: View, choice: Choice, as_of: str, *, leading: bool) -> Steps[objects.GangListing]:
        few = sum(gang.phase == "Pending" for gang in view.gangs) <= FEW
        if choice.limit and few:
            view = replace(view, gangs=tuple((yield from each(view.gangs, self._anew, LOOKED))))
        yield
        chosen = choose(view, choice, self._owner_name)
        shown = chosen.gangs[: choice.limit or None]
        if choice.limit and not few:
            shown = yield from each(shown, self._anew, LOOKED)
        items = yield from each(shown, self.describe, DESCRIBED)
        return objects.GangListing(
            as_of=as_of, leading=leading, total=len(chosen.gangs), reasons=chosen.reasons, items=items
        )

    def _anew(self, gang: GangView) -> GangView:
        """A gang with the reasons of this moment. About 0.2 ms for one that waits, once while the view stands."""
        if gang.phase != "Pending":
            return gang
        if gang.uid not in self._looked:
            self._looked[gang.uid] = replace(gang, misfits=self.controller.explain(gang.uid) or gang.misfits)
        return self._looked[gang.uid]

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
            raise Absent(f'queue "{name}" not found', forms.nearest(name, queues))
        return self._queue(queues[name], queues)

    def _queue(self, view: QueueView, queues: dict[str, QueueView]) -> objects.Queue:
        reasons = {misfit.reason for misfit in view.misfits}
        state = "Inactive" if reasons - {Reason.QUEUE_HELD} else "Held" if reasons else "Open"
        mirrored = self.controller.source.queues.get(view.name)
        return objects.Queue(
            metadata=objects.Metadata(name=view.name, uid=mirrored.metadata.uid if mirrored is not None else ""),
            parent=view.parent,
            path=[one.name for one in forms.path(view.name, queues)][::-1],
            leaf=view.leaf,
            weight=view.weight,
            priority=view.priority,
            state=state,
            counts=objects.QueueCounts(
                pending=view.gangs_pending, admitted=view.gangs_admitted, running=view.gangs_running
            ),
            resources=list(forms.resources(view)),
            pools=list(forms.pools(view)),
            blockers=[objects.blocker(misfit) for misfit in by_dominance(view.misfits)],
        )

    # ---- gangs

    def gang(self, namespace: str, name: str) -> GangView:
        """The gang of a PodGroup's name, its owner's, that of what made the owner, or a pod's name. Raises Absent.

        Several may have the same owner's name: one that is not finished is meant, of those one that waits, else the youngest.
        Of a Deployment's revisions those that have pods come first.
        """
        gangs = self.view().gangs
        here = [gang for gang in gangs if gang.namespace == namespace]
        source = self.controller.source
        found = [gang for gang in here if gang.name == name]
        found = found or [gang for gang in here if (owner := self._owner(gang.uid)) and owner.name == name]
        if not found and (made := [gang for gang in here if name in self._makers(gang.uid)]):
            peopled = [gang for gang in made if gang.members]
            found = peopled or made
        if not found:
            pods = {
                tracked.member.gang
                for tracked in source.pods.values()
                if tracked.namespace == namespace and tracked.member.name == name
            }
            found = [gang for gang in here if gang.uid in pods]
        if found:
            return max(found, key=_asked_for)
        elsewhere = sorted({gang.namespace for gang in gangs if name in self._names(gang)})[: forms.NEAREST]
        message = f'gang "{name}" not found in namespace "{namespace}"'
        if elsewhere:
            message += f"; there is one in {', '.join(elsewhere)}"
        raise Absent(message, forms.nearest(name, (known for gang in here for known in self._names(gang))))

    def _names(self, gang: GangView) -> list[str]:
        owner = self._owner_name(gang.uid)
        return [*self._makers(gang.uid), owner, gang.name] if owner else [gang.name]

    def _makers(self, uid: str) -> list[str]:
        """Names of what made a gang's owner: the Deployment of a ReplicaSet, the CronJob of a Job."""
        owner = self._wire_owner(uid)
        return [one.name for one in owner.metadata.owner_references if one.controller] if owner is not None else []

    def _owner_name(self, uid: str) -> str:
        owner = self._owner(uid)
        return owner.name if owner is not None else ""

    def _owner(self, uid: str) -> objects.Owner | None:
        """The owner a gang was derived from; also of pods that wait for their owner's PodGroup."""
        owner = self._wire_owner(uid)
        return objects.Owner(kind=owners.of(owner).kind.kind, name=owner.metadata.name) if owner is not None else None

    def _wire_owner(self, uid: str) -> Workload | None:
        source = self.controller.source
        if uid in source.groups:
            return source.owner(source.groups[uid])
        return source.owners.get(uid.split("/", 2)[2]) if uid.startswith("missing/") else None

    def describe(self, view: GangView, *, pods: bool = False) -> objects.Gang:
        """A gang; with ``pods`` its members too."""
        source = self.controller.source
        gang = source.gang(view.uid)
        members = [source.pods[uid].member for uid in source.members.get(view.uid, ()) if uid in source.pods]
        words = [objects.blocker(misfit) for misfit in by_dominance(view.misfits)[:1]]
        return objects.Gang(
            metadata=objects.Metadata(name=view.name, namespace=view.namespace, uid=view.uid),
            owner=self._owner(view.uid),
            single=gang is not None and gang.lone,
            queue=view.queue,
            phase=forms.public_phase(view),
            reason=words[0].reason if words else "",
            message=words[0].sentence if words else "",
            position=view.position or None,
            priority=view.priority,
            min_member=view.minimum,
            max_member=gang.maximum if gang is not None else view.minimum,
            counts=forms.counts(view),
            nodes=[objects.Share(name=node, pods=count) for node, count in view.nodes],
            need=forms.need(gang, members),
            required=gang.required if gang is not None else None,
            preferred=gang.preferred if gang is not None else None,
            created_at=forms.time(gang.created if gang is not None else 0),
            queued_at=forms.time(view.queued_at),
            admitted_at=forms.admitted(gang, members),
            round=view.round,
            requeues=gang.requeues if gang is not None else 0,
            roles=[forms.role(role, members) for role in (gang.roles if gang is not None else ())],
            pods=[forms.pod(member) for member in sorted(members, key=forms.by_rank)] if pods else UNSET,
        )

    def explain(self, view: GangView) -> objects.Explanation:
        """Why it waits, or where it runs."""
        gang = self.describe(view)
        queues = {queue.name: queue for queue in self.view().queues}
        misfits = by_dominance(self.controller.explain(view.uid) or view.misfits)
        return objects.Explanation(
            as_of=to_wire(self._as_of),
            leading=self.controller.leading,
            metadata=gang.metadata,
            owner=gang.owner,
            queue=gang.queue,
            phase=gang.phase,
            summary=forms.summary(gang),
            position=gang.position,
            waiting=sum(other.queue == view.queue and other.position > 0 for other in self.view().gangs),
            queued_at=gang.queued_at,
            admitted_at=gang.admitted_at,
            counts=gang.counts,
            min_member=gang.min_member,
            nodes=gang.nodes,
            path=[self._queue(queue, queues) for queue in forms.path(view.queue, queues)],
            blockers=[objects.blocker(misfit) for misfit in misfits],
        )

    # ---- nodes

    def node_listing(self) -> Steps[objects.Listing]:
        """All nodes by name."""
        return self._node_listing(self.view(), self.listing("NodeList", ()))

    def _node_listing(self, view: View, listing: objects.Listing) -> Steps[objects.Listing]:
        listing.items = yield from each(view.nodes, forms.node, DESCRIBED)
        return listing

    def node(self, name: str) -> objects.Node:
        """One node with its gangs. Raises Absent."""
        found = next((node for node in self.view().nodes if node.name == name), None)
        if found is None:
            raise Absent(f'node "{name}" not found', forms.nearest(name, (node.name for node in self.view().nodes)))
        node = forms.node(found)
        node.gangs = [
            objects.Share(name=gang.name, namespace=gang.namespace, pods=count)
            for gang in sorted(self.view().gangs, key=lambda gang: (gang.namespace, gang.name))
            for where, count in gang.nodes
            if where == name
        ]
        return node

    # ---- pools

    def pools(self) -> list[objects.Pool]:
        """All pools by name."""
        view = self.view()
        return [forms.pool(pool, view.nodes) for pool in view.pools]

    def pool(self, name: str) -> objects.Pool:
        """One pool with the queues that use it or have quotas or limits there. Raises Absent."""
        view = self.view()
        found = next((pool for pool in view.pools if pool.name == name), None)
        if found is None:
            raise Absent(f'pool "{name}" not found', forms.nearest(name, (pool.name for pool in view.pools)))
        pool = forms.pool(found, view.nodes)
        pool.queues = [
            objects.QueueShare(queue=queue.name, name=one.name, used=one.used, quota=one.quota, limit=one.limit)
            for queue in view.queues
            for one in (forms.pools(queue) if found.declared else forms.resources(queue))
            if not isinstance(one, objects.QueuePool) or one.pool == name
        ]
        return pool

    def occupancy(self, resource: str = "") -> Steps[objects.Occupancy]:
        """Who holds how much of one resource where. Raises LookupError for a resource that no node has."""
        view = self.view()
        if self._devices is None:
            self._devices = devices(view.nodes)
        known = self._devices
        if resource and resource not in known:
            raise LookupError(f'no node has resource "{resource}"; known are {", ".join(known)}')
        about = resource or next(iter(known), "")
        return self._map(view, about, known, to_wire(self._as_of), leading=self.controller.leading)

    def _map(
        self, view: View, resource: str, known: list[str], as_of: str, *, leading: bool
    ) -> Steps[objects.Occupancy]:
        found = yield from occupancy(view, resource, self._occupants)
        found.as_of, found.leading, found.resources = as_of, leading, known
        return found

    def _occupants(self, gang: GangView) -> Occupants:
        source = self.controller.source
        members = [source.pods[uid].member for uid in source.members.get(gang.uid, ()) if uid in source.pods]
        return Occupants(self._owner_name(gang.uid), source.gang(gang.uid), members)


def _encoded(steps: Steps[objects.Object], as_of: str) -> Steps[Kept]:
    """The answer and its tag. Lists are encoded and hashed a part at a time: of 10,000 nodes all at once takes 20 ms."""
    found = yield from steps
    digest = hashlib.blake2b(digest_size=12)
    name = next((one for one in ("items", "blocks") if hasattr(found, one)), "")
    encoded = []
    for number, part in enumerate(getattr(found, name, ())):
        if number % ENCODED == 0:
            yield
        encoded.append(Raw(objects.encode(part)))
        digest.update(encoded[-1])
    if name:
        setattr(found, name, [])
    # The time does not count: the view's is the first in every answer.
    digest.update(objects.encode(found).replace(f'"asOf":"{as_of}"'.encode(), b"", 1))
    if name:
        setattr(found, name, encoded)  # what is Raw is written as it is
        yield
    return Kept(objects.encoded(found), f'"{digest.hexdigest()}"')


def _asked_for(gang: GangView) -> tuple[bool, bool, int, str]:
    """Of gangs with the same owner's name, the greatest is the one that people ask about."""
    phase = forms.public_phase(gang)
    return phase != "Finished", phase == "Pending", gang.queued_at, gang.uid
