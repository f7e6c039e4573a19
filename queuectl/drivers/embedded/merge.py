"""The two merges of a PATCH, on plain JSON: neither changes what it is given.

JSON merge patch is RFC 7386. Strategic merge is Kubernetes' own: lists whose elements have a key are merged by it, an
element with ``$patch: delete`` is taken out, and every other list is replaced whole. The keys are those of ``k8s.io/api``
(patchMergeKey tags) for the lists that pods, Jobs and nodes have.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

KEYS = {
    "conditions": "type",
    "containers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
DIRECTIVE = "$patch"


def json_merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, ``null`` removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = json_merge(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Kubernetes' strategic merge of an object. Raises ValueError for a list element without its key."""
    if not isinstance(patch, dict):
        return patch
    if patch.get(DIRECTIVE) == "replace":
        return {name: value for name, value in patch.items() if name != DIRECTIVE}
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            if elements := _list(name, merged.get(name) or [], value):
                merged[name] = elements
            else:
                merged.pop(name, None)  # as Go's omitempty has it
        else:
            merged[name] = strategic_merge(merged.get(name), value)
    return merged


def _list(name: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if name == "finalizers":
        return [*target, *(value for value in patch if value not in target)]
    key = KEYS.get(name, "")
    if not key:
        return patch
    merged = {element[key]: element for element in target}
    for element in patch:
        if element.get(DIRECTIVE) == "replace":
            return [other for other in patch if other is not element]
        if key not in element:
            raise ValueError(f"map: {element} does not contain declared merge key: {key}")
        if element.get(DIRECTIVE) == "delete":
            merged.pop(element[key], None)
        else:
            merged[element[key]] = strategic_merge(merged.get(element[key]), element)
    return list(merged.values())
