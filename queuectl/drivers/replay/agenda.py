"""What is still to happen, in order: virtual time is the time of the next entry."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable

Act = Callable[[], object]


class Turn(enum.IntEnum):
    """The order at equal times: what ends frees its place before a node changes, and both before somebody asks for one."""

    COMPLETION = 0
    NODE = 1
    ARRIVAL = 2
    WRITE = 3  # ours, and what follows from it


class Agenda:
    """Acts by (time, turn, order of entry). Times are integer milliseconds; nothing is random."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, int, Act]] = []
        self._entered = 0

    def at(self, time: int, turn: Turn, act: Act) -> None:
        """Enter an act; one in the past is due now. O(log entries)."""
        self._entered += 1
        heapq.heappush(self._heap, (max(time, self.now), turn, self._entered, act))

    def after(self, delay: int, act: Act, turn: Turn = Turn.WRITE) -> None:
        """Enter an act ``delay`` ms from now."""
        self.at(self.now + delay, turn, act)

    @property
    def next(self) -> int | None:
        """When the next act is due; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self) -> Act | None:
        """Take the next act that is due now, those that were entered meanwhile included; None when there is none."""
        return heapq.heappop(self._heap)[3] if self._heap and self._heap[0][0] <= self.now else None
