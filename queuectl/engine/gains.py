"""What nodes that gained room could add: a bound that is cheap enough to ask for thousands of refused shapes."""

from __future__ import annotations

import numpy as np

from queuectl.engine.filters import Filters
from queuectl.engine.fleet import Fleet, least
from queuectl.engine.request import Request
from queuectl.engine.rooms import MOST_PODS
from queuectl.model.gangs import Shape


class Gains:
    """Room on some nodes as it is now. O(1) a shape that fits none of them, O(nodes given) otherwise."""

    def __init__(self, fleet: Fleet, filters: Filters, names: frozenset[str]) -> None:
        self._fleet, self._filters, self._names = fleet, filters, names
        rows = np.array(sorted(fleet.row[name] for name in names if name in fleet.row), np.int64)
        self._rows = rows[fleet.usable[rows]]
        self._free = {name: column[self._rows] for name, column in fleet.free.items()}
        self._most = {name: int(column.max(initial=0)) for name, column in self._free.items() if len(self._rows)}
        self._pods: dict[int, tuple[Shape, int]] = {}  # by identity: equal requests are one object

    def pods(self, shape: Shape) -> int:
        """How many pods of this shape these nodes hold now, together."""
        known = self._pods.get(id(shape))
        if known is None or known[0] is not shape:
            known = self._pods[id(shape)] = shape, self._count(shape)
        return known[1]

    def _count(self, shape: Shape) -> int:
        if not self._most or any(amount > self._most.get(name, 0) for name, amount in shape.requests):
            return 0
        held = [self._free[name] // least(amount) for name, amount in shape.requests]
        pods = np.minimum.reduce([np.where(self._filters.mask(shape)[self._rows], MOST_PODS, 0), *held])
        return int(np.add.reduce(np.maximum(pods, 0)))

    def lacking(self, request: Request, short: int, missing: int) -> int:
        """How many pods of the group that was short are still missing, at least; 0 when the request may fit now.

        Without a group that was short by itself (``missing`` 0), 1 while no pod of any group fits these nodes.
        """
        if request.anchor in self._names:
            return 0  # its domain may be another one now
        if missing:
            return max(missing - self.pods(request.groups[short].shape), 0)
        return int(not any(self.pods(group.shape) for group in request.groups))
