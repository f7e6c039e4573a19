"""Stand-ins for our admission policies, where there is no API server to evaluate their CEL.

The policies themselves (``contract/policies.py``) are the truth; these say the same in Python, and the conformance suite
holds them to it.
"""

from __future__ import annotations

from typing import Any

from queuectl.contract import names
from queuectl.contract.foreign import LEASES
from queuectl.contract.home import LEASE, NAMESPACE
from queuectl.contract.policies import FENCE_POLICIES, STALE_FENCE
from queuectl.control.ports import NotFound, Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Request, Store

USER = "queuectl"
_LABELS = (names.QUEUE_LABEL, names.POD_GROUP_LABEL, names.ROLE_LABEL, names.UNMANAGED_LABEL)


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
        plural = request.kind.plural
        if request.old is None and request.new is not None and not request.subresource:
            if plural == "pods":
                return self._new_pod(request.new)
            if plural == "jobs":
                return self._new_job(request.new)
            return None
        if request.new is None or request.old is None:
            return None
        if plural in ("pods", "jobs") and not request.subresource:
            self._guard(request, request.old, request.new)
        if request.user == USER:
            self._fenced(request, request.new)
        return None

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
        if queue := self._default(job):
            job = _labelled(job, queue)
        labels, template = _labels(job), job["spec"]["template"]
        inner = _labels({"metadata": template.get("metadata") or {}})
        queue = labels.get(names.QUEUE_LABEL, "")
        if not queue or labels.get(names.UNMANAGED_LABEL) == "true" or inner.get(names.UNMANAGED_LABEL) == "true":
            return job
        if inner.get(names.QUEUE_LABEL, queue) != queue:
            text = f"the pod template's label {names.QUEUE_LABEL} must be the Job's own, or be left out"
            raise _denied(job, "jobs.batch", "queuectl-jobs", text)
        meta = {**(template.get("metadata") or {}), "labels": {**inner, names.QUEUE_LABEL: queue}}
        return {**job, "spec": {**job["spec"], "template": {**template, "metadata": meta}}}

    # ---- what nobody else may do

    def _guard(self, request: Request, old: Json, new: Json) -> None:
        if request.user in self.releasers:
            return
        what = "pods" if request.kind.plural == "pods" else "jobs.batch"
        if request.kind.plural == "pods" and names.GATE in gates(old) and names.GATE not in gates(new):
            text = f"only who may 'release' podgroups.queuectl.io in this namespace removes the gate {names.GATE}"
            raise _denied(new, what, "queuectl-release", text)
        for label in _LABELS:
            if _labels(old).get(label, "") != _labels(new).get(label, ""):
                text = f"the label {label} cannot change; delete and create again"
                raise _denied(new, what, "queuectl-labels", text)
        for note in (names.FENCE, names.RECORD, names.SUSPENSION):
            if _annotations(old).get(note) != _annotations(new).get(note):
                text = f"the annotation {note} is the controller's own; leave it as it is, and out of what you create"
                raise _denied(new, what, "queuectl-records", text)

    def _fenced(self, request: Request, new: Json) -> None:
        """Refuse our own account's write when a later leader has begun."""
        status = request.subresource == "status" and request.kind.plural in ("queues", "podgroups")
        main = request.kind.plural in ("pods", "jobs") and not request.subresource
        if not status and not main:
            return
        fence = (new.get("status") or {}).get("fence", -1) if status else _annotations(new).get(names.FENCE, "")
        if int(fence or -1) < self._least():
            text = f"{STALE_FENCE}: another leader has begun since"
            raise _denied(new, request.kind.plural, FENCE_POLICIES[status], text)

    def _least(self) -> int:
        if self.store is None:
            return 0
        try:
            lease = self.store.get(LEASES, NAMESPACE, LEASE)
        except NotFound:
            return 0
        return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def _labels(body: Json) -> dict[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}


def _annotations(body: Json) -> dict[str, Any]:
    return body["metadata"].get("annotations") or {}


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
