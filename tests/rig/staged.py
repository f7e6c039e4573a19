"""What the controllers of JobSet and LeaderWorkerSet do next, by what is there: pure, so that every tier can carry it out.

As of jobset v0.10 (pkg/controllers/jobset_controller.go) and lws v0.7 (pkg/controllers), as far as their pods show it: staged
creation, suspend and resume, the end; a group that loses a pod is made anew whole. No failure policies, no rolling update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.rig.objects import Object, condition

JOB_SET, REPLICATED_JOB, JOB_INDEX = (
    f"jobset.sigs.k8s.io/{name}" for name in ("jobset-name", "replicatedjob-name", "job-index")
)
SET_NAME, GROUP_INDEX, WORKER_INDEX, SIZE = (
    f"leaderworkerset.sigs.k8s.io/{name}" for name in ("name", "group-index", "worker-index", "size")
)


class Work(msgspec.Struct):
    """Jobs or StatefulSets to create and to patch (name → merge patch), pods to delete, and the owner's status."""

    create: list[Object] = []
    patch: dict[str, Object] = {}
    delete: list[Object] = []
    status: Object = {}


def job_set(owner: Object, jobs: Mapping[str, Object]) -> Work:
    """A JobSet's next steps; ``jobs`` are its namespace's, by name."""
    spec, work = owner["spec"], Work()
    suspended = bool(spec.get("suspend"))
    parts = {part["name"]: part for part in spec["replicatedJobs"]}
    for part in parts.values():
        met = all(_met(owner, parts[one["name"]], one["status"], jobs) for one in part.get("dependsOn") or ())
        for index, name in enumerate(_job_names(owner, part)):
            job = jobs.get(name)
            if job is None:
                if not part.get("dependsOn") or (met and not suspended):
                    work.create.append(_job(owner, part, name, index, suspended=suspended))
            elif _ended(job) or bool(job["spec"].get("suspend")) == suspended:
                continue
            elif suspended or met:  # all are suspended at once, and resumed in their order
                work.patch[name] = {"spec": {"suspend": suspended}}
    shown = [
        _part_status(part["name"], [jobs[n] for n in _job_names(owner, part) if n in jobs]) for part in parts.values()
    ]
    conditions = [("Suspended", suspended)] if suspended or condition(owner, "Suspended") else []
    done = all(one["succeeded"] == part.get("replicas", 1) for one, part in zip(shown, parts.values(), strict=True))
    conditions += [("Completed", True)] if done else []
    conditions += [("Failed", True)] if any(one["failed"] for one in shown) else []
    work.status = {"replicatedJobsStatus": shown, "restarts": 0}
    if conditions:
        work.status["conditions"] = [
            {"type": kind, "status": str(value), "reason": kind, "message": "", "lastTransitionTime": _SINCE}
            for kind, value in conditions
        ]
    return work


_SINCE = "2026-11-30T00:00:00Z"  # nobody reads when; a time that stands still makes equal statuses equal


def _job_names(owner: Object, part: Object) -> list[str]:
    return [f"{owner['metadata']['name']}-{part['name']}-{index}" for index in range(part.get("replicas", 1))]


def _ended(job: Object) -> bool:
    return "True" in (condition(job, "Complete"), condition(job, "Failed"))


def _ready(job: Object) -> bool:
    status, spec = job.get("status") or {}, job["spec"]
    expected = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= expected)


def _met(owner: Object, needed: Object, status: str, jobs: Mapping[str, Object]) -> bool:
    found = [jobs.get(name) for name in _job_names(owner, needed)]
    if status == "Complete":
        return all(job is not None and condition(job, "Complete") == "True" for job in found)
    return all(job is not None and _ready(job) for job in found)


def _part_status(name: str, jobs: list[Object]) -> Object:
    return {
        "name": name,
        "ready": sum(map(_ready, jobs)),
        "succeeded": sum(condition(job, "Complete") == "True" for job in jobs),
        "failed": sum(condition(job, "Failed") == "True" for job in jobs),
        "active": sum(bool((job.get("status") or {}).get("active")) for job in jobs),
        "suspended": sum(bool(job["spec"].get("suspend")) for job in jobs),
    }


