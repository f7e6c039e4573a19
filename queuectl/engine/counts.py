"""How many gangs of each queue are in which phase, and what those that wait ask for: kept as gangs move, read at any time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct, field

from queuectl.engine.standing import Phase
from queuectl.model.resources import Amounts

_Key = TypeVar("_Key", bound=str)


class Count(Struct):
    """The gangs of one queue, or of all below it. Zeros are left out, so equal counts are equal values."""

    phases: dict[Phase, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)

    def add(self, other: Count) -> None:
        """Count these too."""
        _add(self.phases, other.phases.items(), 1)
        _add(self.pending, other.pending.items(), 1)


class Counts:
    """By the queue that a gang names, whether it exists or not; sums over a path are made by who reads them."""

    def __init__(self) -> None:
        self.queues: dict[str, Count] = {}

    def add(self, queue: str, phase: Phase, pending: Amounts, sign: int) -> None:
        """One gang more (1) or less (-1). O(resources)."""
        count = self.queues.get(queue)
        if count is None:
            count = self.queues[queue] = Count()
        _add(count.phases, ((phase, 1),), sign)
        if pending:
            _add(count.pending, pending, sign)
        if not count.phases:
            del self.queues[queue]


def _add(totals: dict[_Key, int], items: Iterable[tuple[_Key, int]], sign: int) -> None:
    for key, amount in items:
        total = totals.get(key, 0) + amount * sign
        if total:
            totals[key] = total
        elif key in totals:
            del totals[key]
