"""Stand-ins for our admission policies, where there is no API server to evaluate their CEL.

The policies themselves (``contract/policies.py``) are the truth; these say the same in Python, and the conformance suite
holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuectl.contract import names
from queuectl.contract.foreign import LEASES
from queuectl.contract.home import LEASE, NAMESPACE
from queuectl.contract.policies import FENCE_POLICIES, STALE_FENCE
from queuectl.control.ports import Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Request, Store

USER = "queuectl"
CONTROLLERS = "system:serviceaccount:kube-system:"  # how the users of Kubernetes' own controllers begin
_LABELS = (names.QUEUE_LABEL, names.POD_GROUP_LABEL, names.ROLE_LABEL, names.UNMANAGED_LABEL)

_NOTES = (names.FENCE, names.RECORD, names.SUSPENSION)
# Of a pod or Job, what the API server lets anybody change, and our account must not.
_POD_FIELDS = (
    "containers", "initContainers", "ephemeralContainers", "tolerations", "nodeSelector", "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
)  # fmt: skip
_JOB_FIELDS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "template",
    "podFailurePolicy", "successPolicy", "maxFailedIndexes",
)  # fmt: skip
_JOB_SET_FIELDS = (
    "replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "coordinator", "managedBy",
    "ttlSecondsAfterFinished",
)  # fmt: skip
_OURS = {"pods": _POD_FIELDS, "jobs": _JOB_FIELDS, "jobsets": _JOB_SET_FIELDS}
_SERVICES = ("deployments", "statefulsets")
_RECORDS = {
    "pods": "queuectl-records",
    "jobs.batch": "queuectl-records-jobs",
    "jobsets.jobset.x-k8s.io": "queuectl-records-jobsets",
}
_WHO = "only who may 'release' podgroups.queuectl.io in this namespace"


class Admission:
    """Gate injection, the guards of gate, labels and records, and the fence. ``store`` holds the Lease."""

    def __init__(
        self, namespaces: dict[str, dict[str, str]] | None = None, releasers: frozenset[str] = frozenset()
    ) -> None:
        """``namespaces``: labels by namespace, for the default queue. ``releasers``: who holds ``release`` beside us."""
        self.namespaces = namespaces if namespaces is not None else {}
        self.releasers = releasers | {USER}
        self.store: Store | None = None

    def __call__(self, request: Request) -> Json | None:
        """See ``store.Check``."""
        plural, old, new = request.kind.plural, request.old, request.new
        if new is None:
            self._deleted(request, old or {})
            return None
        main = not request.subresource
        if old is None:
            if plural == "pods" and main:
                new = self._new_pod(new)
            elif plural == "jobs" and main:
                new = self._new_job(new)
            elif plural in _TEMPLATES and main:
                _labelled_inside(request, new)
        if plural in _SERVICES and main:
            new = _copied(new)
            _agree(request, old, new)
        if main and request.user not in self.releasers:
            self._guard(request, old, new)
        if old is not None and request.user == USER:
            if main:
                _own(request, old, new)
            elif plural == "pods" and request.subresource == "status":
                _own_word(old, new)
            self._fenced(request, new)
        return new

    # ---- what makes a pod ours

    def _default(self, body: Json) -> str:
        labels = _labels(body)
        if labels.get(names.QUEUE_LABEL) or labels.get(names.UNMANAGED_LABEL) == "true":
            return ""
        return self.namespaces.get(body["metadata"].get("namespace", ""), {}).get(names.DEFAULT_QUEUE_LABEL, "")

    def _new_pod(self, pod: Json) -> Json:
        daemon = any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())
        spec = pod.get("spec") or {}
        if (queue := self._default(pod)) and not daemon and not spec.get("nodeName"):
            pod = _labelled(pod, queue)
        labels = _labels(pod)
        if not labels.get(names.QUEUE_LABEL) or labels.get(names.UNMANAGED_LABEL) == "true":
            return pod
        if spec.get("nodeName"):
            text = (
                f"a pod of a queue must not name its node; label it {names.UNMANAGED_LABEL}: 'true', or drop nodeName"
            )
            raise _denied(pod, "pods", "queuectl-managed-pods", text)
        if names.GATE not in gates(pod):
            gated = [*(spec.get("schedulingGates") or ()), {"name": names.GATE}]
            pod = {**pod, "spec": {**spec, "schedulingGates": gated}}
        return pod

    def _new_job(self, job: Json) -> Json:
        if (queue := self._default(job)) and _plain(job["spec"]["template"]):
            job = _labelled(job, queue)
        job = _copied(job)
        if _disagrees(job):
            text = f"the pod template's label {names.QUEUE_LABEL} must be the Job's own, or be left out"
            raise _denied(job, "jobs.batch", "queuectl-jobs", text)
        return job

    # ---- what nobody else may do

    def _guard(self, request: Request, old: Json | None, new: Json) -> None:
        """What only who may ``release`` may write. ``old`` is None at creation."""
        plural, what = request.kind.plural, _resource(request)
        if plural == "podgroups" and old is not None:
            held = _annotations(old).get(names.OPERATOR_HOLD)
            if _annotations(new).get(names.OPERATOR_HOLD) != held:
                raise _denied(
                    new, what, "queuectl-operator-hold", f"{_WHO} changes the annotation {names.OPERATOR_HOLD}"
                )
            moved = new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences")
            if held is not None and moved and not request.user.startswith(CONTROLLERS):
                text = f"it carries the annotation {names.OPERATOR_HOLD}: {_WHO} changes its owners"
                raise _denied(new, what, "queuectl-operator-hold", text)
        if plural in ("statefulsets", "replicasets") and old is not None:
            _same_template(new, what, old)
        if plural not in ("pods", "jobs", "jobsets"):
            return
        if old is not None and plural == "pods" and names.GATE in gates(old) and names.GATE not in gates(new):
            raise _denied(new, what, "queuectl-release", f"{_WHO} removes the gate {names.GATE}")
        notes = (names.FENCE, names.RECORD if plural == "pods" else names.SUSPENSION)
        self._untouched(new, what, "", old, new, notes)
        if plural == "jobs":
            before = old["spec"]["template"] if old is not None else None
            self._untouched(new, what, "pod template's ", before, new["spec"]["template"], (names.FENCE, names.RECORD))

    def _untouched(
        self, body: Json, what: str, whose: str, old: Json | None, new: Json, notes: tuple[str, ...]
    ) -> None:
        """Our labels stay as they were created, our annotations as the controller wrote them."""
        for label in _LABELS if old is not None and not what.startswith("jobsets") else ():
            if _labels(old or {}).get(label, "") != _labels(new).get(label, ""):
                text = f"the {whose}label {label} cannot change; delete and create again"
                raise _denied(body, what, "queuectl-jobs" if whose else "queuectl-labels", text)
        for note in notes:
            if _annotations(new).get(note) != _annotations(old or {}).get(note):
                text = f"the {whose}annotation {note} is the controller's own; leave it as it is, and out of what you create"
                raise _denied(body, what, _RECORDS[what], text)

    def _deleted(self, request: Request, old: Json) -> None:
        if request.user in self.releasers or request.user.startswith(CONTROLLERS):
            return
        meta = old["metadata"]
        if request.kind.plural == "podgroups" and names.OPERATOR_HOLD in _annotations(old):
            text = f"it carries the annotation {names.OPERATOR_HOLD}: {_WHO} deletes it"
            raise _denied(old, _resource(request), "queuectl-operator-hold", text)
        if request.kind.plural == "leases" and (meta.get("namespace"), meta["name"]) == (NAMESPACE, LEASE):
            text = f"this Lease holds the fence that keeps earlier leaders from writing: {_WHO} deletes it"
            raise _denied(old, _resource(request), "queuectl-lease", text)

    def _fenced(self, request: Request, new: Json) -> None:
        """Refuse our own account's write when a later leader has begun. Without a Lease there is nothing to compare."""
        status = request.subresource == "status" and request.kind.plural in ("queues", "podgroups")
        main = request.kind.plural in _OURS and not request.subresource
        least = self._least()
        if least is None or not (status or main):
            return
        fence = (new.get("status") or {}).get("fence", -1) if status else _annotations(new).get(names.FENCE, "")
        if main and not (fence.isascii() and fence.isdigit() and len(fence) <= 18):
            text = f"every write of the controller carries the annotation {names.FENCE}"
            raise _denied(new, _resource(request), FENCE_POLICIES[0], text)
        if int(fence) < least:
            text = f"{STALE_FENCE}: another leader has begun since"
            raise _denied(new, _resource(request), FENCE_POLICIES[status], text)

    def _least(self) -> int | None:
        lease = self.store.find(LEASES, NAMESPACE, LEASE) if self.store is not None else None
        return None if lease is None else int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def _own(request: Request, old: Json, new: Json) -> None:
    """Our own account pins, releases, suspends and resumes; all else on other people's objects stays as it is."""
    plural, before, after = request.kind.plural, old["metadata"], new["metadata"]
    if plural not in _OURS:
        return
    policy, what = f"queuectl-own-writes-{plural}", _resource(request)
    for part, ours, text in (
        ("annotations", _NOTES, "the controller changes no annotations but its own"),
        ("labels", (names.QUEUE_LABEL,), f"the controller changes no label but {names.QUEUE_LABEL}"),
    ):
        one, two = before.get(part) or {}, after.get(part) or {}
        if any(one.get(name) != two.get(name) for name in (one.keys() | two.keys()) - set(ours)):
            raise _denied(new, what, policy, text)
    if any(before.get(part) != after.get(part) for part in ("finalizers", "ownerReferences")):
        raise _denied(new, what, policy, "the controller changes neither finalizers nor owners")
    changed = any(old["spec"].get(field) != new["spec"].get(field) for field in _OURS[plural])
    if plural != "pods" and changed:
        raise _denied(new, what, policy, f"the controller only suspends and resumes {request.kind.kind}s")
    if plural == "pods":
        if not set(gates(old)) - {names.GATE} <= set(gates(new)):
            raise _denied(new, what, policy, "the controller removes no scheduling gate but its own")
        if changed or _preferred(old) != _preferred(new):
            raise _denied(new, what, policy, "the controller only pins and releases pods")


