"""A number per row with its sums per level of the topology, kept as single rows change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]


class Sums:
    """``rows`` and, per level, coarse to fine, the sums of its domains; the last level is the rows themselves."""

    def __init__(self, rows: Column, starts: list[Column], homes: list[list[int]]) -> None:
        """``starts``: per level the first row of every domain. ``homes``: per level the domain of every row. O(rows)."""
        self.rows = rows
        self.sums = [*(sums_of(rows, level) for level in starts[:-1]), rows]
        self._coarse = list(zip(homes, self.sums[:-1], strict=False))

    def put(self, row: int, value: int) -> None:
        """Another number in one row. O(levels)."""
        if step := value - self.rows.item(row):
            self.rows[row] = value
            for home, sums in self._coarse:
                sums[home[row]] += step


def sums_of(rows: Column, starts: Column) -> Column:
    """The sums of runs of rows that begin at these; of none, none."""
    return np.add.reduceat(rows, starts) if len(starts) else np.zeros(0, np.int64)
