"""The Job controller, as kube-controller-manager 1.37 does it (pkg/controller/job), on the commits of a Store.

Indexed and other Jobs, suspend and resume, back-off, limits, deadlines. Commits keep counts up to date in O(1); a look at a
Job then costs O(pods to make or delete), and O(completions) where indexes are chosen or shown.

One thing is left out on purpose: upstream puts a finalizer on each pod so that none goes uncounted while nobody watches.
Here every commit is seen, so pods that were ended or deleted are counted without one. What shows of it elsewhere:
deleted pods are gone a moment earlier, and ``uncountedTerminatedPods`` stays empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from queuectl.contract.foreign import JOBS, PODS
from queuectl.contract.names import COMPLETION_INDEX
from queuectl.contract.times import from_wire
from queuectl.control.ports import ClusterError
from queuectl.drivers.embedded.job_rules import INDEXED, condition
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import LONGEST_BASE, Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue

log = logging.getLogger(__name__)

USER = "system:serviceaccount:kube-system:job-controller"
MANAGED_BY = "kubernetes.io/job-controller"  # what spec.managedBy says of ours, where it says anything
BATCH = 1.0  # seconds in which what happens to pods is gathered into one look (SyncJobBatchPeriod)
AT_ONCE = 500  # pods made or deleted in one look (MaxPodCreateDeletePerSync)
BACKOFF, LONGEST_BACKOFF = 10.0, 600.0  # seconds after a failed pod, doubling (DefaultJobPodFailureBackOff)
RETRY, LONGEST_RETRY = 1.0, 60.0  # seconds after a pod that the API refused, doubling (DefaultJobApiBackOff)
_TERMINAL = ("Succeeded", "Failed")


class _Pod(Struct, eq=False):
    """A pod that exists. ``counted``: the Job's status accounts for it, or never will."""

    body: Json
    index: int | None
    serial: int  # order of creation
    active: bool = False
    ready: bool = False
    terminating: bool = False
    counted: bool = False


class _End(Struct, frozen=True):
    """How a pod ended that is not counted yet, and when (milliseconds)."""

    succeeded: bool
    index: int | None
    at: int


class _Target(Struct, frozen=True):
    """Why a Job is over: the condition that says so first, and the one that follows when its pods are gone."""

    first: str
    last: str
    reason: str
    message: str


class _Job(Struct, eq=False):
    """A Job and what became of its pods."""

    body: Json
    pods: dict[str, _Pod] = field(default_factory=dict)  # by UID
    ends: dict[str, _End] = field(default_factory=dict)  # by UID
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    indexes: set[int] = field(default_factory=set)  # that succeeded
    failed: int = 0
    failures: int = 0  # since the last success
    failed_at: int = 0
    refusals: int = 0  # pods that the API refused in a row
    over: bool = False

    @property
    def indexed(self) -> bool:
        return bool(self.body["spec"]["completionMode"] == INDEXED)

    @property
    def replaces_failed_only(self) -> bool:
        """Whether a pod that is being deleted keeps its place until it has ended."""
        return bool(self.body["spec"]["podReplacementPolicy"] == "Failed")


