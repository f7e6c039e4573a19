"""A stand-in for the LeaderWorkerSet controller: ``tests/rig/staged.py`` on the commits of a Store.

The StatefulSets' pods are for ``replicas.Replicas`` to make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuectl.contract.foreign import LEADER_WORKER_SETS, PODS, STATEFUL_SETS
from queuectl.contract.names import QUEUE_LABEL, SET_NAME
from queuectl.drivers.embedded.kubelet import STOP_SECONDS
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue
from tests.drivers.embedded_world import container
from tests.rig import staged

Json = dict[str, Any]
USER = "system:serviceaccount:lws-system:lws-controller-manager"


class WorkerSets:
    """Makes the StatefulSets of all LeaderWorkerSets of a store. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._queue = WorkQueue(self._sync, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()

    def _committed(self, stored: Stored) -> None:
        meta = stored.object["metadata"]
        if stored.kind is LEADER_WORKER_SETS:
            self._queue.add(f"{meta['namespace']}/{meta['name']}")
        elif stored.kind in (PODS, STATEFUL_SETS) and (name := (meta.get("labels") or {}).get(SET_NAME)):
            self._queue.add(f"{meta['namespace']}/{name}")

    def _sync(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        owner = self._store.find(LEADER_WORKER_SETS, namespace, name)
        if owner is None:
            return
        sets = {one["metadata"]["name"]: one for one in self._store.list(STATEFUL_SETS, namespace)}
        work = staged.worker_set(owner, sets, self._store.list(PODS, namespace))
        for body in work.create:
            self._store.create(STATEFUL_SETS, namespace, body, USER)
        for one, patch in work.patch.items():
            self._store.patch(STATEFUL_SETS, namespace, one, patch, USER)
        for pod in work.delete:
            meta = pod["metadata"]
            self._store.delete(PODS, namespace, meta["name"], USER, uid=meta["uid"])


def worker_set(
    name: str, groups: int, size: int, gpus: int = 1, *, queue: str = "team", leader: Json | None = None, **spec: Any
) -> Json:
    """A LeaderWorkerSet of so many groups, of a queue: by the labels of its pod templates."""
    meta = {"labels": {QUEUE_LABEL: queue}, "annotations": {STOP_SECONDS: "1"}}
    pod = {"metadata": meta, "spec": {"containers": [container(gpus)]}}
    template = {"size": size, "workerTemplate": pod, **({"leaderTemplate": {**pod, **leader}} if leader else {})}
    return {"metadata": {"name": name}, "spec": {"replicas": groups, "leaderWorkerTemplate": template, **spec}}
