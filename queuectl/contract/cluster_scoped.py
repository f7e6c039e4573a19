"""From cluster-scoped objects on the wire to the engine's nouns: nodes, queues, pools, levels. Pure, as ``translate``."""

from __future__ import annotations

from typing import Any

from queuectl.contract.foreign import Custom, Node
from queuectl.contract.shapes import vector
from queuectl.contract.times import from_wire
from queuectl.contract.translate import invalid, raw
from queuectl.contract.v1alpha1 import InvalidObject, validate
from queuectl.model import pools, queues, topology
from queuectl.model.quantity import QuantityError, parse
from queuectl.model.resources import unit


def node(wire: Node) -> topology.Node:
    """A node. Raises QuantityError when its allocatable cannot be read (the API server never stores such a node)."""
    conditions = {c.type: c.status for c in wire.status.conditions or ()}
    return topology.Node(
        name=wire.metadata.name,
        allocatable=vector(wire.status.allocatable),
        labels=tuple(sorted((wire.metadata.labels or {}).items())),
        taints=tuple(sorted(topology.Taint(t.key, t.value or "", t.effect) for t in wire.spec.taints or ())),
        cordoned=wire.spec.unschedulable,
        ready=conditions.get("Ready") == "True",
    )


def queue(custom: Custom) -> queues.Queue:
    """A queue; one that cannot be used carries the reason and takes part in nothing."""
    meta = custom.metadata
    common: dict[str, Any] = {"name": meta.name, "uid": meta.uid, "created": from_wire(meta.creation_timestamp)}
    try:
        spec = validate("Queue", raw(custom, "Queue")).spec
        entries = tuple(
            queues.Entry(entry.name, entry.pool, _amount(entry.name, entry.quota), _amount(entry.name, entry.limit))
            for entry in sorted(spec.resources or (), key=lambda entry: (entry.name, entry.pool))
        )
    except (InvalidObject, QuantityError) as problem:
        return queues.Queue(**common, blocked=(invalid(str(problem)),))
    return queues.Queue(
        **common,
        parent=spec.parent or None,
        weight=spec.weight,
        priority=spec.priority,
        entries=entries,
        state=queues.QueueState(spec.state),
        deleting=meta.deletion_timestamp is not None,
    )


def _amount(name: str, quantity: object) -> int | None:
    return None if quantity is None else parse(str(quantity), unit(name))


def pool(custom: Custom) -> pools.Pool:
    """A pool. Raises InvalidObject."""
    spec = validate("Pool", raw(custom, "Pool")).spec
    return pools.Pool(
        name=custom.metadata.name,
        selector=tuple(sorted(spec.node_selector.items())),
        resources=tuple(sorted(spec.resources)),
        topology=spec.topology,
    )


def levels(custom: Custom) -> tuple[topology.Level, ...]:
    """The levels of a Topology, the node level always last. Raises InvalidObject."""
    wire = validate("Topology", raw(custom, "Topology"))
    found = tuple(topology.Level(level.name, tuple(level.keys)) for level in wire.spec.levels)
    return (*(level for level in found if level.name != topology.NODE_LEVEL), *topology.DEFAULT_LEVELS)
