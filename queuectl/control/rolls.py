"""Which pod belongs to which gang: the part of the Source that keeps members, PodGroups and their owners together.

A pod whose PodGroup does not exist yet belongs to a stand-in (``missing/…``), which is charged for what runs and admits
nothing; it moves when the PodGroup comes. A gang is told to the engine again whenever anything that it knows of it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import intern

from msgspec.structs import replace

from queuectl.contract import owners, seats, translate
from queuectl.contract.foreign import (
    LEADER_WORKER_SETS,
    Custom,
    LeaderWorkerSet,
    Meta,
    OwnerReference,
    WorkerGroup,
    Workload,
)
from queuectl.contract.owners import pod_group_name
from queuectl.contract.shapes import Shapes
from queuectl.contract.times import from_wire
from queuectl.control.mirror import Classes, Tally, Tracked, older
from queuectl.control.sets import Sets
from queuectl.model.changes import Change, GangGone, GangSeen, MemberGone, MemberSeen
from queuectl.model.gangs import Gang


class Rolls:
    """Members, PodGroups and owners, and the gangs that they make."""

    def __init__(self) -> None:
        self.pods: dict[str, Tracked] = {}
        self.members: dict[str, dict[str, None]] = {}  # gang UID → pod UIDs
        self.groups: dict[str, Custom] = {}
        self.owners: dict[str, Workload] = {}  # by ``owners.key``, as the two below
        self.underived: dict[str, str] = {}  # managed owners without a PodGroup → their queue
        self.invalid: dict[str, str] = {}  # managed owners that can have none → why
        self.sets = Sets()
        self.missed: dict[
            str, Callable[[], None]
        ] = {}  # kinds that the cluster does not know → whom to tell of one's like
        self.touched: set[str] = set()  # gangs whose wire state changed since the last look
        self._named: dict[tuple[str, str], str] = {}
        self._awaited: dict[tuple[str, str], str] = {}  # the name that an owner's PodGroup has → the owner
        self._gangs: dict[str, Gang] = {}
        self._tallies: dict[str, Tally] = {}
        self._crews: dict[str, translate.Crew] = {}
        self._classes = Classes()
        self._shapes = Shapes()

    # ---- members of gangs

    def _gang_uid(self, uid: str, namespace: str, group: str, owner: str, kind: str, name: str) -> str:
        """The gang a pod belongs to: its PodGroup's UID, a stand-in where that does not exist, or its own UID."""
        if group:
            return self._named.get((namespace, group)) or f"missing/{namespace}/{group}"
        if owner:
            return self._derived(namespace, owner, kind, name) or f"missing/{namespace}/{owner}"
        return uid

    def _enter(self, tracked: Tracked) -> None:
        gang = tracked.member.gang
        if gang not in self.members:
            self.members[gang], self._tallies[gang] = {}, Tally()
        self.members[gang][tracked.member.uid] = None
        self._tallies[gang].count(tracked, 1)
        if tracked.owner_kind == LEADER_WORKER_SETS.kind and gang.startswith("missing/") and not tracked.group:
            self.sets.unhoused[gang] = tracked.namespace, tracked.owner_name
        self.touched.add(gang)

    def _leave(self, tracked: Tracked) -> None:
        gang = tracked.member.gang
        self._tallies[gang].count(tracked, -1)
        del self.members[gang][tracked.member.uid]
        if not self.members[gang]:
            del self.members[gang], self._tallies[gang]
            self.sets.unhoused.pop(gang, None)
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
        """What stands for a PodGroup that does not exist: while it has members, or its owner must be told what is wrong."""
        _, namespace, key = uid.split("/", 2)
        owner, first = self.owners.get(key), next(iter(self.members.get(uid, ())), None)
        problem = self.invalid.get(key, "") if owner is not None else ""
        if first is not None:
            pod = self.pods[first]
            yield from self._seen(translate.stand_in(uid, namespace, pod.group or pod.owner_name, pod.queue, problem))
        elif owner is not None and problem:
            yield from self._seen(
                translate.stand_in(uid, namespace, owner.metadata.name, translate.queue_of(owner), problem)
            )
        elif self._gangs.pop(uid, None) is not None:
            self.touched.add(uid)
            yield GangGone(uid)

    def _rehome(self, gang: str) -> Iterator[Change]:
        """Members of a gang, or of what stands in for one, move to where they belong now. O(members)."""
        moved = []
        for uid in list(self.members.get(gang, ())):
            tracked = self.pods[uid]
            home = self._gang_uid(
                uid, tracked.namespace, tracked.group, tracked.owner, tracked.owner_kind, tracked.owner_name
            )
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

    def _topmost(self, meta: Meta) -> OwnerReference | None:
        """What a pod is made for in the end: its owner, or that one's owner (a JobSet's Jobs make its pods).

        While its owner is not known, not yet or no more, it is what it was.
        """
        known, before = translate.controller(meta), self.pods.get(meta.uid)
        if known is None:
            return None
        if (seat := seats.group(meta)) is not None:
            name, index = seat
            uid = self.sets.uid(meta.namespace, name, from_wire(meta.creation_timestamp))
            if not uid and before is not None and before.owner_kind == LEADER_WORKER_SETS.kind:
                uid = before.owner.rpartition("/")[0]
            return OwnerReference(LEADER_WORKER_SETS.kind, name, f"{uid or name}/{index}", controller=True)
        if (owner := self.owners.get(known.uid)) is not None:
            return translate.controller(owner.metadata) or known
        if before is None or before.owner == known.uid:
            return known
        return OwnerReference(before.owner_kind, before.owner_name, before.owner, controller=True)

    def _derived(self, namespace: str, owner: str, kind: str, name: str) -> str:
        """UID of the PodGroup derived from an owner, "" when there is none.

        It has the name that only this owner's has, in its namespace, and is controlled by it: no other claim counts, for
        whoever may write PodGroups may write ownerReferences too.
        """
        uid = self._named.get((namespace, pod_group_name(kind, name, owner)), "")
        if not uid:
            return ""
        return uid if _key(self.groups[uid]) == owner else ""

    def _derived_of(self, owner: Workload) -> str:
        meta = owner.metadata
        return self._derived(meta.namespace, owners.key(owner), owners.of(owner).kind.kind, meta.name)

    def owner(self, group: Custom) -> Workload | None:
        """The owner that a PodGroup was derived from, while it exists."""
        uid, owner = group.metadata.uid, self.owners.get(_key(group))
        if owner is None or translate.controller(owner.metadata) is not None:
            return None  # of a version that knew no owners of owners
        if isinstance(owner, WorkerGroup) and not owner.wanted and self.members.get(uid):
            owner = replace(
                owner, wanted=True
            )  # one too many for a while: a rolling update makes groups before it takes any
        return owner if self._derived_of(owner) == uid else None

    def _group(self, group: Custom) -> Iterator[Change]:
        meta = group.metadata
        name = (meta.namespace, meta.name)
        before, namesake = self.groups.get(meta.uid), self._named.get(name)
        if namesake not in (None, meta.uid):
            other = self.groups[namesake]
            if older(meta.resource_version, other.metadata.resource_version):
                # The answer to a write of ours told of its successor, and overtook what the watch had still to tell of it.
                yield from self._group_gone(meta.uid)
                return
        self.groups[meta.uid] = group
        self._named[name] = meta.uid
        if "/" in (key := _key(group)):
            self.sets.name(*_split(key))
            yield from self._share(key)
        yield from self._refresh(meta.uid)
        if before is not None and namesake == meta.uid and before.metadata.owner_references == meta.owner_references:
            return
        homeless = [meta.uid, namesake, f"missing/{meta.namespace}/{meta.name}"]
        homeless += [f"missing/{meta.namespace}/{owners.key_of(meta.name, one)}" for one in meta.owner_references]
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
        if "/" in (key := _key(group)) and key not in self.owners:
            self.sets.forget(*_split(key))

    def _claimed(self, name: tuple[str, str]) -> Iterator[Change]:
        """The PodGroup of this name came, went or changed hands: the owner that has that name for its own looks again."""
        if (owner := self.owners.get(self._awaited.get(name, ""))) is not None:
            yield from self._want(owner)

    def _owner_seen(self, owner: Workload) -> Iterator[Change]:
        self.owners[owners.key(owner)] = owner
        if above := translate.controller(owner.metadata):
            if above.kind in self.missed:
                self.missed[above.kind]()
            self._disown(owner)
            yield from self._belongs(owner.metadata, above)
            return
        if seats.of_workers(owner.metadata):
            self._disown(owner)  # its pods say of which group they are
            return
        self._awaited[_own_name(owner)] = owners.key(owner)
        if group := self._derived_of(owner):
            yield from self._refresh(group)
        yield from self._want(owner)

    def _set_seen(self, one: LeaderWorkerSet) -> Iterator[Change]:
        """A set came or changed, and with it all its groups. O(those)."""
        self.sets.seen(one)
        for gang in self.sets.stand_ins(one):
            yield from self._claim(gang, one)
        for index in list(self.sets.groups.get(one.metadata.uid, ())):
            yield from self._owner_seen(owners.group_of(one, index))

    def _claim(self, gang: str, one: LeaderWorkerSet) -> Iterator[Change]:
        """Pods that came before their set learn whose they are. O(those)."""
        uid, since = one.metadata.uid, from_wire(one.metadata.creation_timestamp)
        keys: dict[str, None] = {}
        for pod in self.members[gang]:
            tracked = self.pods[pod]
            if tracked.member.created >= since:
                tracked.owner = intern(f"{uid}/{tracked.owner.rpartition('/')[2]}")
                keys[tracked.owner] = None
        yield from self._rehome(gang)
        for key in keys:
            yield from self._share(key)

    def _share(self, key: str) -> Iterator[Change]:
        """A pod or PodGroup names this group of a set: it is an owner from now on, as long as the set exists."""
        uid, index = _split(key)
        one = self.sets.by_uid.get(uid)
        if index >= 0 and one is not None and key not in self.owners:
            self.sets.name(uid, index)
            yield from self._owner_seen(owners.group_of(one, index))

    def _set_gone(self, uid: str) -> Iterator[Change]:
        one = self.sets.gone(uid)
        if one is None:
            return
        for index in list(self.sets.groups.get(uid, ())):
            yield from self._owner_gone(f"{uid}/{index}")
            if not self._derived_of(owners.group_of(one, index)):
                self.sets.forget(uid, index)

    def _belongs(self, meta: Meta, above: OwnerReference) -> Iterator[Change]:
        """Its pods are its owner's: those that came before it move there. O(those)."""
        stand_in = f"missing/{meta.namespace}/{meta.uid}"
        for uid in self.members.get(stand_in, ()):
            tracked = self.pods[uid]
            tracked.owner, tracked.owner_kind, tracked.owner_name = above.uid, above.kind, above.name
        if stand_in in self.members:
            yield from self._rehome(stand_in)
            if (owner := self.owners.get(above.uid)) is not None:
                yield from self._want(owner)

    def _want(self, owner: Workload) -> Iterator[Change]:
        """A managed owner without a PodGroup is to get one, unless it is over; one that can have none is told why.

        Its pods tell the queue where neither it nor its template does.
        """
        meta, kind, key = owner.metadata, owners.of(owner).kind.kind, owners.key(owner)
        stand_in = f"missing/{meta.namespace}/{key}"
        queue = problem = ""
        if not self._derived_of(owner) and meta.deletion_timestamp is None and not owners.of(owner).finished(owner):
            first = next(iter(self.members.get(stand_in, ())), None)
            queue = translate.queue_of(owner) or (self.pods[first].queue if first is not None else "")
        if queue:
            problem = translate.underivable(owner, queue)
            if (name := _own_name(owner)) in self._named:
                problem = f"PodGroup {'/'.join(name)} is not the {kind}'s own and in the way: delete it"
        self.underived.pop(key, None)
        self.invalid.pop(key, None)
        if problem:
            self.invalid[key] = problem
        elif queue:
            self.underived[key] = queue
            self.touched.add(stand_in)  # there is something to write, also where the engine hears of nothing new
        yield from self._stand_in(stand_in)

    def _disown(self, owner: Workload) -> None:
        """It gets no PodGroup of its own."""
        self.underived.pop(owners.key(owner), None)
        self.invalid.pop(owners.key(owner), None)
        self._awaited.pop(_own_name(owner), None)

    def _owner_gone(self, key: str) -> Iterator[Change]:
        owner = self.owners.pop(key, None)
        if owner is None:
            return
        self._disown(owner)
        if group := self._derived_of(owner):
            yield from self._refresh(group)
        yield from self._stand_in(f"missing/{owner.metadata.namespace}/{key}")

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

    def _crew(self, gang: str, owner: Workload | None) -> translate.Crew:
        tally, cleaned = self._tallies.get(gang), 0
        if owner is not None:
            cleaned = owners.of(owner).cleaned(owner, tally.succeeded if tally is not None else 0)
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


def _own_name(owner: Workload) -> tuple[str, str]:
    """Namespace and name of the PodGroup that an owner's gang has."""
    meta: Meta = owner.metadata
    return meta.namespace, pod_group_name(owners.of(owner).kind.kind, meta.name, owners.key(owner))


def _key(group: Custom) -> str:
    """Key of the owner that a PodGroup says it was derived from, "" where it says none that we know."""
    known = translate.controller(group.metadata)
    return owners.key_of(group.metadata.name, known) if known is not None else ""


def _split(key: str) -> tuple[str, int]:
    """UID of a set, and the number of its group; -1 for what is none."""
    uid, _, text = key.rpartition("/")
    index = seats.number(text, seats.GROUPS)
    return uid, -1 if index is None else index
