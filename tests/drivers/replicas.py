"""Stand-ins for the ReplicaSet and StatefulSet controllers, and for the one that counts what budgets allow.

They do what shows on pods (Kubernetes 1.37, pkg/controller/replicaset, statefulset, disruption) and keep no status of the
sets: nobody here reads it. No rolling update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from queuectl.contract.foreign import BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS, Kind
from queuectl.contract.names import POD_INDEX, QUEUE_LABEL
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.whole import World
from queuectl.drivers.embedded.workqueue import WorkQueue
from tests.drivers.embedded_world import container
from tests.rig.staged import numbered

Json = dict[str, Any]
USER = "system:serviceaccount:kube-system:set-controller"
_TERMINAL = ("Succeeded", "Failed")


class Replicas:
    """Keeps as many pods of each set as it asks for. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._sets: dict[str, tuple[Kind, Json]] = {}
        self._pods: dict[str, dict[str, Json]] = {}  # UID of the set -> name -> pod
        self._queue = WorkQueue(self._sync, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()

    def _committed(self, stored: Stored) -> None:
        meta, gone = stored.object["metadata"], stored.verb == "DELETED"
        if stored.kind in (REPLICA_SETS, STATEFUL_SETS):
            if gone:
                self._sets.pop(meta["uid"], None)
            else:
                self._sets[meta["uid"]] = stored.kind, stored.object
                self._queue.add(meta["uid"])
        elif stored.kind is PODS:
            for reference in meta.get("ownerReferences") or ():
                if reference.get("controller") and reference["kind"] in ("ReplicaSet", "StatefulSet"):
                    pods = self._pods.setdefault(reference["uid"], {})
                    if gone:
                        pods.pop(meta["name"], None)
                    else:
                        pods[meta["name"]] = stored.object
                    self._queue.add(reference["uid"])

    def _sync(self, uid: str) -> None:
        if uid not in self._sets:
            return
        kind, owner = self._sets[uid]
        count, pods = int(owner["spec"].get("replicas", 1)), self._pods.get(uid, {})
        for pod in (pods if kind is STATEFUL_SETS else {}).copy().values():
            if pod["status"]["phase"] in _TERMINAL and not _leaving(pod):
                self._delete(pod)
        if kind is REPLICA_SETS:
            active = [p for p in pods.values() if not _leaving(p) and p["status"]["phase"] not in _TERMINAL]
            for _ in range(count - len(active)):
                self._make(kind, owner, {"generateName": f"{owner['metadata']['name']}-"})
            for pod in sorted(active, key=lambda one: one["status"]["phase"] != "Pending")[: len(active) - count]:
                self._delete(pod)
            return
        ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        first = int((owner["spec"].get("ordinals") or {}).get("start", 0))
        for ordinal in range(first, first + count):
            name = f"{owner['metadata']['name']}-{ordinal}"
            found = self._pods.get(uid, {}).get(name)
            if found is None and self._store.find(PODS, owner["metadata"]["namespace"], name) is not None:
                self._queue.after(uid, 1.0)  # another set's pod still has the name
            elif found is None:
                self._make(kind, owner, {"name": name, "labels": _numbered(owner, ordinal)})
            if ordered and (found is None or _leaving(found) or not ready(found)):
                return
        for pod in list(pods.values()):
            if int(pod["metadata"]["labels"][POD_INDEX]) >= first + count and not _leaving(pod):
                self._delete(pod)

    def _make(self, kind: Kind, owner: Json, own: Json) -> None:
        meta, template = owner["metadata"], owner["spec"]["template"]
        inner = template.get("metadata") or {}
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
        body = {
            "metadata": {
                **inner,
                **own,
                "labels": {**(inner.get("labels") or {}), **own.get("labels", {})},
                "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
        }
        self._store.create(PODS, meta["namespace"], body, USER)

    def _delete(self, pod: Json) -> None:
        meta = pod["metadata"]
        self._store.delete(PODS, meta["namespace"], meta["name"], USER, uid=meta["uid"])


class Disruptions:
    """Keeps ``disruptionsAllowed`` of budgets with ``minAvailable`` (a number) and ``matchLabels``. ``close`` ends it."""

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
        if stored.kind in (PODS, BUDGETS):
            self._queue.add(stored.object["metadata"]["namespace"])

    def _sync(self, namespace: str) -> None:
        for budget in self._store.list(BUDGETS, namespace):
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            healthy = sum(
                ready(pod) and not _leaving(pod)
                for pod in self._store.list(PODS, namespace)
                if wanted <= (pod["metadata"].get("labels") or {}).items()
            )
            allowed = max(healthy - budget["spec"]["minAvailable"], 0)
            if (budget.get("status") or {}).get("disruptionsAllowed") != allowed:
                patch = {"status": {"disruptionsAllowed": allowed}}
                name = budget["metadata"]["name"]
                self._store.patch(BUDGETS, namespace, name, patch, USER, subresource="status")


@contextmanager
def controllers(world: World) -> Iterator[None]:
    """Both, as long as the block."""
    both = Replicas(world.store, world._failed), Disruptions(world.store, world._failed)
    try:
        yield
    finally:
        for one in both:
            one.close()


def service(name: str, pods: int, gpus: int = 1, *, queue: str = "team", gang: str = "1", **spec: Any) -> Json:
    """A StatefulSet or ReplicaSet of so many pods of a queue."""
    return {
        "metadata": {"name": name, "annotations": {"queuectl.io/min-member": gang}},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": name}},
            **spec,
            "template": {
                "metadata": {"labels": {"app": name, QUEUE_LABEL: queue}},
                "spec": {"restartPolicy": "Always", "containers": [container(gpus)]},
            },
        },
    }


def ready(pod: Json) -> bool:
    """Whether a pod says that it is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())


def _leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _numbered(owner: Json, ordinal: int) -> Json:
    """Labels that tell a StatefulSet's pods apart."""
    return {POD_INDEX: str(ordinal), **numbered(owner["spec"]["template"]["metadata"]["labels"], ordinal)}