class JobController:
    """Makes and deletes the pods of all Jobs of a store, and keeps their status. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._jobs: dict[str, _Job] = {}
        self._serial = 0
        self._queue = WorkQueue(self._sync, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()

    # ---- what happens

    def _committed(self, stored: Stored) -> None:
        match stored.kind.plural:
            case "pods":
                self._pod(stored)
            case "jobs":
                self._job(stored)

    def _job(self, stored: Stored) -> None:
        meta = stored.object["metadata"]
        uid = meta["uid"]
        known = self._jobs.get(uid)
        if stored.verb == "DELETED":
            self._jobs.pop(uid, None)
            self._queue.forget(uid)
        elif known is not None:
            edited = known.body["metadata"]["generation"] != meta["generation"]
            known.body = stored.object
            if edited:
                self._queue.add(uid)
        elif stored.object["spec"].get("managedBy", MANAGED_BY) == MANAGED_BY:
            self._jobs[uid] = _Job(stored.object)
            self._queue.add(uid)

    def _pod(self, stored: Stored) -> None:
        body = stored.object
        meta, status = body["metadata"], body["status"]
        owner = _controller(meta)
        job = self._jobs.get(owner)
        if job is None:
            return
        uid = meta["uid"]
        pod = job.pods.get(uid)
        if pod is None:
            self._serial += 1
            pod = job.pods[uid] = _Pod(body, _index(meta), self._serial)
        phase, going = status.get("phase"), "deletionTimestamp" in meta
        gone, over = stored.verb == "DELETED", phase in _TERMINAL
        active = not (over or going or gone)
        ready = active and _ready(status)
        terminating = going and not over and not gone
        job.active += active - pod.active
        job.ready += ready - pod.ready
        job.terminating += terminating - pod.terminating
        pod.body, pod.active, pod.ready, pod.terminating = body, active, ready, terminating
        lost = phase == "Failed" or (going and (gone or not job.replaces_failed_only))
        if not pod.counted and (phase == "Succeeded" or lost):
            end = job.ends.get(uid)
            succeeded = phase == "Succeeded"
            if end is None or end.succeeded != succeeded:
                job.ends[uid] = _End(succeeded, pod.index, self._store.clock.now())
        if gone:
            del job.pods[uid]
        if not job.over:
            self._queue.after(owner, BATCH)

    # ---- one look at a Job

    def _sync(self, uid: str) -> None:
        job = self._jobs.get(uid)
        if job is None or job.over:
            return
        self._count(job)
        status = dict(job.body.get("status") or {})
        suspended, now = bool(job.body["spec"]["suspend"]), self._store.time()
        if "startTime" not in status and not suspended:
            status["startTime"] = now
        target = self._target(uid, job, status)
        if target is not None:
            active = [pod for pod in job.pods.values() if pod.active]
            if target.last == "Failed":
                self._give_up(job)
            self._delete(active)
        else:
            if "deletionTimestamp" not in job.body["metadata"]:
                self._manage(uid, job)
            if self._complete(job):
                text = "Reached expected number of succeeded pods"
                target = _Target("SuccessCriteriaMet", "Complete", "CompletionsReached", text)
            else:
                self._suspension(status, suspended=suspended)
        if target is not None and condition({"status": status}, target.first) is None:
            _set(status, target.first, target.reason, target.message, now)
            self._write(job, status)
        if target is not None and not job.terminating:
            _set(status, target.last, target.reason, target.message, now)
            if target.last == "Complete":
                status["completionTime"] = now
            job.over = True
        self._write(job, status)

    def _count(self, job: _Job) -> None:
        """Count what has ended since the last look."""
        completions = job.body["spec"].get("completions")
        new = sorted(
            job.ends.values(), key=lambda end: (end.at, end.succeeded)
        )  # at the same time: a success counts last
        for uid in job.ends:
            if (pod := job.pods.get(uid)) is not None:
                pod.counted = True
        job.ends.clear()
        for end in new:
            if job.indexed and (end.index is None or end.index >= completions):
                continue
            if end.succeeded:
                if end.index is not None and job.indexed:
                    job.indexes.add(end.index)
                else:
                    job.succeeded += 1
                job.failures = 0
            else:
                job.failed += 1
                job.failures += 1
                job.failed_at = end.at
        if job.indexed:
            job.indexes = {index for index in job.indexes if index < completions}
            job.succeeded = len(job.indexes)

    def _target(self, uid: str, job: _Job, status: Json) -> _Target | None:
        """Why the Job is over, unless it is for its completions."""
        spec = job.body["spec"]
        for first, last in (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")):
            if (said := condition({"status": status}, first)) is not None:
                return _Target(first, last, said["reason"], said["message"])
        if job.failed > spec["backoffLimit"]:
            text = "Job has reached the specified backoff limit"
            return _Target("FailureTarget", "Failed", "BackoffLimitExceeded", text)
        if spec.get("activeDeadlineSeconds") is not None and not spec["suspend"]:
            passed = (self._store.clock.now() - from_wire(status["startTime"])) / 1000
            if passed >= spec["activeDeadlineSeconds"]:
                text = "Job was active longer than specified deadline"
                return _Target("FailureTarget", "Failed", "DeadlineExceeded", text)
            self._queue.after(uid, spec["activeDeadlineSeconds"] - passed)
        return None

    def _complete(self, job: _Job) -> bool:
        completions = job.body["spec"].get("completions")
        enough = job.succeeded > 0 if completions is None else job.succeeded >= completions
        return enough and not job.active

    def _suspension(self, status: Json, *, suspended: bool) -> None:
        """Say whether it is suspended; a resumed one begins anew."""
        said = condition({"status": status}, "Suspended") is not None
        if suspended == said:
            return
        now = self._store.time()
        if suspended:
            _set(status, "Suspended", "JobSuspended", "Job suspended", now)
            status.pop("startTime", None)
        else:
            _set(status, "Suspended", "JobResumed", "Job resumed", now, "False")
            status["startTime"] = now

    def _write(self, job: _Job, status: Json) -> None:
        shown: Json = {
            **{name: status[name] for name in ("startTime", "completionTime", "conditions") if name in status},
            **({"active": job.active} if job.active else {}),
            **({"succeeded": job.succeeded} if job.succeeded else {}),
            **({"failed": job.failed} if job.failed else {}),
            **({"completedIndexes": intervals(job.indexes)} if job.indexes else {}),
            "ready": job.ready,
            "terminating": job.terminating,
            "uncountedTerminatedPods": {},
        }
        if shown != job.body.get("status"):
            self._store.replace(JOBS, {**job.body, "status": shown}, USER, subresource="status")

    # ---- pods

    def _manage(self, uid: str, job: _Job) -> None:
        """Delete or make pods: in one look only one of the two, and deleting goes first."""
        spec = job.body["spec"]
        if spec["suspend"]:
            self._delete([pod for pod in job.pods.values() if pod.active])
            return
        completions, parallelism = spec.get("completions"), spec["parallelism"]
        if completions is None:
            wanted = job.active if job.succeeded else parallelism
        else:
            wanted = max(0, min(parallelism, completions - job.succeeded))
        if surplus := self._surplus(job, job.active - wanted):
            self._delete(surplus[:AT_ONCE])
            return
        lacking = wanted - job.active - (job.terminating if job.replaces_failed_only else 0)
        if lacking <= 0:
            return
        if (wait := self._backoff(job)) > 0:
            self._queue.after(uid, max(wait, BATCH))
            return
        lacking = min(lacking, AT_ONCE)
        try:
            for index in self._pending(job, lacking) if job.indexed else [None] * lacking:
                self._store.create(PODS, job.body["metadata"]["namespace"], _made(job.body, index), USER)
            job.refusals = 0
        except ClusterError as problem:
            details = {"object": f"{job.body['metadata']['namespace']}/{job.body['metadata']['name']}"}
            log.warning("a pod was refused: %s", problem.message, extra=details)
            self._queue.after(uid, min(RETRY * 2**job.refusals, LONGEST_RETRY))
            job.refusals += 1

    def _backoff(self, job: _Job) -> float:
        """Seconds to wait before the next pod is made."""
        if not job.failures:
            return 0.0
        backoff: float = min(BACKOFF * 2 ** min(job.failures - 1, 10), LONGEST_BACKOFF)
        return backoff - (self._store.clock.now() - job.failed_at) / 1000

    def _surplus(self, job: _Job, least: int) -> list[_Pod]:
        """Pods to delete: of Indexed Jobs those whose index is taken or beyond the last; then those that ran least."""
        if least <= 0 and not job.indexed:
            return []
        chosen: list[_Pod] = []
        left = active = [pod for pod in job.pods.values() if pod.active]
        if job.indexed:
            left, taken = [], set()
            for pod in active:
                if pod.index is None or pod.index >= job.body["spec"]["completions"] or pod.index in taken:
                    chosen.append(pod)
                else:
                    taken.add(pod.index)
                    left.append(pod)
        if len(chosen) < least:
            left = sorted(left, key=_progress)
            chosen += left[: least - len(chosen)]
        return chosen

    def _pending(self, job: _Job, count: int) -> list[int]:
        """The lowest indexes that have neither succeeded nor a pod."""
        held = {
            pod.index
            for pod in job.pods.values()
            if pod.active or (pod.terminating and job.replaces_failed_only and not pod.counted)
        }
        free = (i for i in range(job.body["spec"]["completions"]) if i not in job.indexes and i not in held)
        return [index for _, index in zip(range(count), free, strict=False)]

    def _delete(self, pods: Iterable[_Pod]) -> None:
        """Delete pods without counting them."""
        for pod in pods:
            pod.counted = True
            meta = pod.body["metadata"]
            self._store.delete(PODS, meta["namespace"], meta["name"], USER, uid=meta["uid"])

    def _give_up(self, job: _Job) -> None:
        """The Job has failed: every pod that has not ended counts as failed."""
        for pod in job.pods.values():
            if not pod.counted:
                pod.counted = True
                job.failed += not job.indexed or (pod.index is not None and pod.index < job.body["spec"]["completions"])


def intervals(indexes: Iterable[int]) -> str:
    """``0,2-4`` for {0, 2, 3, 4}; two in a row are written as ``0,1`` upstream, and here."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}" for first, last in runs
    )


