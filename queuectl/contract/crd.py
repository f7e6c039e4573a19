"""CustomResourceDefinitions from our models: structural schema, rules, printer columns.

What the API server demands of a schema (apiextensions-apiserver, ``pkg/apiserver/schema/validation.go``) and pydantic
does not give: no references, no null, one type everywhere, no ``additionalProperties: false`` (unknown fields are pruned
or, with strict field validation, refused anyway). The flattener rewrites what it knows and raises on anything else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from queuectl.contract.home import GROUP
from queuectl.contract.schema import Part, Rule
from queuectl.contract.v1alpha1 import VERSION, PodGroup, Pool, Queue, Topology

Json = dict[str, Any]


class SchemaError(TypeError):
    """A model uses something that a structural schema cannot say; the message gives its path."""


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; ``wide`` ones only with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""

    def manifest(self) -> Json:
        """As additionalPrinterColumns wants it."""
        column = {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}
        return {key: value for key, value in column.items() if value} | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True)
class Definition:
    """One of our kinds, as its definition in the API server says it."""

    model: type[Part]
    plural: str
    scope: str
    columns: tuple[Column, ...]
    short: tuple[str, ...] = ()
    status: bool = True

    @property
    def kind(self) -> str:
        """The kind's name."""
        return self.model.__name__

    def manifest(self) -> Json:
        """The CustomResourceDefinition."""
        version: Json = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema(self.model)},
            "additionalPrinterColumns": [column.manifest() for column in self.columns],
        }
        if self.status:
            version["subresources"] = {"status": {}}
        names: Json = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.plural,
            "singular": self.kind.lower(),
            "categories": ["queuectl"],
        }
        if self.short:
            names["shortNames"] = list(self.short)
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": names,
                "conversion": {"strategy": "None"},
                "versions": [version],
            },
        }


def _condition(name: str) -> str:
    return f'.status.conditions[?(@.type=="{name}")].status'


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

QUEUES = Definition(
    Queue,
    "queues",
    "Cluster",
    (
        Column("Parent", ".spec.parent"),
        Column("Weight", ".spec.weight", "integer"),
        Column("State", ".spec.state"),
        Column("Active", _condition("Active")),
        Column("Pending", ".status.counts.pending", "integer", description="Gangs that wait"),
        Column("Admitted", ".status.counts.admitted", "integer", description="Gangs that are charged"),
        Column("Priority", ".spec.priority", "integer", wide=True),
        Column("Running", ".status.counts.running", "integer", wide=True),
        _AGE,
    ),
)
POD_GROUPS = Definition(
    PodGroup,
    "podgroups",
    "Namespaced",
    (
        Column("Queue", ".spec.queue"),
        Column(
            "Min", ".spec.minMember", "integer", description="Members that are released together; roles have their own"
        ),
        Column("Placed", _condition("Placed"), description="An admission is recorded"),
        Column("Running", _condition("Running")),
        Column("Finished", _condition("Finished")),
        Column("Reason", ".status.blocker.reason", description="What stands in the way first"),
        Column("Requeues", ".status.requeue.count", "integer", wide=True),
        Column("Message", ".status.blocker.message", wide=True),
        _AGE,
    ),
    short=("gang", "gangs"),
)
POOLS = Definition(
    Pool,
    "pools",
    "Cluster",
    (
        Column("Selector", ".spec.nodeSelector", description="Labels of its nodes; none: all nodes"),
        Column("Topology", ".spec.topology"),
        Column("Resources", ".spec.resources", description="Counted in shares; none: devices, cpu and memory"),
        _AGE,
    ),
    status=False,
)
TOPOLOGIES = Definition(
    Topology,
    "topologies",
    "Cluster",
    (Column("Levels", ".spec.levels[*].name", description="From coarse to fine"), _AGE),
    status=False,
)
DEFINITIONS = (QUEUES, POD_GROUPS, POOLS, TOPOLOGIES)


