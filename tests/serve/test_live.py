"""Server-sent events: what changes is told, once, to everybody who listens, and nobody else costs anything."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from queuectl.contract import foreign
from queuectl.serve import live, objects
from queuectl.serve import world as world_module
from queuectl.serve.app import serving
from queuectl.serve.ask import Silent, directly
from queuectl.serve.live import Live, Mailbox
from queuectl.serve.words import PREFIX
from queuectl.serve.world import World
from tests.serve.standin import Standin, node, story

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks often, and heartbeats soon, so that "nothing more comes" is seen by the heartbeat that comes instead."""
    monkeypatch.setattr(live, "INTERVAL", 0.01)
    monkeypatch.setattr(live, "HEARTBEAT", 0.2)
    monkeypatch.setattr(world_module, "MAX_AGE", 0.0)
    monkeypatch.setattr(world_module, "RESTRAINT", 0)


def state(revision: int, text: str = "") -> objects.Controller:
    """A state with this number."""
    return objects.Controller(
        as_of="2026-11-30T10:00:00.000Z", revision=revision, leading=True, role="leading", leader="one", ready=True,
        missing=[text] if text else [], behind=0,
    )  # fmt: skip


async def block(stream: ClientResponse) -> list[str]:
    """The next lines up to an empty one."""
    lines = []
    async with asyncio.timeout(10):
        while line := (await stream.content.readline()).decode().rstrip("\n"):
            lines.append(line)
    return lines


async def event(stream: ClientResponse) -> Json:
    """The next event; heartbeats are passed over."""
    while (lines := await block(stream))[0].startswith(":"):
        pass
    number, kind, data = lines
    found: Json = json.loads(data.removeprefix("data: "))
    assert (number, kind) == (f"id: {found['revision']}", "event: state")
    return found


