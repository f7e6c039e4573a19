"""Which pod belongs to which gang: the part of the Source that keeps members, PodGroups and their owners together.

A pod whose PodGroup does not exist yet belongs to a stand-in (``missing/…``), which is charged for what runs and admits
nothing; it moves when the PodGroup comes. A gang is told to the engine again whenever anything that it knows of it changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from msgspec.structs import replace

from queuectl.contract import owners, translate
from queuectl.contract.foreign import Custom, Meta, OwnerReference, Workload
from queuectl.contract.owners import pod_group_name
from queuectl.contract.shapes import Shapes
from queuectl.control.mirror import Classes, Tally, Tracked, older
from queuectl.model.changes import Change, GangGone, GangSeen, MemberGone, MemberSeen
from queuectl.model.gangs import Gang


class Rolls:
    """Members, PodGroups and owners, and the gangs that they make."""

    def __init__(self) -> None:
        self.pods: dict[str, Tracked] = {}
        self.members: dict[str, dict[str, None]] = {}  # gang UID → pod UIDs
        self.groups: dict[str, Custom] = {}
        self.owners: dict[str, Workload] = {}
        self.underived: dict[str, str] = {}  # managed owners without a PodGroup → their queue
        self.invalid: dict[str, str] = {}  # managed owners that can have none → why
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
        known = translate.controller(meta)
        if known is None:
            return None
        if (owner := self.owners.get(known.uid)) is not None:
            return translate.controller(owner.metadata) or known
        before = self.pods.get(meta.uid)
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
        known = translate.controller(self.groups[uid].metadata)
        return uid if known is not None and known.uid == owner else ""

    def _derived_of(self, owner: Workload) -> str:
        meta = owner.metadata
        return self._derived(meta.namespace, meta.uid, owners.of(owner).kind.kind, meta.name)

    def owner(self, group: Custom) -> Workload | None:
        """The owner that a PodGroup was derived from, while it exists."""
        known = translate.controller(group.metadata)
        owner = self.owners.get(known.uid) if known is not None else None
        if owner is None or translate.controller(owner.metadata) is not None:
            return None  # of a version that knew no owners of owners
        return owner if self._derived_of(owner) == group.metadata.uid else None

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
        """The PodGroup of this name came, went or changed hands: the owner that has that name for its own looks again."""
        if (owner := self.owners.get(self._awaited.get(name, ""))) is not None:
            yield from self._want(owner)

    def _owner_seen(self, owner: Workload) -> Iterator[Change]:
        self.owners[owner.metadata.uid] = owner
        if above := translate.controller(owner.metadata):
            self._disown(owner)
            yield from self._belongs(owner.metadata, above)
            return
        self._awaited[_own_name(owner)] = owner.metadata.uid
        if group := self._derived_of(owner):
            yield from self._refresh(group)
        yield from self._want(owner)

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
        meta, kind = owner.metadata, owners.of(owner).kind.kind
        stand_in = f"missing/{meta.namespace}/{meta.uid}"
        queue = problem = ""
        if not self._derived_of(owner) and meta.deletion_timestamp is None and not owners.of(owner).finished(owner):
            first = next(iter(self.members.get(stand_in, ())), None)
            queue = translate.queue_of(owner) or (self.pods[first].queue if first is not None else "")
        if queue:
            problem = translate.underivable(owner, queue)
            if (name := _own_name(owner)) in self._named:
                problem = f"PodGroup {'/'.join(name)} is not the {kind}'s own and in the way: delete it"
        self.underived.pop(meta.uid, None)
        self.invalid.pop(meta.uid, None)
        if problem:
            self.invalid[meta.uid] = problem
        elif queue:
            self.underived[meta.uid] = queue
        yield from self._stand_in(stand_in)

    def _disown(self, owner: Workload) -> None:
        """It gets no PodGroup of its own."""
        self.underived.pop(owner.metadata.uid, None)
        self.invalid.pop(owner.metadata.uid, None)
        self._awaited.pop(_own_name(owner), None)

    def _owner_gone(self, uid: str) -> Iterator[Change]:
        owner = self.owners.pop(uid, None)
        if owner is None:
            return
        self._disown(owner)
        if group := self._derived_of(owner):
            yield from self._refresh(group)
        yield from self._stand_in(f"missing/{owner.metadata.namespace}/{uid}")

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
    return meta.namespace, pod_group_name(owners.of(owner).kind.kind, meta.name, meta.uid)
