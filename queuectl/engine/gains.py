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
        self._most = {
            name: int(column[self._rows].max(initial=0)) for name, column in fleet.free.items() if len(self._rows)
        }
        self._pods: dict[int, tuple[Shape, int]] = {}  # by identity: equal requests are one object

    def pods(self, shape: Shape) -> int:
        """How many pods of this shape these nodes hold now, together."""
        if any(amount > self._most.get(name, 0) for name, amount in shape.requests) or not self._most:
            return 0
        if (known := self._pods.get(id(shape))) is not None and known[0] is shape:
            return known[1]
        fit = self._filters.mask(shape)[self._rows].astype(np.int64)
        if shape.requests:
            fit *= np.minimum.reduce(
                [self._fleet.free[name][self._rows] // least(amount) for name, amount in shape.requests]
            )
        count = int(np.minimum(np.maximum(fit, 0), MOST_PODS).sum())
        self._pods[id(shape)] = shape, count
        return count

    def lacking(self, request: Request, short: int, missing: int) -> int:
        """How many pods of the group that was short are still missing, at least; 0 when the request may fit now.

        Without a group that was short by itself (``missing`` 0), 1 while no pod of any group fits these nodes.
        """
        if request.anchor in self._names:
            return 0  # its domain may be another one now
        if missing:
            return max(missing - self.pods(request.groups[short].shape), 0)
        return int(not any(self.pods(group.shape) for group in request.groups))
