"""Who holds what on which node: the engine's view, turned round from gangs to nodes, for one resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from queuectl.engine.view import GangView, NodeView, View
from queuectl.model import gangs as model
from queuectl.model.gangs import Stage
from queuectl.model.resources import PODS, show
from queuectl.serve import forms, objects

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


def occupancy(view: View, resource: str, occupants: Callable[[GangView], Occupants]) -> objects.Occupancy:
    """The occupancy by domains. O(nodes + gangs × their nodes), and O(members) where a gang's pods differ."""
    parts: dict[str, list[tuple[int, objects.Part]]] = {}
    for gang in sorted(view.gangs, key=lambda gang: (gang.queue, gang.namespace, gang.name, gang.uid)):
        if not gang.nodes:
            continue
        known = occupants(gang)
        held = amounts(known, gang.nodes, resource)
        for name, pods in gang.nodes:
            part = objects.Part(
                namespace=gang.namespace,
                name=gang.name,
                label=known.owner or gang.name,
                queue=gang.queue,
                pods=pods,
                amount=show(resource, held[name]),
            )
            parts.setdefault(name, []).append((held[name], part))
    blocks: dict[tuple[tuple[str, str], ...], list[NodeView]] = {}
    for node in view.nodes:
        blocks.setdefault(node.domains, []).append(node)
    has, used, free, unusable = 0, 0, 0, 0
    for node in view.nodes:
        one = _figures(node, resource)
        has, used = has + one.has, used + one.used
        free, unusable = free + one.free * node.usable, unusable + one.free * (not node.usable)
    return objects.Occupancy(
        resource=resource,
        resources=[],
        allocatable=show(resource, has),
        used=show(resource, used),
        free=show(resource, free),
        unusable=show(resource, unusable),
        blocks=[
            _block(domains, blocks[domains], resource, parts)
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
    each = [_of(forms.shape(role, members), resource) for role in roles]
    if not each:
        each = [_of(member.shape, resource) for member in members] or [0]
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
            there[node] += _of(member.shape, resource)
    return {name: recorded[name] if count[name] == pods else there[name] for name, pods in charged}


class _Figures(Struct, frozen=True):
    has: int
    used: int
    free: int


def _figures(node: NodeView, resource: str) -> _Figures:
    has, used = dict(node.allocatable).get(resource, 0), dict(node.used).get(resource, 0)
    return _Figures(has, used, max(0, has - used))


def _of(shape: model.Shape | None, resource: str) -> int:
    return dict(shape.requests).get(resource, 0) if shape is not None else 0


def _block(
    domains: tuple[tuple[str, str], ...],
    nodes: list[NodeView],
    resource: str,
    parts: dict[str, list[tuple[int, objects.Part]]],
) -> objects.Block:
    figures = [_figures(node, resource) for node in nodes]
    return objects.Block(
        domains=[objects.Domain(level=level, name=name) for level, name in domains],
        allocatable=show(resource, sum(one.has for one in figures)),
        used=show(resource, sum(one.used for one in figures)),
        free=show(resource, sum(one.free for node, one in zip(nodes, figures, strict=True) if node.usable)),
        nodes=[
            objects.Host(
                name=node.name,
                usable=node.usable,
                allocatable=show(resource, one.has),
                used=show(resource, one.used),
                free=show(resource, one.free),
                other=show(resource, max(0, one.used - sum(amount for amount, _ in parts.get(node.name, ())))),
                parts=[part for _, part in parts.get(node.name, ())],
            )
            for node, one in zip(nodes, figures, strict=True)
        ],
    )
