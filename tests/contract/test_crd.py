"""The generated definitions keep the rules of a structural schema, and the generator refuses what it cannot say."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from queuectl.contract.crd import DEFINITIONS, Definition, SchemaError, schema
from queuectl.contract.schema import Metadata, Part
from tests.contract.structural import faults


def openapi(definition: Definition) -> dict[str, Any]:
    found: dict[str, Any] = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.kind)
def test_is_structural(definition: Definition) -> None:
    assert list(faults(openapi(definition))) == []


def test_the_check_itself_finds_faults() -> None:
    broken = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "title": "Spec",
                "required": ["gone"],
                "properties": {
                    "free": {"type": "string", "pattern": r"\d+"},
                    "many": {"type": "array", "items": {"type": "null"}},
                    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "keyed": {
                        "type": "array",
                        "maxItems": 2,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
                    },
                    "mode": {"type": "string", "enum": ["A"], "default": "B"},
                },
                "x-kubernetes-validations": [{"rule": "true", "message": "m", "fieldPath": ".other"}],
            }
        },
    }
    found = "\n".join(faults(broken))
    for expected in (
        ".spec: ['title']", ".spec: required but unknown: ['gone']", ".spec.free: unbounded", "not plain RE2",
        "not anchored", ".spec.many: unbounded", ".spec.many[]: type null", ".spec.maybe: type None",
        ".spec.keyed: key name must be required", "'B' is none of", ".spec: fieldPath .other",
    ):  # fmt: skip
        assert expected in found


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.kind)
def test_names_and_columns(definition: Definition) -> None:
    spec = definition.manifest()["spec"]
    assert spec["group"] == "queuectl.io"
    assert spec["names"]["categories"] == ["queuectl"]
    (version,) = spec["versions"]
    assert version["name"] == "v1alpha1"
    for column in version["additionalPrinterColumns"]:
        where = column["jsonPath"].split("[")[0].split(".")[1:]
        node = openapi(definition)
        if where[0] == "metadata":
            continue
        for step in where:
            node = node["properties"][step]
        shown = "string" if node.get("type") in ("object", "array") else node.get("type")  # as JSON
        assert column["type"] == shown or "[" in column["jsonPath"]


def test_a_status_has_no_defaults() -> None:
    """Unset and 0 differ; and a default in a status would be written into objects that nobody has looked at."""

    def defaults(node: Any) -> bool:
        return isinstance(node, dict) and ("default" in node or any(defaults(child) for child in node.values()))

    for definition in DEFINITIONS:
        if definition.status:
            assert not defaults(openapi(definition)["properties"]["status"])


def test_the_spec_defaults_are_those_of_the_models() -> None:
    queue = openapi(DEFINITIONS[0])["properties"]["spec"]
    assert queue["default"] == {}
    filled = {name: child["default"] for name, child in queue["properties"].items() if "default" in child}
    assert filled == {"weight": 1, "priority": 0, "state": "Open"}


class _Inner(Part):
    itself: _Inner | None = None


class _Union(Part):
    field: int | str


class _Map(Part):
    field: dict[str, int]


class _Exclusive(Part):
    field: Annotated[int, Field(gt=0)]


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (_Inner, "contains itself"),
        (_Union, "a union of 2 types"),
        (_Map, "a map without bound"),
        (_Exclusive, "exclusiveMinimum has no place"),
    ],
)
def test_refuses_what_it_cannot_say(inner: type[Part], message: str) -> None:
    class Outer(Part):
        metadata: Metadata
        spec: inner  # type: ignore[valid-type]  # a model made at run time

    Outer.model_rebuild(_types_namespace={"inner": inner, "Metadata": Metadata})
    with pytest.raises(SchemaError, match=message):
        schema(Outer)
