"""Virtual time: an event loop whose clock moves on by waiting, not by itself.

Everything that waits in asyncio (sleeps, time-outs, timers) waits on the loop's own clock, so a controller runs unchanged
in a week that takes a second. Work costs no virtual time. Files and sockets still wait in real time.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Mapping
from typing import Any

from queuectl.control.clock import RealClock


class VirtualLoop(asyncio.SelectorEventLoop):
    """``speed`` is virtual seconds a real second; None: as fast as the work allows. It may be changed at any time."""

    def __init__(self, speed: float | None = None) -> None:
        self._virtual = 0.0
        self.speed = speed
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        self._virtual += seconds


class _Selector(selectors.BaseSelector):
    """A selector that lets virtual time pass where an ordinary one would wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the base class; ``timeout`` is virtual."""
        if timeout is None:
            return self._inner.select(None)  # nothing is due: only the outside world can go on
        ready = self._inner.select(0)
        if ready or timeout <= 0:
            return ready
        if self._loop.speed is None:
            self._loop.advance(timeout)
            return ready
        started = time.monotonic()
        ready = self._inner.select(timeout / self._loop.speed)
        passed = (time.monotonic() - started) * self._loop.speed
        self._loop.advance(min(passed, timeout) if ready else timeout)
        return ready

    def register(self, fileobj: int | object, events: int, data: object = None) -> selectors.SelectorKey:
        """As the base class."""
        return self._inner.register(fileobj, events, data)  # type: ignore[arg-type]  # whatever the loop has

    def unregister(self, fileobj: int | object) -> selectors.SelectorKey:
        """As the base class."""
        return self._inner.unregister(fileobj)  # type: ignore[arg-type]  # whatever the loop has

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As the base class."""
        return self._inner.get_map()

    def close(self) -> None:
        """As the base class."""
        self._inner.close()


class VirtualClock(RealClock):
    """The Clock that belongs to a ``VirtualLoop``: wall time is ``start`` (milliseconds) plus the loop's time."""

    def __init__(self, start: int) -> None:
        self.start = start

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return self.start + round(asyncio.get_running_loop().time() * 1000)
