"""A controller without a cluster: the real one, fed by hand with objects as the API server would send them.

The story that most tests tell: four nodes of four GPUs in two racks; research has two teams. vision runs a Job, and two
more wait: one is too large for a rack, one is held. language has a pod on its own, and a PodGroup that lacks members.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from queuectl.contract import foreign
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import Kind
from queuectl.contract.times import from_wire
from queuectl.control.loop import Controller
from queuectl.control.ports import Event, Unreachable, Upserted
from queuectl.drivers.kube.decode import decoders

Json = dict[str, Any]

NOW = from_wire("2026-11-30T10:00:00Z")
GPU = "nvidia.com/gpu"
API = "queuectl.io/v1alpha1"


class ManualClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


class NoCluster:
    """Answers nothing: these tests feed the controller by hand."""

    async def watch(self, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
        raise Unreachable("there is no cluster")
        yield

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        raise Unreachable("there is no cluster")

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        raise Unreachable("there is no cluster")

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Any:
        raise Unreachable("there is no cluster")

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        raise Unreachable("there is no cluster")

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        raise Unreachable("there is no cluster")

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        raise Unreachable("there is no cluster")


class Standin:
    """A controller and the hands that feed it."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.clock = ManualClock()
        self.controller = Controller(NoCluster(), self.clock, configuration or Configuration(), "one")
        self._version = 0

    def see(self, kind: Kind, *objects: Json) -> None:
        """The API server sent these."""
        for one in objects:
            self._version += 1
            meta = {
                "resourceVersion": str(self._version),
                "creationTimestamp": "2026-11-30T09:00:00Z",
                **one["metadata"],
            }
            meta.setdefault("uid", f"{kind.plural}-{meta.get('namespace', '')}-{meta['name']}")
            obj = decoders(kind.type).one.decode(json.dumps({**one, "metadata": meta}).encode())
            self.controller.observe(self.controller.source.apply(kind, Upserted(obj)))

    def sync(self) -> None:
        """The first state of every kind was read."""
        for informer in self.controller.informers:
            informer.synced.set()
            informer.lost_at = None

    def lead(self) -> None:
        """We hold the lease, and decide."""
        self.sync()
        self.controller.leading = self.controller.fence_proven = True
        self.controller.leadership.holder = "one"
        self.controller.engine.decide(self.clock.now())

    def later(self, seconds: float) -> None:
        """Time passes."""
        self.clock.at += round(seconds * 1000)


def queue(
    name: str, parent: str | None = None, quota: int | None = None, limit: int | None = None, **spec: Any
) -> Json:
    """A queue with GPUs."""
    amounts = {key: str(value) for key, value in (("quota", quota), ("limit", limit)) if value is not None}
    listed = {"resources": [{"name": GPU, **amounts}]} if amounts else {}
    above = {"parent": parent} if parent else {}
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": {**above, **listed, **spec}}


def pool(name: str, rack: str, **spec: Any) -> Json:
    """A pool of one rack."""
    selector = {"nodeSelector": {"example.com/rack": rack}}
    return {"apiVersion": API, "kind": "Pool", "metadata": {"name": name}, "spec": {**selector, **spec}}


