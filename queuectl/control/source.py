"""The cluster's events become the engine's changes, once, for every driver.

A ``Source`` mirrors what we must know to write (versions, owners, which pod belongs to which gang) and translates each
event into zero or more changes. It is synchronous and holds no policy: it neither decides nor writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from sys import intern

from queuectl.contract import cluster_scoped, foreign, names, owners, translate
from queuectl.contract.foreign import Custom, Kind, Meta, Pod
from queuectl.contract.shapes import likeness
from queuectl.contract.v1alpha1 import InvalidObject
from queuectl.control.mirror import Names, Problems, Tracked, older
from queuectl.control.ports import Bookmark, Deleted, Event, Malformed, Upserted
from queuectl.control.rolls import Rolls
from queuectl.model.changes import (
    Change,
    LevelsGone,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
    PoolGone,
    PoolSeen,
    QueueGone,
    QueueSeen,
)
from queuectl.model.gangs import Stage
from queuectl.model.quantity import QuantityError

__all__ = ["KINDS", "Source", "Tracked"]

OWNER_KINDS = tuple(row.kind for row in owners.OWNERS.values())
_OWNER_KINDS = {kind.plural: kind for kind in OWNER_KINDS}
KINDS = (
    foreign.NODES,
    foreign.PRIORITY_CLASSES,
    foreign.TOPOLOGIES,
    foreign.POOLS,
    foreign.QUEUES,
    *OWNER_KINDS,
    foreign.POD_GROUPS,
    foreign.PODS,
)
# UIDs of gone objects that are remembered: an answer to a write of ours comes seconds after the event that overtook it, and
# so many pods do not go in that time.
DEPARTED = 10_000

log = logging.getLogger(__name__)


class Source(Rolls):
    """Mirror and translator. ``apply`` costs O(1) an event, except where a PodGroup or owner appears: O(its members)."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, Custom] = {}
        self.problems = Problems()
        self._departed: dict[str, None] = {}
        self._occupants: dict[str, tuple[str, object]] = {}
        self._nodes, self._queue_names, self._pools, self._topologies = Names(), Names(), Names(), Names()

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
                if known := self.version(kind, meta.uid):
                    if known == meta.resource_version or older(meta.resource_version, known):
                        return []
                elif meta.uid in self._departed:
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
            case "pools":
                return self._pools.by_uid
            case "podgroups":
                return self.groups
            case foreign.LEADER_WORKER_SETS.plural:
                return self.sets.by_uid
            case plural if plural in _OWNER_KINDS:
                return [uid for uid, owner in self.owners.items() if owners.of(owner).kind.plural == plural]
            case "priorityclasses":
                return self._classes.names.by_uid
            case _:
                return self._topologies.by_uid

    def version(self, kind: Kind, uid: str) -> str:
        """The version of an object that we write, as the mirror holds it; "" where there is none."""
        if kind is foreign.PODS:
            return pod.version if (pod := self.pods.get(uid)) is not None else ""
        queue = self.queues.get(self._queue_names.by_uid.get(uid, ""))
        found = self.groups.get(uid) or self.owners.get(uid) or self.sets.by_uid.get(uid) or queue
        return found.metadata.resource_version if found is not None and found.metadata.uid == uid else ""

    def _upserted(self, kind: Kind, obj: object) -> Iterator[Change]:
        match obj:
            case foreign.Job() | foreign.ReplicaSet() | foreign.StatefulSet() | foreign.JobSet():
                yield from self._owner_seen(obj)
            case foreign.LeaderWorkerSet():
                yield from self._set_seen(obj)
            case foreign.Node(metadata=meta):
                node = cluster_scoped.node(obj)
                self._nodes.seen(meta)
                yield NodeSeen(node)
            case foreign.PriorityClass():
                if self._classes.seen(obj):
                    yield from self._reclassed()
            case Custom() if kind is foreign.POD_GROUPS:
                yield from self._group(obj)
            case Custom(metadata=meta) if kind is foreign.QUEUES:
                queue = cluster_scoped.queue(obj)
                self._queue_names.seen(meta)
                self.queues[meta.name] = obj
                yield QueueSeen(queue)
            case Custom(metadata=meta) if kind is foreign.POOLS:
                pool = cluster_scoped.pool(obj)
                self._pools.seen(meta)
                yield PoolSeen(pool)
            case Custom(metadata=meta) if kind is foreign.TOPOLOGIES:
                self._topologies.seen(meta)
                yield LevelsSeen(cluster_scoped.levels(obj), meta.name)

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
            case "pools":
                if name := self._pools.gone(uid):
                    yield PoolGone(name)
            case "podgroups":
                yield from self._group_gone(uid)
            case foreign.LEADER_WORKER_SETS.plural:
                yield from self._set_gone(uid)
            case plural if plural in _OWNER_KINDS:
                yield from self._owner_gone(uid)
            case "priorityclasses":
                if self._classes.gone(uid):
                    yield from self._reclassed()
            case _:
                if name := self._topologies.gone(uid):
                    yield LevelsGone(name)

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
                if now.member.stage is Stage.GATED:
                    self.touched.add(gang)  # its version is another: a release that was lost is void now
                return
            self._tallies[gang].count(before, -1)
        self._enter(now)
        yield MemberSeen(now.member)  # first: what runs is charged, whatever becomes of its gang
        if "/" in now.owner and not now.group:
            yield from self._share(now.owner)
        if gang == uid:
            crew = translate.Crew(now.priority, problem=now.problem)
            yield from self._seen(translate.lone(pod, now.member, crew))
        elif gang not in self.groups and now.owner not in self.underived and now.owner in self.owners and not now.group:
            yield from self._want(self.owners[now.owner])
        if before is not None or gang in self.groups or gang not in self._gangs or len(self.members[gang]) == 1:
            yield from self._settle(gang)  # one more pod changes nothing of what stands for pods only
        if before is not None and before.member.gang != gang:
            yield from self._settle(before.member.gang)

    def tracked(self, pod: Pod) -> Tracked:
        """What is kept of a managed pod. About 8 µs."""
        meta, spec, labels = pod.metadata, pod.spec, pod.metadata.labels or {}
        known = self._topmost(meta)
        # Interned: a hundred thousand pods share these few texts.
        namespace, group = intern(meta.namespace), labels.get(names.POD_GROUP_LABEL, "")
        owner, kind, name = (intern(known.uid), intern(known.kind), intern(known.name)) if known else ("", "", "")
        gang = intern(self._gang_uid(meta.uid, namespace, group, owner, kind, name))
        member, problem = translate.member(pod, gang, self._shapes)
        required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        return Tracked(
            namespace=namespace,
            version=meta.resource_version,
            member=member,
            terms=required.node_selector_terms if required else None,
            queue=intern(labels[names.QUEUE_LABEL]),
            group=intern(group) if group else "",
            owner=owner,
            owner_kind=kind,
            owner_name=name,
            likeness=likeness(pod) if member.stage is Stage.GATED else 0,
            priority=spec.priority or 0,
            problem=problem,
            waiting=translate.waiting(pod) if gang == meta.uid else None,
        )

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
