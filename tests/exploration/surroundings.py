"""Everybody but us, one step at a time: controllers of Jobs and StatefulSets, scheduler, kubelet, garbage collector, and people.

``due`` lists what the cluster's own parts would do in a state, in the order in which a quick cluster does it; ``act`` does
one such step, or one that a person takes. Only what the release protocol can see of them is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from queuectl.contract import foreign, names
from queuectl.contract.home import LEASE, NAMESPACE
from queuectl.drivers.embedded.store import Json
from tests.exploration.server import NS, Server, Snapshot

GPU = "nvidia.com/gpu"
Action = tuple[str, ...]
"""What happens, and to what."""

ENDED = ("Succeeded", "Failed")


# ---- reading objects


def gated(pod: Json) -> bool:
    """Whether our gate is still there."""
    return any(gate["name"] == names.GATE for gate in pod["spec"].get("schedulingGates") or ())


def ended(pod: Json) -> bool:
    """Whether it has let go of its node."""
    return pod["status"].get("phase") in ENDED


def leaving(body: Json) -> bool:
    """Whether its deletion has begun."""
    return "deletionTimestamp" in body["metadata"]


def place(pod: Json) -> str:
    """The node that a pod is on or pinned to, "" when neither."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in (node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == names.FIELD_NAME:
                return str(field["values"][0])
    return ""


