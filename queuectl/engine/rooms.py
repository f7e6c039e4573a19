"""How many pods of a shape fit on every node, with sums per domain: the numbers that placement compares.

A ``Tally`` follows the fleet: it applies the rows touched since it last looked, or starts over when there are many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np

from queuectl.engine.filters import Filters
from queuectl.engine.fleet import Fleet, least
from queuectl.engine.request import Zone
from queuectl.engine.sums import Column, sums_of
from queuectl.model.gangs import Shape

_ROOMS = 256  # 100 kB each at 10,000 nodes and three levels: 25 MB
MOST_PODS = 2**20  # a node and shape; far above any kubelet's limit, and sums over all nodes stay in range
_LOOKS = 8  # at coarsest domains; many more would cost as much as all rows at once
_FEW = 500  # rows: above this, all 10,000 in order cost no more than these by index

Rows = Column | slice
_Key = Shape | tuple[Shape, Zone]


class Tally:
    """A number per row and its sums per level (the last level is the rows themselves)."""

    def __init__(self, fleet: Fleet, count: Callable[[Rows], Column], *, charged: bool = True) -> None:
        self._fleet, self._count = fleet, count
        self._charged = charged  # whether it depends on what is used, or only on what is installed
        self._version = (-1, -1)
        self._whole = False  # whether it knows all rows, as they were at the tick read
        self._read = 0
        self._looked: dict[int, int] = {}  # coarsest domain -> tick at which only this one was counted
        self.rows: Column = np.zeros(0, np.int64)
        self.sums: list[Column] = []

    @property
    def total(self) -> int:
        """The sum over all rows. O(coarsest domains)."""
        return int(np.add.reduce(self.sums[0]))

    def current(self) -> Tally:
        """This tally, caught up with the fleet. O(rows touched since), at most O(nodes)."""
        fleet = self._fleet
        if self._fresh() and self._whole:
            if not self._charged or self._read == fleet.ticks:
                return self
            changed = fleet.changed(self._read)
            self._looked.clear()
            if len(changed) <= _FEW:
                self._read = fleet.ticks
                self._catch_up(changed)
                return self
        self._whole, self._read = True, fleet.ticks
        self._looked.clear()
        self.rows = self._count(slice(None))
        self.sums = [*(sums_of(self.rows, starts) for starts in fleet.starts[:-1]), self.rows]
        return self

    def look(self, coarse: int) -> None:
        """Catch up with one coarsest domain; what the tally says of others may be old. O(its rows)."""
        fleet = self._fleet
        if not self._fresh():
            self.sums = [np.zeros(len(starts), np.int64) for starts in fleet.starts]
            self.rows = self.sums[-1]
        if self._looked.get(coarse, self._read if self._whole else -1) >= fleet.stirred[coarse]:
            return
        self._looked[coarse] = fleet.ticks
        part = fleet.rows_of(0, coarse)
        rows = self._count(slice(part.start, part.stop))
        for level, sums in enumerate(self.sums[:-1]):
            inside = fleet.inside(0, coarse, level)
            inner = slice(inside.start, inside.stop)
            sums[inner] = np.add.reduceat(rows, fleet.starts[level][inner] - part.start)
        self.rows[part.start : part.stop] = rows

    def _fresh(self) -> bool:
        """Whether rows are numbered and masked as when it last counted; else it must start over."""
        version = (self._fleet.edition, 0 if self._charged else self._fleet.revision)
        if self._version == version:
            return True
        self._version, self._whole = version, False
        self._looked.clear()
        return False

    def _catch_up(self, changed: Column) -> None:
        """Count these rows again; each is named once."""
        counted = self._count(changed)
        change = counted - self.rows[changed]
        if not np.count_nonzero(change):
            return
        self.rows[changed] = counted  # the last level
        for domain, sums in zip(self._fleet.domain[:-1], self.sums[:-1], strict=True):
            np.add.at(sums, domain[changed], change)


class Rooms:
    """Tallies by shape (bounded, least recently used goes first)."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.filters = Filters(fleet)
        self._rooms: OrderedDict[_Key, Tally] = OrderedDict()
        self._ever: OrderedDict[_Key, Tally] = OrderedDict()

    def room(self, shape: Shape, zone: Zone | None = None) -> Tally:
        """Pods of this shape that fit now, in a zone or anywhere."""
        return self.tally(shape, zone).current()

    def tally(self, shape: Shape, zone: Zone | None = None) -> Tally:
        """The same, not caught up with the fleet yet."""
        return self._kept(self._rooms, shape, zone, usable=True)

    def ever(self, shape: Shape, zone: Zone | None = None) -> Tally:
        """Pods of this shape that would fit if every node were empty and well."""
        return self._kept(self._ever, shape, zone, usable=False).current()

    def fullest(self, taken: int, level: int) -> Iterator[int]:
        """A few coarsest domains with so many GPUs free in one domain of a level, those with least free first.

        As long as one alone has the least: what is left over further down decides between equal ones.
        """
        free = self.fleet.gpus_free.sums
        most = free[0] if level == 0 else np.maximum.reduceat(free[level], self.fleet.first[0][level])
        able = (most >= taken).nonzero()[0]
        left = free[0][able]
        order = left.argsort(kind="stable")[: _LOOKS + 1]
        values = left[order].tolist()
        for place, coarse in enumerate(able[order[:_LOOKS]].tolist()):
            if values[place : place + 2].count(values[place]) > 1:
                return
            yield coarse

    def _kept(self, kept: OrderedDict[_Key, Tally], shape: Shape, zone: Zone | None, *, usable: bool) -> Tally:
        key: _Key = shape if zone is None else (shape, zone)
        tally = kept.get(key)
        if tally is None:
            tally = kept[key] = self._tally(shape, zone, usable=usable)
            if len(kept) > _ROOMS:
                kept.popitem(last=False)
        else:
            kept.move_to_end(key)
        return tally

    def _tally(self, shape: Shape, zone: Zone | None, *, usable: bool) -> Tally:
        fleet, filters = self.fleet, self.filters
        wants = [(name, least(amount)) for name, amount in shape.requests]
        names = {name for name, _ in wants}

        def count(rows: Rows) -> Column:
            columns = fleet.free if usable else fleet.allocatable
            suited = filters.mask(shape, ever=not usable)[rows]
            if zone is not None:
                suited = suited & filters.zone(zone)[rows]
            if usable:
                suited = suited & fleet.usable[rows]
            if not wants or not names <= columns.keys():
                return np.zeros(len(suited), np.int64)
            if not isinstance(rows, slice):
                return _holds(columns, wants, rows) * suited
            # Of all rows, few hold even one when the cluster is full, and comparing costs a fraction of dividing.
            for name, amount in wants:
                suited = suited & (columns[name][rows] >= amount)
            fit: Column = np.zeros(len(suited), np.int64)
            places = suited.nonzero()[0]
            fit[places] = _holds(columns, wants, places + (rows.start or 0))
            return fit

        return Tally(fleet, count, charged=usable)


def _holds(columns: dict[str, Column], wants: list[tuple[str, int]], rows: Column) -> Column:
    """How many times each of these rows holds what is wanted, 0 to ``MOST_PODS``."""
    name, amount = wants[0]
    pods = columns[name][rows] // amount
    for name, amount in wants[1:]:
        pods = np.minimum(pods, columns[name][rows] // amount, out=pods)
    return np.minimum(np.maximum(pods, 0, out=pods), MOST_PODS, out=pods)  # much faster than np.clip on a few rows
