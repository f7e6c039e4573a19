"""Nodes and the levels (zone, rack, node ...) that group them into domains.

Nodes of some pools may have levels of their own. Then all nodes stand in one tree of all levels, and a level that is not of a
node's topology passes through: nodes that lack it alike lie together there, in no domain that anybody could ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from queuectl.model.resources import Amounts

NODE_LEVEL = "node"
HOSTNAME = "kubernetes.io/hostname"


class Taint(Struct, frozen=True, order=True):
    """A node's taint; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Node(Struct, frozen=True, kw_only=True):
    """A node as placement sees it. ``allocatable`` includes ``pods``; usable means ready and not cordoned."""

    name: str
    allocatable: Amounts
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True


class Level(Struct, frozen=True):
    """A topology level: nodes with the same value of the first present key, under the same parent, share a domain."""

    name: str
    keys: tuple[str, ...]


DEFAULT_LEVELS: tuple[Level, ...] = (Level(NODE_LEVEL, (HOSTNAME,)),)
DEFAULT_TOPOLOGY: Final = "default"
ABSENT: Final = "\0"  # in place of a domain's name, where a node's topology does not have the level


class Domains(Struct, frozen=True):
    """The domains of one level, in row order: domain ``i`` is the rows ``starts[i] .. starts[i + 1] - 1``.

    ``named[i]`` is false for the domain of a node that lies outside the level: it is alone there, because an unknown
    rack is never the same rack as another unknown one, and it never answers a gang that requires the level.
    """

    level: str
    starts: tuple[int, ...]
    names: tuple[str, ...]
    named: tuple[bool, ...]


class Tree(Struct, frozen=True):
    """Nodes numbered (rows) so that every domain of every level is a contiguous run; the last level is the node."""

    nodes: tuple[str, ...]
    levels: tuple[Domains, ...]


def path(node: Node, levels: tuple[Level, ...], own: tuple[Level, ...] | None = None) -> tuple[str | None, ...]:
    """The node's domain names, coarse to fine, without the node itself.

    Below a missing label everything is unknown (None): equal racks in unknown zones need not be the same rack. ``own`` are
    the levels of its topology, where ``levels`` are those of several; the name is ``ABSENT`` for one that is not its own.
    """
    labels = dict(node.labels)
    keys = {level.name: level.keys for level in own} if own is not None else None
    names: list[str | None] = []
    inside = True
    for level in levels[:-1]:
        if keys is not None and level.name not in keys:
            names.append(ABSENT)
            continue
        choices = level.keys if keys is None else keys[level.name]
        name = next((labels[key] for key in choices if key in labels), None) if inside else None
        inside = name is not None
        names.append(name)
    return tuple(names)


def merge(
    default: tuple[Level, ...], others: Iterable[tuple[str, tuple[Level, ...]]]
) -> tuple[tuple[Level, ...], tuple[str, ...]]:
    """All levels, coarse to fine as each topology has them, and the topologies that contradict those before them.

    ``others`` are (name, levels). A contradiction is one order here and the other there; such a topology takes no part. Of
    levels that no topology orders, those of the default come first, then those met first.
    """
    known = {level.name: level for level in default[:-1]}
    above = {level.name: {other.name for other in default[:place]} for place, level in enumerate(default[:-1])}
    refused: list[str] = []
    for topology, levels in others:
        trial = {name: set(names) for name, names in above.items()}
        for place, level in enumerate(levels[:-1]):
            trial.setdefault(level.name, set()).update(other.name for other in levels[:place])
        if _ordered(trial) is None:
            refused.append(topology)
        else:
            above = trial
            known = {**{level.name: level for level in levels[:-1]}, **known}
    order = _ordered(above) or []
    return (*(known[name] for name in order), default[-1]), tuple(refused)


def _ordered(above: dict[str, set[str]]) -> list[str] | None:
    """Names so that each comes after all above it, else in the order given; None where that goes round in a circle."""
    order: list[str] = []
    while len(order) < len(above):
        free = next((name for name, names in above.items() if name not in order and names <= set(order)), None)
        if free is None:
            return None
        order.append(free)
    return order


def arrange(
    nodes: Iterable[Node], levels: tuple[Level, ...], own: Callable[[Node], tuple[Level, ...] | None] = lambda _: None
) -> Tree:
    """The tree of ``nodes`` under ``levels`` (coarse to fine, node last). O(nodes × levels + sort). ``own`` as in ``path``."""
    # A node outside a level sorts after the named domains of the same parent and is its own domain: (True, its name).
    rows = sorted(
        (
            (
                *((name in (None, ABSENT), name or node.name) for name in path(node, levels, own(node))),
                (False, node.name),
            ),
            node.name,
        )
        for node in nodes
    )
    tables = []
    for depth, level in enumerate(levels):
        starts, names, named = [], [], []
        previous: tuple[tuple[bool, str], ...] | None = None
        for row, (key, _) in enumerate(rows):
            prefix = key[: depth + 1]
            if prefix != previous:
                previous = prefix
                starts.append(row)
                names.append(key[depth][1])
                named.append(not key[depth][0])
        tables.append(Domains(level.name, (*starts, len(rows)), tuple(names), tuple(named)))
    return Tree(tuple(name for _, name in rows), tuple(tables))
