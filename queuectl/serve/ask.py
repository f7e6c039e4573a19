"""How the web server asks the controller: a plain call on a shared event loop, or across to the loop of another thread.

A controller is only ever read on its own loop, where nothing else happens meanwhile. What a read gives back (bytes, text,
structs that nobody changes) may then be used anywhere.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

PATIENCE = 10.0  # seconds; the longest reads (lists of very large clusters) take a second


class Silent(Exception):
    """The controller's loop has ended, or does nothing but work."""


class Ask(Protocol):
    """Runs ``read`` where the controller lives and gives what it gave, or raises what it raised. Raises Silent."""

    async def __call__(self, read: Callable[[], T]) -> T:
        """See the class."""
        ...


async def directly(read: Callable[[], T]) -> T:
    """The ``Ask`` of a server on the controller's own loop."""
    return read()


def across(loop: asyncio.AbstractEventLoop) -> Ask:
    """The ``Ask`` of a server whose controller runs on ``loop``, in another thread; its time may be virtual."""

    async def ask(read: Callable[[], T]) -> T:
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():  # whoever asked has gone
                return
            try:
                answer.set_result(read())
            except Exception as problem:  # noqa: BLE001 - it is raised where the question was asked
                answer.set_exception(problem)

        try:
            loop.call_soon_threadsafe(run)
        except RuntimeError as problem:  # the loop is closed
            raise Silent("the controller has ended") from problem
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise Silent(f"the controller did not answer for {PATIENCE:.0f} s") from None

    return ask
