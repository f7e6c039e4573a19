"""From what a scenario file says to the engine's nouns, by the same translation that wire objects go through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from queuectl.contract import cluster_scoped, pins
from queuectl.contract.foreign import Custom, Meta, PodSpec
from queuectl.contract.seats import LEADER, WORKER
from queuectl.contract.shapes import Shapes, vector
from queuectl.contract.v1alpha1 import TopologyConstraint, TopologySpec
from queuectl.drivers.replay import format as wire
from queuectl.drivers.replay.submission import Owner, Part, Submission
from queuectl.model import pools, queues, topology
from queuectl.model.quantity import QuantityError
from queuectl.model.resources import CPU, MEMORY, PODS
from queuectl.model.settings import Settings

# What a node has of cpu and memory where the file says nothing and somebody asks for it: as much as any pod may ask for.
UNLIMITED = {CPU: "1000000000", MEMORY: "8Pi"}
PODS_A_NODE = "110"  # the kubelet's default

_READ_WHOLE = ("nodeSelector", "tolerations", "affinity")  # of other fields, what matters is that they are there
_NOTHING = ": decides nothing about where a pod may run, or is misspelt; leave it out"


class BadSpecError(ValueError):
    """A pod's ``spec`` cannot be used; the message begins with the field."""


def node(spec: wire.Node, name: str, asked: Iterable[str]) -> topology.Node:
    """One node. ``asked`` are resources that some pod of the scenario requests."""
    allocatable = dict(spec.allocatable)
    allocatable.setdefault(PODS, PODS_A_NODE)
    for resource in asked:
        if resource in UNLIMITED:
            allocatable.setdefault(resource, UNLIMITED[resource])
    return topology.Node(
        name=name,
        allocatable=vector(allocatable),
        labels=tuple(sorted({topology.HOSTNAME: name, **spec.labels}.items())),
        taints=tuple(sorted(topology.Taint(taint.key, taint.value, taint.effect) for taint in spec.taints)),
        cordoned=spec.cordoned,
        ready=spec.ready,
    )


def node_names(spec: wire.Node) -> list[str]:
    """The nodes that one entry stands for."""
    return [spec.name] if spec.count is None else [f"{spec.name}{number}" for number in range(spec.count)]


def levels(spec: TopologySpec | None) -> tuple[topology.Level, ...]:
    """The levels, coarse to fine, the node level last; it alone where the file has no topology."""
    if spec is None:
        return topology.DEFAULT_LEVELS
    return cluster_scoped.levels(
        _custom("default", spec.model_dump(by_alias=True, exclude_none=True, include={"levels"}))
    )


def queue(spec: wire.Queue) -> queues.Queue:
    """A queue."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cluster_scoped.queue(_custom(body.pop("name"), body))


def pool(spec: wire.Pool) -> pools.Pool:
    """A pool."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cluster_scoped.pool(_custom(body.pop("name"), body))


def submission(spec: wire.Gang, shapes: Shapes) -> Submission:
    """A gang. Raises BadSpecError."""
    if spec.roles:
        parts = tuple(
            _part(shapes, role.name, role.size, role.min, role.pod, role.spec, role.topology) for role in spec.roles
        )
    elif spec.kind == Owner.LWS:
        sizes = ((LEADER, 1), (WORKER, (spec.size or 1) - 1))
        parts = tuple(_part(shapes, role, size, None, spec.pod, spec.spec, None) for role, size in sizes if size)
    else:
        parts = (_part(shapes, "", spec.size or 1, spec.min, spec.pod, spec.spec, None),)
    return Submission(
        name=spec.name,
        namespace=spec.namespace,
        queue=spec.queue,
        owner=Owner(spec.kind),
        parts=parts,
        required=spec.topology.required if spec.topology else None,
        preferred=spec.topology.preferred if spec.topology else None,
        priority=spec.priority,
        gates=tuple(sorted(set(spec.gates))),
        run=spec.run,
        suspended=spec.state == "Suspended",
        hold=spec.hold,
        best_effort=spec.best_effort,
        preemptible=spec.kind == Owner.PODS and bool(spec.preemptible),
    )


def settings(spec: wire.Settings) -> Settings:
    """The engine's settings, defaults where the file says nothing."""
    return msgspec.structs.replace(Settings(), **spec.model_dump(exclude_none=True))


def pod_spec(pod: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a pod as Kubernetes knows it: one container with these requests, and whatever ``spec`` adds."""
    container = {"name": "main", "image": "registry.example.com/none"}
    resources = {"resources": {"requests": dict(pod), "limits": dict(pod)}} if pod else {}
    return {"containers": [{**container, **resources}], **spec}


def _part(
    shapes: Shapes,
    role: str,
    size: int,
    minimum: int | None,
    pod: Mapping[str, str],
    spec: Mapping[str, Any],
    levels: TopologyConstraint | None,
) -> Part:
    try:
        read = msgspec.convert(pod_spec(pod, spec), PodSpec)
        known = msgspec.to_builtins(read)
        for key, value in spec.items():
            if key not in known:
                raise BadSpecError(f".spec.{key}{_NOTHING}")
            if key in _READ_WHOLE:
                _no_more(f".{key}", value, known[key])
        shape = shapes.of(read)
    except (msgspec.ValidationError, QuantityError) as problem:
        raise BadSpecError(f".spec: {problem}") from None
    affinity = read.affinity.node_affinity if read.affinity is not None else None
    return Part(
        role=role,
        size=size,
        minimum=size if minimum is None else minimum,
        shape=shape,
        required=levels.required if levels else None,
        preferred=levels.preferred if levels else None,
        pinnable=affinity is None or affinity.required is None or pins.pinnable(affinity.required),
    )


def _no_more(path: str, given: object, read: object) -> None:
    """Whether all that was given was read. Raises BadSpecError naming what was not, else it would mean nothing."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key not in read:
                raise BadSpecError(f".spec{path}.{key}{_NOTHING}")
            _no_more(f"{path}.{key}", value, read[key])
    elif isinstance(given, list) and isinstance(read, (list, tuple)):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            _no_more(f"{path}[{number}]", one, other)


def _custom(name: str, spec: dict[str, Any]) -> Custom:
    return Custom(metadata=Meta(name=name, uid=f"queue-{name}"), spec=spec)
