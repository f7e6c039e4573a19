"""Who holds what on which node: the engine's view, turned round from gangs to nodes, for one resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from queuectl.engine.view import GangView, NodeView, View
from queuectl.model import gangs as model
from queuectl.model.gangs import Stage
from queuectl.model.resources import PODS, Amounts, show
from queuectl.serve import forms, objects
from queuectl.serve.slices import Steps

GANGS, NODES = 20, 100  # looked at from one step to the next
_LIVE = (Stage.RELEASED, Stage.BOUND, Stage.RUNNING)


class Occupants(Struct, frozen=True):
    """What a view does not tell of a gang: the name of its owner, its roles and record, and its pods."""

    owner: str
    gang: model.Gang | None
    members: list[model.Member]


def devices(nodes: Iterable[NodeView]) -> list[str]:
    """The resources that nodes have: devices first, most nodes first, then the others by name."""
    counted = Counter(name for node in nodes for name, amount in node.allocatable if amount and name != PODS)

    def order(name: str) -> tuple[bool, int, str]:
        device = "/" in name and not name.startswith("hugepages-")
        return not device, -counted[name] if device else 0, name

    return sorted(counted, key=order)


def occupancy(view: View, resource: str, occupants: Callable[[GangView], Occupants]) -> Steps[objects.Occupancy]:
    """The occupancy by domains, in steps. O(nodes + gangs × their nodes), and O(members) where a gang's pods differ.

    About 0.1 s for 10,000 nodes, and less than a millisecond from one step to the next.
    """
    parts: dict[str, list[objects.Part]] = {}
    known_of: dict[str, int] = {}  # what gangs hold of a node
    for number, gang in enumerate(view.gangs):
        if number % GANGS == 0:
            yield
        if not gang.nodes:
            continue
        known = occupants(gang)
        held = amounts(known, gang.nodes, resource)
        label = known.owner or gang.name
        for name, pods in gang.nodes:
            amount = held[name]
            known_of[name] = known_of.get(name, 0) + amount
            part = objects.Part(
                namespace=gang.namespace,
                name=gang.name,
                label=label,
                queue=gang.queue,
                pods=pods,
                amount=show(resource, amount),
            )
            parts.setdefault(name, []).append(part)
    blocks: dict[tuple[tuple[str, str], ...], _Block] = {}
    for number, node in enumerate(view.nodes):
        if number % NODES == 0:
            yield
        block = blocks.get(node.domains)
        if block is None:
            block = blocks[node.domains] = _Block()
        has, used = _of(node.allocatable, resource), _of(node.used, resource)
        free = max(0, has - used)
        block.has += has
        block.used += used
        if node.usable:
            block.free += free
        else:
            block.unusable += free
        block.nodes.append(
            objects.Host(
                name=node.name,
                usable=node.usable,
                status=forms.status(node),
                allocatable=show(resource, has),
                used=show(resource, used),
                free=show(resource, free),
                other=show(resource, max(0, used - known_of.get(node.name, 0))),
                parts=sorted(parts.get(node.name, ()), key=lambda part: (part.queue, part.namespace, part.name)),
            )
        )
    yield
    return objects.Occupancy(
        resource=resource,
        resources=[],
        allocatable=show(resource, sum(block.has for block in blocks.values())),
        used=show(resource, sum(block.used for block in blocks.values())),
        free=show(resource, sum(block.free for block in blocks.values())),
        unusable=show(resource, sum(block.unusable for block in blocks.values())),
        blocks=[
            objects.Block(
                domains=[objects.Domain(level=level, name=name) for level, name in domains],
                allocatable=show(resource, blocks[domains].has),
                used=show(resource, blocks[domains].used),
                free=show(resource, blocks[domains].free),
                nodes=blocks[domains].nodes,
            )
            for domains in sorted(blocks, key=lambda domains: (not domains, domains))
        ],
    )


def amounts(known: Occupants, charged: tuple[tuple[str, int], ...], resource: str) -> dict[str, int]:
    """What a gang holds of a resource on each node, in the resource's unit.

    Exact where all its pods ask for the same. Where its roles differ, its record tells which slots are on a node, and where
    extras or moved slots make it more or fewer than recorded, the pods there do.
    """
    gang, members = known.gang, known.members
    roles = gang.roles if gang is not None else ()
    shapes = [forms.shape(role, members) for role in roles]
    each = [0 if shape is None else _of(shape.requests, resource) for shape in shapes]
    if not each:
        each = [_of(member.shape.requests, resource) for member in members] or [0]
    if len(set(each)) == 1:
        return {name: pods * each[0] for name, pods in charged}
    slots = [amount for role, amount in zip(roles, each, strict=False) for _ in range(role.maximum)]
    recorded, count = Counter[str](), Counter[str]()
    for place in gang.record.places if gang is not None and gang.record is not None else ():
        recorded[place.node] += slots[place.slot] if place.slot < len(slots) else 0
        count[place.node] += 1
    there = Counter[str]()
    for member in members:
        node = member.node or member.pinned
        if node is not None and member.stage in _LIVE:
            there[node] += _of(member.shape.requests, resource)
    return {name: recorded[name] if count[name] == pods else there[name] for name, pods in charged}


class _Block(Struct):
    """Sums over the nodes of a block, in the resource's unit."""

    has: int = 0
    used: int = 0
    free: int = 0
    unusable: int = 0
    nodes: list[objects.Host] = field(default_factory=list)


def _of(vector: Amounts, resource: str) -> int:
    for name, amount in vector:
        if name == resource:
            return amount
    return 0
