"""What cleans up: dependents go in the background after the last of their owners, ended Jobs after their time.

Owners are known by UID. An owner of a kind that this cluster has never stored (a DaemonSet, say) is taken for alive, since
nobody could ask for it. No foreground deletion; who wants dependents to stay takes their owner references away first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from queuectl.contract.foreign import JOBS, Kind
from queuectl.contract.times import from_wire
from queuectl.drivers.embedded.job_rules import condition
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue

USER = "system:serviceaccount:kube-system:generic-garbage-collector"
TTL = "system:serviceaccount:kube-system:ttl-after-finished-controller"


class Garbage:
    """Collects what a store has no use for. ``close`` ends it. O(owners) a commit."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._kinds: set[tuple[str, str]] = set()  # that were ever stored
        self._alive: dict[str, tuple[Kind, str, str]] = {}  # UID -> kind, namespace and name
        self._owners: dict[str, tuple[str, ...]] = {}  # UID -> those of its owners, where it has any
        self._dependents: dict[str, dict[str, None]] = defaultdict(dict)  # UID -> those that it owns
        self._orphans = WorkQueue(self._collect, failed)
        self._ended = WorkQueue(self._expire, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._orphans.close()
        self._ended.close()

    # ---- what happens

    def _committed(self, stored: Stored) -> None:
        meta = stored.object["metadata"]
        uid = meta["uid"]
        if stored.verb == "DELETED":
            self._alive.pop(uid, None)
            self._own(uid, ())
            self._ended.forget(uid)
            for dependent in self._dependents.pop(uid, ()):
                self._orphans.add(dependent)
            return
        if uid not in self._alive:
            self._alive[uid] = (stored.kind, meta.get("namespace", ""), meta["name"])
            self._kinds.add((stored.kind.api_version, stored.kind.kind))
        references = meta.get("ownerReferences") or ()
        owners = tuple(one["uid"] for one in references)
        if owners != self._owners.get(uid, ()):
            self._own(uid, owners)
            if any(self._missing(one) for one in references):
                self._orphans.add(uid)
        if stored.kind.plural == "jobs" and (left := self._left(stored.object)) is not None:
            self._ended.after(uid, left)

    def _own(self, uid: str, owners: tuple[str, ...]) -> None:
        for owner in self._owners.pop(uid, ()):
            known = self._dependents.get(owner)
            if known is not None:
                known.pop(uid, None)
                if not known:
                    del self._dependents[owner]
        if owners:
            self._owners[uid] = owners
        for owner in owners:
            self._dependents[owner][uid] = None

    def _missing(self, reference: Json) -> bool:
        """Whether an owner is certainly gone."""
        known = (reference.get("apiVersion", ""), reference["kind"]) in self._kinds
        return known and reference["uid"] not in self._alive

    def _left(self, job: Json) -> float | None:
        """Seconds until a Job that has ended may go; None when it has not, or may stay."""
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        ended = condition(job, "Complete") or condition(job, "Failed")
        if seconds is None or ended is None:
            return None
        passed = (self._store.clock.now() - from_wire(ended["lastTransitionTime"])) / 1000
        return max(0.0, float(seconds) - passed)

    # ---- what is done about it

    def _collect(self, uid: str) -> None:
        """Delete an object that has lost all its owners; of several, take the reference to the lost one away."""
        if uid not in self._alive:
            return
        kind, namespace, name = self._alive[uid]
        body = self._store.get(kind, namespace, name)
        references = body["metadata"].get("ownerReferences") or []
        kept = [one for one in references if not self._missing(one)]
        if len(kept) == len(references) or "deletionTimestamp" in body["metadata"]:
            return
        if kept:
            meta = {**body["metadata"], "ownerReferences": kept}
            self._store.replace(kind, {**body, "metadata": meta}, USER)
        else:
            self._store.delete(kind, namespace, name, USER, uid=uid)

    def _expire(self, uid: str) -> None:
        found = self._alive.get(uid)
        job = self._store.find(JOBS, found[1], found[2]) if found is not None else None
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        left = self._left(job)
        if left:
            self._ended.after(uid, left)
        elif left is not None:
            self._store.delete(JOBS, job["metadata"]["namespace"], job["metadata"]["name"], TTL, uid=uid)
