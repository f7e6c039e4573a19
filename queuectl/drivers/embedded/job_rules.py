"""What the API server itself says of Jobs: defaults, the labels that bind pods to their Job, and what may not change.

Kubernetes 1.37 (pkg/registry/batch/job, pkg/apis/batch). What the Job controller here (``jobs.py``) does not do is refused
at creation, so that nobody mistakes silence for a result.
"""

from __future__ import annotations

from typing import Any

from queuectl.control.ports import Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Request

JOB_NAME, CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME, LEGACY_CONTROLLER_UID = "job-name", "controller-uid"
INDEXED = "Indexed"
MOST_PODS = 100_000  # completions and parallelism of an Indexed Job
_ABSENT = ("podFailurePolicy", "backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "affinity", "schedulingGates")  # of a template, free while suspended
_IMMUTABLE = "field is immutable"


def job_rules(request: Request) -> Json | None:
    """Defaults and validation of Jobs; None for everything else. Raises Refused (422)."""
    if request.kind.plural != "jobs" or request.new is None:
        return None
    if request.old is None:
        return _created(request.new)
    if not request.subresource:
        _changed(request.old, request.new)
    return None


def condition(job: Json, kind: str) -> Json | None:
    """A Job's condition of this type if it is True."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def _invalid(job: Json, text: str) -> Refused:
    return Refused(f'Job.batch "{job["metadata"]["name"]}" is invalid: {text}', 422)


def _created(job: Json) -> Json:
    meta, given = job["metadata"], job.get("spec") or {}
    for field in _ABSENT:
        if given.get(field) is not None:
            raise _invalid(job, f"spec.{field}: Forbidden: the in-memory cluster has no such thing; use a real one")
    spec: Json = {
        "parallelism": 1,
        "completionMode": "NonIndexed",
        "backoffLimit": 6,
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
        **({} if "parallelism" in given or "completions" in given else {"completions": 1}),
        **given,
    }
    template = spec.get("template") or {}
    inside = template.get("metadata") or {}
    made = {
        LEGACY_JOB_NAME: meta["name"], JOB_NAME: meta["name"],
        LEGACY_CONTROLLER_UID: meta["uid"], CONTROLLER_UID: meta["uid"],
    }  # fmt: skip
    labels = {**made, **(inside.get("labels") or {})}
    for name, value in made.items():
        if labels[name] != value:
            raise _invalid(
                job, f"spec.template.metadata.labels[{name}]: Invalid value: {labels[name]!r}: must be '{value}'"
            )
    spec["template"] = {**template, "metadata": {**inside, "labels": labels}}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: meta["uid"]}}
    if inside.get("labels") and not meta.get("labels"):
        meta = {**meta, "labels": labels}
    job = {**job, "metadata": meta, "spec": spec, "status": {}}
    _numbers(job, spec)
    pod = spec["template"].get("spec") or {}
    if not pod.get("containers"):
        raise _invalid(job, "spec.template.spec.containers: Required value")
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        text = f'Unsupported value: {pod.get("restartPolicy") or "Always"!r}: supported values: "OnFailure", "Never"'
        raise _invalid(job, f"spec.template.spec.restartPolicy: {text}")
    return job


def _numbers(job: Json, spec: Json) -> None:
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        value = spec.get(field)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise _invalid(job, f"spec.{field}: Invalid value: {value!r}: must be greater than or equal to 0")
    mode = spec["completionMode"]
    if mode not in ("NonIndexed", INDEXED):
        text = f'spec.completionMode: Unsupported value: {mode!r}: supported values: "Indexed", "NonIndexed"'
        raise _invalid(job, text)
    if mode != INDEXED:
        return
    if spec.get("completions") is None:
        raise _invalid(job, "spec.completions: Required value: when completion mode is Indexed")
    if spec["parallelism"] > MOST_PODS:
        raise _invalid(job, f"spec.parallelism: Invalid value: must be less than or equal to {MOST_PODS}")


def _changed(old: Json, new: Json) -> None:
    before, after = old["spec"], new["spec"]
    if before == after:
        return
    _numbers(new, after)
    for field in ("selector", "completionMode", "manualSelector", "podReplacementPolicy", "managedBy"):
        if before.get(field) != after.get(field):
            raise _invalid(new, f"spec.{field}: Invalid value: {_IMMUTABLE}")
    if before.get("completions") != after.get("completions"):
        elastic = before["completionMode"] == INDEXED and after.get("completions") == after["parallelism"]
        if not elastic:
            text = "can only be modified in tandem with spec.parallelism" if before["completionMode"] == INDEXED else ""
            raise _invalid(new, f"spec.completions: Invalid value: {text or _IMMUTABLE}")
    if before["template"] != after["template"]:
        idle = before["suspend"] and not (old["status"] or {}).get("active")
        directed = idle and ("startTime" not in old["status"] or condition(old, "Suspended") is not None)
        if _fixed(before["template"], directed=directed) != _fixed(after["template"], directed=directed):
            raise _invalid(new, f"spec.template: Invalid value: {_IMMUTABLE}")


def _fixed(template: Json, *, directed: bool) -> Any:
    """The part of a template that may not change: all of it, unless its Job is suspended and has no pods."""
    if not directed:
        return template
    meta = {name: value for name, value in template["metadata"].items() if name not in ("labels", "annotations")}
    spec = {name: value for name, value in template["spec"].items() if name not in _DIRECTIVES}
    containers = [{n: v for n, v in one.items() if n != "resources"} for one in spec["containers"]]
    return meta, {**spec, "containers": containers}
