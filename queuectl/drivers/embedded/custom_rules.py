"""What the API server says of our own resources, by their published definitions: pruning, defaults, and every rule."""

from __future__ import annotations

from functools import cache
from typing import Any

from queuectl.contract.crd import DEFINITIONS, schema
from queuectl.contract.home import GROUP
from queuectl.contract.v1alpha1 import InvalidObject, validate
from queuectl.control.ports import Refused
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Request

_MODELS = {definition.kind: definition.model for definition in DEFINITIONS}


def custom_rules(request: Request) -> Json | None:
    """Prune, complete and validate one of ours; None for everything else. Raises Refused (422)."""
    kind, new, old = request.kind.kind, request.new, request.old
    if request.kind.group != GROUP or kind not in _MODELS or new is None:
        return None
    if old is None:
        new = {name: value for name, value in new.items() if name != "status"}  # a subresource: it comes later
    elif new.get("spec") == old.get("spec") and new.get("status") == old.get("status"):
        return None
    whole = {**completed(_schema(kind), new), "metadata": new["metadata"]}
    try:
        validate(kind, whole, old)
    except InvalidObject as problem:
        raise Refused(f'{kind}.{GROUP} "{new["metadata"]["name"]}" is invalid: {problem}', 422) from None
    return whole


@cache
def _schema(kind: str) -> Json:
    return schema(_MODELS[kind])


def completed(part: Json, value: Any) -> Any:
    """A value without the fields that a structural schema does not know, and with the defaults of those that it lacks."""
    properties, items = part.get("properties"), part.get("items")
    if isinstance(value, list) and items is not None:
        return [completed(items, one) for one in value]
    if not isinstance(value, dict) or properties is None:
        return value
    found = {name: completed(properties[name], one) for name, one in value.items() if name in properties}
    for name, known in properties.items():
        if name not in found and "default" in known:
            found[name] = completed(known, known["default"])
    return found
