"""Which node would take a pod, as kube-scheduler and kubelet judge it: a second opinion on the engine's, of its own."""

from __future__ import annotations

from queuectl.model.gangs import Shape, Toleration
from queuectl.model.resources import Amounts
from queuectl.model.topology import Node, Taint


class Ledger:
    """What bound pods use on each node."""

    def __init__(self) -> None:
        self.used: dict[str, dict[str, int]] = {}

    def charge(self, node: str, requests: Amounts, sign: int) -> None:
        """A pod is bound (1) or gone (-1)."""
        used = self.used.setdefault(node, {})
        for resource, amount in requests:
            used[resource] = used.get(resource, 0) + sign * amount

    def objection(self, node: Node | None, shape: Shape) -> str:
        """Why the node does not take the pod, in a scheduler's words; "" when it does. O(resources + taints)."""
        if node is None:
            return "the node it is pinned to does not exist"
        if not node.ready:
            return f"node {node.name} is not ready"
        if node.cordoned:
            return f"node {node.name} is unschedulable"
        for taint in node.taints:
            if taint.effect != "PreferNoSchedule" and not any(_tolerates(one, taint) for one in shape.tolerations):
                return f"node {node.name} has the untolerated taint {taint.key}"
        allocatable, used = dict(node.allocatable), self.used.get(node.name, {})
        for resource, amount in shape.requests:
            if used.get(resource, 0) + amount > allocatable.get(resource, 0):
                return f"node {node.name} has insufficient {resource}"
        return ""


def _tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if not one.key:
        return one.operator == "Exists"
    return one.key == taint.key and (one.operator == "Exists" or one.value == taint.value)