def node(name: str, rack: str, gpus: int = 4, *, cordoned: bool = False) -> Json:
    """A ready node."""
    return {
        "metadata": {"name": name, "labels": {"example.com/rack": rack, "kubernetes.io/hostname": name}},
        "spec": {"unschedulable": cordoned},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


TAILS = {"train": "aaaaa", "big": "bbbbb", "later": "ccccc"}  # as the PodGroups derived from these Jobs end


def job_uid(name: str, namespace: str = "ml", tail: str = "") -> str:
    """UID of a Job: a derived PodGroup carries its first five characters."""
    return f"{tail or TAILS.get(name, 'eeeee')}-{namespace}-{name}"


def topology() -> Json:
    """Racks of nodes."""
    levels = [{"name": "rack", "keys": ["example.com/rack"]}, {"name": "node", "keys": ["kubernetes.io/hostname"]}]
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": levels}}


def controller(job: str, uid: str) -> Json:
    """The owner reference of what a Job controls."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}


def pod(
    name: str,
    queue_name: str,
    gpus: int,
    *,
    namespace: str = "ml",
    node_name: str = "",
    group: str = "",
    job: str = "",
    index: int | None = None,
    gates: tuple[str, ...] = (),
    record: Json | None = None,
) -> Json:
    """A pod: gated, or running when it has a node."""
    labels = {"queuectl.io/queue": queue_name} | ({"queuectl.io/pod-group": group} if group else {})
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    if record is not None:
        annotations["queuectl.io/admission"] = json.dumps(record)
    asks = {"cpu": "1", GPU: str(gpus)}
    gated = [] if node_name else [{"name": gate} for gate in ("queuectl.io/admission", *gates)]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller(job, job_uid(job, namespace))] if job else [],
        },
        "spec": {
            "schedulingGates": gated,
            "containers": [{"resources": {"requests": asks, "limits": asks}}],
            **({"nodeName": node_name} if node_name else {}),
        },
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def job(
    name: str, queue_name: str, pods: int, gpus: int, *, namespace: str = "ml", suspend: bool = False, tail: str = ""
) -> Json:
    """A Job whose pods start together or not at all."""
    asks = {"cpu": "1", GPU: str(gpus)}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": job_uid(name, namespace, tail),
            "labels": {"queuectl.io/queue": queue_name},
            "annotations": {"queuectl.io/min-member": "all"},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": suspend,
            "template": {
                "metadata": {"labels": {"queuectl.io/queue": queue_name}},
                "spec": {"containers": [{"resources": {"requests": asks, "limits": asks}}]},
            },
        },
    }


def group(
    name: str,
    queue_name: str,
    members: int,
    *,
    namespace: str = "ml",
    owner: str = "",
    rack: bool = False,
    hold: bool = False,
    status: Json | None = None,
) -> Json:
    """A PodGroup; derived from a Job when it has an owner, and then named as such."""
    reference = controller(owner, job_uid(owner, namespace, name[-5:]))
    spec = {"queue": queue_name, "minMember": members, "hold": hold}
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference] if owner else []},
        "spec": {**spec, "topology": {"required": "rack"}} if rack else spec,
        "status": status or {},
    }


def placed(nodes: dict[str, str]) -> Json:
    """Status of a PodGroup that was admitted: node → its slots."""
    true = [{"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-11-30T09:30:00Z"}
            for kind in ("QuotaReserved", "Placed", "Released", "Running")]  # fmt: skip
    return {
        "round": 1,
        "queuedAt": "2026-11-30T09:00:00Z",
        "conditions": true,
        "admission": {
            "round": 1,
            "fence": 1,
            "decidedAt": "2026-11-30T09:30:00Z",
            "assignments": [{"node": node, "slots": slots} for node, slots in nodes.items()],
        },
    }


def story() -> Standin:
    """The story above, led and decided."""
    here = Standin()
    here.see(foreign.TOPOLOGIES, topology())
    here.see(foreign.NODES, *(node(f"gpu-{i}", f"r{1 + i // 2}", cordoned=i == 3) for i in range(4)))
    here.see(
        foreign.QUEUES,
        queue("research", quota=12, limit=16),
        queue("vision", "research", quota=8, limit=10),
        queue("language", "research"),
        queue("production", quota=4, state="Held"),
    )
    here.see(foreign.JOBS, job("train", "vision", 2, 4), job("big", "vision", 4, 4), job("later", "vision", 1, 1))
    here.see(
        foreign.POD_GROUPS,
        group("job-train-aaaaa", "vision", 2, owner="train", status=placed({"gpu-0": "0", "gpu-1": "1"})),
        group("job-big-bbbbb", "vision", 4, owner="big", rack=True),
        group("job-later-ccccc", "vision", 1, owner="later", hold=True),
        group("sweep", "language", 3, namespace="nlp"),
    )
    here.see(
        foreign.PODS,
        *(pod(f"train-{i}", "vision", 4, job="train", index=i, node_name=f"gpu-{i}") for i in range(2)),
        *(pod(f"big-{i}", "vision", 4, job="big", index=i) for i in range(4)),
        pod("sweep-0", "language", 1, namespace="nlp", group="sweep"),
        pod("shell", "language", 1, namespace="nlp", node_name="gpu-2",
            record={"round": 1, "fence": 1, "slot": 0, "node": "gpu-2", "decidedAt": "2026-11-30T09:40:00Z"}),
    )  # fmt: skip
    here.lead()
    return here
