"""Time that passes by waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from queuectl.drivers.embedded.clock import VirtualClock, VirtualLoop

DAY = 86_400.0


def run(main: Coroutine[Any, Any, Any], speed: float | None = None) -> Any:
    """Run in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(speed)) as runner:
        return runner.run(main)


def test_a_week_passes_in_no_time() -> None:
    """Timers end in their order, at their time; time-outs too."""
    ended: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append((name, asyncio.get_running_loop().time()))

    async def main() -> int:
        clock = VirtualClock(1_000)
        async with asyncio.TaskGroup() as group:
            for name, seconds in (("late", 7 * DAY), ("early", 60.0), ("middle", DAY)):
                group.create_task(sleeper(name, seconds))
            try:
                async with asyncio.timeout(30):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append(("gave up", clock.monotonic()))
        return clock.now()

    started = time.monotonic()
    now = run(main())
    assert time.monotonic() - started < 10
    assert [name for name, _ in ended] == ["gave up", "early", "middle", "late"]
    assert [round(at) for _, at in ended] == [30, 60, DAY, 7 * DAY]
    assert now == 1_000 + 7 * DAY * 1000


def test_speed_is_kept_and_sockets_are_served() -> None:
    """At 1,000 seconds a second, 100 seconds take a tenth of a second; a connection meanwhile is answered."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def main() -> bytes:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        sleeping = asyncio.create_task(asyncio.sleep(100))
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        answer = await reader.readline()
        writer.close()
        await sleeping
        server.close()
        return answer

    started = time.monotonic()
    assert run(main(), speed=1000.0) == b"hello\n"
    assert time.monotonic() - started >= 0.09
