"""Pools: named sets of nodes in which queues have quotas and limits of their own. A node may belong to several, or to none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from queuectl.model.resources import CPU, MEMORY
from queuectl.model.topology import DEFAULT_TOPOLOGY

ALL_POOLS: Final = "*"
"""In a queue, all nodes together, whatever pools they belong to."""
DEFAULT_POOL: Final = "default"
"""The one pool that there is while nobody has declared any: all nodes."""
OUTSIDE: Final = "-"
"""Stands for the nodes that belong to no pool; no pool can have this name."""


class Pool(Struct, frozen=True, kw_only=True):
    """A pool as it was declared. ``resources`` are those counted in shares there; empty: what ``counted`` says.

    ``topology`` names the levels of its nodes.
    """

    name: str
    selector: tuple[tuple[str, str], ...] = ()
    resources: tuple[str, ...] = ()
    topology: str = DEFAULT_TOPOLOGY

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels belongs to it: all of the selector must be there; an empty one takes every node."""
        return all(labels.get(key) == value for key, value in self.selector)

    def counts(self, resource: str) -> bool:
        """Whether a resource plays a part in shares in this pool."""
        return resource in self.resources if self.resources else counted(resource)


def counted(resource: str) -> bool:
    """Whether a resource plays a part in shares: cpu, memory and extended resources (shares.md, Definitions)."""
    return resource in (CPU, MEMORY) or ("/" in resource and not resource.startswith("hugepages-"))
