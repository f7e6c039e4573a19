"""Nodes and the levels (zone, rack, node ...) that group them into domains."""

from __future__ import annotations

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
