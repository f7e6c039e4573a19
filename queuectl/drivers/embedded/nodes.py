"""What kube-controller-manager does about nodes: it taints those that fall silent and ends the pods of those that are lost.

The delays are upstream's: 40 s of silence until a node is unreachable, then as long as each pod tolerates that (300 s by
default); 40 s until the pods of a Node that was deleted are collected. O(1) a commit while no node is tainted NoExecute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from queuectl.contract.foreign import NODES, PODS
from queuectl.drivers.embedded.binder import tolerates
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue

USER = "system:serviceaccount:kube-system:node-controller"
COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
GRACE = 40.0  # seconds without a heartbeat (node-monitor-grace-period)
QUARANTINE = 40.0  # seconds for which a pod's node must be missing (podgc's quarantineTime)
UNREACHABLE = "node.kubernetes.io/unreachable"
_TERMINAL = ("Succeeded", "Failed")


class NodeController:
    """Watches over the nodes of a store. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._silent: set[str] = set()
        self._taints: dict[str, list[Json]] = {}  # node -> its NoExecute taints, where it has any
        self._bound: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)  # node -> pod UID -> namespace and name
        self._nodes = WorkQueue(self._look, failed)
        self._evictions = WorkQueue(self._evict, failed)
        self._orphans = WorkQueue(self._collect, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        for queue in (self._nodes, self._evictions, self._orphans):
            queue.close()

    def lost(self, node: str) -> None:
        """Nothing is heard of a node any more."""
        self._silent.add(node)
        self._nodes.after(node, GRACE)

    def heard(self, node: str) -> None:
        """It is back."""
        self._silent.discard(node)
        self._nodes.add(node)

    # ---- what happens

    def _committed(self, stored: Stored) -> None:
        match stored.kind.plural:
            case "pods":
                self._pod(stored)
            case "nodes":
                self._node(stored)

    def _node(self, stored: Stored) -> None:
        name = stored.object["metadata"]["name"]
        if stored.verb == "DELETED":
            self._taints.pop(name, None)
            if self._bound.get(name):
                self._orphans.after(name, QUARANTINE)
            return
        taints = [t for t in (stored.object.get("spec") or {}).get("taints") or () if t["effect"] == "NoExecute"]
        if taints == self._taints.get(name, []):
            return
        if taints:
            self._taints[name] = taints
        else:
            del self._taints[name]
        for uid in self._bound[name]:
            self._judge(name, uid)

    def _pod(self, stored: Stored) -> None:
        meta = stored.object["metadata"]
        node = stored.object["spec"].get("nodeName")
        if not node:
            return
        uid, here = meta["uid"], self._bound[node]
        if stored.verb == "DELETED":
            here.pop(uid, None)
            self._evictions.forget(_key(node, uid))
        elif uid not in here:
            here[uid] = (meta["namespace"], meta["name"])
            if node in self._taints:
                self._judge(node, uid)
            if self._store.find(NODES, "", node) is None:
                self._orphans.after(node, QUARANTINE)

    # ---- taints

    def _look(self, name: str) -> None:
        """Taint a node that is silent, and take our taints from one that is not."""
        node = self._store.find(NODES, "", name)
        if node is None:
            return
        lost = name in self._silent
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] != UNREACHABLE]
        now = self._store.time()
        if lost:
            said = {
                "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.", "lastTransitionTime": now,
            }  # fmt: skip
            patch = {"status": {"conditions": [said]}}
            self._store.patch(NODES, "", name, patch, USER, subresource="status")
            for uid in list(self._bound[name]):
                self._unready(*self._bound[name][uid])
            kept += [{"key": UNREACHABLE, "effect": "NoSchedule"}]
            kept += [{"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": now}]
        if kept != taints:
            self._store.patch(NODES, "", name, {"spec": {"taints": kept or None}}, USER)

    def _unready(self, namespace: str, name: str) -> None:
        """What runs on a silent node is not ready any more, as far as anybody knows."""
        pod = self._store.get(PODS, namespace, name)
        ready = next((one for one in pod["status"].get("conditions") or () if one["type"] == "Ready"), None)
        if ready is not None and ready["status"] == "True":
            said = {"type": "Ready", "status": "False", "lastTransitionTime": self._store.time()}
            patch = {"status": {"conditions": [said]}}
            self._store.patch(PODS, namespace, name, patch, USER, subresource="status")

    def _judge(self, node: str, uid: str) -> None:
        """When, if ever, a pod must leave a node for its taints."""
        key = _key(node, uid)
        self._evictions.forget(key)
        pod = self._store.get(PODS, *self._bound[node][uid])
        left: float | None = None
        for taint in self._taints.get(node, ()):
            fitting = [one for one in pod["spec"].get("tolerations") or () if tolerates(one, taint)]
            if not fitting:
                self._evictions.add(key)
                return
            bounds = [float(one["tolerationSeconds"]) for one in fitting if one.get("tolerationSeconds") is not None]
            if bounds:
                left = min(bounds) if left is None else min(left, *bounds)
        if left is not None:
            self._evictions.after(key, max(left, 0.0))

    def _evict(self, key: str) -> None:
        node, uid = key.split(" ")
        known = self._bound[node].get(uid)
        if known is None or node not in self._taints:
            return
        pod = self._store.get(PODS, *known)
        if "deletionTimestamp" in pod["metadata"]:
            return
        self._disrupted(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", USER)
        self._store.delete(PODS, *known, USER, uid=uid)

    # ---- pods of nodes that are no more

    def _collect(self, node: str) -> None:
        if self._store.find(NODES, "", node) is not None:
            return
        for uid, known in list(self._bound[node].items()):
            pod = self._store.get(PODS, *known)
            self._disrupted(pod, "DeletionByPodGC", "PodGC: node no longer exists", COLLECTOR, phase="Failed")
            self._store.delete(PODS, *known, COLLECTOR, uid=uid, grace=0)

    def _disrupted(self, pod: Json, reason: str, message: str, user: str, **status: str) -> None:
        """Say on a pod why it is about to go."""
        if pod["status"].get("phase") in _TERMINAL:
            return
        said = {
            "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": self._store.time(),
        }  # fmt: skip
        meta = pod["metadata"]
        patch = {"status": {"conditions": [said], **status}}
        self._store.patch(PODS, meta["namespace"], meta["name"], patch, user, subresource="status")


def _key(node: str, uid: str) -> str:
    return f"{node} {uid}"