async def until(look: Callable[[], object]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 10
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


@asynccontextmanager
async def listening(here: Standin) -> AsyncIterator[ClientResponse]:
    async with (
        serving(here.controller, port=0) as url,
        ClientSession() as session,
        session.get(f"{url}{PREFIX}/events") as stream,
    ):
        assert stream.status == 200
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert await block(stream) == ["retry: 2000"]
        yield stream


async def test_the_state_comes_at_once_and_then_what_changes_and_nothing_else() -> None:
    here = story()
    async with listening(here) as stream:
        first = await event(stream)
        assert first == json.loads(msgspec.json.encode(World(here.controller).state()))
        assert await block(stream) == [": nothing new"]
        here.see(foreign.NODES, *(node(f"more-{i}", "r3") for i in range(50)))  # together: one event
        assert (await event(stream))["revision"] == here.controller.revision == first["revision"] + 50
        assert await block(stream) == [": nothing new"]
        here.controller.leading = False
        here.controller.leadership.holder = "two"
        last = await event(stream)
        assert (last["leading"], last["role"], last["leader"]) == (False, "standing by", "two")
        assert await block(stream) == [": nothing new"]


async def test_time_alone_is_no_news() -> None:
    here = story()
    async with listening(here) as stream:
        await event(stream)
        here.later(3600)
        assert await block(stream) == [": nothing new"]


async def test_the_streams_end_with_the_server() -> None:
    here = story()
    async with ClientSession() as session:
        async with serving(here.controller, port=0) as url:
            stream = await session.get(f"{url}{PREFIX}/events")
            await block(stream)
            await event(stream)
            began = time.monotonic()
        rest = await stream.content.read()
    assert rest.replace(b": nothing new\n\n", b"") == b""
    assert time.monotonic() - began < 0.9  # the server waits a second for handlers that do not end


class Told:
    """A live stream whose state the test sets."""

    def __init__(self) -> None:
        self.now = state(1)
        self.looks = 0
        self.live = Live(directly, self._state)

    def _state(self) -> objects.Controller:
        self.looks += 1
        return self.now

    @asynccontextmanager
    async def served(self) -> AsyncIterator[TestClient[Any, Any]]:
        app = web.Application()
        app.router.add_get("/events", self.live.events)
        app.on_shutdown.append(self._end)
        async with TestClient(TestServer(app)) as client:
            yield client

    async def _end(self, _: web.Application) -> None:
        await self.live.close()


async def test_nothing_looks_while_nobody_listens() -> None:
    told = Told()
    async with told.served() as client:
        assert asyncio.all_tasks() == {task for task in asyncio.all_tasks() if task.get_name() != "events"}
        one = await client.get("/events")
        other = await client.get("/events")
        await block(one), await event(one), await block(other), await event(other)
        await until(lambda: told.looks > 5)
        one.close()
        await until(lambda: told.live.clients == 1)  # at once, although nothing is written to it
        told.now = state(2)
        assert (await event(other))["revision"] == 2
        other.close()
        await until(lambda: told.live.clients == 0)
        assert [task for task in asyncio.all_tasks() if task.get_name() == "events"] == []
        again = await client.get("/events")  # and it begins anew
        await block(again), await event(again)
        told.now = state(3)
        assert (await event(again))["revision"] == 3


async def test_no_more_clients_than_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CLIENTS", 2)
    told = Told()
    async with told.served() as client:
        streams = [await client.get("/events") for _ in range(2)]
        async with client.get("/events") as refused:
            found = await refused.json()
            assert (refused.status, refused.headers["Retry-After"], found["kind"]) == (503, "10", "Status")
            assert found["message"] == "2 event streams are open, and no more are served; ask /controller instead"
        streams[0].close()
        await until(lambda: told.live.clients == 1)
        async with client.get("/events") as stream:
            assert stream.status == 200
            await block(stream)
            assert (await event(stream))["revision"] == 1


async def test_a_mailbox_holds_the_latest_state_alone() -> None:
    mailbox = Mailbox()
    for number in range(1000):
        mailbox.put(state(number))
    found = await mailbox.take(10)
    assert found is not None
    assert found.revision == 999
    assert await mailbox.take(0.01) is None
    mailbox.close()
    assert await mailbox.take(10) is None


async def test_a_client_that_does_not_read_skips_states_and_keeps_nobody_waiting() -> None:
    """Twenty megabytes of states pass by while it sleeps: it gets some, and then the last."""
    told = Told()
    async with told.served() as client:
        quick = await client.get("/events")
        await block(quick), await event(quick)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", client.port))
        await loop.sock_sendall(slow, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: told.live.clients == 2)
        last = 300
        for number in range(2, last + 1):
            told.now = state(number, "x" * 70_000)
            assert (await event(quick))["revision"] == number
        read = b""
        async with asyncio.timeout(30):
            while f"id: {last}\n".encode() not in read:
                read += await loop.sock_recv(slow, 1 << 20)
        assert read.count(b"event: state") < last / 2
        slow.close()
        await until(lambda: told.live.clients == 1)


async def test_a_client_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STUCK", 0.2)
    told = Told()
    async with told.served() as client:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", client.port))
        await loop.sock_sendall(slow, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: told.live.clients == 1)
        told.now = state(2, "x" * 8_000_000)
        await until(lambda: told.live.clients == 0)
        slow.close()


async def test_a_controller_that_is_silent_for_a_while_ends_no_stream() -> None:
    told = Told()
    silent = False

    async def asked(read: Callable[[], Any]) -> Any:
        if silent:
            raise Silent("the controller did not answer for 10 s")
        return read()

    told.live = Live(asked, told._state)
    async with told.served() as client:
        stream = await client.get("/events")
        await block(stream), await event(stream)
        silent = True
        assert await block(stream) == [": nothing new"]
        told.now, silent = state(2), False
        assert (await event(stream))["revision"] == 2
        silent = True
        async with client.get("/events") as refused:
            assert refused.status == 500  # without the guard of the whole application, which makes it a 503


async def test_a_view_that_is_used_again_holds_its_number_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event only comes when whoever asks thereafter gets what it stands for."""
    monkeypatch.setattr(world_module, "MAX_AGE", 1000.0)
    here = story()
    clock = [0.0]
    world = World(here.controller, lambda: clock[0])
    told = Told()
    told.live = Live(directly, world.state)
    async with told.served() as client:
        stream = await client.get("/events")
        await block(stream)
        first = await event(stream)
        assert len(world.view().nodes) == 4
        here.see(foreign.NODES, node("gpu-4", "r3"))
        assert await block(stream) == [": nothing new"]
        clock[0] = 1000.0
        assert (await event(stream))["revision"] == first["revision"] + 1
        assert len(world.view().nodes) == 5
