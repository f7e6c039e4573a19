"""Nodes and the levels (zone, rack, node ...) that group them into domains."""

from __future__ import annotations

from collections.abc import Iterable

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


def path(node: Node, levels: tuple[Level, ...]) -> tuple[str | None, ...]:
    """The node's domain names, coarse to fine, without the node itself.

    Below a missing label everything is unknown (None): equal racks in unknown zones need not be the same rack.
    """
    labels = dict(node.labels)
    names: list[str | None] = []
    for level in levels[:-1]:
        inside = not names or names[-1] is not None
        names.append(next((labels[key] for key in level.keys if key in labels), None) if inside else None)
    return tuple(names)


def arrange(nodes: Iterable[Node], levels: tuple[Level, ...]) -> Tree:
    """The tree of ``nodes`` under ``levels`` (coarse to fine, node last). O(nodes × levels + sort)."""
    # A node outside a level sorts after the named domains of the same parent and is its own domain: (True, its name).
    rows = sorted(
        ((*((name is None, name or node.name) for name in path(node, levels)), (False, node.name)), node.name)
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