def _own_word(old: Json, new: Json) -> None:
    """Of a pod's status, our own account writes one condition."""
    policy = "queuectl-own-writes-pod-status"
    if any(old["metadata"].get(part) != new["metadata"].get(part) for part in ("annotations", "labels", "finalizers")):
        raise _denied(new, "pods", policy, "the controller changes a pod's status alone")
    (before, had), (after, said) = (_apart(one["status"]) for one in (old, new))
    if before != after:
        raise _denied(new, "pods", policy, f"the controller writes no more of a pod's status than {names.WAITING}")
    if had != said:
        raise _denied(new, "pods", policy, f"the controller writes no condition but {names.WAITING}")


def _apart(status: Json) -> tuple[Json, dict[str, Json]]:
    """A pod's status without its conditions, and these by type, but for ours."""
    conditions = {one["type"]: one for one in status.get("conditions") or () if one["type"] != names.WAITING}
    return {name: value for name, value in status.items() if name != "conditions"}, conditions


def _copied(owner: Json) -> Json:
    """An owner whose template says nothing of a queue brings it its own."""
    labels, template = _labels(owner), owner["spec"]["template"]
    queue = labels.get(names.QUEUE_LABEL, "")
    if not queue or labels.get(names.UNMANAGED_LABEL) == "true" or not _plain(template):
        return owner
    return {**owner, "spec": {**owner["spec"], "template": _labelled({"metadata": {}, **template}, queue)}}


