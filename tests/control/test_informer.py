"""How an informer keeps its stream: what it resumes from, when its view is old, how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from queuectl.contract import foreign
from queuectl.contract.foreign import Kind
from queuectl.control.informer import FIRST_WAIT, LAST_WAIT, Informer
from queuectl.control.ports import Bookmark, Event, Expired, Unreachable
from queuectl.control.source import Source


class Script:
    """A clock and a cluster whose streams are told in advance: events, seconds that pass, and how each ends."""

    def __init__(self, *streams: tuple[Event | float | Exception, ...]) -> None:
        self.streams = list(streams)
        self.time = 0.0
        self.since: list[str | None] = []
        self.slept: list[float] = []
        self.live: list[bool] = []  # after each event
        self.informer: Informer | None = None

    def now(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def watch(self, kind: Kind, since: str | None) -> AsyncIterator[Event]:
        self.since.append(since)
        if not self.streams:
            raise asyncio.CancelledError
        for step in self.streams.pop(0):
            if isinstance(step, float):
                self.time += step
            elif isinstance(step, Exception):
                raise step
            else:
                yield step
                self.live.append(self.informer is not None and self.informer.lost_at is None)

    async def play(self) -> Informer:
        """Run to the end of the script."""
        informer = self.informer = Informer(self, foreign.NODES, Source(), self, lambda _: None)  # type: ignore[arg-type]  # watch is all it uses
        with pytest.raises(asyncio.CancelledError):
            await informer.run()
        return informer


CUT = Unreachable("cut")


async def test_a_resumed_stream_is_live_before_its_first_event() -> None:
    """Nodes and classes may be still for minutes: a view is not old because nothing happens."""
    script = Script((Bookmark("5", synced=True), 100.0, CUT), (Bookmark("5"),))
    informer = await script.play()
    assert script.since == [None, "5", "5"]
    assert script.live == [True, True]
    assert informer.lists == 1


async def test_each_cut_after_a_long_life_is_waited_out_as_if_it_were_the_first() -> None:
    """A balancer that cuts every few minutes does not blind us for longer and longer."""
    life = (Bookmark("5"), LAST_WAIT + 60, CUT)
    script = Script((Bookmark("5", synced=True), LAST_WAIT + 60, CUT), *[life] * 8)
    await script.play()
    assert max(script.slept) <= FIRST_WAIT * 1.5


async def test_cuts_at_once_are_waited_out_longer_and_longer() -> None:
    """Also where every stream opens before it breaks."""
    script = Script((Bookmark("5", synced=True), CUT), *[(Bookmark("5"), CUT)] * 12)
    await script.play()
    assert script.slept[-1] >= LAST_WAIT / 2


async def test_expired_starts_anew() -> None:
    """Only then is the state read again."""
    script = Script((Bookmark("5", synced=True), CUT), (Expired("too old"),), (Bookmark("9", synced=True), CUT))
    informer = await script.play()
    assert script.since == [None, "5", None, "9"]
    assert informer.lists == 2
