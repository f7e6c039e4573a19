"""What the fake kubelet says to the API server: Node and Lease objects, and the status of a pod in each of its states."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

PREFIX = "rig.queuectl.io/"
RUN_SECONDS = PREFIX + "run-seconds"  # float; ends this long after it started; absent: runs until deleted
EXIT_CODE = PREFIX + "exit-code"  # of that end; not 0: the pod is Failed
START_SECONDS = PREFIX + "start-seconds"  # float, default 0: from bound to running (pulling an image, say)
STOP_SECONDS = PREFIX + "stop-seconds"  # float, default 0: from deletion to gone, at most the pod's grace period
STOP_CODE = PREFIX + "stop-code"  # exit code at deletion, default 143: ended by SIGTERM, as most programs are
NEVER_START = PREFIX + "never-start"  # "true": stays in ContainerCreating
REJECT = PREFIX + "reject"  # "true": refused by the kubelet after it was bound

Patch = dict[str, Any]


class NodeSpec(msgspec.Struct, kw_only=True):
    """A node as a test describes it. ``allocatable`` is its capacity too; ``gpus`` is short for nvidia.com/gpu."""

    name: str
    gpus: int = 0
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    allocatable: dict[str, str] = {}
    unschedulable: bool = False

    def resources(self) -> dict[str, str]:
        """Quantities by resource name; a big machine where the description is silent."""
        given = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", **self.allocatable}
        return {**given, "nvidia.com/gpu": str(self.gpus)} if self.gpus else given


class Meta(msgspec.Struct, rename="camel"):
    """The part of a pod's metadata that the kubelet reads."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int = 0
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: float | None = None


class Container(msgspec.Struct):
    """A container's name and image."""

    name: str
    image: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """Where the pod is bound, and what runs in it."""

    node_name: str = ""
    containers: list[Container] = []


class Status(msgspec.Struct, rename="camel"):
    """How far it is."""

    phase: str = "Pending"
    start_time: str | None = None


class Pod(msgspec.Struct):
    """A pod, decoded as far as the kubelet needs it (about 10 times cheaper than the whole)."""

    metadata: Meta
    spec: Spec
    status: Status

    @property
    def path(self) -> str:
        """Its URL path."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    def seconds(self, annotation: str) -> float | None:
        """The number in one of the annotations above, None when absent. Raises ValueError when it is none."""
        text = self.metadata.annotations.get(annotation)
        return None if text is None else float(text)


def gpu_nodes(prefix: str, count: int, gpus: int = 4, racks: int = 1, **allocatable: str) -> list[NodeSpec]:
    """``count`` equal nodes ``prefix-0`` …, dealt evenly to racks ``prefix-rack-0`` … (label example.com/rack)."""
    return [
        NodeSpec(
            name=f"{prefix}-{i}",
            gpus=gpus,
            labels={"example.com/rack": f"{prefix}-rack-{i * racks // count}", "example.com/pool": prefix},
            allocatable=allocatable,
        )
        for i in range(count)
    ]


def stamp(when: dt.datetime | None = None) -> str:
    """A metav1.Time, whole seconds, now by default."""
    return f"{when or dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def microstamp() -> str:
    """A metav1.MicroTime, now."""
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def node_conditions() -> list[Patch]:
    """The conditions of a healthy node."""
    now = stamp()
    healthy = [("Ready", "True", "KubeletReady")] + [
        (name, "False", "KubeletHasSufficient" + name.removesuffix("Pressure"))
        for name in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    return [
        {"type": t, "status": s, "reason": r, "lastHeartbeatTime": now, "lastTransitionTime": now}
        for t, s, r in healthy
    ]


def node_object(spec: NodeSpec) -> Patch:
    """The Node as a kubelet registers it."""
    resources = spec.resources()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": spec.name,
            "labels": {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", **spec.labels},
        },
        "spec": {"taints": spec.taints, "unschedulable": spec.unschedulable},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": node_conditions(),
            "addresses": [{"type": "Hostname", "address": spec.name}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.37.2",
                "containerRuntimeVersion": "rig://1",
                "kernelVersion": "",
                "osImage": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
            },
        },
    }


def lease_object(name: str, node_uid: str, seconds: int) -> Patch:
    """The node's Lease, owned by the Node so that it is collected with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": microstamp()},
    }


def _status(pod: Pod, phase: str, ready: bool, state: Patch, **more: object) -> Patch:
    """A status patch (strategic: conditions merge by type). The UID makes it fail for a namesake of the pod."""
    now = stamp()
    reason = {} if ready or phase == "Pending" else {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    word = "True" if ready else "False"
    conditions = [
        {"type": "PodReadyToStartContainers", "status": "True" if phase == "Running" else "False"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": word, **reason},
        {"type": "Ready", "status": word, **reason},
    ]
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": phase,
            "observedGeneration": pod.metadata.generation,
            "startTime": pod.status.start_time or now,
            "conditions": [
                {**c, "lastTransitionTime": now, "observedGeneration": pod.metadata.generation} for c in conditions
            ],
            "containerStatuses": [
                {
                    "name": c.name,
                    "image": c.image,
                    "imageID": "rig",
                    "ready": ready,
                    "started": ready,
                    "restartCount": 0,
                    "state": state,
                    **({"containerID": f"rig://{pod.metadata.uid}/{c.name}"} if phase != "Pending" else {}),
                }
                for c in pod.spec.containers
            ],
            **more,
        },
    }


def running(pod: Pod, address: str) -> Patch:
    """Running and ready, in one step."""
    state = {"running": {"startedAt": stamp()}}
    where = {"hostIP": "127.0.0.1", "podIP": address, "podIPs": [{"ip": address}]}
    return _status(pod, "Running", True, state, **where)


def creating(pod: Pod) -> Patch:
    """Bound and known to the kubelet, but no container has started."""
    return _status(pod, "Pending", False, {"waiting": {"reason": "ContainerCreating"}})


def finished(pod: Pod, code: int) -> Patch:
    """Ended with this exit code: Succeeded for 0, else Failed."""
    end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": stamp()}
    # A strategic merge keeps what is not named: the earlier states have to be taken out.
    state = {"terminated": {**end, "startedAt": pod.status.start_time or stamp()}, "running": None, "waiting": None}
    return _status(pod, "Succeeded" if code == 0 else "Failed", False, state)


def rejected(pod: Pod, reason: str, message: str) -> Patch:
    """Refused by the kubelet's own admission (a device plugin that lost a device, say): Failed, never started."""
    status = {"phase": "Failed", "reason": reason, "message": message, "startTime": stamp()}
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}
