"""Pods, patches and expectations of the tests of policies."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.contract.home import NAMESPACE
from queuectl.contract.names import FENCE, GATE, QUEUE_LABEL
from queuectl.contract.policies import STALE_FENCE
from tests.rig.client import MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.objects import gated_pod, indexed_job, pod_spec

Json = dict[str, Any]
OURS = "queuectl-under-test"  # the controller's user name here
FOREIGN = "example.com/quota"
NOW = 1_000_000  # a fence that no test's lease reaches, for writes that are not about the fence
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
UNGATE: Json = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
PIN: Json = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}
                ]
            }
        }
    }
}


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def queued(name: str = "one", queue: str = "vision", *, gated: tuple[str, ...] = (), **spec: Any) -> Json:
    return gated_pod(name, gates=gated, labels={QUEUE_LABEL: queue}, **spec)


def job(name: str = "train", count: int = 2, *, labels: Json | None = None, **spec: Any) -> Json:
    made: Json = indexed_job(name, count, **spec)
    made["metadata"]["labels"] = labels or {}
    return made


def service(
    kind: str, name: str = "web", *, labels: Json | None = None, inner: Json | None = None, count: int = 1
) -> Json:
    """A Deployment, StatefulSet or ReplicaSet; ``inner`` are labels of its template beside the one that it selects by."""
    template = {"metadata": {"labels": {"app": name, **(inner or {})}}, "spec": pod_spec(restartPolicy="Always")}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


async def refused(request: Any, says: str) -> None:
    with pytest.raises(ApiError) as error:
        await request
    assert error.value.status in {403, 422}
    assert says in error.value.message


async def stale(ours: Api, path: str, body: Json, says: str = STALE_FENCE) -> None:
    """Wait until this write is refused as stale: policies see a change of the lease a little later (30 ms measured)."""

    async def look() -> bool:
        try:
            await ours.patch(
                path, body, MERGE if "/queuectl.io/" in path or "/jobset.x-k8s.io/" in path else STRATEGIC, dryRun="All"
            )
        except ApiError as error:
            if error.status not in {403, 422}:
                raise
            return says in error.message
        return False

    await eventually(look, what=f"{says}: {path}")


def fenced(fence: int, **body: Any) -> dict[str, Any]:
    """A patch that carries the fence, as every write of our account does."""
    metadata = dict(body.pop("metadata", {}))
    metadata["annotations"] = {**metadata.get("annotations", {}), FENCE: str(fence)}
    return {"metadata": metadata, **body}