def gpus(spec: Json) -> int:
    """GPUs that a pod's spec asks for."""
    return sum(int(((c.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for c in spec["containers"])


def controller(body: Json) -> str:
    """UID of what controls an object, "" when nothing does."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in references if one.get("controller")), "")


def true(body: Json, *kinds: str) -> bool:
    """Whether one of these conditions is true."""
    listed = (body.get("status") or {}).get("conditions") or ()
    return any(one["type"] in kinds and one["status"] == "True" for one in listed)


def owners(state: Snapshot) -> Iterator[Json]:
    """All that makes pods."""
    yield from state.all("jobs")
    yield from state.all("statefulsets")


def over(job: Json) -> bool:
    """Whether a Job has ended."""
    return true(job, "Complete", "Failed")


# ---- the Job controller


class Sync(Struct, frozen=True):
    """What a Job's controller does next: pods to delete, indexes to make, and the status afterwards."""

    delete: tuple[str, ...]
    make: tuple[int, ...]
    status: Json


def sync(state: Snapshot, job: Json) -> Sync | None:
    """The next sync of a Job; None when it would change nothing."""
    if over(job) or leaving(job):
        return None
    pods = [pod for pod in state.all("pods") if controller(pod) == job["metadata"]["uid"]]
    active = [pod for pod in pods if not ended(pod) and not leaving(pod)]
    done = {_index(pod) for pod in pods if pod["status"].get("phase") == "Succeeded"}
    spec, status = job["spec"], {key: value for key, value in job["status"].items() if key != "conditions"}
    delete: tuple[str, ...] = ()
    make: tuple[int, ...] = ()
    if spec.get("suspend"):
        delete = tuple(pod["metadata"]["name"] for pod in active)
        status["active"] = 0
    else:
        taken = done | {_index(pod) for pod in active}
        make = tuple(index for index in range(spec["parallelism"]) if index not in taken)
        status["active"] = len(active) + len(make)
    status["succeeded"] = len(done)
    if len(done) >= spec["completions"]:
        status["conditions"] = [{"type": "Complete", "status": "True"}]
    if not delete and not make and status == job["status"]:
        return None
    return Sync(delete, make, status)


def _index(pod: Json) -> int:
    return int(pod["metadata"]["annotations"][names.COMPLETION_INDEX])


def _synced(server: Server, name: str) -> None:
    job = server.get(foreign.JOBS, NS, name)
    found = sync(server.save(), job)
    if found is None:
        return
    for pod in found.delete:
        server.delete(foreign.PODS, NS, pod, "job-controller")
    meta, template = job["metadata"], job["spec"]["template"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": meta["uid"], "controller": True}
    for index in found.make:
        attempt = f"pods of {name}/{index}"
        server.born[attempt] = server.born.get(attempt, 0) + 1
        body = {
            "metadata": {
                "name": f"{name}-{index}-{'abcdefgh'[server.born[attempt] - 1]}",
                "labels": dict((template.get("metadata") or {}).get("labels") or {}),
                "annotations": {names.COMPLETION_INDEX: str(index)},
                "ownerReferences": [reference],
            },
            "spec": template["spec"],
        }
        server.create(foreign.PODS, NS, body, "job-controller")
    current = server.get(foreign.JOBS, NS, name)
    server.replace(foreign.JOBS, {**current, "status": found.status}, "job-controller", subresource="status")


# ---- the StatefulSet controller, of one that makes all its pods at once


def replicas(owner: Json) -> int:
    """How many pods a StatefulSet keeps alive."""
    return int(owner["spec"]["replicas"])


def keep(state: Snapshot, owner: Json) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Pods that its controller deletes now (beyond its replicas, or ended), and those that it makes, by name."""
    name = owner["metadata"]["name"]
    pods = {pod["metadata"]["name"]: pod for pod in state.all("pods") if controller(pod) == owner["metadata"]["uid"]}
    wanted = [f"{name}-{index}" for index in range(replicas(owner))]
    delete = tuple(one for one, pod in pods.items() if not leaving(pod) and (ended(pod) or one not in wanted))
    return delete, tuple(one for one in wanted if state.get("pods", one) is None)


def _kept(server: Server, name: str) -> None:
    owner = server.get(foreign.STATEFUL_SETS, NS, name)
    meta, template = owner["metadata"], owner["spec"]["template"]
    delete, make = keep(server.save(), owner)
    for pod in delete:
        server.delete(foreign.PODS, NS, pod, "statefulset-controller")
    for pod in make:
        labels = {**template["metadata"]["labels"], names.POD_INDEX: pod.rpartition("-")[2]}
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": name,
            "uid": meta["uid"],
            "controller": True,
        }
        body = {"metadata": {"name": pod, "labels": labels, "ownerReferences": [reference]}, "spec": template["spec"]}
        server.create(foreign.PODS, NS, body, "statefulset-controller")


# ---- scheduler, kubelet, garbage collector


def _room(state: Snapshot, pod: Json) -> bool:
    """Whether the node that a released pod is pinned to is there and has room for it."""
    node = state.get("nodes", place(pod), "")
    if node is None or (node.get("spec") or {}).get("unschedulable"):
        return False
    used = sum(gpus(one["spec"]) for one in state.all("pods") if on(one) == place(pod) and not ended(one))
    return used + gpus(pod["spec"]) <= int(node["status"]["allocatable"][GPU])


def on(pod: Json) -> str:
    """The node that a pod is bound to, "" when none."""
    return str(pod["spec"].get("nodeName") or "")


def _orphans(state: Snapshot) -> Iterator[tuple[str, str]]:
    """What was controlled by an owner that is gone."""
    known = {owner["metadata"]["uid"] for owner in owners(state)}
    for plural in ("pods", "podgroups"):
        for body in state.all(plural):
            if (uid := controller(body)) and uid not in known and not leaving(body):
                yield plural, body["metadata"]["name"]


def orphaned(state: Snapshot) -> bool:
    """Whether there is something to collect."""
    return next(_orphans(state), None) is not None


def due(state: Snapshot) -> Iterator[Action]:
    """What the cluster's own parts do at once."""
    for job in state.all("jobs"):
        if sync(state, job) is not None:
            yield "sync", job["metadata"]["name"]
    for owner in state.all("statefulsets"):
        if any(keep(state, owner)):
            yield "keep", owner["metadata"]["name"]
    for pod in state.all("pods"):
        name = pod["metadata"]["name"]
        if leaving(pod):
            yield "remove", name
        elif not on(pod) and not pod["spec"].get("schedulingGates") and place(pod) and _room(state, pod):
            yield "start", name


def slowly(state: Snapshot) -> Iterator[Action]:
    """What happens in its own time, some half a minute or more.

    Orphans are collected, what runs ends, and what would run for ever is scaled to nothing once it runs as a whole.
    """
    if orphaned(state):
        yield ("collect",)
    kept = {owner["metadata"]["uid"]: owner for owner in state.all("statefulsets")}
    running: Counter[str] = Counter()
    for pod in state.all("pods"):
        if pod["status"].get("phase") == "Running" and not leaving(pod):
            running[controller(pod)] += 1
            if controller(pod) not in kept:
                yield "finish", pod["metadata"]["name"]
    for uid, owner in kept.items():
        if replicas(owner) and running[uid] == replicas(owner):
            yield "scale", owner["metadata"]["name"], "0"


def _start(server: Server, name: str) -> None:
    """Bound and running: two writes that nobody comes between."""
    pod = server.get(foreign.PODS, NS, name)
    server.bind(foreign.PODS, NS, name, place(pod), "scheduler")
    _phase(server, name, "Running")


def _phase(server: Server, name: str, phase: str) -> None:
    pod = server.get(foreign.PODS, NS, name)
    server.replace(foreign.PODS, {**pod, "status": {**pod["status"], "phase": phase}}, "kubelet", subresource="status")


def _collect(server: Server) -> None:
    for plural, name in list(_orphans(server.save())):
        server.delete(foreign.PODS if plural == "pods" else foreign.POD_GROUPS, NS, name, "garbage-collector")


# ---- people


def template(size: int, **spec: Any) -> Json:
    """A pod's spec: so many GPUs."""
    amount = {GPU: str(size)}
    containers = [{"name": "main", "resources": {"limits": amount, "requests": amount}}]
    return {"containers": containers, "restartPolicy": "Never", **spec}


def pod(name: str, size: int, *, priority: int = 0, group: str = "", managed: bool = True) -> Json:
    """A pod that somebody writes by hand."""
    labels = {names.QUEUE_LABEL: "q"} if managed else {}
    if group:
        labels[names.POD_GROUP_LABEL] = group
    return {"metadata": {"name": name, "labels": labels}, "spec": template(size, priority=priority)}


def job(name: str, count: int, size: int = 1, *, suspend: bool = False, gang: str = "all") -> Json:
    """A tenant's Job of so many pods, ``gang`` of which start together."""
    return {
        "metadata": {
            "name": name,
            "labels": {names.QUEUE_LABEL: "q"},
            "annotations": {names.MIN_MEMBER: gang},
        },
        "spec": {
            "parallelism": count,
            "completions": count,
            "suspend": suspend,
            "template": {"spec": template(size)},
        },
        "status": {},
    }


def stateful_set(name: str, count: int, size: int = 1) -> Json:
    """A tenant's StatefulSet, a gang of ``count``."""
    return {
        "metadata": {"name": name, "annotations": {names.MIN_MEMBER: "all"}},
        "spec": {
            "replicas": count,
            "template": {
                "metadata": {"labels": {names.QUEUE_LABEL: "q"}},
                "spec": template(size, restartPolicy="Always"),
            },
        },
    }


def node(name: str, size: int) -> Json:
    """A node with so many GPUs."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {GPU: str(size), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def group_of(state: Snapshot, job_name: str) -> Json | None:
    """The PodGroup derived from a Job."""
    owner = state.get("jobs", job_name)
    uid = owner["metadata"]["uid"] if owner is not None else ""
    return next((group for group in state.all("podgroups") if uid and controller(group) == uid), None)


def started(group: Json, owner: Json) -> bool:
    """Whether a gang's admission has come as far as its owner, so that whoever suspends it now means what runs.

    Before that, a Job that is resumed and suspended again looks as it did when it was decided on: as one that is queued.
    """
    status = group.get("status") or {}
    if not status.get("admission") or true(group, "Evicted"):
        return False
    step = f"{group['metadata']['uid']}:{status['round']}:resumed"
    marked = (owner["metadata"].get("annotations") or {}).get(names.SUSPENSION) == step
    return marked or not (status.get("requeue") or {}).get("suspendedByUs")


def _suspended(server: Server, name: str, *, suspend: bool) -> None:
    state = server.save()
    group = group_of(state, name)
    if suspend:
        admitted = group is not None and started(group, server.get(foreign.JOBS, NS, name))
        server.notes[f"suspended/{name}"] = "admitted" if admitted else "waiting"
    else:
        server.notes.pop(f"suspended/{name}", None)
    server.patch(foreign.JOBS, NS, name, {"spec": {"suspend": suspend}}, "user")


def _annotated(server: Server, kind: foreign.Kind, name: str, key: str, value: str) -> None:
    server.patch(kind, NS, name, {"metadata": {"annotations": {key: value}}}, "user")


def _again(server: Server, kind: foreign.Kind, name: str, body: Json) -> None:
    """Deleted, and another of the same name made at once."""
    server.delete(kind, NS, name, "user", grace=0)
    server.create(kind, NS, body, "user")


def _lease(server: Server, fence: str) -> None:
    server.patch(foreign.LEASES, NAMESPACE, LEASE, {"spec": {"leaseTransitions": int(fence)}}, "lease")


def _tick(server: Server, at: str) -> None:
    server.stopped.at = int(at)


_ACTS: dict[str, Callable[..., None]] = {
    "sync": _synced,
    "keep": _kept,
    "collect": _collect,
    "start": _start,
    "remove": lambda server, name: server.delete(foreign.PODS, NS, name, "kubelet", grace=0),
    "finish": lambda server, name: _phase(server, name, "Succeeded"),
    "fail": lambda server, name: _phase(server, name, "Failed"),
    "acquire": _lease,
    "tick": _tick,
    # people
    "arrive": lambda server, name, size, priority: server.create(
        foreign.PODS, NS, pod(name, int(size), priority=int(priority)), "user"
    ),
    "suspend": lambda server, name: _suspended(server, name, suspend=True),
    "resume": lambda server, name: _suspended(server, name, suspend=False),
    "scale": lambda server, name, count: server.patch(
        foreign.STATEFUL_SETS, NS, name, {"spec": {"replicas": int(count)}}, "user"
    ),
    "requeue": lambda server, name: _annotated(server, foreign.POD_GROUPS, name, names.REQUEUE, "now"),
    "hold": lambda server, name: server.patch(foreign.POD_GROUPS, NS, name, {"spec": {"hold": True}}, "user"),
    "note-group": lambda server, name: _annotated(server, foreign.POD_GROUPS, name, "example.com/note", "x"),
    "note-pod": lambda server, name: _annotated(server, foreign.PODS, name, "example.com/note", "x"),
    "delete-pod": lambda server, name: server.delete(foreign.PODS, NS, name, "user"),
    "delete-group": lambda server, name: server.delete(foreign.POD_GROUPS, NS, name, "user"),
    "delete-job": lambda server, name: server.delete(foreign.JOBS, NS, name, "user"),
    "replace-pod": lambda server, name: _again(server, foreign.PODS, name, pod(name, 1, managed=False)),
    "replace-job": lambda server, name: _again(server, foreign.JOBS, name, job(name, 1)),
}


def act(server: Server, action: Action) -> None:
    """Do one step. Raises ClusterError where the API server refuses it."""
    verb, *what = action
    _ACTS[verb](server, *what)