def _plain(template: Json) -> bool:
    labels = _labels(template)
    return not labels.get(names.QUEUE_LABEL) and labels.get(names.UNMANAGED_LABEL) != "true"


def _disagrees(owner: Json) -> bool:
    """Whether the owner has a queue and its template's pods would come into another, or into none."""
    queue, inner = _labels(owner).get(names.QUEUE_LABEL, ""), _labels(owner["spec"]["template"])
    return bool(queue) and inner.get(names.UNMANAGED_LABEL) != "true" and inner.get(names.QUEUE_LABEL, "") != queue


def _agree(request: Request, old: Json | None, new: Json) -> None:
    """A service and its template name one queue. One that is older than this rule may stay as it is."""

    def named(owner: Json) -> tuple[str, ...]:
        return tuple(_labels(one).get(names.QUEUE_LABEL, "") for one in (owner, owner["spec"]["template"]))

    if _disagrees(new) and (old is None or named(old) != named(new)):
        text = f"the pod template's label {names.QUEUE_LABEL} must be the owner's own, or be left out"
        raise _denied(new, _resource(request), "queuectl-services", text)


def _labelled_inside(request: Request, new: Json) -> None:
    """What makes pods by several templates, and has a queue, says so in each of them."""
    queue, (policy, templates, text) = _labels(new).get(names.QUEUE_LABEL, ""), _TEMPLATES[request.kind.plural]
    if not queue or _labels(new).get(names.UNMANAGED_LABEL) == "true":
        return
    if any(_labels(template).get(names.QUEUE_LABEL, "") != queue for template in templates(new["spec"])):
        raise _denied(new, _resource(request), policy, f"its label {names.QUEUE_LABEL} belongs on {text}")


