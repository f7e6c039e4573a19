"""LeaderWorkerSets, and which of their groups anybody has seen.

A set is no gang, each of its groups is one; the cluster has no object for a group. Its pods say by labels of which set and
group they are, for the chain of owners is no help: a worker's StatefulSet is controlled by the leader's pod.
"""

from __future__ import annotations

from queuectl.contract.foreign import LeaderWorkerSet
from queuectl.contract.times import from_wire


class Sets:
    """The sets that exist, by UID and by name."""

    def __init__(self) -> None:
        self.by_uid: dict[str, LeaderWorkerSet] = {}
        self.groups: dict[str, dict[int, None]] = {}  # UID of a set → its groups that pods or PodGroups have named
        # Stand-ins for PodGroups (``missing/…``) with pods of a set → namespace and name of the set, known or not.
        self.unhoused: dict[str, tuple[str, str]] = {}
        self._named: dict[tuple[str, str], str] = {}

    def seen(self, one: LeaderWorkerSet) -> None:
        """The set exists so."""
        meta = one.metadata
        self.by_uid[meta.uid] = one
        self._named[meta.namespace, meta.name] = meta.uid

    def gone(self, uid: str) -> LeaderWorkerSet | None:
        """The set of this UID is gone; what it was."""
        one = self.by_uid.pop(uid, None)
        if one is not None and self._named.get(name := (one.metadata.namespace, one.metadata.name)) == uid:
            del self._named[name]
        return one

    def uid(self, namespace: str, name: str, created: int) -> str:
        """UID of the set of which a pod that was created then (ms) says it is; "" where there is none.

        One that is younger than the pod has only the name of the pod's own set, which is gone.
        """
        one = self.by_uid.get(self._named.get((namespace, name), ""))
        if one is None or from_wire(one.metadata.creation_timestamp) > created:
            return ""
        return one.metadata.uid

    def stand_ins(self, one: LeaderWorkerSet) -> list[str]:
        """Stand-ins of groups of a set of this name. O(all stand-ins), which are few, and none for long."""
        name = one.metadata.namespace, one.metadata.name
        return [gang for gang, other in self.unhoused.items() if other == name]

    def name(self, uid: str, index: int) -> None:
        """A PodGroup, or a pod of a set that exists, is of this group."""
        if index >= 0:
            self.groups.setdefault(uid, {})[index] = None

    def forget(self, uid: str, index: int) -> None:
        """Nobody names this group any more."""
        groups = self.groups.get(uid, {})
        groups.pop(index, None)
        if not groups:
            self.groups.pop(uid, None)
