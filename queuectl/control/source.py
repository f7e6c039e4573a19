"""The cluster's events become the engine's changes, once, for every driver.

A ``Source`` mirrors what we must know to write (versions, owners, which pod belongs to which gang) and translates each
event into zero or more changes. It is synchronous and holds no policy: it neither decides nor writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from sys import intern

from msgspec.structs import replace

from queuectl.contract import foreign, names, translate
from queuectl.contract.foreign import Custom, Job, Kind, Meta, Pod
from queuectl.contract.owners import JOB, pod_group_name
from queuectl.contract.shapes import Shapes
from queuectl.contract.v1alpha1 import InvalidObject
from queuectl.control.mirror import Classes, Names, Problems, Tally, Tracked, older
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
from queuectl.model.gangs import Gang, Stage
from queuectl.model.quantity import QuantityError
from queuectl.model.topology import DEFAULT_LEVELS

__all__ = ["KINDS", "Source", "Tracked"]

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
# UIDs of gone objects that are remembered: an answer to a write of ours comes seconds after the event that overtook it, and
# so many pods do not go in that time.
DEPARTED = 10_000

log = logging.getLogger(__name__)


class Source:
    """Mirror and translator. ``apply`` costs O(1) an event, except where a PodGroup or Job appears: O(its members)."""

    def __init__(self) -> None:
        self.pods: dict[str, Tracked] = {}
        self.members: dict[str, dict[str, None]] = {}  # gang UID → pod UIDs
        self.groups: dict[str, Custom] = {}
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Custom] = {}
        self.underived: dict[str, str] = {}  # managed Jobs without a PodGroup → their queue
        self.invalid: dict[str, str] = {}  # managed Jobs that can have none → why
        self.problems = Problems()
        self.touched: set[str] = set()  # gangs whose wire state changed since the last look
        self._departed: dict[str, None] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._awaited: dict[tuple[str, str], str] = {}  # the name that a Job's PodGroup has → the Job
        self._gangs: dict[str, Gang] = {}
        self._tallies: dict[str, Tally] = {}
        self._crews: dict[str, translate.Crew] = {}
        self._occupants: dict[str, tuple[str, object]] = {}
        self._nodes, self._queue_names, self._topologies, self._classes = Names(), Names(), Names(), Classes()
        self._shapes = Shapes()

    # ---- events

    def apply(self, kind: Kind, event: Event) -> list[Change]:
        """Changes that follow from one event. Bookmarks and objects without meaning for us give none.

        Never raises: an object that we cannot take in is noted in ``problems``, and is as it was before. An object whose
        going was already seen stays gone, and one that is known in a newer state stays in it: such an event is the answer
        to a write of our own, overtaken by the watch, or the other way round.
        """
        match event:
            case Upserted(obj):
                meta = obj.metadata
                if meta.uid in self._departed or older(meta.resource_version, self.version(kind, meta.uid)):
                    return []
                changes = self._pod(obj) if isinstance(obj, Pod) else self._upserted(kind, obj)
                return self._taken(kind, meta, self.problems.well(kind, meta), changes)
            case Deleted(obj):
                self.problems.well(kind, obj.metadata)
                return self.gone(kind, obj.metadata.uid)
            case Malformed(namespace, name, uid, message):
                self.problems.note(kind, Meta(name=name, namespace=namespace, uid=uid), message)
                return []
            case Bookmark():
                return []

    def _taken(self, kind: Kind, meta: Meta, before: str, changes: Iterable[Change]) -> list[Change]:
        """All changes up to the first that fails, which is noted; a bug of ours is logged, unless ``before`` is just that."""
        taken: list[Change] = []
        try:
            for change in changes:
                taken.append(change)  # noqa: PERF402 - what came before an exception counts
        except (InvalidObject, QuantityError) as problem:
            self.problems.note(kind, meta, str(problem))
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"[:300]
            self.problems.note(kind, meta, text)
            if text != before:
                details = {"kind": kind.plural, "object": f"{meta.namespace}/{meta.name}"}
                log.exception("an object cannot be taken in", extra=details)
        return taken

    def exists(self, uid: str) -> None:
        """A complete state shows this object: whoever said that it is gone was wrong."""
        self._departed.pop(uid, None)

    def known(self, kind: Kind) -> set[str]:
        """UIDs of this kind that the mirror holds: after a fresh list, those not seen in it are gone."""
        return {*self.problems.of(kind), *self._mirrored(kind)}

    def _mirrored(self, kind: Kind) -> Iterable[str]:
        match kind.plural:
            case "pods":
                return self.pods.keys() | self._occupants.keys()
            case "nodes":
                return self._nodes.by_uid
            case "queues":
                return self._queue_names.by_uid
            case "podgroups":
                return self.groups
            case "jobs":
                return self.jobs
            case "priorityclasses":
                return self._classes.names.by_uid
            case _:
                return self._topologies.by_uid

    def version(self, kind: Kind, uid: str) -> str:
        """The version of an object that we write, as the mirror holds it; "" where there is none."""
        if kind is foreign.PODS:
            return pod.version if (pod := self.pods.get(uid)) is not None else ""
        queue = self.queues.get(self._queue_names.by_uid.get(uid, ""))
        found = self.groups.get(uid) or self.jobs.get(uid) or queue
        return found.metadata.resource_version if found is not None and found.metadata.uid == uid else ""

    def _upserted(self, kind: Kind, obj: object) -> Iterator[Change]:
        match obj:
            case Job():
                yield from self._job(obj)
            case foreign.Node(metadata=meta):
                node = translate.node(obj)
                self._nodes.seen(meta)
                yield NodeSeen(node)
            case foreign.PriorityClass():
                if self._classes.seen(obj):
                    yield from self._reclassed()
            case Custom() if kind is foreign.POD_GROUPS:
                yield from self._group(obj)
            case Custom(metadata=meta) if kind is foreign.QUEUES:
                queue = translate.queue(obj)
                self._queue_names.seen(meta)
                self.queues[meta.name] = obj
                yield QueueSeen(queue)
            case Custom(metadata=meta) if kind is foreign.TOPOLOGIES:
                self._topologies.seen(meta)
                if meta.name == TOPOLOGY:
                    yield LevelsSeen(translate.levels(obj))

    def gone(self, kind: Kind, uid: str) -> list[Change]:
        """Changes that follow when the object of this UID is gone."""
        if uid:
            self._departed[uid] = None
            if len(self._departed) > DEPARTED:
                del self._departed[next(iter(self._departed))]
        self.problems.gone(uid)
        return self._taken(kind, Meta(name=uid, uid=uid), "", self._gone(kind, uid))

    def _gone(self, kind: Kind, uid: str) -> Iterator[Change]:
        match kind.plural:
            case "pods":
                yield from self._pod_gone(uid)
            case "nodes":
                if name := self._nodes.gone(uid):
                    yield NodeGone(name)
            case "queues":
                if name := self._queue_names.gone(uid):
                    del self.queues[name]
                    yield QueueGone(name)
            case "podgroups":
                yield from self._group_gone(uid)
            case "jobs":
                yield from self._job_gone(uid)
            case "priorityclasses":
                if self._classes.gone(uid):
                    yield from self._reclassed()
            case _:
                if self._topologies.gone(uid) == TOPOLOGY:
                    yield LevelsSeen(DEFAULT_LEVELS)

    # ---- pods

    def _pod(self, pod: Pod) -> Iterator[Change]:
        uid = pod.metadata.uid
        if not translate.managed(pod):
            if uid in self.pods:
                yield from self._pod_gone(uid)
            yield from self._occupant(pod)
            return
        before, now = self.pods.get(uid), self.tracked(pod)
        if self._occupants.pop(uid, None) is not None:
            yield OccupantGone(uid)
        if now.problem:
            self.problems.note(foreign.PODS, pod.metadata, now.problem)
        self.pods[uid] = now
        gang = now.member.gang
        if before is not None and before.member.gang != gang:
            yield MemberGone(uid)
            self._leave(before)
        elif before is not None:
            if (before.member, before.priority, before.problem) == (now.member, now.priority, now.problem):
                return
            self._tallies[gang].count(before, -1)
        self._enter(now)
        yield MemberSeen(now.member)  # first: what runs is charged, whatever becomes of its gang
        if gang == uid:
            crew = translate.Crew(now.priority, problem=now.problem)
            yield from self._seen(translate.lone(pod, now.member, crew))
        elif gang not in self.groups and now.job not in self.underived and now.job in self.jobs and not now.group:
            yield from self._want(self.jobs[now.job])
        if before is not None or gang in self.groups or gang not in self._gangs or len(self.members[gang]) == 1:
            yield from self._settle(gang)  # one more pod changes nothing of what stands for pods only
        if before is not None and before.member.gang != gang:
            yield from self._settle(before.member.gang)

    def tracked(self, pod: Pod) -> Tracked:
        """What is kept of a managed pod. About 8 µs."""
        meta, spec, labels = pod.metadata, pod.spec, pod.metadata.labels or {}
        known = translate.controller(meta)
        # Interned: a hundred thousand pods share these few texts.
        namespace, group = intern(meta.namespace), labels.get(names.POD_GROUP_LABEL, "")
        job, job_name = (intern(known.uid), intern(known.name)) if known is not None else ("", "")
        member, problem = translate.member(
            pod, intern(self._gang_uid(meta.uid, namespace, group, job, job_name)), self._shapes
        )
        required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        return Tracked(
            namespace=namespace,
            version=meta.resource_version,
            member=member,
            terms=required.node_selector_terms if required else None,
            queue=intern(labels[names.QUEUE_LABEL]),
            group=intern(group) if group else "",
            job=job,
            job_name=job_name,
            likeness=translate.likeness(pod) if member.stage is Stage.GATED else 0,
            priority=spec.priority or 0,
            problem=problem,
        )

    def _gang_uid(self, uid: str, namespace: str, group: str, job: str, job_name: str) -> str:
        """The gang a pod belongs to: its PodGroup's UID, a stand-in where that does not exist, or its own UID."""
        if group:
            return self._named.get((namespace, group)) or f"missing/{namespace}/{group}"
        if job:
            return self._derived(namespace, job, job_name) or f"missing/{namespace}/{job}"
        return uid

    def _occupant(self, pod: Pod) -> Iterator[Change]:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.status.phase in ("Succeeded", "Failed"):
            if self._occupants.pop(uid, None) is not None:
                yield OccupantGone(uid)
            return
        requests, problem = self._shapes.held(pod.spec)
        if problem:
            self.problems.note(foreign.PODS, pod.metadata, problem)
        if self._occupants.get(uid) != (node, requests):
            self._occupants[uid] = (node, requests)
            yield OccupantSeen(uid, node, requests)

    def _pod_gone(self, uid: str) -> Iterator[Change]:
        if self._occupants.pop(uid, None) is not None:
            yield OccupantGone(uid)
        tracked = self.pods.pop(uid, None)
        if tracked is not None:
            yield MemberGone(uid)
            self._leave(tracked)
            yield from self._settle(tracked.member.gang)

    # ---- members of gangs

    def _enter(self, tracked: Tracked) -> None:
        gang = tracked.member.gang
        if gang not in self.members:
            self.members[gang], self._tallies[gang] = {}, Tally()
        self.members[gang][tracked.member.uid] = None
        self._tallies[gang].count(tracked, 1)
        self.touched.add(gang)

    def _leave(self, tracked: Tracked) -> None:
        gang = tracked.member.gang
        self._tallies[gang].count(tracked, -1)
        del self.members[gang][tracked.member.uid]
        if not self.members[gang]:
            del self.members[gang], self._tallies[gang]
        self.touched.add(gang)

    def _settle(self, gang: str) -> Iterator[Change]:
        """The gang again after members came, went or changed; one that stood for pods only goes with its last one."""
        if gang in self.groups:
            yield from self._refresh(gang, anew=False)
        elif gang.startswith("missing/"):
            yield from self._stand_in(gang)
        elif gang not in self.members and self._gangs.pop(gang, None) is not None:
            yield GangGone(gang)

    def _stand_in(self, uid: str) -> Iterator[Change]:
        """What stands for a PodGroup that does not exist: while it has members, or its Job must be told what is wrong."""
        _, namespace, key = uid.split("/", 2)
        job, first = self.jobs.get(key), next(iter(self.members.get(uid, ())), None)
        problem = self.invalid.get(key, "") if job is not None else ""
        if first is not None:
            pod = self.pods[first]
            yield from self._seen(translate.stand_in(uid, namespace, pod.group or pod.job_name, pod.queue, problem))
        elif job is not None and problem:
            yield from self._seen(
                translate.stand_in(uid, namespace, job.metadata.name, translate.queue_of(job), problem)
            )
        elif self._gangs.pop(uid, None) is not None:
            self.touched.add(uid)
            yield GangGone(uid)

    def _rehome(self, gang: str) -> Iterator[Change]:
        """Members of a gang, or of what stands in for one, move to where they belong now. O(members)."""
        moved = []
        for uid in list(self.members.get(gang, ())):
            tracked = self.pods[uid]
            home = self._gang_uid(uid, tracked.namespace, tracked.group, tracked.job, tracked.job_name)
            if home != gang:
                self._leave(tracked)
                tracked.member = replace(tracked.member, gang=intern(home))
                self._enter(tracked)
                moved.append(tracked.member)
                yield MemberGone(uid)
        for home in dict.fromkeys(member.gang for member in moved):
            yield from self._settle(home)
        for member in moved:
            yield MemberSeen(member)
        yield from self._settle(gang)

    # ---- PodGroups and their owners

    def _derived(self, namespace: str, job: str, job_name: str) -> str:
        """UID of the PodGroup derived from a Job, "" when there is none.

        It has the name that only this Job's has, in its namespace, and is controlled by it: no other claim counts, for
        whoever may write PodGroups may write ownerReferences too.
        """
        uid = self._named.get((namespace, pod_group_name(JOB.kind.kind, job_name, job)), "")
        if not uid:
            return ""
        known = translate.controller(self.groups[uid].metadata)
        return uid if known is not None and known.uid == job else ""

    def owner(self, group: Custom) -> Job | None:
        """The Job that a PodGroup was derived from, while it exists."""
        known = translate.controller(group.metadata)
        job = self.jobs.get(known.uid) if known is not None else None
        if (
            job is None
            or self._derived(job.metadata.namespace, job.metadata.uid, job.metadata.name) != group.metadata.uid
        ):
            return None
        return job

    def _group(self, group: Custom) -> Iterator[Change]:
        meta = group.metadata
        name = (meta.namespace, meta.name)
        before, namesake = self.groups.get(meta.uid), self._named.get(name)
        self.groups[meta.uid] = group
        self._named[name] = meta.uid
        yield from self._refresh(meta.uid)
        if before is not None and namesake == meta.uid and before.metadata.owner_references == meta.owner_references:
            return
        homeless = [meta.uid, namesake, f"missing/{meta.namespace}/{meta.name}"]
        homeless += [f"missing/{meta.namespace}/{reference.uid}" for reference in meta.owner_references]
        for gang in dict.fromkeys(homeless):
            if gang in self.members:
                yield from self._rehome(gang)
        yield from self._claimed(name)

    def _group_gone(self, uid: str) -> Iterator[Change]:
        group = self.groups.pop(uid, None)
        if group is None:
            return
        meta = group.metadata
        if self._named.get((meta.namespace, meta.name)) == uid:
            del self._named[meta.namespace, meta.name]
        self._crews.pop(uid, None)
        self.touched.add(uid)
        yield from self._rehome(uid)
        yield from self._claimed((meta.namespace, meta.name))

    def _claimed(self, name: tuple[str, str]) -> Iterator[Change]:
        """The PodGroup of this name came, went or changed hands: the Job that has that name for its own looks again."""
        if (job := self.jobs.get(self._awaited.get(name, ""))) is not None:
            yield from self._want(job)

    def _job(self, job: Job) -> Iterator[Change]:
        meta = job.metadata
        self.jobs[meta.uid] = job
        self._awaited[meta.namespace, pod_group_name(JOB.kind.kind, meta.name, meta.uid)] = meta.uid
        if group := self._derived(meta.namespace, meta.uid, meta.name):
            yield from self._refresh(group)
        yield from self._want(job)

    def _want(self, job: Job) -> Iterator[Change]:
        """A managed Job without a PodGroup is to get one, unless it is over; one that can have none is told why.

        Its pods tell the queue where neither it nor its template does.
        """
        meta = job.metadata
        stand_in = f"missing/{meta.namespace}/{meta.uid}"
        queue = problem = ""
        derived = self._derived(meta.namespace, meta.uid, meta.name)
        if not derived and meta.deletion_timestamp is None and not JOB.finished(job):
            first = next(iter(self.members.get(stand_in, ())), None)
            queue = translate.queue_of(job) or (self.pods[first].queue if first is not None else "")
        if queue:
            name = pod_group_name(JOB.kind.kind, meta.name, meta.uid)
            problem = translate.underivable(job, queue)
            if (meta.namespace, name) in self._named:
                problem = f"PodGroup {meta.namespace}/{name} is not the Job's own and in the way: delete it"
        self.underived.pop(meta.uid, None)
        self.invalid.pop(meta.uid, None)
        if problem:
            self.invalid[meta.uid] = problem
        elif queue:
            self.underived[meta.uid] = queue
        yield from self._stand_in(stand_in)

    def _job_gone(self, uid: str) -> Iterator[Change]:
        job = self.jobs.pop(uid, None)
        if job is None:
            return
        meta = job.metadata
        self.underived.pop(uid, None)
        self.invalid.pop(uid, None)
        self._awaited.pop((meta.namespace, pod_group_name(JOB.kind.kind, meta.name, uid)), None)
        if group := self._derived(meta.namespace, uid, meta.name):
            yield from self._refresh(group)
        yield from self._stand_in(f"missing/{meta.namespace}/{uid}")

    def _refresh(self, uid: str, *, anew: bool = True) -> Iterator[Change]:
        """The gang again, if anything that the engine knows of it changed. Not ``anew``: only its members may have."""
        group = self.groups[uid]
        owner = self.owner(group)
        crew = self._crew(uid, owner)
        if not anew and self._crews.get(uid) == crew:
            return
        self._crews[uid] = crew
        self.touched.add(uid)
        yield from self._seen(translate.gang(group, owner, self._shapes, crew))

    def _crew(self, gang: str, owner: Job | None) -> translate.Crew:
        tally = self._tallies.get(gang)
        cleaned = JOB.cleaned(owner, tally.succeeded if tally is not None else 0) if owner is not None else 0
        if tally is None:
            return translate.Crew(self._classes.of(owner), cleaned=cleaned)
        return translate.Crew(
            max(tally.priorities),
            conflicting=len(tally.priorities) > 1,
            empty=False,
            cleaned=cleaned,
            present=tally.present if cleaned else 0,
            problem=tally.problems[min(tally.problems)] if tally.problems else "",
        )

    def _reclassed(self) -> Iterator[Change]:
        """A priority class changed: it decides the priority of gangs that have no members yet. O(PodGroups)."""
        for uid in list(self.groups):
            if uid not in self.members:
                yield from self._refresh(uid, anew=False)

    def _seen(self, gang: Gang) -> Iterator[Change]:
        if self._gangs.get(gang.uid) != gang:
            self._gangs[gang.uid] = gang
            yield GangSeen(gang)

    def gang(self, uid: str) -> Gang | None:
        """The gang as last told to the engine."""
        return self._gangs.get(uid)
