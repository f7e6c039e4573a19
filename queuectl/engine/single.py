"""All members of a group on one node: what most gangs need, since most are small.

The terms of the objective are known exactly for a node (nothing below it can be touched more or less), so the best one is
found by comparing columns. No tally of the shape is needed: whether a node holds all members is one comparison a
resource, where counting how many it holds is a division. And mostly a few domains are looked at, not the cluster: while
nothing wholly free is broken into, what is left over in the coarsest domain decides first.
"""

from __future__ import annotations

import numpy as np

from queuectl.engine.fleet import least
from queuectl.engine.request import Zone
from queuectl.engine.rooms import MOST_PODS, Rooms
from queuectl.engine.sums import Column
from queuectl.model.gangs import Shape


class Single:
    """The question for the best node: ``count`` pods of a shape that take ``taken`` GPUs, in named domains of some levels.

    With a ``zone``, only nodes in it are looked at.
    """

    def __init__(
        self, rooms: Rooms, shape: Shape, count: int, taken: int, named: set[int], zone: Zone | None = None
    ) -> None:
        self._rooms, self._fleet = rooms, rooms.fleet
        fleet = rooms.fleet
        self._wants = [(name, least(amount * count)) for name, amount in shape.requests]
        self._possible = len(self._wants) > 0 and count <= MOST_PODS
        for name, amount in self._wants:
            self._possible = self._possible and amount <= fleet.largest.get(name, 0)
        self._taken = taken
        if self._possible:
            self._suited = rooms.filters.mask(shape)
            if zone is not None:
                self._suited = self._suited & rooms.filters.zone(zone)
            self._named = [level for level in named if not fleet.complete[level]]
            self._free, self._installed = rooms.fleet.gpus_free, rooms.fleet.gpus

    def node(self, within: range) -> int | None:
        """The row of these with the least objective, the first of those equal; None if no row holds all the pods.

        O(rows of a few domains), but O(rows × (resources + levels)) when each node there is free and would be broken into.
        """
        if not self._possible:
            return None
        fleet = self._fleet
        if len(within) == len(fleet.tree.nodes) and len(fleet.starts) > 1:
            for coarse in self._rooms.fullest(self._taken, 0):
                if len(rows := self._unbroken(self._holding(fleet.rows_of(0, coarse)))):
                    return self._least(rows, breaking=False)
        rows = self._holding(within)
        if len(unbroken := self._unbroken(rows)):
            return self._least(unbroken, breaking=False)
        return self._least(rows, breaking=True) if len(rows) else None

    def _holding(self, within: range) -> Column:
        """The rows of a run that have room for all the pods."""
        fleet, part = self._fleet, slice(within.start, within.stop)
        fitting = self._suited[part] & fleet.usable[part]
        for name, amount in self._wants:
            fitting &= fleet.free[name][part] >= amount
        rows = fitting.nonzero()[0] + within.start
        for level in self._named:
            rows = rows[fleet.named[level][fleet.domain[level][rows]]]
        return rows

    def _unbroken(self, rows: Column) -> Column:
        """Those that break nothing wholly free: in use themselves, or filled to the last GPU in domains that are in use."""
        free, installed, taken = self._free, self._installed, self._taken
        idle = free.rows[rows]
        used = idle < installed.rows[rows]
        whole = used | (idle == taken)
        rows, used = rows[whole], used[whole]
        if np.count_nonzero(used) == len(rows):
            return rows
        for level, domain in enumerate(self._fleet.domain[:-1]):
            home = domain[rows]
            values = free.sums[level][home]
            kept = used | (values < installed.sums[level][home]) | (values <= taken)
            rows, used = rows[kept], used[kept]
        return rows

    def _least(self, rows: Column, *, breaking: bool) -> int:
        """The one of these rows with the least objective; of its terms, breakage counts where all are ``breaking`` something."""
        free, installed = self._free, self._installed
        for breaks in (True, False) if breaking else (False,):
            for level, domain in enumerate(self._fleet.domain):
                if len(rows) == 1:
                    return int(rows[0])
                home = domain[rows]
                values = free.sums[level][home]  # what is left over is this less what is taken, the same for all
                if breaks:
                    values = np.where((values == installed.sums[level][home]) & (values > self._taken), values, 0)
                rows = rows[values == np.minimum.reduce(values)]
        return int(rows[0])
