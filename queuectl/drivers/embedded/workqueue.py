"""Keys to look at, each once however often it is added: how the stand-ins react to commits, as controllers upstream do.

Listeners of a store must not write; they add keys here, and the work is done on the event loop, in the order of adding.
Delays are timers of the loop, so virtual time works, and nothing ever polls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN = 100  # keys before other tasks get a turn: a few milliseconds


class WorkQueue:
    """Calls ``work`` with each key that was added. A key that is waiting is not added twice. O(1), timers O(log)."""

    def __init__(self, work: Callable[[str], None], failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of what ``work`` raises, which is a bug; the queue then stands still. Needs a running loop."""
        self._work, self._failed = work, failed
        self._loop = asyncio.get_running_loop()
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._scheduled = False
        self._closed = False

    def add(self, key: str) -> None:
        """Look at it now, that is once the current commit and all that follows from it at once are done."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if key in self._queued or self._closed:
            return
        self._queued.add(key)
        self._ready.append(key)
        self._schedule()

    def after(self, key: str, seconds: float) -> None:
        """Look at it in so many seconds, or sooner where that was asked for already."""
        self.at(key, self._loop.time() + seconds)

    def at(self, key: str, when: float) -> None:
        """Look at it at this time of the loop's clock, never before; or sooner where that was asked for already."""
        if key in self._queued or self._closed:
            return
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = self._loop.call_at(when, self._due, key, when)

    def _due(self, key: str, when: float) -> None:
        """Look at it, unless the timer came early.

        Timers of asyncio fire up to a clock's resolution early. Work that then finds it too early would ask again at once,
        and where time passes by waiting only, two such by turns would make it stand still.
        """
        if self._loop.time() < when:
            self._timers[key] = self._loop.call_at(when, self._due, key, when)
        else:
            self.add(key)

    def forget(self, key: str) -> None:
        """Its timer is not needed any more; if it is queued, it is still looked at."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Do nothing from now on."""
        self._closed = True
        self._ready.clear()
        for timer in self._timers.values():
            timer.cancel()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        for _ in range(min(TURN, len(self._ready))):
            key = self._ready.popleft()
            self._queued.discard(key)
            try:
                self._work(key)
            except Exception as problem:  # noqa: BLE001 - handed on, whatever it is: nobody else would ever see it
                self.close()
                self._failed(problem)
                return
        if self._ready:
            self._schedule()