def _group_templates(spec: Json) -> list[Json]:
    group = spec.get("leaderWorkerTemplate") or {}
    leader = group.get("leaderTemplate")
    return [group.get("workerTemplate") or {}, *([leader] if leader is not None else [])]


_TEMPLATES: dict[str, tuple[str, Callable[[Json], list[Json]], str]] = {
    "jobsets": (
        "queuectl-jobsets",
        lambda spec: [one.get("template") or {} for one in spec.get("replicatedJobs") or ()],
        "every spec.replicatedJobs[].template.metadata too: from there it comes to the pods",
    ),
    "leaderworkersets": (
        "queuectl-workersets",
        _group_templates,
        (
            "workerTemplate.metadata (and leaderTemplate.metadata, where there is one) in spec.leaderWorkerTemplate too:"
            " from there it comes to the pods"
        ),
    ),
}


def _same_template(new: Json, what: str, old: Json) -> None:
    """Our labels in the template of a set that has a queue: its PodGroup stays, and with it the queue."""
    before, after = _labels(old["spec"]["template"]), _labels(new["spec"]["template"])
    for label in _LABELS if before.get(names.QUEUE_LABEL) else ():
        if before.get(label, "") != after.get(label, ""):
            text = f"the pod template's label {label} cannot change; delete and create again"
            raise _denied(new, what, "queuectl-services", text)


def _preferred(pod: Json) -> Any:
    return ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )


def _labels(body: Json) -> dict[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}


def _annotations(body: Json) -> dict[str, Any]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _resource(request: Request) -> str:
    return f"{request.kind.plural}.{request.kind.group}" if request.kind.group else request.kind.plural


def _labelled(body: Json, queue: str) -> Json:
    meta = body["metadata"]
    return {**body, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), names.QUEUE_LABEL: queue}}}


def _denied(body: Json, resource: str, policy: str, text: str) -> Refused:
    name = body["metadata"]["name"]
    return Refused(
        f'{resource} "{name}" is forbidden: ValidatingAdmissionPolicy {policy!r} with binding {policy!r} denied request:'
        f" {text}",
        422,
    )
