"""The API server's rules for a structural schema, as far as they can be broken by our generator.

Read in apiextensions-apiserver, pkg/apiserver/schema/validation.go and pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_TYPES = {"object", "array", "string", "integer", "number", "boolean"}
_KNOWN = {
    "type", "properties", "required", "items", "enum", "description", "default", "format", "pattern", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "anyOf", "x-kubernetes-int-or-string", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-validations", "additionalProperties", "maxProperties",
}  # fmt: skip
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]  # the one anyOf with types, and only in this order


def faults(schema: Json, path: str = "") -> Iterator[str]:
    """Everything that breaks a rule, each with its path. Bounds are demanded everywhere, for the cost of CEL."""
    if unknown := set(schema) - _KNOWN:
        yield f"{path}: {sorted(unknown)}"
    if schema.get("x-kubernetes-int-or-string"):
        if schema.get("anyOf") != _INT_OR_STRING or "type" in schema:
            yield f"{path}: int-or-string needs exactly its anyOf and no type"
        if "maxLength" not in schema:
            yield f"{path}: unbounded"
    elif schema.get("type") not in _TYPES:
        yield f"{path}: type {schema.get('type')}"
    elif "anyOf" in schema:
        yield f"{path}: anyOf"
    if path == "" and schema.get("type") != "object":
        yield "the root must be an object"
    if "pattern" in schema:
        yield from _re2(schema["pattern"], path)
    if "default" in schema:
        yield from (f"{path}: default: {fault}" for fault in mismatches(schema["default"], schema))
    yield from _bounds(schema, path)
    for name, child in schema.get("properties", {}).items():
        if path != "" or name not in {"apiVersion", "kind", "metadata"}:
            yield from faults(child, f"{path}.{name}")
    if "additionalProperties" in schema:
        yield from faults(schema["additionalProperties"], f"{path}{{}}")
    if missing := set(schema.get("required", [])) - set(schema.get("properties", {})):
        yield f"{path}: required but unknown: {sorted(missing)}"
    if path == "" and set(schema["properties"].get("metadata", {}).get("properties", {})) - {"name", "generateName"}:
        yield "metadata may restrict only name and generateName"
    if schema.get("type") == "array":
        yield from _array(schema, path)
    for rule in schema.get("x-kubernetes-validations", []):
        first = re.match(r"\.([A-Za-z]+)", rule["fieldPath"])
        if first is None or first[1] not in schema["properties"]:
            yield f"{path}: fieldPath {rule['fieldPath']}"
        if not rule["message"] or "\n" in rule["message"] or "\n" in rule["rule"]:
            yield f"{path}: a rule needs a message, on one line"


def _array(schema: Json, path: str) -> Iterator[str]:
    if not isinstance(schema.get("items"), dict):
        yield f"{path}: needs one schema of items"
        return
    yield from faults(schema["items"], f"{path}[]")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if (schema.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"{path}: list type map and its keys go together"
    for key in keys:
        child = schema["items"].get("properties", {}).get(key)
        if child is None or (key not in schema["items"].get("required", []) and "default" not in child):
            yield f"{path}: key {key} must be required or have a default"


def _bounds(schema: Json, path: str) -> Iterator[str]:
    kind = schema.get("type")
    if path == "":
        return
    if kind == "array" and "maxItems" not in schema:
        yield f"{path}: unbounded"
    if kind == "string" and not {"maxLength", "enum"} & set(schema):
        yield f"{path}: unbounded"
    values = schema.get("additionalProperties")
    if values is not None and (schema.get("properties") or "maxProperties" not in schema):
        yield f"{path}: a map has no properties of its own, and a bound"
    if kind == "object" and not schema.get("properties") and values is None:
        yield f"{path}: an object without properties keeps nothing"


def _re2(pattern: str, path: str) -> Iterator[str]:
    if re.search(r"\(\?[=!<P]|\\[0-9]|\\[dwsZA]", pattern):
        yield f"{path}: pattern is not plain RE2: {pattern}"
    if not (pattern.startswith("^") and pattern.endswith("$")):
        yield f"{path}: pattern is not anchored: {pattern}"


def mismatches(value: object, schema: Json) -> Iterator[str]:
    """Why a default does not fit its own schema (the server refuses such a definition)."""
    types: dict[str, type | tuple[type, ...]] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    }  # fmt: skip
    kind = schema.get("type", "")
    if not isinstance(value, types.get(kind, object)):
        yield f"{value!r} is no {kind}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is none of {schema['enum']}"
    if isinstance(value, dict):
        for name in set(schema.get("required", [])) - set(value):
            if "default" not in schema["properties"][name]:
                yield f"{name} is missing"
