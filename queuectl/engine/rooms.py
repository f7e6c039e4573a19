"""How many pods of a shape fit on every node, with sums per domain: the numbers that placement compares.

A ``Tally`` follows the fleet: it applies the rows touched since it last looked, or starts over when there are many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from queuectl.engine.filters import Filters
from queuectl.engine.fleet import Column, Fleet, least
from queuectl.model.gangs import Shape
from queuectl.model.resources import GPU

_ROOMS = 256  # 100 kB each at 10,000 nodes and three levels: 25 MB
MOST_PODS = 2**20  # a node and shape; far above any kubelet's limit, and sums over all nodes stay in range
MOST_GPUS = 2**34  # GPU units a node (17 million devices): what the objective's terms hold for 10,000 nodes (curves.py)
_FEW = 500  # rows: above this, all 10,000 in order cost no more than these by index

Rows = Column | slice


class Tally:
    """A number per row and its sums per level (the last level is the rows themselves)."""

    def __init__(self, fleet: Fleet, count: Callable[[Rows], Column], *, charged: bool = True) -> None:
        self._fleet, self._count = fleet, count
        self._charged = charged  # whether it depends on what is used, or only on what is installed
        self._version = (-1, -1)
        self._read = 0
        self.rows: Column = np.zeros(0, np.int64)
        self.sums: list[Column] = []

    @property
    def total(self) -> int:
        """The sum over all rows. O(coarsest domains)."""
        return int(np.add.reduce(self.sums[0]))

    def current(self) -> Tally:
        """This tally, caught up with the fleet. O(rows touched since), at most O(nodes)."""
        fleet = self._fleet
        version = (fleet.edition, 0 if self._charged else fleet.revision)
        if self._version == version:
            if not self._charged or self._read == fleet.ticks:
                return self
            changed = fleet.changed(self._read)
            self._read = fleet.ticks
            if len(changed) <= _FEW:
                self._catch_up(changed)
                return self
        self._version, self._read = version, fleet.ticks
        self.rows = self._count(slice(None))
        self.sums = [
            np.add.reduceat(self.rows, starts) if len(starts) else np.zeros(0, np.int64) for starts in fleet.starts[:-1]
        ]
        self.sums.append(self.rows)
        return self

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
    """Tallies by shape (bounded, least recently used goes first), and those of free and installed GPUs."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.filters = Filters(fleet)
        self._rooms: OrderedDict[Shape, Tally] = OrderedDict()
        self._ever: OrderedDict[Shape, Tally] = OrderedDict()
        self._gpus_free = Tally(fleet, self._free_gpus)
        self._gpus = Tally(fleet, self._all_gpus, charged=False)

    def room(self, shape: Shape) -> Tally:
        """Pods of this shape that fit now."""
        return self._kept(self._rooms, shape, usable=True)

    def ever(self, shape: Shape) -> Tally:
        """Pods of this shape that would fit if every node were empty and well."""
        return self._kept(self._ever, shape, usable=False)

    def gpus_free(self) -> Tally:
        """Free GPU units on usable nodes."""
        return self._gpus_free.current()

    def gpus(self) -> Tally:
        """GPU units of usable nodes."""
        return self._gpus.current()

    def _kept(self, kept: OrderedDict[Shape, Tally], shape: Shape, *, usable: bool) -> Tally:
        tally = kept.get(shape)
        if tally is None:
            tally = kept[shape] = self._tally(shape, usable=usable)
            if len(kept) > _ROOMS:
                kept.popitem(last=False)
        else:
            kept.move_to_end(shape)
        return tally.current()

    def _tally(self, shape: Shape, *, usable: bool) -> Tally:
        fleet, filters = self.fleet, self.filters
        wants = [(name, least(amount)) for name, amount in shape.requests]
        names = {name for name, _ in wants}

        def count(rows: Rows) -> Column:
            columns = fleet.free if usable else fleet.allocatable
            suited = filters.mask(shape, ever=not usable)[rows]
            if usable:
                suited = suited & fleet.usable[rows]
            if not wants or not names <= columns.keys():
                return np.zeros(len(suited), np.int64)
            if not isinstance(rows, slice):
                return _holds(columns, wants, rows) * suited
            # Of all rows, few hold even one when the cluster is full, and comparing costs a fraction of dividing.
            for name, amount in wants:
                suited = suited & (columns[name] >= amount)
            fit: Column = np.zeros(len(suited), np.int64)
            places = suited.nonzero()[0]
            fit[places] = _holds(columns, wants, places)
            return fit

        return Tally(fleet, count, charged=usable)

    def _free_gpus(self, rows: Rows) -> Column:
        free: Column = np.minimum(np.maximum(self.fleet.free[GPU][rows], 0), MOST_GPUS) * self.fleet.usable[rows]
        return free

    def _all_gpus(self, rows: Rows) -> Column:
        installed: Column = np.minimum(self.fleet.allocatable[GPU][rows], MOST_GPUS) * self.fleet.usable[rows]
        return installed


def _holds(columns: dict[str, Column], wants: list[tuple[str, int]], rows: Column) -> Column:
    """How many times each of these rows holds what is wanted, 0 to ``MOST_PODS``."""
    name, amount = wants[0]
    pods = columns[name][rows] // amount
    for name, amount in wants[1:]:
        pods = np.minimum(pods, columns[name][rows] // amount, out=pods)
    return np.minimum(np.maximum(pods, 0, out=pods), MOST_PODS, out=pods)  # much faster than np.clip on a few rows
