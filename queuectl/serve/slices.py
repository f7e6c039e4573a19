"""Long answers, made in slices: the controller's loop is free between them, and whoever waits for one works on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

from queuectl.serve.ask import Ask

S = TypeVar("S")
T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that may be left alone at each ``yield``, and gives its result at its end."""

SLICE = 0.005  # seconds of work at a time: a decision that is due waits no longer than that
PAUSE = 0.005  # seconds between two looks of one who waits, so that the loop has half of its time for what it is for


class Making(Generic[T]):
    """An answer in the making. Those who wait call ``work`` again and again; as many as there are, they work in turns."""

    def __init__(self, steps: Steps[T], monotonic: Callable[[], float] = time.monotonic) -> None:
        self.spent = 0.0  # seconds of work so far
        self._steps, self._monotonic = steps, monotonic
        self._left = float("-inf")  # when somebody worked on it last
        self._done: T | None = None
        self._problem: Exception | None = None

    def work(self) -> T | None:
        """Work on it for a slice, unless somebody has just done so. The answer when there is one, else None.

        Raises what its steps raise, to everybody who asks.
        """
        if self._problem is not None:
            raise self._problem
        began = self._monotonic()
        if self._done is None and began - self._left >= PAUSE / 2:  # half: many who wait are no reason to hurry
            try:
                while self._monotonic() - began < SLICE:
                    next(self._steps)
            except StopIteration as end:
                self._done = end.value
            except Exception as problem:
                self._problem = problem
                raise
            finally:
                self._left = self._monotonic()
                self.spent += self._left - began
        return self._done


def each(items: Iterable[S], make: Callable[[S], T], many: int) -> Steps[list[T]]:
    """What ``make`` gives for each, so ``many`` a step."""
    found = []
    for number, one in enumerate(items):
        if number % many == 0:
            yield
        found.append(make(one))
    return found


def whole(found: T) -> Steps[T]:
    """What is too small for steps, as if it had some."""
    yield from ()
    return found


async def finished(ask: Ask, making: Making[T]) -> T:
    """The answer, worked on by whoever waits for it here. Raises Silent, and what its steps raise."""
    while (found := await ask(making.work)) is None:  # noqa: ASYNC110 - it waits for its own next slice, not for others
        await asyncio.sleep(PAUSE)
    return found
