"""A scenario's things as objects on the wire, as their users write them."""

from __future__ import annotations

from typing import Any

from queuectl.contract import names
from queuectl.contract.v1alpha1 import TopologySpec
from queuectl.drivers.replay import compile as compiled
from queuectl.drivers.replay import format as wire

Json = dict[str, Any]
# Both fake kubelets obey these.
RUN_SECONDS, START_SECONDS, STOP_SECONDS = (f"rig.queuectl.io/{name}-seconds" for name in ("run", "start", "stop"))
BACKOFF_LIMIT = 6
APP = "app"  # label of a service's pods: the gang's name


def node(spec: wire.Node, name: str, asked: frozenset[str]) -> Json:
    """A Node with its status; whether it is Ready is for its kubelet to say."""
    allocatable = {"pods": compiled.PODS_A_NODE, **spec.allocatable}
    allocatable |= {key: text for key, text in compiled.UNLIMITED.items() if key in asked and key not in allocatable}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **spec.labels}},
        "spec": {
            "unschedulable": spec.cordoned,
            "taints": [taint.model_dump(mode="json") for taint in spec.taints],
        },
        "status": {"allocatable": dict(allocatable), "capacity": dict(allocatable)},
    }


def queue(spec: wire.Queue) -> Json:
    """A Queue."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"metadata": {"name": body.pop("name")}, "spec": body}


def pool(spec: wire.Pool) -> Json:
    """A Pool."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"metadata": {"name": body.pop("name")}, "spec": body}


def topology(spec: TopologySpec, name: str = "default") -> Json:
    """A Topology."""
    return {"metadata": {"name": name}, "spec": spec.model_dump(by_alias=True, exclude_none=True, include={"levels"})}


def unmanaged(spec: wire.Unmanaged) -> Json:
    """A pod of somebody else on its node."""
    annotations = {} if spec.run is None else {RUN_SECONDS: str(spec.run / 1000)}
    body = {**_spec(spec.pod, {}), "nodeName": spec.node}
    return {"metadata": {"name": spec.name, "annotations": annotations}, "spec": body}


def _owner(spec: wire.Gang) -> Json:
    """Metadata of an owner: its queue, and what its gang asks for."""
    annotations = {names.MIN_MEMBER: str(spec.min) if spec.min is not None else "all"}
    levels = spec.topology
    if levels and levels.required:
        annotations[names.TOPOLOGY_REQUIRED] = levels.required
    if levels and levels.preferred:
        annotations[names.TOPOLOGY_PREFERRED] = levels.preferred
    if spec.best_effort:
        annotations[names.BEST_EFFORT] = "true"
    return {"name": spec.name, "labels": {names.QUEUE_LABEL: spec.queue}, "annotations": annotations}


def service(spec: wire.Gang, delays: wire.Delays, node: str | None = None) -> Json:
    """A StatefulSet, whose pods come one after the other, or a ReplicaSet."""
    template = _template(spec, delays, node)
    more = {"serviceName": spec.name} if spec.kind == "StatefulSet" else {}
    selector = {"matchLabels": {APP: spec.name}}
    return {
        "metadata": _owner(spec),
        "spec": {"replicas": spec.size, "selector": selector, **more, "template": template},
    }


def worker_set(spec: wire.Gang, delays: wire.Delays, node: str | None = None) -> Json:
    """A LeaderWorkerSet of one group, whose workers come when the leader is ready; a worker that fails is made again alone."""
    template = {"size": spec.size, "workerTemplate": _template(spec, delays, node), "restartPolicy": "None"}
    policy = {"startupPolicy": "LeaderReady"}
    return {"metadata": _owner(spec), "spec": {"replicas": 1, **policy, "leaderWorkerTemplate": template}}


def _template(spec: wire.Gang, delays: wire.Delays, node: str | None) -> Json:
    """Pods that are kept alive."""
    labels = {names.QUEUE_LABEL: spec.queue, APP: spec.name}
    pod = {**_gang_pod(spec, spec.pod, spec.spec, node), "restartPolicy": "Always"}
    return {"metadata": {"labels": labels, "annotations": _times(spec, delays)}, "spec": pod}


