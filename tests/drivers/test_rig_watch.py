"""Watches of the real API server through the fault proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from queuectl.contract.foreign import LEASES
from queuectl.control.ports import Bookmark, Deleted, Event, Expired, Throttled, Unreachable, Upserted
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.session import Timing
from tests.rig.client import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.proxy import Proxy

pytestmark = pytest.mark.rig

# Streams long enough not to end by themselves, and silence of 3 s at most; `silence` is what comes on top of `watch`.
TIMING = Timing(request=10, opening=3, watch=(300, 300), silence=-297)
WATCH = "leases.*watch="


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[Proxy]:
    async with Proxy(control_plane.pki, control_plane.admin_kubeconfig) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["watch-list", "pages"])
async def cluster(proxy: Proxy, request: pytest.FixtureRequest) -> AsyncIterator[KubeCluster]:
    async with KubeCluster.connect(proxy.kubeconfig, timing=TIMING, watch_list=request.param) as connected:
        yield connected


class Namespace:
    """The leases of one namespace, which nobody else touches."""

    def __init__(self, admin: Api, name: str) -> None:
        self.admin = admin
        self.name = name
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"

    async def put(self, name: str) -> None:
        await self.admin.create(self.path, {"metadata": {"name": name, "namespace": self.name}})

    async def upto(self, events: AsyncGenerator[Event, None], name: str) -> list[str]:
        """What the stream says of this namespace until it speaks of ``name`` ("=": until it is synced)."""
        seen: list[str] = []
        async for event in events:
            match event:
                case Upserted(object=thing) | Deleted(object=thing) if thing.metadata.namespace == self.name:
                    seen.append(("+" if isinstance(event, Upserted) else "-") + thing.metadata.name)
                case Bookmark(synced=True):
                    seen.append("=")
                case _:
                    continue
            if seen[-1].endswith(name):
                return seen
        raise AssertionError(f"the stream ended after {seen}")


@pytest.fixture
async def here(admin: Api, namespace: str) -> Namespace:
    return Namespace(admin, namespace)


async def test_the_state_then_the_mark_then_the_news(here: Namespace, cluster: KubeCluster) -> None:
    await here.put("a")
    await here.put("b")
    async with aclosing(cluster.watch(LEASES, None)) as events:
        first = await here.upto(events, "=")
        assert sorted(first[:-1]) == ["+a", "+b"]
        await here.put("c")
        assert await here.upto(events, "c") == ["+c"]
        await here.admin.patch(f"{here.path}/a", {"spec": {"holderIdentity": "x"}})
        await here.admin.delete(f"{here.path}/b")
        assert await here.upto(events, "b") == ["+a", "-b"]


async def test_a_stream_is_resumed_without_a_gap(here: Namespace, cluster: KubeCluster, proxy: Proxy) -> None:
    await here.put("a")
    version = ""
    async with aclosing(cluster.watch(LEASES, None)) as events:
        await here.upto(events, "=")
        await here.put("b")
        async for event in events:
            if isinstance(event, Upserted) and event.object.metadata.name == "b":
                version = event.object.metadata.resource_version
                break
        proxy.cut(WATCH)
        await here.put("c")
        with pytest.raises(Unreachable):
            await here.upto(events, "never")
    await here.put("d")
    async with aclosing(cluster.watch(LEASES, version)) as events:
        assert await here.upto(events, "d") == ["+c", "+d"]


async def test_a_cut_in_the_middle_of_an_event(here: Namespace, cluster: KubeCluster, proxy: Proxy) -> None:
    start = (await here.admin.get(here.path))["metadata"]["resourceVersion"]
    proxy.cut_after_bytes(150, "GET", WATCH)
    async with aclosing(cluster.watch(LEASES, start)) as events:
        await here.put("a")
        with pytest.raises(Unreachable):
            await here.upto(events, "a")


async def test_a_half_open_connection_ends_within_the_configured_time(
    here: Namespace, cluster: KubeCluster, proxy: Proxy
) -> None:
    loop = asyncio.get_running_loop()
    async with aclosing(cluster.watch(LEASES, None)) as events:
        await here.upto(events, "=")
        frozen = proxy.freeze(WATCH)
        began = loop.time()
        await here.put("a")
        with pytest.raises(Unreachable, match="timed out"):
            await here.upto(events, "a")
        assert 2.5 < loop.time() - began < 10
    began = loop.time()
    start = (await here.admin.get(here.path))["metadata"]["resourceVersion"]
    async with aclosing(cluster.watch(LEASES, start)) as events:  # and one that was never answered
        with pytest.raises(Unreachable, match="timed out"):
            await anext(events)
    assert loop.time() - began < 10
    proxy.thaw(frozen)


async def test_the_initial_state_may_not_stall(here: Namespace, proxy: Proxy) -> None:
    async with KubeCluster.connect(proxy.kubeconfig, timing=TIMING) as cluster:
        proxy.stall("GET", "leases")
        async with aclosing(cluster.watch(LEASES, None)) as events:
            with pytest.raises(Unreachable, match="timed out"):
                await anext(events)


async def test_an_old_version_is_expired_by_status_or_in_the_stream(
    here: Namespace, cluster: KubeCluster, proxy: Proxy
) -> None:
    proxy.answer(410, "GET", "leases.*resourceVersion=1")
    with pytest.raises(Expired):
        await anext(cluster.watch(LEASES, "1"))
    start = (await here.admin.get(here.path))["metadata"]["resourceVersion"]
    async with aclosing(cluster.watch(LEASES, start)) as events:
        await here.put("a")
        await here.upto(events, "a")
        assert proxy.expire(WATCH) == 1
        with pytest.raises(Expired, match="too old resource version"):
            await here.upto(events, "never")


async def test_a_throttled_and_an_absent_server(cluster: KubeCluster, proxy: Proxy) -> None:
    proxy.answer(429, "GET", "leases", retry_after=6)
    with pytest.raises(Throttled) as throttled:
        await anext(cluster.watch(LEASES, None))
    assert throttled.value.retry_after == 6
    proxy.answer(503, "GET", "leases")
    with pytest.raises(Unreachable):
        await anext(cluster.watch(LEASES, None))
    proxy.down()
    with pytest.raises(Unreachable):
        await anext(cluster.watch(LEASES, None))


async def test_the_server_ends_the_stream_in_its_time(here: Namespace, proxy: Proxy) -> None:
    async with KubeCluster.connect(proxy.kubeconfig, timing=Timing(watch=(1, 1))) as cluster:
        await here.put("a")
        async with aclosing(cluster.watch(LEASES, None)) as events:
            assert "=" in await here.upto(events, "=")
            async with asyncio.timeout(20):
                async for _ in events:
                    pass


async def test_pages_that_expire_start_again(here: Namespace, proxy: Proxy) -> None:
    await asyncio.gather(*(here.put(f"lease-{n:03d}") for n in range(510)))
    proxy.answer(410, "GET", "leases.*continue=")
    async with KubeCluster.connect(proxy.kubeconfig, timing=TIMING, watch_list=False) as cluster:
        async with aclosing(cluster.watch(LEASES, None)) as events:
            seen = await here.upto(events, "=")
        assert set(seen) == {f"+lease-{n:03d}" for n in range(510)} | {"="}
        assert sum("continue=" in r.query for r in proxy.requests) == 2
