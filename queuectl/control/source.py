"""The cluster's events become the engine's changes, once, for every driver.

A ``Source`` mirrors what we must know to write (versions, owners, which pod belongs to which gang) and translates each
event into zero or more changes. It is synchronous and holds no policy: it neither decides nor writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from msgspec import Struct
from msgspec.structs import replace

from queuectl.contract import foreign, names, translate
from queuectl.contract.foreign import Custom, Job, Kind, Pod
from queuectl.contract.owners import JOB
from queuectl.contract.shapes import Shapes
from queuectl.contract.v1alpha1 import InvalidObject
from queuectl.control.ports import Bookmark, Deleted, Event, Malformed, Upserted
from queuectl.model.changes import (
    Change,
    GangGone,
    GangSeen,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
    QueueGone,
    QueueSeen,
)
from queuectl.model.gangs import Gang, Member, Stage
from queuectl.model.quantity import QuantityError
from queuectl.model.topology import DEFAULT_LEVELS

KINDS = (
    foreign.NODES,
    foreign.PRIORITY_CLASSES,
    foreign.TOPOLOGIES,
    foreign.QUEUES,
    foreign.JOBS,
    foreign.POD_GROUPS,
    foreign.PODS,
)
TOPOLOGY = "default"


class Tracked(Struct):
    """A managed pod: the engine's member, and what a patch of it needs."""

    namespace: str
    version: str
    member: Member
    terms: tuple[foreign.SelectorTerm, ...] | None
    job: str  # UID of the controlling Job, "" when none
    likeness: int  # pods of equal likeness get the same answer from the admission chain
    priority: int


