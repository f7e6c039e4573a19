"""A web server whose controller lives on another loop, in another thread and another time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from queuectl.contract import foreign
from queuectl.control.loop import Controller
from queuectl.drivers.embedded.clock import VirtualLoop
from queuectl.engine.view import View
from queuectl.model.reasons import Misfit
from queuectl.serve import ask
from queuectl.serve.app import serving
from queuectl.serve.ask import Silent, across
from tests.serve.standin import Standin, node, story


@pytest.fixture
def elsewhere() -> Iterator[VirtualLoop]:
    """A loop that runs in a thread of its own, a thousand times as fast."""
    loop = VirtualLoop(1000.0)
    thread = threading.Thread(target=loop.run_forever, name="elsewhere", daemon=True)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def test_a_question_is_answered_over_there_and_its_errors_come_back(elsewhere: VirtualLoop) -> None:
    asked = across(elsewhere)
    assert await asked(lambda: threading.current_thread().name) == "elsewhere"
    assert await asked(asyncio.get_running_loop) is elsewhere
    empty: dict[str, str] = {}
    with pytest.raises(LookupError, match="nothing"):
        await asked(lambda: empty["nothing"])


async def test_a_loop_that_is_busy_or_over_is_said_to_be_silent(
    elsewhere: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, busy, answered = across(elsewhere), threading.Event(), []
    monkeypatch.setattr(ask, "PATIENCE", 0.05)
    elsewhere.call_soon_threadsafe(busy.wait)
    with pytest.raises(Silent, match="did not answer"):
        await asked(lambda: answered.append("too late"))
    busy.set()
    monkeypatch.setattr(ask, "PATIENCE", 10.0)
    assert await asked(lambda: "again") == "again"
    assert answered == []  # nobody waited for it any more
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "elsewhere")
    elsewhere.call_soon_threadsafe(elsewhere.stop)
    thread.join(10)
    elsewhere.close()
    with pytest.raises(Silent, match="ended"):
        await asked(lambda: "never")


async def test_everything_is_served_from_the_other_thread(
    elsewhere: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every path answers, and the controller was never read but on its own loop."""
    here: Standin = await across(elsewhere)(story)
    threads: set[str] = set()
    view, explain = Controller.view, Controller.explain

    def watched(controller: Controller) -> View:
        threads.add(threading.current_thread().name)
        return view(controller)

    def explained(controller: Controller, gang: str) -> tuple[Misfit, ...]:
        threads.add(threading.current_thread().name)
        return explain(controller, gang)

    monkeypatch.setattr(Controller, "view", watched)
    monkeypatch.setattr(Controller, "explain", explained)
    paths = ("queues", "queues/vision", "gangs", "nodes", "nodes/gpu-0", "occupancy", "controller",
             "namespaces/ml/gangs/big", "explain/namespaces/ml/gangs/big")  # fmt: skip
    async with serving(here.controller, port=0, loop=elsewhere) as url, ClientSession() as session:
        for path in ("/", "/healthz", "/readyz", "/metrics", *(f"/api/v1/{path}" for path in paths)):
            async with session.get(f"{url}{path}") as reply:
                assert reply.status == 200, (path, await reply.text())
        async with session.get(f"{url}/api/v1/events") as stream:
            first = [await stream.content.readline() for _ in range(6)]
            await across(elsewhere)(lambda: here.see(foreign.NODES, node("gpu-4", "r3")))
            second = [await stream.content.readline() for _ in range(4)]
    assert first[3] == second[1] == b"event: state\n"
    assert first[2] != second[0]  # another id
    assert threads == {"elsewhere"}
