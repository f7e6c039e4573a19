"""All members of a group on one node: what most gangs need, since most are small.

The terms of the objective are known exactly for a node (nothing below it can be touched more or less), so the best one is
found by comparing columns. No tally of the shape is needed: whether a node holds all members is one comparison a
resource, where counting how many it holds is a division. And mostly a few domains are looked at, not the cluster: while
nothing wholly free is broken into, what is left over in the coarsest domain decides first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from queuectl.engine.fleet import Column, least
from queuectl.engine.rooms import MOST_PODS, Rooms
from queuectl.model.gangs import Shape

_LOOKS = 8  # at coarsest domains; many more would cost as much as all rows at once

_Wants = list[tuple[str, int]]  # what a node must have free of each resource


class Single:
    """The best node for all members of a group, on the fleet of ``rooms``."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms, self._fleet = rooms, rooms.fleet

    def node(self, shape: Shape, count: int, taken: int, within: range, named: set[int]) -> int | None:
        """The row with the least objective that holds ``count`` pods of ``taken`` GPUs together; the first of those equal.

        None if no row of ``within``, in named domains of the levels ``named``, holds them. O(rows of a few domains), but
        O(rows × (resources + levels)) when each node there is free and would be broken into.
        """
        fleet = self._fleet
        wants = [(name, least(amount * count)) for name, amount in shape.requests]
        if not wants or count > MOST_PODS or any(amount > fleet.largest.get(name, 0) for name, amount in wants):
            return None
        if len(within) == len(fleet.tree.nodes) and len(fleet.starts) > 1:
            for part in self._fullest(taken):
                rows = self._unbroken(self._holding(shape, wants, part, named), taken)
                if len(rows):
                    return self._least(rows, taken, breaking=False)
        rows = self._holding(shape, wants, within, named)
        if len(unbroken := self._unbroken(rows, taken)):
            return self._least(unbroken, taken, breaking=False)
        return self._least(rows, taken, breaking=True) if len(rows) else None

    def _fullest(self, taken: int) -> Iterator[range]:
        """The coarsest domains that have so much free, least first, as far as one alone has the least left over."""
        left = self._rooms.gpus_free().sums[0]
        order = np.argsort(left, kind="stable")
        order = order[np.searchsorted(left, taken, sorter=order) :][: _LOOKS + 1]
        values = left[order].tolist()
        for place, domain in enumerate(order[:_LOOKS].tolist()):
            if values[place : place + 2].count(values[place]) > 1:
                return  # what is left over further down decides between them
            yield self._fleet.rows_of(0, domain)

    def _holding(self, shape: Shape, wants: _Wants, within: range, named: set[int]) -> Column:
        """The rows of a run that have all of it free."""
        fleet, part = self._fleet, slice(within.start, within.stop)
        fitting = self._rooms.filters.mask(shape)[part] & fleet.usable[part]
        for name, amount in wants:
            fitting &= fleet.free[name][part] >= amount
        rows = fitting.nonzero()[0] + within.start
        for level in named:
            if not fleet.named[level].all():
                rows = rows[fleet.named[level][fleet.domain[level][rows]]]
        return rows

    def _unbroken(self, rows: Column, taken: int) -> Column:
        """Those of these rows that break nothing wholly free: in use themselves, or filled to the last GPU in domains in use."""
        free, installed = self._rooms.gpus_free(), self._rooms.gpus()
        idle = free.rows[rows]
        used = idle < installed.rows[rows]
        whole = used | (idle == taken)
        rows, used = rows[whole], used[whole]
        if used.all():
            return rows
        for level, domain in enumerate(self._fleet.domain[:-1]):
            home = domain[rows]
            values = free.sums[level][home]
            kept = used | (values < installed.sums[level][home]) | (values <= taken)
            rows, used = rows[kept], used[kept]
        return rows

    def _least(self, rows: Column, taken: int, *, breaking: bool) -> int:
        """The one of these rows with the least objective, of which breakage is a part only if they are ``breaking`` anything."""
        free, installed = self._rooms.gpus_free(), self._rooms.gpus()
        for breaks in (True, False) if breaking else (False,):
            for level, domain in enumerate(self._fleet.domain):
                if len(rows) == 1:
                    return int(rows[0])
                home = domain[rows]
                values = free.sums[level][home]  # what is left over is this less what is taken, the same for all
                if breaks:
                    values = np.where((values == installed.sums[level][home]) & (values > taken), values, 0)
                rows = rows[values == np.minimum.reduce(values)]
        return int(rows[0])