class Source:
    """Mirror and translator. ``apply`` costs O(1) an event, except where a PodGroup appears: O(its members)."""

    def __init__(self) -> None:
        self.pods: dict[str, Tracked] = {}
        self.members: dict[str, dict[str, None]] = {}  # gang UID → pod UIDs
        self.groups: dict[str, Custom] = {}
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Custom] = {}
        self.group_of_job: dict[str, str] = {}
        self.underived: dict[str, str] = {}  # managed Jobs without a PodGroup → their queue
        self.problems: dict[tuple[str, str, str], str] = {}
        self.touched: set[str] = set()  # gangs whose wire state changed since the last look
        self._named: dict[tuple[str, str], str] = {}
        self._gangs: dict[str, Gang] = {}
        self._occupants: dict[str, tuple[str, object]] = {}
        self._nodes: dict[str, str] = {}  # UID → name
        self._queue_names: dict[str, str] = {}
        self._classes: dict[str, tuple[str, int, bool]] = {}
        self._topologies: dict[str, str] = {}
        self._shapes = Shapes()

    # ---- events

    def apply(self, kind: Kind, event: Event) -> list[Change]:
        """Changes that follow from one event. Bookmarks and objects without meaning for us give none."""
        match event:
            case Upserted(obj):
                return list(self._upserted(kind, obj))
            case Deleted(obj):
                return list(self.gone(kind, obj.metadata.uid))
            case Malformed(namespace, name, _, message):
                self.problems[kind.plural, namespace, name] = message
                return []
            case Bookmark():
                return []

    def known(self, kind: Kind) -> set[str]:
        """UIDs of this kind that the mirror holds: after a fresh list, those not seen in it are gone."""
        match kind.plural:
            case "pods":
                return self.pods.keys() | self._occupants.keys()
            case "nodes":
                return set(self._nodes)
            case "queues":
                return set(self._queue_names)
            case "podgroups":
                return set(self.groups)
            case "jobs":
                return set(self.jobs)
            case "priorityclasses":
                return set(self._classes)
            case _:
                return set(self._topologies)

    def _upserted(self, kind: Kind, obj: object) -> Iterator[Change]:
        match obj:
            case Pod():
                yield from self._pod(obj)
            case Job():
                yield from self._job(obj)
            case foreign.Node(metadata=meta):
                try:
                    node = translate.node(obj)
                except QuantityError as problem:
                    self.problems[kind.plural, "", meta.name] = str(problem)
                    return
                self._nodes[meta.uid] = meta.name
                yield NodeSeen(node)
            case foreign.PriorityClass(metadata=meta):
                self._classes[meta.uid] = (meta.name, obj.value, obj.global_default)
            case Custom(metadata=meta) if kind is foreign.POD_GROUPS:
                yield from self._group(obj)
            case Custom(metadata=meta) if kind is foreign.QUEUES:
                self._queue_names[meta.uid] = meta.name
                self.queues[meta.name] = obj
                yield QueueSeen(translate.queue(obj))
            case Custom(metadata=meta) if kind is foreign.TOPOLOGIES:
                self._topologies[meta.uid] = meta.name
                if meta.name == TOPOLOGY:
                    yield from self._levels(obj)

    def gone(self, kind: Kind, uid: str) -> Iterator[Change]:
        """Changes that follow when the object of this UID is gone."""
        match kind.plural:
            case "pods":
                yield from self._pod_gone(uid)
            case "nodes":
                if name := self._nodes.pop(uid, None):
                    yield NodeGone(name)
            case "queues":
                if (name := self._queue_names.pop(uid, None)) and self.queues[name].metadata.uid == uid:
                    del self.queues[name]
                    yield QueueGone(name)
            case "podgroups":
                yield from self._group_gone(uid)
            case "jobs":
                yield from self._job_gone(uid)
            case "priorityclasses":
                self._classes.pop(uid, None)
            case _:
                if self._topologies.pop(uid, None) == TOPOLOGY:
                    yield LevelsSeen(DEFAULT_LEVELS)

    def _levels(self, obj: Custom) -> Iterator[Change]:
        key = ("topologies", "", obj.metadata.name)
        try:
            levels = translate.levels(obj)
        except InvalidObject as problem:
            self.problems[key] = str(problem)
            return
        self.problems.pop(key, None)
        yield LevelsSeen(levels)

    # ---- pods

    def _pod(self, pod: Pod) -> Iterator[Change]:
        uid = pod.metadata.uid
        if not translate.managed(pod):
            if uid in self.pods:
                yield from self._pod_gone(uid)
            yield from self._occupant(pod)
            return
        before = self.pods.get(uid)
        if before is not None and older(pod.metadata.resource_version, before.version):
            return
        known = translate.controller(pod.metadata)
        # Interned: a hundred thousand pods share these few texts.
        job = intern(known[1]) if known else ""
        gang = intern(self._gang_uid(pod, job))
        try:
            member = translate.member(pod, gang, self._shapes)
        except QuantityError as problem:
            self.problems["pods", pod.metadata.namespace, pod.metadata.name] = str(problem)
            return
        required = (
            pod.spec.affinity.node_affinity.required if pod.spec.affinity and pod.spec.affinity.node_affinity else None
        )
        priority = pod.spec.priority or 0
        if before is not None and before.member == member and before.priority == priority:
            before.version = pod.metadata.resource_version
            return
        self.pods[uid] = Tracked(
            namespace=intern(pod.metadata.namespace),
            version=pod.metadata.resource_version,
            member=member,
            terms=required.node_selector_terms if required else None,
            job=job,
            likeness=translate.likeness(pod) if member.stage is Stage.GATED else 0,
            priority=priority,
        )
        self.touched.add(gang)
        if before is not None and before.member.gang != gang:
            yield from self._leave(uid, before.member.gang)
        self.members.setdefault(gang, {})[uid] = None
        if gang == uid:
            yield from self._seen(translate.lone(pod, member, priority))
        elif gang not in self.groups:
            if job and job in self.jobs and not self.group_of_job.get(job):
                self.underived.setdefault(job, (pod.metadata.labels or {})[names.QUEUE_LABEL])
            if gang not in self._gangs:
                yield from self._seen(translate.missing(gang, pod, gang.rpartition("/")[2]))
        elif before is None or before.priority != priority:
            yield from self._refresh(gang)
        yield MemberSeen(member)

    def _gang_uid(self, pod: Pod, job: str) -> str:
        """The gang a pod belongs to: its PodGroup's UID, a stand-in where that does not exist, or its own UID."""
        meta = pod.metadata
        named = (meta.labels or {}).get(names.POD_GROUP_LABEL)
        if named:
            return self._named.get((meta.namespace, named)) or f"missing/{meta.namespace}/{named}"
        if job:
            return self.group_of_job.get(job) or f"missing/{meta.namespace}/{job}"
        return meta.uid

    def _occupant(self, pod: Pod) -> Iterator[Change]:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.status.phase in ("Succeeded", "Failed"):
            if self._occupants.pop(uid, None) is not None:
                yield OccupantGone(uid)
            return
        requests = self._shapes.requests(pod.spec)
        if self._occupants.get(uid) != (node, requests):
            self._occupants[uid] = (node, requests)
            yield OccupantSeen(uid, node, requests)

    def _pod_gone(self, uid: str) -> Iterator[Change]:
        if self._occupants.pop(uid, None) is not None:
            yield OccupantGone(uid)
        tracked = self.pods.pop(uid, None)
        if tracked is not None:
            yield MemberGone(uid)
            yield from self._leave(uid, tracked.member.gang, tell=False)

    def _leave(self, uid: str, gang: str, *, tell: bool = True) -> Iterator[Change]:
        """The pod is no longer a member of that gang; a gang that stood for pods only goes with its last one."""
        if tell:
            yield MemberGone(uid)
        left = self.members.get(gang, {})
        left.pop(uid, None)
        self.touched.add(gang)
        if not left:
            self.members.pop(gang, None)
            if gang not in self.groups and self._gangs.pop(gang, None) is not None:
                yield GangGone(gang)

    # ---- PodGroups and their owners

    def _group(self, group: Custom) -> Iterator[Change]:
        meta = group.metadata
        before = self.groups.get(meta.uid)
        if before is not None and older(meta.resource_version, before.metadata.resource_version):
            return
        fresh = before is None
        self.groups[meta.uid] = group
        self._named[meta.namespace, meta.name] = meta.uid
        for reference in meta.owner_references:
            if (reference.api_version, reference.kind) == ("batch/v1", "Job"):
                self.group_of_job[reference.uid] = meta.uid
                self.underived.pop(reference.uid, None)
        yield from self._refresh(meta.uid)
        if fresh:
            yield from self._rehome(meta.uid)

    def _rehome(self, uid: str) -> Iterator[Change]:
        """Members that waited for this PodGroup move to it."""
        meta = self.groups[uid].metadata
        job = next((r.uid for r in meta.owner_references if r.uid in self.group_of_job), None)
        for stand_in in (f"missing/{meta.namespace}/{meta.name}", f"missing/{meta.namespace}/{job}"):
            yield from self._move(stand_in, uid)

    def _move(self, old: str, new: str) -> Iterator[Change]:
        for pod in list(self.members.get(old, ())):
            tracked = self.pods[pod]
            yield from self._leave(pod, old)
            tracked.member = replace(tracked.member, gang=new)
            self.members.setdefault(new, {})[pod] = None
            yield from self._refresh(new)
            yield MemberSeen(tracked.member)

    def _group_gone(self, uid: str) -> Iterator[Change]:
        group = self.groups.pop(uid, None)
        if group is None:
            return
        meta = group.metadata
        if self._named.get((meta.namespace, meta.name)) == uid:
            del self._named[meta.namespace, meta.name]
        stand_in = f"missing/{meta.namespace}/{meta.name}"
        for reference in meta.owner_references:
            if self.group_of_job.get(reference.uid) == uid:
                del self.group_of_job[reference.uid]
                stand_in = f"missing/{meta.namespace}/{reference.uid}"
                if (job := self.jobs.get(reference.uid)) is not None:
                    self._want(job)
        gang = self._gangs.pop(uid, None)
        if self.members.get(uid) and gang is not None:
            yield from self._seen(translate.orphaned(stand_in, gang))
            yield from self._move(uid, stand_in)
        self.touched.add(uid)
        yield GangGone(uid)

    def _job(self, job: Job) -> Iterator[Change]:
        before = self.jobs.get(job.metadata.uid)
        if before is not None and older(job.metadata.resource_version, before.metadata.resource_version):
            return
        self.jobs[job.metadata.uid] = job
        group = self.group_of_job.get(job.metadata.uid)
        if group is None:
            self._want(job)
        else:
            self.touched.add(group)
            yield from self._refresh(group)

    def _want(self, job: Job) -> None:
        """A managed Job without a PodGroup is to get one, unless it is over."""
        meta = job.metadata
        queue = translate.queue_of(job)
        if queue and meta.deletion_timestamp is None and not JOB.finished(job):
            self.underived[meta.uid] = queue
        else:
            self.underived.pop(meta.uid, None)

    def _job_gone(self, uid: str) -> Iterator[Change]:
        self.underived.pop(uid, None)
        if self.jobs.pop(uid, None) is not None and (group := self.group_of_job.get(uid)):
            yield from self._refresh(group)

    def owner(self, group: Custom) -> Job | None:
        """The Job that a PodGroup was derived from, while it exists."""
        for reference in group.metadata.owner_references:
            if reference.uid in self.jobs:
                return self.jobs[reference.uid]
        return None

    def _refresh(self, uid: str) -> Iterator[Change]:
        """The gang again, if anything that the engine knows of it changed."""
        group = self.groups.get(uid)
        if group is None:
            return
        owner = self.owner(group)
        priorities = {self.pods[pod].priority for pod in self.members.get(uid, ())}
        priority = max(priorities) if priorities else self._class_of(owner)
        self.touched.add(uid)
        yield from self._seen(translate.gang(group, owner, self._shapes, priority, conflicting=len(priorities) > 1))

    def _class_of(self, owner: Job | None) -> int:
        """Priority of a template: its own number, else its class, else the default class, else 0."""
        spec = owner.spec.template.spec if owner is not None else None
        if spec is not None and spec.priority is not None:
            return spec.priority
        wanted = spec.priority_class_name if spec is not None else None
        for name, value, default in self._classes.values():
            if name == wanted or (not wanted and default):
                return value
        return 0

    def _seen(self, gang: Gang) -> Iterator[Change]:
        if self._gangs.get(gang.uid) != gang:
            self._gangs[gang.uid] = gang
            yield GangSeen(gang)

    def gang(self, uid: str) -> Gang | None:
        """The gang as last told to the engine."""
        return self._gangs.get(uid)


def older(one: str, other: str) -> bool:
    """Whether one version of an object precedes another: an event that was overtaken by the answer to our own write.

    Versions of one object are comparable integers (KEP-5504); whatever is not a number is taken as new.
    """
    return one.isdigit() and other.isdigit() and int(one) < int(other)
