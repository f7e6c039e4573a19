"""Which nodes belong to which pools, and what each pool has.

Membership follows from the nodes' labels alone and is kept per node, so that whatever is charged to a node counts in each of
its pools and nothing is counted twice. Nobody pays for any of this while no pool was declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from queuectl.model.pools import OUTSIDE, Pool
from queuectl.model.topology import Node


class Kinship(Struct, frozen=True):
    """How pools lie to each other, by the nodes they have now; ``OUTSIDE``, where no pool is, has no kin.

    ``around`` has the pools that hold every node of a pool, itself included; ``across`` those that hold some of them only.
    """

    around: dict[str, tuple[str, ...]]
    across: dict[str, tuple[str, ...]]


class Pools:
    """All pools. True when there is one."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.of: dict[str, tuple[str, ...]] = {}  # node seen -> its pools by name
        self.capacity: dict[str, dict[str, int]] = {}  # Σ allocatable of a pool's nodes
        self.edition = 0  # pools were declared, changed or deleted
        self.version = 0  # … or some node of theirs was
        self.moved = False  # charges may count in other pools than they were counted in; ``State.recount`` ends it
        self._cells: Counter[tuple[str, ...]] = Counter()  # nodes that belong to just these pools
        self._kinship: Kinship | None = None
        self._stale = False

    def __bool__(self) -> bool:
        return bool(self.pools)

    def declare(self, pool: Pool) -> bool:
        """A pool exists so; whether that is news."""
        if self.pools.get(pool.name) == pool:
            return False
        self.pools[pool.name] = pool
        self._void()
        return True

    def drop(self, name: str) -> bool:
        """A pool is gone; whether that is news."""
        if self.pools.pop(name, None) is None:
            return False
        self._void()
        return True

    def see(self, node: Node, old: Node | None, *, charged: bool) -> None:
        """A node appeared or changed; ``charged``: something is charged to its name. O(pools × labels)."""
        if self._stale:
            return
        if old is not None and (old.labels, old.allocatable) == (node.labels, node.allocatable):
            return
        before, after = self.of.get(node.name, ()), self._members(node)
        self.version += 1
        if old is not None:
            self._count(before, old, -1)
        self._count(after, node, 1)
        self.of[node.name] = after
        self.moved |= charged and before != after

    def lose(self, node: Node, *, charged: bool) -> None:
        """A node is gone: what is still charged to its name counts in no pool any more."""
        if self._stale:
            return
        self.version += 1
        before = self.of.pop(node.name, ())
        self._count(before, node, -1)
        self.moved |= charged and bool(before)

    def renew(self, nodes: Iterable[Node]) -> bool:
        """Sort all nodes anew if pools were edited; true when they were. O(nodes × pools)."""
        if not self._stale:
            return False
        self._stale = False
        self.of, self.capacity, self._cells = {}, {name: {} for name in self.pools}, Counter()
        for node in nodes if self.pools else ():
            self.of[node.name] = self._members(node)
            self._count(self.of[node.name], node, 1)
        return True

    def size(self, name: str) -> int:
        """How many nodes a pool has, ``OUTSIDE`` how many are in none."""
        return sum(count for cell, count in self._cells.items() if name in cell or (name == OUTSIDE and not cell))

    @property
    def kinship(self) -> Kinship:
        """How pools lie to each other. O(1), O(pools² × distinct memberships) after a node moved."""
        if self._kinship is None:
            cells = [frozenset(cell) for cell in self._cells]
            around: dict[str, tuple[str, ...]] = {OUTSIDE: ()}
            across: dict[str, tuple[str, ...]] = {OUTSIDE: ()}
            for name in sorted(self.pools):
                mine = [cell for cell in cells if name in cell]
                kin = sorted(frozenset[str]().union(*mine)) if mine else [name]
                around[name] = tuple(other for other in kin if all(other in cell for cell in mine))
                across[name] = tuple(other for other in kin if other not in around[name])
            self._kinship = Kinship(around, across)
        return self._kinship

    def _void(self) -> None:
        self.edition += 1
        self.version += 1
        self.moved = self._stale = True
        self._kinship = None

    def _members(self, node: Node) -> tuple[str, ...]:
        labels: Mapping[str, str] = dict(node.labels)
        return tuple(name for name, pool in sorted(self.pools.items()) if pool.holds(labels))

    def _count(self, pools: tuple[str, ...], node: Node, sign: int) -> None:
        known = len(self._cells)
        self._cells[pools] += sign
        if not self._cells[pools]:
            del self._cells[pools]
        if len(self._cells) != known:
            self._kinship = None
        for pool in pools:
            capacity = self.capacity[pool]
            for name, amount in node.allocatable:
                if total := capacity.get(name, 0) + amount * sign:
                    capacity[name] = total
                else:
                    capacity.pop(name, None)