def _set(status: Json, kind: str, reason: str, message: str, now: str, value: str = "True") -> None:
    """Set a condition; the list is made anew, for the old one is the stored object's."""
    new = {
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    }  # fmt: skip
    before = status.get("conditions") or ()
    if any(one["type"] == kind for one in before):
        status["conditions"] = [new if one["type"] == kind else one for one in before]
    else:
        status["conditions"] = [*before, new]


def _controller(meta: Json) -> str:
    """UID of the Job that controls a pod, "" when none does."""
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == "Job":
            return str(reference["uid"])
    return ""


def _index(meta: Json) -> int | None:
    text = (meta.get("annotations") or {}).get(COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _ready(status: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())


def _progress(pod: _Pod) -> tuple[bool, bool, bool, int]:
    """What has come less far goes first, and of equals the younger one."""
    running = pod.body["status"].get("phase") == "Running"
    return bool(pod.body["spec"].get("nodeName")), running, pod.ready, -pod.serial


def _made(job: Json, index: int | None) -> Json:
    """A pod of the template, as upstream writes it."""
    meta, template = job["metadata"], job["spec"]["template"]
    inside, spec = template["metadata"], template["spec"]
    labels, annotations = inside.get("labels") or {}, inside.get("annotations") or {}
    base = f"{meta['name']}-"
    if index is not None:
        number = str(index)
        labels, annotations = {**labels, COMPLETION_INDEX: number}, {**annotations, COMPLETION_INDEX: number}
        tail = f"-{number}-"
        base = meta["name"][: LONGEST_BASE - len(tail)] + tail
        spec = {
            **spec,
            "hostname": f"{meta['name']}-{number}",
            "containers": [_numbered(c) for c in spec["containers"]],
        }
    owner = {
        "apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "metadata": {
            "generateName": base,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _numbered(container: Json) -> Json:
    """A container that is told its index."""
    env = container.get("env") or []
    if any(one["name"] == "JOB_COMPLETION_INDEX" for one in env):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}