def schema(model: type[Part]) -> Json:
    """The structural schema of one of our kinds. Raises SchemaError where a model cannot be said in one."""
    document = model.model_json_schema(by_alias=True)
    root = _flatten(document, document.get("$defs", {}), model.__name__, ())
    properties = root["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string"}
    # Of metadata, only name and generateName may be restricted here.
    bound = properties["metadata"]["properties"]["name"]
    properties["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": bound["maxLength"]}},
    }
    required = [name for name in root.pop("required", []) if name != "metadata"]
    root = (
        {key: value for key, value in root.items() if key != "properties"}
        | ({"required": required} if required else {})
        | {"properties": properties}
    )
    if "status" in properties:
        _drop_defaults(properties["status"])
    _attach(root, model)
    return root


_KEPT = (  # in the order in which they are written
    "description", "type", "x-kubernetes-int-or-string", "anyOf", "format", "enum", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "minItems", "maxItems", "maxProperties", "default", "required", "properties",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "items",
)  # fmt: skip
_DROPPED = {"title", "$defs", "additionalProperties"}


def _flatten(node: Json, definitions: Json, path: str, above: tuple[str, ...]) -> Json:
    """``node`` without references, nulls and titles."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in above:
            raise SchemaError(f"{path}: {name} contains itself")
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _flatten(definitions[name] | rest, definitions, path, (*above, name))
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        arms = [arm for arm in node["anyOf"] if arm.get("type") != "null"]
        if len(arms) != 1:
            raise SchemaError(f"{path}: a union of {len(arms)} types")
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _flatten(arms[0] | rest, definitions, path, above)
    if unknown := set(node) - {*_KEPT} - _DROPPED:
        raise SchemaError(f"{path}: {', '.join(sorted(unknown))} has no place in a structural schema")
    if "type" not in node and "anyOf" not in node:
        raise SchemaError(f"{path}: no type")
    values = node.get("additionalProperties")
    if isinstance(values, dict) and "maxProperties" not in node:
        raise SchemaError(f"{path}: a map without bound; give it max_length, or list its entries by key instead")
    flat = {key: copy.deepcopy(node[key]) for key in _KEPT if key in node}
    if flat.get("default", ...) is None:
        del flat["default"]
    elif isinstance(flat.get("default"), dict):
        flat["default"] = {}  # the API server fills in the defaults inside
    if "properties" in flat:
        flat["properties"] = {
            name: _flatten(child, definitions, f"{path}.{name}", above)
            for name, child in flat["properties"].items()
            if not (path.endswith(".metadata") and name != "name")
        }
    if "items" in flat:
        flat["items"] = _flatten(flat["items"], definitions, f"{path}[]", above)
    if isinstance(values, dict):
        flat["additionalProperties"] = _flatten(values, definitions, f"{path}{{}}", above)
    return flat


def _drop_defaults(node: Json) -> None:
    """A status says what was written, nothing else: unset and 0 differ."""
    node.pop("default", None)
    for child in (*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])):
        _drop_defaults(child)


def _attach(node: Json, model: type[Part]) -> None:
    """Add the CEL of every model's rules at its own place."""
    if rules := [_cel(rule) for rule in model.rules if rule.cel]:
        node["x-kubernetes-validations"] = rules
    for name, field in model.model_fields.items():
        child = node["properties"].get(field.alias or to_camel(name))
        inner, listed = _inner(field.annotation)
        if inner is not None and child is not None and issubclass(inner, Part) and name != "metadata":
            _attach(child["items"] if listed else child, inner)


def _cel(rule: Rule) -> Json:
    return {
        "rule": rule.cel,
        "message": rule.message,
        "fieldPath": rule.path,
        "reason": "FieldValueInvalid",
    }


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside ``X``, ``X | None``, ``list[X]`` or ``Annotated[…]``, and whether it is a list's."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    listed = getattr(annotation, "__origin__", None) is list
    for argument in getattr(annotation, "__args__", ()):
        inner, deeper = _inner(argument)
        if inner is not None:
            return inner, listed or deeper
    return None, False