def job(spec: wire.Gang, delays: wire.Delays, *, fails_at_once: bool = False, node: str | None = None) -> Json:
    """An Indexed Job. ``node``: its pods may only run there. ``fails_at_once``: with its first failed pod."""
    return {
        "metadata": _owner(spec),
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.size,
            "parallelism": spec.size,
            "backoffLimit": 0 if fails_at_once else BACKOFF_LIMIT,
            "suspend": spec.state == "Suspended",
            "template": {
                "metadata": {"annotations": _times(spec, delays)},
                "spec": _gang_pod(spec, spec.pod, spec.spec, node),
            },
        },
    }


def pod_group(spec: wire.Gang) -> Json | None:
    """The PodGroup of hand-written pods; None for a pod on its own."""
    if not grouped(spec):
        return None
    body: Json = {"queue": spec.queue, "hold": spec.hold}
    if spec.roles:
        body["roles"] = [
            {
                "name": role.name,
                "minMember": role.size if role.min is None else role.min,
                "maxMember": role.size,
                **({"topology": role.topology.model_dump(exclude_none=True)} if role.topology else {}),
            }
            for role in spec.roles
        ]
    else:
        body |= {"minMember": spec.min or spec.size, "maxMember": spec.size}
    if spec.topology:
        body["topology"] = spec.topology.model_dump(exclude_none=True)
    annotations = {names.PREEMPTIBLE: "true"} if spec.preemptible else {}
    return {"metadata": {"name": spec.name, "annotations": annotations}, "spec": body}


def grouped(spec: wire.Gang) -> bool:
    """Whether somebody writes a PodGroup for it."""
    return spec.kind == "Pods" and (bool(spec.roles) or (spec.size or 1) > 1)


def pods(spec: wire.Gang, delays: wire.Delays, node: str | None = None) -> list[Json]:
    """The pods of a gang whose user makes them, each with the role and number that a step may name."""
    kinds = [(role.name, role.size, role.pod, role.spec) for role in spec.roles or ()]
    kinds = kinds or [("", spec.size or 1, spec.pod, spec.spec)]
    found = []
    for role, size, pod, more in kinds:
        for number in range(size):
            labels = {names.QUEUE_LABEL: spec.queue}
            if grouped(spec):
                labels[names.POD_GROUP_LABEL] = spec.name
            if role:
                labels[names.ROLE_LABEL] = role
            name = "-".join(filter(None, (spec.name, role, str(number)))) if grouped(spec) else spec.name
            annotations = _times(spec, delays) | ({names.BEST_EFFORT: "true"} if spec.best_effort else {})
            annotations |= {names.PREEMPTIBLE: "true"} if spec.preemptible else {}
            meta = {"name": name, "labels": labels, "annotations": annotations}
            found.append({"metadata": meta, "spec": _gang_pod(spec, pod, more, node)})
    return found


def _times(spec: wire.Gang, delays: wire.Delays) -> dict[str, str]:
    times = {RUN_SECONDS: spec.run, START_SECONDS: delays.start or None, STOP_SECONDS: delays.stop or None}
    return {name: str(time / 1000) for name, time in times.items() if time is not None}


def _gang_pod(spec: wire.Gang, pod: dict[str, str], more: Json, node: str | None) -> Json:
    body = _spec(pod, more)
    if spec.gates:
        body["schedulingGates"] = [{"name": gate} for gate in spec.gates]
    if spec.priority:
        body["priorityClassName"] = priority_class(spec.priority)
    if node is not None:
        body["nodeSelector"] = {**body.get("nodeSelector", {}), "kubernetes.io/hostname": node}
    return body


def priority_class(value: int) -> str:
    """Name of the class that stands for a priority."""
    return f"scenario-{'minus-' if value < 0 else ''}{abs(value)}"


def _spec(pod: dict[str, str], more: Json) -> Json:
    body = compiled.pod_spec(pod, more)
    for container in body.get("initContainers", ()):
        container.setdefault("image", "registry.example.com/none")
    return {**body, "restartPolicy": "Never"}
