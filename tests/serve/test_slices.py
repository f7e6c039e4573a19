"""Answers that are made in slices: what is done between them, and how many may wait for one."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from queuectl.serve import world as world_module
from queuectl.serve.app import application
from queuectl.serve.occupancy import occupancy
from queuectl.serve.slices import PAUSE, SLICE, Making, Steps
from tests.serve.standin import Standin, story
from tests.serve.test_api import get

MILLISECOND = 0.001


class Work:
    """So many steps of a millisecond each, by a clock of its own."""

    def __init__(self, steps: int, problem: Exception | None = None) -> None:
        self.at = 0.0
        self.taken = 0
        self._steps, self._problem = steps, problem

    def monotonic(self) -> float:
        return self.at

    def run(self) -> Steps[str]:
        for _ in range(self._steps):
            self.taken += 1
            self.at += MILLISECOND
            yield
        if self._problem is not None:
            raise self._problem
        return "done"


def test_a_slice_at_a_time() -> None:
    """Then it is left alone, by all who wait for it together."""
    work = Work(12)
    making = Making(work.run(), work.monotonic)
    a_slice = round(SLICE / MILLISECOND)
    assert (making.work(), work.taken) == (None, a_slice)
    assert (making.work(), work.taken) == (None, a_slice)
    work.at += PAUSE
    assert (making.work(), work.taken) == (None, 2 * a_slice)
    work.at += PAUSE
    assert (making.work(), work.taken) == ("done", 12)
    assert (making.work(), work.taken) == ("done", 12)
    assert making.spent == pytest.approx(12 * MILLISECOND)


def test_what_fails_fails_for_everybody() -> None:
    work = Work(1, ValueError("a bug"))
    making = Making(work.run(), work.monotonic)
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            making.work()


async def test_the_loop_goes_on_while_a_map_is_made_and_many_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten slices for one map, made once for three who ask; between any two of them other work is done."""
    monkeypatch.setattr(world_module, "MAX_AGE", 1000.0)
    here, slices = story(), 10
    made = occupancy
    others: list[int] = []
    count = 0

    def slow(*arguments: Any) -> Steps[Any]:
        for _ in range(slices):
            others.append(count)
            time.sleep(SLICE)  # the loop is held, as by work
            yield
        return (yield from made(*arguments))

    async def other() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(world_module, "occupancy", slow)
    busy = asyncio.create_task(other())
    try:
        async with TestClient(TestServer(application(world_module.World(here.controller)))) as client:
            found = await asyncio.gather(*(get(client, "/api/v1/occupancy") for _ in range(3)))
    finally:
        busy.cancel()
    assert len(others) == slices
    assert all(before < after for before, after in itertools.pairwise(others))
    assert found[0] == found[1] == found[2]
    assert len(found[0]["blocks"]) == 2


async def test_an_answer_is_made_once_while_its_view_stands() -> None:
    """And for all who ask the same."""
    here: Standin = story()
    world = world_module.World(here.controller, here.clock.monotonic)
    making = world.answer(world.occupancy, "map")
    assert world.answer(world.occupancy, "map") is making
    assert world.answer(world.node_listing, "nodes") is not making
    found = making.work()
    assert found is not None
    assert world.answer(world.occupancy, "map").work() is found
    here.later(1000)
    assert world.answer(world.occupancy, "map") is not making  # of another view


async def test_of_more_answers_than_are_kept_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """But what they cost is."""
    monkeypatch.setattr(world_module, "KEPT", 2)
    here: Standin = story()
    world = world_module.World(here.controller, here.clock.monotonic)
    first = world.answer(world.node_listing, 0)
    assert [world.answer(world.node_listing, about) is first for about in (0, 1, 0, 2, 0)] == [
        *(True, False, True),
        *(False, False),
    ]
