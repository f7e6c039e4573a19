"""Real time."""

from __future__ import annotations

import asyncio
import time


class RealClock:
    """The Clock of a running controller: wall time from the system, differences from the event loop's clock."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the event loop's clock."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
