"""Pods and Jobs as tests of the rig write them, and the patch that pins a pod and takes our gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.rig.client import JSON_PATCH, MERGE, STRATEGIC

GATE = "queuectl.io/admission"
Object = dict[str, Any]


def paths(namespace: str) -> tuple[str, str]:
    """URL paths of the namespace's Jobs and pods."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"


def condition(thing: Object, kind: str) -> str:
    """Status of a condition of any object, empty when it has none of that type."""
    conditions = (thing.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def pod_spec(gpus: int = 0, gates: Sequence[str] = (), **more: object) -> Object:
    """A pod's spec: one container that asks for GPUs and a little CPU, never restarted, with these scheduling gates."""
    asks = {"cpu": "100m", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    spec: Object = {
        "containers": [{"name": "main", "image": "example.com/none", "resources": {"requests": asks, "limits": asks}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        **more,
    }
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return spec


def gated_pod(
    name: str,
    gpus: int = 0,
    gates: Sequence[str] = (GATE,),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> Object:
    """A pod behind our gate (or these gates; none: an ordinary pod)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": dict(labels or {})},
        "spec": pod_spec(gpus, gates, **spec),
    }


def indexed_job(
    name: str,
    count: int,
    gpus: int = 0,
    gates: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    suspend: bool = False,
    **spec: object,
) -> Object:
    """An Indexed Job of ``count`` pods at once; ``annotations`` go to its pods."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "suspend": suspend,
            **spec,
            "template": {"metadata": {"annotations": dict(annotations or {})}, "spec": pod_spec(gpus, gates)},
        },
    }


def pin_patch(pod: Object, node: str, content_type: str = STRATEGIC) -> Any:
    """The patch that pins ``pod`` (which has no affinity of its own) to ``node`` and takes our gate.

    It holds for this very version of this very pod: UID and resourceVersion are part of it.
    """
    meta = pod["metadata"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    gates = pod["spec"]["schedulingGates"]
    if content_type == JSON_PATCH:
        index = [gate["name"] for gate in gates].index(GATE)
        return [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "test", "path": f"/spec/schedulingGates/{index}/name", "value": GATE},
            {"op": "remove", "path": f"/spec/schedulingGates/{index}"},
            {"op": "add", "path": "/spec/affinity", "value": affinity},
        ]
    left: list[Object] = [{"name": GATE, "$patch": "delete"}]
    if content_type == MERGE:  # replaces the list as a whole
        left = [gate for gate in gates if gate["name"] != GATE]
    return {
        "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "spec": {"affinity": affinity, "schedulingGates": left},
    }
