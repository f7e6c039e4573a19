"""A stand-in for the JobSet controller (jobset.x-k8s.io): ``tests/rig/staged.py`` on the commits of a Store.

The Jobs that it makes are the Job controller's to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuectl.contract.foreign import JOB_SETS, JOBS
from queuectl.contract.names import QUEUE_LABEL
from queuectl.drivers.embedded.kubelet import RUN_SECONDS
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue
from tests.drivers.embedded_world import container
from tests.rig import staged

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
        namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
        work = staged.job_set(owner, {job["metadata"]["name"]: job for job in self._store.list(JOBS, namespace)})
        for body in work.create:
            self._store.create(JOBS, namespace, body, USER)
        for job, patch in work.patch.items():
            self._store.patch(JOBS, namespace, job, patch, USER)
        if work.status != owner.get("status"):
            self._store.patch(JOB_SETS, namespace, name, {"status": work.status}, USER, subresource="status")


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
