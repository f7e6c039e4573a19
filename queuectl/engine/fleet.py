"""The nodes: one row each, one column a resource, and the one ledger of what is used on them.

Usage is kept by node *name*, so a charge may come before its node and outlive it; rows exist only for nodes that were
seen. The ledger counts in exact integers, however large; columns show them within a bound. ``touched`` holds when each row
changed last, so that derived tables catch up instead of starting over.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from queuectl.engine.pools import Pools
from queuectl.engine.sums import Column, Sums
from queuectl.model.pools import Pool
from queuectl.model.resources import GPU, Amounts
from queuectl.model.topology import DEFAULT_LEVELS, DEFAULT_TOPOLOGY, Level, Node, Tree, arrange, merge, path

Flags = NDArray[np.bool_]

_RECENT = 64  # ticks whose rows are known without looking at all of them
MOST_GPUS = 2**34  # GPU units a node (17 million devices): what the objective's terms hold for 10,000 nodes (curves.py)
BOUND = 2**62  # columns stay within ± this: amounts near 2^63, which anybody may ask for, must not wrap them around


class Fleet:
    """Capacity and use of every node. Rows follow the tree and are renumbered (``era``) when its shape changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.capacity: dict[str, int] = {}  # Σ allocatable of the nodes seen: the denominator of every share
        self.largest: dict[str, int] = {}  # the most that any node has had allocatable since rows were renumbered
        self.pools = Pools()
        self.topologies: dict[str, tuple[Level, ...]] = {}
        self.levels: tuple[Level, ...] = DEFAULT_LEVELS  # of all topologies that apply, as of the last ``refresh``
        self.contradicting: tuple[str, ...] = ()  # topologies that cannot apply together with others
        self.tree: Tree = arrange((), DEFAULT_LEVELS)
        self.row: dict[str, int] = {}
        self.free: dict[str, Column] = {}
        self.allocatable: dict[str, Column] = {}
        self.gpus_free = Sums(
            np.zeros(0, np.int64), [np.zeros(0, np.int64)], []
        )  # of usable nodes, at most MOST_GPUS each
        self.gpus = Sums(np.zeros(0, np.int64), [np.zeros(0, np.int64)], [])  # the same installed
        self.usable: Flags = np.zeros(0, np.bool_)
        self.cordoned: Flags = np.zeros(0, np.bool_)
        self.domain: list[Column] = []  # per level: row -> domain
        self.starts: list[Column] = []  # per level: first row of every domain
        self.first: list[list[Column]] = []  # per level and level: the first domain of the second in each of the first
        self.named: list[Flags] = []
        self.complete: list[bool] = []  # per level: whether all of its domains are named
        self.era = 0  # rows renumbered
        self.edition = 0  # labels or taints of some node changed: masks are void
        self.revision = 0  # some node was changed by the cluster, not by a charge
        self.ticks = 0  # counts the changes of rows; only ever compared
        self.touched: Column = np.zeros(0, np.int64)  # per row, ``ticks`` at its last change
        self.stirred: list[int] = []  # per coarsest domain, ``ticks`` at the last change of one of its rows
        self._home: list[int] = []  # row -> coarsest domain
        self._recent: deque[int] = deque(maxlen=_RECENT)  # the rows of the last ticks
        self.gained: set[str] = set()  # nodes with more room than before, until a decision has looked at them
        self._own: dict[str, tuple[Level, ...]] = {}  # pool -> its levels, where they are not the default ones
        self._has: dict[str, dict[str, int]] = {}  # node -> allocatable, to look up in
        self._stale = True
        self._relevel = False  # topologies, or which pools have them, have changed

    def see(self, node: Node) -> None:
        """Take in a node. O(resources), unless labels or taints changed (masks) or its domains did (all rows)."""
        old = self.nodes.get(node.name)
        if old == node:
            return
        self.nodes[node.name] = node
        self._has[node.name] = dict(node.allocatable)
        if self.pools:
            self.pools.see(node, old, charged=node.name in self.used)
        self.revision += 1
        self.gained.add(node.name)
        for name, amount in node.allocatable:
            self.capacity[name] = self.capacity.get(name, 0) + amount
        if old is None:
            self._stale = True
            return
        self._shrink(old)
        elsewhere = old.labels != node.labels if self._own else path(old, self.levels) != path(node, self.levels)
        if elsewhere or any(name not in self.free for name, _ in node.allocatable):
            self._stale = True
        elif not self._stale:
            if (old.labels, old.taints) != (node.labels, node.taints):
                self.edition += 1
            row = self.row[node.name]
            self._fill(row, node)
            self.gpus.put(row, self._gpus(self.allocatable, row))
            self._touch(row)

    def lose(self, name: str) -> None:
        """A node is gone; what is charged to its name stays until its pods are gone too."""
        if (old := self.nodes.pop(name, None)) is not None:
            del self._has[name]
            if self.pools:
                self.pools.lose(old, charged=name in self.used)
            self._shrink(old)
            self.revision += 1
            self.gained.discard(name)
            self._stale = True

    def set_levels(self, topology: str, levels: tuple[Level, ...] | None) -> None:
        """A topology has these levels, or is gone (None): the next ``refresh`` renumbers all rows if it applies anywhere."""
        if levels == self.topologies.get(topology):
            return
        if levels is None:
            del self.topologies[topology]
        else:
            self.topologies[topology] = levels
        self.revision += 1
        self.gained.update(self.nodes)
        self._relevel = True

    def set_pool(self, name: str, pool: Pool | None) -> None:
        """A pool is declared so, or gone (None): the next ``refresh`` sorts the nodes anew."""
        if self.pools.drop(name) if pool is None else self.pools.declare(pool):
            self.revision += 1
            self.gained.update(self.nodes)
            self._relevel = True

    def own_levels(self, node: Node) -> tuple[Level, ...] | None:
        """The levels of a node's topology: that of the first of its pools by name that has another than the default.

        None while all nodes have the same.
        """
        if not self._own:
            return None
        pools = self.pools.of.get(node.name, ())
        found = next((self._own[pool] for pool in pools if pool in self._own), None)
        return self.topologies.get(DEFAULT_TOPOLOGY, DEFAULT_LEVELS) if found is None else found

    def charge(self, name: str, requests: Amounts, count: int, *, undo: bool = False) -> None:
        """Use ``count`` times ``requests`` on a node (negative: give back). O(resources).

        ``undo`` takes back a trial: nobody has gained anything by it.
        """
        used = self.used.setdefault(name, {})
        row, has = self.row.get(name), self._has.get(name, {})
        for resource, amount in requests:
            total = used.get(resource, 0) + amount * count
            if total:
                used[resource] = total
            else:
                used.pop(resource, None)
            if row is not None and (column := self.free.get(resource)) is not None:
                have = has.get(resource, 0)
                column[row] = have - total if have <= BOUND >= total else _free(have, total)
        if not used:
            del self.used[name]
        if row is not None:
            self._touch(row)
            if count < 0 and not undo:
                self.gained.add(name)

    def fits(self, name: str, requests: Amounts, count: int = 1) -> bool:
        """Whether a seen node has room for ``count`` times ``requests`` now."""
        if name not in self.nodes:
            return False
        allocatable, used = self._has[name], self.used.get(name, {})
        return all(
            used.get(resource, 0) + amount * count <= allocatable.get(resource, 0) for resource, amount in requests
        )

    def holds(self, name: str, requests: Amounts) -> int:
        """How many times a seen node has room for ``requests``, which must not be empty, now. O(resources)."""
        allocatable, used = self._has[name], self.used.get(name, {})
        free = ((allocatable.get(resource, 0) - used.get(resource, 0)) // amount for resource, amount in requests)
        return max(min(free), 0)

    def refresh(self) -> bool:
        """Renumber the rows if the tree changed; true when it did. O(nodes × (levels + resources))."""
        if self.pools.renew(self.nodes.values()):
            self._stale = True  # masks are void, what was shown of nodes too, and their levels may be others
        if self._relevel:
            self._merge_levels()
        if not self._stale:
            return False
        self._stale = False
        self.tree = arrange(self.nodes.values(), self.levels, self.own_levels)
        rows = len(self.tree.nodes)
        self.row = {name: row for row, name in enumerate(self.tree.nodes)}
        resources = sorted({name for node in self.nodes.values() for name, _ in node.allocatable} | {GPU})
        self.free = {name: np.zeros(rows, np.int64) for name in resources}
        self.allocatable = {name: np.zeros(rows, np.int64) for name in resources}
        self.usable, self.cordoned = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        self.largest.clear()
        for name, row in self.row.items():
            self._fill(row, self.nodes[name])
        self.starts = [np.array(level.starts[:-1], np.int64) for level in self.tree.levels]
        self.named = [np.array(level.named, np.bool_) for level in self.tree.levels]
        self.complete = [all(level.named) for level in self.tree.levels]
        self.domain = [
            np.repeat(np.arange(len(level.names)), np.diff(level.starts)).astype(np.int64) for level in self.tree.levels
        ]
        self.first = [[np.searchsorted(finer, coarse) for finer in self.starts] for coarse in self.starts]
        self.era += 1
        self.edition += 1
        self.touched = np.zeros(rows, np.int64)
        self.stirred = [0] * len(self.starts[0])
        homes = [domain.tolist() for domain in self.domain]
        self._home = homes[0]
        self.gpus_free, self.gpus = (
            Sums(np.clip(columns[GPU], 0, MOST_GPUS) * self.usable, self.starts, homes)
            for columns in (self.free, self.allocatable)
        )
        return True

    def _merge_levels(self) -> None:
        self._relevel = False
        pools = self.pools.pools.values()
        named = sorted({pool.topology for pool in pools} & self.topologies.keys() - {DEFAULT_TOPOLOGY})
        default = self.topologies.get(DEFAULT_TOPOLOGY, DEFAULT_LEVELS)
        levels, self.contradicting = merge(default, [(name, self.topologies[name]) for name in named])
        usable = {name for name in named if name not in self.contradicting}
        own = {pool.name: self.topologies[pool.topology] for pool in pools if pool.topology in usable}
        if (levels, own) != (self.levels, self._own) or own:
            self.levels, self._own = levels, own
            self._stale = True

    def rows_of(self, level: int, domain: int) -> range:
        """The rows of a domain; level -1 is the whole cluster."""
        if level < 0:
            return range(len(self.tree.nodes))
        starts = self.tree.levels[level].starts
        return range(starts[domain], starts[domain + 1])

    def inside(self, level: int, domain: int, below: int) -> range:
        """The domains of a finer level, or of this one, inside a domain."""
        first = self.first[level][below]
        end = len(self.starts[below]) if domain + 1 == len(first) else int(first[domain + 1])
        return range(int(first[domain]), end)

    def changed(self, since: int) -> Column:
        """The rows changed after ``ticks`` was ``since``, each once; not across eras. O(changes) if few, else O(nodes)."""
        changes = self.ticks - since
        if changes <= len(self._recent):
            return np.array(list(set(islice(reversed(self._recent), changes))), np.int64)
        return (self.touched > since).nonzero()[0]

    def _fill(self, row: int, node: Node) -> None:
        used, has = self.used.get(node.name, {}), self._has[node.name]
        for name, amount in node.allocatable:
            self.largest[name] = max(amount, self.largest.get(name, 0))
        for name, column in self.allocatable.items():
            column[row] = min(has.get(name, 0), BOUND)
            self.free[name][row] = _free(has.get(name, 0), used.get(name, 0))
        self.usable[row] = node.ready and not node.cordoned
        self.cordoned[row] = node.cordoned

    def _gpus(self, columns: dict[str, Column], row: int) -> int:
        return min(max(columns[GPU].item(row), 0), MOST_GPUS) if self.usable[row] else 0

    def _touch(self, row: int) -> None:
        self.ticks += 1
        self.gpus_free.put(row, self._gpus(self.free, row))
        self.touched[row] = self.ticks
        self.stirred[self._home[row]] = self.ticks
        self._recent.append(row)

    def _shrink(self, node: Node) -> None:
        for name, amount in node.allocatable:
            self.capacity[name] -= amount
            if not self.capacity[name]:
                del self.capacity[name]


def _free(allocatable: int, used: int) -> int:
    """What a column shows as free: exact, unless more than ``BOUND`` is used, where only that nothing is free matters."""
    return max(min(allocatable, BOUND) - used, -BOUND)


def least(amount: int) -> int:
    """An amount as columns can be compared with and divided by: what exceeds every column still does."""
    return min(amount, BOUND + 1)


def total(column: Column) -> int:
    """The exact sum of a column of amounts ≥ 0, which may exceed an int64. O(rows)."""
    if column.max(initial=0) <= BOUND // max(len(column), 1):
        return int(column.sum())
    high, low = column >> 31, column & (2**31 - 1)
    return (int(high.sum()) << 31) + int(low.sum())
