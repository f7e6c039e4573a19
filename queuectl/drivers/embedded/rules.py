"""What the API server itself says of pods: defaults, and which changes it refuses.

Each rule was measured on a real API server (``tests/conformance`` runs the same cases on both).
"""

from __future__ import annotations

from typing import Any

from queuectl.contract import names
from queuectl.control.ports import Conflict, Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Request

SCHEDULER = "system:kube-scheduler"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_FREE = (
    "tolerations",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "schedulingGates",
    "affinity",
    "nodeSelector",
)
_FORBIDDEN = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`, …"


def pod_rules(request: Request) -> Json | None:
    """Defaults and validation of pods; None for everything else. Raises Refused (422) and Conflict (409)."""
    if request.kind.plural != "pods" or request.new is None:
        return None
    if request.old is None:
        return _created(request.new)
    if request.subresource == "binding":
        _bound(request.old)
    elif not request.subresource:
        _changed(request.old, request.new)
    return None


def gates(pod: Json) -> list[str]:
    """Names of a pod's scheduling gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def _invalid(pod: Json, text: str) -> Refused:
    return Refused(f'Pod "{pod["metadata"]["name"]}" is invalid: {text}', 422)


# ---- creation


def _created(pod: Json) -> Json:
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        raise _invalid(pod, "spec.containers: Required value")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise _invalid(pod, "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared")
    containers = []
    for number, container in enumerate(spec["containers"]):
        resources = container.get("resources") or {}
        _extended(pod, f"spec.containers[{number}].resources", resources)
        requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        containers.append({**container, "resources": {**resources, "requests": requests}} if requests else container)
    defaults = {
        "schedulerName": names.SCHEDULER,
        "terminationGracePeriodSeconds": 30,
        "restartPolicy": "Always",
        "serviceAccountName": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    status: Json = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        status["conditions"] = [gated]
    return {**pod, "spec": {**defaults, **spec, "containers": containers}, "status": status}


def _extended(pod: Json, where: str, resources: Json) -> None:
    """Extended resources are whole, and requested exactly as they are limited."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in sorted({*requests, *limits}):
        if "/" not in name or name.startswith("kubernetes.io/"):
            continue
        for part, amounts in (("limits", limits), ("requests", requests)):
            if name in amounts and not str(amounts[name]).isdigit():
                raise _invalid(pod, f"{where}.{part}[{name}]: Invalid value: {amounts[name]!r}: must be an integer")
        if name not in limits:
            raise _invalid(pod, f"{where}.limits: Required value: Limit must be set for non overcommitable resources")
        if requests.get(name, limits[name]) != limits[name]:
            raise _invalid(
                pod,
                f"{where}.requests: Invalid value: {requests[name]!r}: must be equal to {name} limit of {limits[name]}",
            )


# ---- changes


def _changed(old: Json, new: Json) -> None:
    before, after = old["spec"], new["spec"]
    if not set(gates(new)) <= set(gates(old)):
        raise _invalid(new, "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate")
    gated = bool(gates(old))
    for field in sorted({*before, *after} - set(_FREE)):
        if before.get(field) != after.get(field) and field != "containers":
            raise _invalid(new, _FORBIDDEN)
    if [_but_image(c) for c in before["containers"]] != [_but_image(c) for c in after["containers"]]:
        raise _invalid(new, _FORBIDDEN)
    if (before.get("tolerations") or []) != (after.get("tolerations") or [])[: len(before.get("tolerations") or [])]:
        raise _invalid(new, _FORBIDDEN)
    if before.get("nodeSelector") != after.get("nodeSelector"):
        selector = after.get("nodeSelector") or {}
        if not gated or any(selector.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
            raise _invalid(new, _FORBIDDEN)
    if before.get("affinity") != after.get("affinity"):
        if not gated:
            raise _invalid(new, _FORBIDDEN)
        _tightened(old, new)


def _but_image(container: Json) -> Json:
    return {name: value for name, value in container.items() if name != "image"}


def _affinity(pod: Json) -> tuple[Json, list[Json] | None]:
    """A pod's affinity without the required node terms, and those."""
    affinity = pod["spec"].get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    required = node.get(_REQUIRED)
    rest = {**affinity, "nodeAffinity": {name: value for name, value in node.items() if name != _REQUIRED}}
    if not rest["nodeAffinity"]:
        del rest["nodeAffinity"]
    return rest, None if required is None else required.get("nodeSelectorTerms") or []


def _tightened(old: Json, new: Json) -> None:
    """Of a gated pod the required node affinity may only get narrower: as many terms, each with more requirements."""
    (rest, before), (other, after) = _affinity(old), _affinity(new)
    where = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if rest != other:
        raise _invalid(new, _FORBIDDEN)
    if before is None:
        return
    if after is None or len(after) != len(before):
        raise _invalid(
            new,
            f"{where}.nodeSelectorTerms: Invalid value: no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        )
    for number, (one, two) in enumerate(zip(before, after, strict=True)):
        at = f"{where}.nodeSelectorTerms[{number}]"
        if not one.get("matchExpressions") and not one.get("matchFields") and two != one:
            raise _invalid(new, f"{at}: Invalid value: only additions are allowed (no mutations or deletions)")
        for part in ("matchExpressions", "matchFields"):
            kept: list[Any] = one.get(part) or []
            if (two.get(part) or [])[: len(kept)] != kept:
                raise _invalid(new, f"{at}: Invalid value: only additions are allowed (no mutations or deletions)")


def _bound(pod: Json) -> None:
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is being deleted', 409)
    if pod["spec"].get("nodeName"):
        node = pod["spec"]["nodeName"]
        text = f'pod {name} is already assigned to node "{node}"'
        raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {text}', 409)
    if gates(pod):
        text = f"pod {name} has non-empty .spec.schedulingGates"
        raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {text}', 409)
