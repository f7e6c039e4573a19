"""Every possible placement of a small gang on a small tree, and the objective of engine.md §4 computed from its text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from queuectl.engine.request import Fit, Request
from queuectl.model.gangs import Shape
from queuectl.model.resources import GPU, Amounts
from queuectl.model.topology import Level, Node, path

Counts = dict[str, int]


def capacity(node: Node) -> dict[str, int]:
    """What a usable node offers."""
    return dict(node.allocatable) if node.ready and not node.cordoned else {}


def domains(node: Node, levels: tuple[Level, ...]) -> tuple[tuple[str, ...], ...]:
    """The node's domain at every level, named by the way down to it; a node outside a level is alone there."""
    found: list[tuple[str, ...]] = []
    way: tuple[str, ...] = ()
    for name in path(node, levels):
        way = (*way, f"+{name}" if name is not None else f"-{node.name}")
        found.append(way)
    return (*found, (*way, f"+{node.name}"))


def objective(
    placed: list[Counts], request: Request, nodes: list[Node], used: dict[str, Amounts], levels: tuple[Level, ...]
) -> tuple[int, ...]:
    """Domains touched − 1, breakage, leftover; each coarse to fine."""
    home = {node.name: domains(node, levels) for node in nodes}
    free = {node.name: max(0, capacity(node).get(GPU, 0) - dict(used.get(node.name, ())).get(GPU, 0)) for node in nodes}
    installed = {node.name: capacity(node).get(GPU, 0) for node in nodes}
    taken: Counts = {}
    for counts, group in zip(placed, request.groups, strict=True):
        for name, count in counts.items():
            taken[name] = taken.get(name, 0) + count * dict(group.shape.requests).get(GPU, 0)
    touched, broken, left = [], [], []
    for depth in range(len(levels)):
        inside: dict[tuple[str, ...], list[str]] = {}
        for name, where in home.items():
            inside.setdefault(where[depth], []).append(name)
        reached = {home[name][depth] for name in taken}
        touched.append(len(reached) - 1)
        sums = [
            (
                sum(free[one] for one in inside[way]),
                sum(installed[one] for one in inside[way]),
                sum(taken.get(one, 0) for one in inside[way]),
            )
            for way in reached
        ]
        broken.append(sum(have for idle, have, out in sums if idle == have > 0 and out < idle))
        left.append(sum(idle - out for idle, _, out in sums))
    return (*touched, *broken, *left)


def placements(
    request: Request, nodes: list[Node], used: dict[str, Amounts], levels: tuple[Level, ...]
) -> Iterator[list[Counts]]:
    """All ways to put the groups' members on nodes, within what is free and the levels required."""
    free = [
        {name: amount - dict(used.get(node.name, ())).get(name, 0) for name, amount in capacity(node).items()}
        for node in nodes
    ]

    def spreads(count: int, at: int) -> Iterator[tuple[int, ...]]:
        if at == len(nodes) - 1:
            yield (count,)
            return
        for here in range(count + 1):
            for rest in spreads(count - here, at + 1):
                yield (here, *rest)

    for choice in product(*(list(spreads(group.count, 0)) for group in request.groups)):
        if all(
            sum(
                counts[at] * dict(group.shape.requests).get(name, 0)
                for counts, group in zip(choice, request.groups, strict=True)
            )
            <= free[at].get(name, 0)
            for at in range(len(nodes))
            for name in {
                name
                for counts, group in zip(choice, request.groups, strict=True)
                if counts[at]
                for name, _ in group.shape.requests
            }
        ):
            placed = [{nodes[at].name: count for at, count in enumerate(counts) if count} for counts in choice]
            if _inside(placed, request, nodes, levels):
                yield placed


def _inside(placed: list[Counts], request: Request, nodes: list[Node], levels: tuple[Level, ...]) -> bool:
    home = {node.name: domains(node, levels) for node in nodes}
    depth = {level.name: number for number, level in enumerate(levels)}

    def one_domain(names: set[str], level: str | None) -> bool:
        if level is None:
            return True
        ways = {home[name][depth[level]] for name in names}
        return len(ways) == 1 and next(iter(ways))[-1].startswith("+")

    everybody = {name for counts in placed for name in counts}
    return one_domain(everybody, request.required) and all(
        one_domain(set(counts), group.required) for counts, group in zip(placed, request.groups, strict=True)
    )


def best(
    request: Request, nodes: list[Node], used: dict[str, Amounts], levels: tuple[Level, ...]
) -> tuple[int, ...] | None:
    """The least objective of all placements, None when there is none."""
    return min(
        (objective(one, request, nodes, used, levels) for one in placements(request, nodes, used, levels)), default=None
    )


def best_fit(shape: Shape, count: int, nodes: list[Node], used: dict[str, Amounts]) -> list[Counts] | None:
    """The naive variant: each member onto the fullest node that still takes it, whatever the topology."""
    left = {
        node.name: {
            name: amount - dict(used.get(node.name, ())).get(name, 0) for name, amount in capacity(node).items()
        }
        for node in nodes
    }
    found: Counts = {}
    for _ in range(count):
        fitting = [
            name for name, free in left.items() if all(free.get(one, 0) >= amount for one, amount in shape.requests)
        ]
        if not fitting:
            return None
        name = min(fitting, key=lambda one: (left[one].get(GPU, 0), one))
        for one, amount in shape.requests:
            left[name][one] -= amount
        found[name] = found.get(name, 0) + 1
    return [found]


def counts(fit: Fit) -> list[Counts]:
    """The engine's answer in the oracle's form."""
    return [dict(nodes) for nodes in fit.nodes]
