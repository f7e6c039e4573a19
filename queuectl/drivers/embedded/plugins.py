"""The API server's own admission plugins, as far as they show on pods: Priority and DefaultTolerationSeconds."""

from __future__ import annotations

from queuectl.contract.foreign import PRIORITY_CLASSES
from queuectl.control.ports import Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Request, Store

TOLERATED = 300  # seconds for which a pod stays on a node that is not ready or cannot be reached
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Plugins:
    """A check of a Store (``store.Check``). ``store`` holds the priority classes."""

    def __init__(self) -> None:
        self.store: Store | None = None

    def __call__(self, request: Request) -> Json | None:
        """Complete a new pod; None for everything else. Raises Refused (403) for a class that does not exist."""
        pod = request.new
        if request.kind.plural != "pods" or pod is None or request.old is not None:
            return None
        spec = pod.get("spec") or {}
        return {**pod, "spec": {**spec, **self._priority(pod, spec), "tolerations": _tolerations(spec)}}

    def _priority(self, pod: Json, spec: Json) -> Json:
        classes = {one["metadata"]["name"]: one for one in self.store.list(PRIORITY_CLASSES)} if self.store else {}
        name = spec.get("priorityClassName")
        if not name:
            name = next((known for known, one in classes.items() if one.get("globalDefault")), "")
            if not name:
                return {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
        if name in _SYSTEM:
            return {"priorityClassName": name, "priority": _SYSTEM[name], "preemptionPolicy": "PreemptLowerPriority"}
        if name not in classes:
            text = f'pods "{pod["metadata"]["name"]}" is forbidden: no PriorityClass with name {name} was found'
            raise Refused(text, 403)
        policy = classes[name].get("preemptionPolicy", "PreemptLowerPriority")
        return {"priorityClassName": name, "priority": int(classes[name].get("value", 0)), "preemptionPolicy": policy}


def _tolerations(spec: Json) -> list[Json]:
    """A pod's own tolerations, and those of a lost node where they say nothing of it."""
    given = list(spec.get("tolerations") or ())
    for key in _LOST:
        if not any(one.get("key") in (None, "", key) and one.get("effect") in (None, "", "NoExecute") for one in given):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED}
            given.append(added)
    return given
