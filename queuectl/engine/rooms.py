"""How many pods of a shape fit on every node, with sums per domain: the numbers that placement compares.

A ``Tally`` follows the fleet: it applies the rows touched since it last looked, or starts over when there are many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from queuectl.engine.filters import Filters
from queuectl.engine.fleet import Column, Flags, Fleet
from queuectl.model.gangs import Shape
from queuectl.model.resources import GPU

_ROOMS = 256  # 100 kB each at 10,000 nodes and three levels: 25 MB
_FEW = 48  # rows: below this, one Python step a row is cheaper than numpy over all of 10,000


class Tally:
    """A number per row and its sums per level (the last level is the rows themselves)."""

    def __init__(self, fleet: Fleet, whole: Callable[[], Column], single: Callable[[int], int]) -> None:
        self._fleet, self._whole, self._single = fleet, whole, single
        self._era = self._edition = -1
        self._read = 0
        self.rows: Column = np.zeros(0, np.int64)
        self.sums: list[Column] = []
        self.total = 0

    def current(self) -> Tally:
        """This tally, caught up with the fleet. O(rows touched since), at most O(nodes)."""
        fleet = self._fleet
        if (self._era, self._edition) == (fleet.era, fleet.edition):
            if self._read == len(fleet.touched):
                return self
            changed = set(fleet.touched[self._read :])
            self._read = len(fleet.touched)
            if len(changed) <= _FEW:
                self._catch_up(changed)
                return self
        self._era, self._edition, self._read = fleet.era, fleet.edition, len(fleet.touched)
        self.rows = self._whole()
        self.sums = [
            np.add.reduceat(self.rows, starts) if len(starts) else np.zeros(0, np.int64) for starts in fleet.starts[:-1]
        ]
        self.sums.append(self.rows)
        self.total = int(self.rows.sum())
        return self

    def _catch_up(self, changed: set[int]) -> None:
        for row in changed:
            change = self._single(row) - int(self.rows[row])
            if change:
                self.total += change
                for domain, sums in zip(self._fleet.domain, self.sums, strict=True):
                    sums[domain[row]] += change


class Rooms:
    """Tallies by shape (bounded, least recently used goes first), and those of free and installed GPUs."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.filters = Filters(fleet)
        self._rooms: OrderedDict[Shape, Tally] = OrderedDict()
        self._ever: OrderedDict[Shape, Tally] = OrderedDict()
        self._gpus_free = Tally(fleet, self._free_gpus, self._free_gpus_of)
        self._gpus = Tally(fleet, self._installed_gpus, self._installed_gpus_of)

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
        fleet = self.fleet

        def columns() -> dict[str, Column]:
            return fleet.free if usable else fleet.allocatable

        def mask() -> Flags:
            return self.filters.mask(shape, ever=not usable)

        def whole() -> Column:
            rows = len(fleet.tree.nodes)
            fit: Column | None = None
            for name, amount in shape.requests:
                column = columns().get(name)
                if column is None:
                    return np.zeros(rows, np.int64)
                here = column // amount
                fit = here if fit is None else np.minimum(fit, here, out=fit)
            if fit is None:  # a pod without any request; the contract always adds ``pods``
                return np.zeros(rows, np.int64)
            np.maximum(fit, 0, out=fit)
            fit *= mask() & fleet.usable if usable else mask()
            return fit

        def single(row: int) -> int:
            if not mask()[row] or (usable and not fleet.usable[row]):
                return 0
            found = columns()
            if any(name not in found for name, _ in shape.requests):
                return 0
            return max(0, min((int(found[name][row]) // amount for name, amount in shape.requests), default=0))

        return Tally(fleet, whole, single)

    def _free_gpus(self) -> Column:
        return np.maximum(self._column(self.fleet.free), 0) * self.fleet.usable

    def _free_gpus_of(self, row: int) -> int:
        return max(0, int(self._column(self.fleet.free)[row])) if self.fleet.usable[row] else 0

    def _installed_gpus(self) -> Column:
        return self._column(self.fleet.allocatable) * self.fleet.usable

    def _installed_gpus_of(self, row: int) -> int:
        return int(self._column(self.fleet.allocatable)[row]) if self.fleet.usable[row] else 0

    def _column(self, columns: dict[str, Column]) -> Column:
        return columns[GPU] if GPU in columns else np.zeros(len(self.fleet.tree.nodes), np.int64)
