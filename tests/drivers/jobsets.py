"""A stand-in for the JobSet controller (jobset.x-k8s.io): staged creation, suspend and resume, the end, as far as pods show it.

No failure policy, no start order beside ``dependsOn``. The Jobs that it makes are the Job controller's to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuectl.contract.foreign import JOB_SETS, JOBS
from queuectl.contract.names import QUEUE_LABEL, REPLICATED_JOB
from queuectl.drivers.embedded.job_rules import condition
from queuectl.drivers.embedded.kubelet import RUN_SECONDS
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue
from tests.drivers.embedded_world import container

Json = dict[str, Any]
USER = "system:serviceaccount:jobset-system:jobset-controller"


class JobSets:
    """Makes the Jobs of all JobSets of a store. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._names: dict[str, tuple[str, str]] = {}
        self._queue = WorkQueue(self._sync, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()

    def _committed(self, stored: Stored) -> None:
        meta = stored.object["metadata"]
        if stored.kind is JOB_SETS and stored.verb != "DELETED":
            self._names[meta["uid"]] = meta["namespace"], meta["name"]
            self._queue.add(meta["uid"])
        elif stored.kind is JOBS:
            for reference in meta.get("ownerReferences") or ():
                self._queue.add(reference["uid"])

    def _sync(self, uid: str) -> None:
        owner = self._store.find(JOB_SETS, *self._names.get(uid, ("", "")))
        if owner is None or owner["metadata"]["uid"] != uid:
            return
        namespace, suspended = owner["metadata"]["namespace"], bool(owner["spec"].get("suspend"))
        known = {job["metadata"]["name"]: job for job in self._store.list(JOBS, namespace)}
        shown = []
        for part in owner["spec"]["replicatedJobs"]:
            names = [f"{owner['metadata']['name']}-{part['name']}-{index}" for index in range(part.get("replicas", 1))]
            if all(self._met(owner, one, known) for one in part.get("dependsOn") or ()):
                for index, name in enumerate(names):
                    if name not in known:
                        self._make(owner, part, name, index, suspended=suspended)
                    elif bool(known[name]["spec"].get("suspend")) != suspended and not condition(
                        known[name], "Complete"
                    ):
                        self._store.patch(JOBS, namespace, name, {"spec": {"suspend": suspended}}, USER)
            jobs = [known[name] for name in names if name in known]
            active = sum(bool((job.get("status") or {}).get("active")) for job in jobs)
            shown.append({"name": part["name"], "active": active, "succeeded": self._complete(jobs)})
        status: Json = {"replicatedJobsStatus": shown}
        if all(
            one["succeeded"] == part.get("replicas", 1)
            for one, part in zip(shown, owner["spec"]["replicatedJobs"], strict=True)
        ):
            status["conditions"] = [{"type": "Completed", "status": "True"}]
        if status != owner.get("status"):
            self._store.patch(
                JOB_SETS, namespace, owner["metadata"]["name"], {"status": status}, USER, subresource="status"
            )

    def _complete(self, jobs: list[Json]) -> int:
        return sum(condition(job, "Complete") is not None for job in jobs)

    def _met(self, owner: Json, needed: Json, known: dict[str, Json]) -> bool:
        part = next(one for one in owner["spec"]["replicatedJobs"] if one["name"] == needed["name"])
        jobs = [
            known.get(f"{owner['metadata']['name']}-{part['name']}-{index}") for index in range(part.get("replicas", 1))
        ]
        if needed["status"] == "Complete":
            return self._complete([job for job in jobs if job is not None]) == len(jobs)
        return all(
            job is not None and (job.get("status") or {}).get("ready", 0) >= job["spec"]["parallelism"] for job in jobs
        )

    def _make(self, owner: Json, part: Json, name: str, index: int, *, suspended: bool) -> None:
        template, meta = part["template"], owner["metadata"]
        labels = {
            "jobset.sigs.k8s.io/jobset-name": meta["name"],
            REPLICATED_JOB: part["name"],
            "jobset.sigs.k8s.io/job-index": str(index),
        }
        pod = template["spec"]["template"]
        inner = {**pod, "metadata": {**(pod.get("metadata") or {}), "labels": {**_labels(pod), **labels}}}
        reference = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "name": meta["name"], "uid": meta["uid"]}
        body = {
            "metadata": {
                "name": name,
                "labels": {**_labels(template), **labels},
                "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {**template["spec"], "suspend": suspended, "template": inner},
        }
        self._store.create(JOBS, meta["namespace"], body, USER)


def job_set(name: str, *parts: Json, queue: str = "team", suspend: bool = False) -> Json:
    """A JobSet of ``part``s, of a queue: by the labels of its Job templates."""
    for one in parts:
        one["template"]["metadata"] = {"labels": {QUEUE_LABEL: queue}}
    return {"metadata": {"name": name}, "spec": {"suspend": suspend, "replicatedJobs": list(parts)}}


def part(
    name: str,
    jobs: int,
    pods: int,
    gpus: int = 1,
    *,
    after: tuple[str, str] | None = None,
    seconds: float | None = None,
) -> Json:
    """``jobs`` equal Jobs of ``pods`` pods; ``after`` another part is Ready or Complete; running until deleted by default."""
    notes = {RUN_SECONDS: str(seconds)} if seconds is not None else {}
    return {
        "name": name,
        "replicas": jobs,
        **({"dependsOn": [{"name": after[0], "status": after[1]}]} if after else {}),
        "template": {
            "spec": {
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "template": {
                    "metadata": {"annotations": notes},
                    "spec": {"restartPolicy": "Never", "containers": [container(gpus)]},
                },
            },
        },
    }


def _labels(body: Json) -> dict[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}
