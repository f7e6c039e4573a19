"""The fault proxy in front of the real API server: each fault looks to a client as it would without the proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.rig.client import Api, ApiError, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.proxy import Proxy

pytestmark = pytest.mark.rig


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[Proxy]:
    async with Proxy(control_plane.pki, control_plane.admin_kubeconfig) as running:
        yield running


@pytest.fixture
async def api(proxy: Proxy) -> AsyncIterator[Api]:
    async with Api(proxy.kubeconfig) as client:
        yield client


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


class Watching:
    """A watch of a namespace's ConfigMaps in the background: its events so far, and how it ended."""

    def __init__(self, api: Api, path: str, **query: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended: BaseException | str = ""
        self._task = asyncio.create_task(self._run(api, path, query))

    async def _run(self, api: Api, path: str, query: dict[str, Any]) -> None:
        try:
            async for event in api.watch(path, **query):
                self.events.append(event)
            self.ended = "end of stream"
        except aiohttp.ClientError as error:
            self.ended = error

    def names(self) -> list[str]:
        """Names of what was added, without the certificates that every namespace gets at some time."""
        names = [e["object"]["metadata"].get("name", "") for e in self.events if e["type"] == "ADDED"]
        return [name for name in names if name != "kube-root-ca.crt"]

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


@pytest.fixture
async def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
async def watching(api: Api, proxy: Proxy, admin: Api, maps: str) -> AsyncIterator[Watching]:
    """A watch through the proxy that has shown its first event."""
    start = (await admin.get(maps))["metadata"]["resourceVersion"]
    watching = Watching(api, maps, resourceVersion=start)
    await admin.create(maps, config_map("first"))
    await eventually(lambda: watching.names() == ["first"])
    assert proxy.watches("configmaps") == 1
    yield watching
    await watching.stop()
    await eventually(lambda: proxy.watches("configmaps") == 0, what="the proxy notices a client that left")


async def test_relays_and_counts(api: Api, proxy: Proxy, maps: str) -> None:
    await api.create(maps, config_map("a"))
    await api.get(f"{maps}/a")
    await api.list(maps, limit=1)
    await api.delete(f"{maps}/a")
    counts = proxy.counts()
    assert counts["POST", maps, ""] == counts["GET", f"{maps}/a", ""] == counts["GET", maps, "limit=1"] == 1
    assert [r.status for r in proxy.requests] == [201, 200, 200, 200]
    assert proxy.connections == 1  # kept alive


async def test_a_large_reply_is_relayed_whole(api: Api, admin: Api, maps: str) -> None:
    text = "x" * 900_000  # near the store's limit of 1 MiB: more than one read, more than one chunk
    await admin.create(maps, {**config_map("big"), "data": {"text": text}})
    assert (await api.get(f"{maps}/big"))["data"]["text"] == text


async def test_answers_429_so_many_times(api: Api, proxy: Proxy, maps: str) -> None:
    rule = proxy.answer(429, "POST", "/configmaps$", times=2, retry_after=3)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            await api.create(maps, config_map("a"))
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "3")
    await api.get(maps)
    await api.create(maps, config_map("a"))
    assert rule.hits == 2


async def test_answers_410_and_503(api: Api, proxy: Proxy, maps: str) -> None:
    proxy.answer(410, "GET", "resourceVersion=7")
    with pytest.raises(ApiError) as gone:
        await api.list(maps, resourceVersion="7")
    assert (gone.value.status, gone.value.reason) == (410, "Expired")
    proxy.answer(503)
    with pytest.raises(ApiError) as unavailable:
        await api.list(maps)
    assert unavailable.value.status == 503


async def test_cut_before_the_server_sees_it(api: Api, admin: Api, proxy: Proxy, maps: str) -> None:
    proxy.cut_before("POST", "/configmaps")
    with pytest.raises(aiohttp.ClientError):
        await api.create(maps, config_map("a"))
    with pytest.raises(ApiError, match="404"):
        await admin.get(f"{maps}/a")


async def test_cut_after_commit(api: Api, admin: Api, proxy: Proxy, maps: str) -> None:
    proxy.cut_after_commit("POST", "/configmaps")
    with pytest.raises(aiohttp.ClientError):
        await api.create(maps, config_map("a"))
    assert await admin.get(f"{maps}/a")  # no reply came, and yet it is there


async def test_stall_then_go_on(api: Api, admin: Api, proxy: Proxy, maps: str) -> None:
    rule = proxy.stall("POST", "/configmaps")
    sending = asyncio.create_task(api.create(maps, config_map("a")))
    await eventually(lambda: rule.hits == 1)
    with pytest.raises(ApiError, match="404"):
        await admin.get(f"{maps}/a")
    assert not sending.done()
    proxy.lift(rule)
    assert (await sending)["metadata"]["name"] == "a"


async def test_stall_the_reply_of_a_committed_write(api: Api, admin: Api, proxy: Proxy, maps: str) -> None:
    rule = proxy.stall_reply("POST", "/configmaps")
    sending = asyncio.create_task(api.create(maps, config_map("a")))
    await admin.wait(maps, lambda found: any(m["metadata"]["name"] == "a" for m in found["items"]))
    assert not sending.done()
    proxy.lift(rule)
    assert (await sending)["metadata"]["name"] == "a"


async def test_delay(api: Api, proxy: Proxy, maps: str) -> None:
    proxy.delay(0.2, "GET", "/configmaps", times=1)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await api.get(maps)
    assert loop.time() - before >= 0.2


async def test_cut_a_watch(watching: Watching, proxy: Proxy) -> None:
    assert proxy.cut("configmaps") == 1
    await eventually(lambda: watching.ended)
    assert isinstance(watching.ended, aiohttp.ClientError)


async def test_expire_a_watch(watching: Watching, proxy: Proxy) -> None:
    assert proxy.expire("configmaps") == 1
    await eventually(lambda: watching.ended)
    assert watching.ended == "end of stream"
    assert (watching.events[-1]["type"], watching.events[-1]["object"]["code"]) == ("ERROR", 410)


async def test_freeze_a_watch(watching: Watching, admin: Api, proxy: Proxy, maps: str) -> None:
    frozen = proxy.freeze("configmaps.*watch=")
    await admin.create(maps, config_map("second"))
    async with Api(proxy.kubeconfig) as other:  # a request that is not frozen passes, and is later than the event
        assert len([m for m in await other.list(maps) if m["metadata"]["name"] != "kube-root-ca.crt"]) == 2
    assert watching.names() == ["first"]
    assert not watching.ended
    proxy.thaw(frozen)
    await eventually(lambda: watching.names() == ["first", "second"])


async def test_cut_after_bytes(api: Api, admin: Api, proxy: Proxy, maps: str) -> None:
    start = (await admin.get(maps))["metadata"]["resourceVersion"]
    proxy.cut_after_bytes(100, "GET", "watch=")  # an event has more than 300
    watching = Watching(api, maps, resourceVersion=start)
    await admin.create(maps, config_map("first"))
    await eventually(lambda: watching.ended)
    assert isinstance(watching.ended, aiohttp.ClientPayloadError)
    assert watching.events == []


async def test_down_and_up(watching: Watching, api: Api, proxy: Proxy, maps: str) -> None:
    proxy.down()
    await eventually(lambda: watching.ended)
    with pytest.raises(aiohttp.ClientError):
        await api.get(maps)
    proxy.up()
    assert await api.get(maps)