def _job(owner: Object, part: Object, name: str, index: int, *, suspended: bool) -> Object:
    template, pod = part["template"], part["template"]["spec"]["template"]
    labels = {JOB_SET: owner["metadata"]["name"], REPLICATED_JOB: part["name"], JOB_INDEX: str(index)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {**_labels(template), **labels},
            "annotations": (template.get("metadata") or {}).get("annotations") or {},
            "ownerReferences": [_controlled_by(owner, "jobset.x-k8s.io/v1alpha2", "JobSet")],
        },
        "spec": {
            **template["spec"],
            "suspend": suspended,
            "template": {**pod, "metadata": {**(pod.get("metadata") or {}), "labels": {**_labels(pod), **labels}}},
        },
    }


def worker_set(owner: Object, sets: Mapping[str, Object], pods: Iterable[Object]) -> Work:
    """A LeaderWorkerSet's next steps; ``sets`` are its namespace's StatefulSets by name, ``pods`` its namespace's."""
    name, template, work = owner["metadata"]["name"], owner["spec"]["leaderWorkerTemplate"], Work()
    replicas = owner["spec"].get("replicas", 1)
    leaders = sets.get(name)
    if leaders is None:
        labels = {SET_NAME: name, WORKER_INDEX: "0"}
        controller = _controlled_by(owner, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
        pod = template.get("leaderTemplate") or template["workerTemplate"]
        work.create.append(_set(name, controller, {SET_NAME: name}, labels, pod, template, replicas=replicas))
    elif leaders["spec"]["replicas"] != replicas:
        work.patch[name] = {"spec": {"replicas": replicas}}
    mine = [pod for pod in pods if _labels(pod).get(SET_NAME) == name]
    for leader in mine:
        if _labels(leader).get(WORKER_INDEX) == "0" and not leaving(leader):
            _lead(work, owner, leader, sets, mine)
    return work


def _lead(work: Work, owner: Object, leader: Object, sets: Mapping[str, Object], pods: list[Object]) -> None:
    """One group, by its leader."""
    meta, template = leader["metadata"], owner["spec"]["leaderWorkerTemplate"]
    made, size = sets.get(meta["name"]), template.get("size", 1)
    if made is not None:
        # That of an earlier leader of this name is for the garbage collector to take away first.
        whole = template.get("restartPolicy", "RecreateGroupOnPodRestart") == "RecreateGroupOnPodRestart"
        if (
            whole
            and made["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]
            and any(leaving(pod) and _controller(pod) == made["metadata"]["uid"] for pod in pods)
        ):
            work.delete.append(leader)
    elif size > 1 and (owner["spec"].get("startupPolicy") != "LeaderReady" or condition(leader, "Ready") == "True"):
        labels = {label: meta["labels"][label] for label in (SET_NAME, GROUP_INDEX)}
        controller = _controlled_by(leader, "v1", "Pod")
        spec = {"replicas": size - 1, "ordinals": {"start": 1}}
        work.create.append(_set(meta["name"], controller, labels, labels, template["workerTemplate"], template, **spec))


def _set(
    name: str, controller: Object, labels: Object, of_pods: Object, pod: Object, template: Object, **spec: Any
) -> Object:
    inner = pod.get("metadata") or {}
    meta = {
        **inner,
        "labels": {**_labels(pod), **of_pods},
        "annotations": {**(inner.get("annotations") or {}), SIZE: str(template.get("size", 1))},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [controller]},
        "spec": {
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": labels},
            **spec,
            "template": {**pod, "metadata": meta},
        },
    }


def numbered(labels: Mapping[str, str], ordinal: int) -> Object:
    """What the LeaderWorkerSet's webhook adds to a pod of a set of these labels: its group, or its number in the group."""
    if SET_NAME not in labels:
        return {}
    return {WORKER_INDEX if GROUP_INDEX in labels else GROUP_INDEX: str(ordinal)}


def leaving(pod: Object) -> bool:
    """Whether it is on its way out."""
    return "deletionTimestamp" in pod["metadata"]


def _controller(pod: Object) -> str:
    return next((str(one["uid"]) for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), "")


def _controlled_by(owner: Object, version: str, kind: str) -> Object:
    meta = owner["metadata"]
    found = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True, "blockOwnerDeletion": True}


def _labels(body: Object) -> dict[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}
