"""Watches against a scripted server: what a real one cannot be made to send."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from queuectl.contract.foreign import PODS, QUEUES, Kind
from queuectl.control.ports import (
    Bookmark,
    Deleted,
    Event,
    Expired,
    Malformed,
    Refused,
    Throttled,
    Unreachable,
    Upserted,
)
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.watch import Lines
from tests.drivers.fake_server import QUICK, FakeServer, answer, stream

BROKEN = {"metadata": {"name": "bad", "namespace": "n", "uid": "ub", "labels": {"a": 5}}, "spec": {"nodeName": "x"}}


def pod(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"u{name}", "resourceVersion": str(version)}}


def line(kind: str, thing: object) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {"containers": None}})


def page(items: list[Any], version: int, token: str = "") -> dict[str, Any]:
    return {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": token}, "items": items}


def brief(event: Event) -> str:
    match event:
        case Upserted(object=thing):
            return f"+{thing.metadata.name}"
        case Deleted(object=thing):
            return f"-{thing.metadata.name}"
        case Malformed(name=name):
            return f"?{name}"
        case Bookmark(version=version, synced=synced):
            return f"{'=' if synced else '~'}{version}"


async def collect(cluster: KubeCluster, since: str | None, kind: Kind = PODS) -> tuple[list[str], Exception | None]:
    """All events in short, and how the stream ended; without the bookmark that must stand where a watch was opened."""
    seen: list[str] = []
    ended: Exception | None = None
    try:
        async with aclosing(cluster.watch(kind, since)) as events:
            async for event in events:
                seen.append(brief(event))  # noqa: PERF401  what came before an exception counts
    except (Expired, Refused, Throttled, Unreachable) as error:
        ended = error
    if since is not None and seen:
        assert seen.pop(0) == f"~{since}"
    for at, one in enumerate(seen):
        if one.startswith("=") and seen[at + 1 : at + 2] == [f"~{one[1:]}"]:  # a list by pages, and then a watch
            del seen[at + 1]
            break
    return seen, ended


async def test_initial_state_and_what_follows(server: FakeServer, cluster: KubeCluster) -> None:
    server.then(
        stream(
            line("ADDED", pod("a")),
            bookmark(2),  # an ordinary bookmark is not the end of the initial state
            line("ADDED", pod("b")) + bookmark(3, end=True),
            line("MODIFIED", pod("a", 4)) + line("DELETED", pod("b", 5)),
            bookmark(9),
        )
    )
    assert await collect(cluster, None) == (["+a", "~2", "+b", "=3", "+a", "-b", "~9"], None)
    query = server.requests[0].query
    assert dict(query) == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


async def test_resuming_asks_for_what_happened_after(server: FakeServer, cluster: KubeCluster) -> None:
    server.then(stream(line("ADDED", pod("a", 8))))
    assert await collect(cluster, "7") == (["+a"], None)
    assert server.requests[0].query["resourceVersion"] == "7"
    assert "sendInitialEvents" not in server.requests[0].query


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            422,
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate",
        ),
        (400, "resourceVersionMatch is forbidden for watch"),
    ],
)
async def test_a_server_without_watch_lists_is_listed_by_pages(
    server: FakeServer, cluster: KubeCluster, status: int, message: str
) -> None:
    server.then(answer(status, {"message": message}))
    server.then(answer(200, page([pod("a"), pod("b")], 5, token="next/+=")))
    server.then(answer(200, page([pod("c")], 5)))
    server.then(stream(line("ADDED", pod("d", 6))))
    assert await collect(cluster, None) == (["+a", "+b", "+c", "=5", "+d"], None)
    queries = [dict(r.query) for r in server.requests]
    assert queries[1] == {"limit": "500"}
    assert queries[2] == {"limit": "500", "continue": "next/+="}
    assert queries[3]["resourceVersion"] == "5"
    server.script = [answer(200, page([], 9)), stream()]
    assert await collect(cluster, None) == (["=9"], None)  # and it is not asked for watch lists again
    assert len(server.requests) == 6


async def test_another_refusal_is_not_taken_for_an_old_server(server: FakeServer, cluster: KubeCluster) -> None:
    server.then(answer(403, {"message": "pods is forbidden"}))
    seen, error = await collect(cluster, None)
    assert seen == []
    assert isinstance(error, Refused)
    assert len(server.requests) == 1


async def test_a_list_that_expires_starts_again_and_takes_back_what_is_gone(
    server: FakeServer, cluster: KubeCluster
) -> None:
    cluster.session.watch_list = False
    gone = answer(410, {"message": "The provided continue parameter is too old"})
    server.then(answer(200, page([pod("a"), pod("b")], 5, token="x")))
    server.then(gone)
    server.then(answer(200, page([pod("b")], 9, token="y")))
    server.then(answer(200, page([pod("c")], 9)))
    server.then(stream())
    assert await collect(cluster, None) == (["+a", "+b", "+b", "+c", "-a", "=9"], None)
    server.script = [answer(200, page([pod("a")], 5, token="x")), gone] * 3
    seen, error = await collect(cluster, None)
    assert seen == ["+a", "+a", "+a"]
    assert isinstance(error, Expired)


async def test_one_bad_object_harms_nobody(server: FakeServer, cluster: KubeCluster) -> None:
    deep = (
        b'{"type":"ADDED","object":{"metadata":{"name":"deep","namespace":"n"},"x":'
        + b"[" * 5000
        + b"]" * 5000
        + b"}}\n"
    )
    server.then(
        stream(
            line("ADDED", pod("a")) + line("ADDED", BROKEN) + line("ADDED", {"metadata": {"name": 7}}),
            line("ADDED", {"spec": []}) + deep + line("DELETED", {"metadata": pod("d")["metadata"], "spec": 3}),
            line("ADDED", pod("b")) + bookmark(3, end=True),
        )
    )
    assert await collect(cluster, None) == (["+a", "?bad", "?", "?", "?deep", "-d", "+b", "=3"], None)
    cluster.session.watch_list = False
    server.script = [answer(200, page([pod("a"), BROKEN, None, pod("b")], 5)), stream()]
    assert await collect(cluster, None) == (["+a", "?bad", "?", "+b", "=5"], None)
    server.script = [answer(200, page([pod("a"), BROKEN, pod("b")], 5))]
    assert [p.metadata.name for p in await cluster.list(PODS)] == ["a", "b"]


async def test_what_can_be_read_of_a_bad_object(server: FakeServer, cluster: KubeCluster) -> None:
    server.then(stream(line("ADDED", BROKEN)))
    async with aclosing(cluster.watch(PODS, "1")) as events:
        assert await anext(events) == Bookmark("1")
        event = await anext(events)
    assert isinstance(event, Malformed)
    assert (event.namespace, event.name, event.uid) == ("n", "bad", "ub")
    assert "labels" in event.message


async def test_a_custom_resource_is_not_judged_here(server: FakeServer, cluster: KubeCluster) -> None:
    odd = {"metadata": {"name": "q"}, "spec": {"weight": "heavy", "x": [1, {"y": None}]}}
    server.then(stream(line("ADDED", odd)))
    assert await collect(cluster, "1", QUEUES) == (["+q"], None)


@pytest.mark.parametrize(
    ("code", "exception"), [(410, Expired), (429, Throttled), (500, Unreachable), (403, Unreachable)]
)
async def test_errors_in_the_stream(
    server: FakeServer, cluster: KubeCluster, code: int, exception: type[Exception]
) -> None:
    error = {"kind": "Status", "metadata": {}, "code": code, "message": "too old", "details": {"retryAfterSeconds": 4}}
    server.then(stream(line("ADDED", pod("a")) + line("ERROR", error) + line("ADDED", pod("b"))))
    seen, raised = await collect(cluster, "1")
    assert seen == ["+a"]
    assert type(raised) is exception
    assert "too old" in str(raised)
    if isinstance(raised, Throttled):
        assert raised.retry_after == 4


@pytest.mark.parametrize("status", [(410, Expired), (429, Throttled), (503, Unreachable), (403, Refused)])
async def test_the_status_is_looked_at_before_the_stream(
    server: FakeServer, cluster: KubeCluster, status: tuple[int, type[Exception]]
) -> None:
    server.then(answer(status[0], "plain text\nin lines\n"))
    seen, raised = await collect(cluster, "1")
    assert seen == []
    assert type(raised) is status[1]
    assert len(server.requests) == 1  # when to ask again is for the caller to say


async def test_ends_that_are_none(server: FakeServer, cluster: KubeCluster) -> None:
    half = line("ADDED", pod("b"))[:40]
    for since, handler, seen, message in (
        ("1", stream(line("ADDED", pod("a")) + half), ["+a"], "cut in the middle of an event"),
        ("1", stream(line("ADDED", pod("a")) + half, cut=True), ["+a"], ""),
        (None, stream(line("ADDED", pod("a"))), ["+a"], "before the initial state was complete"),
        ("1", stream(line("ADDED", pod("a")) + b"upstream error\n"), ["+a"], "not a watch event: upstream error"),
        ("1", stream(line("NEWS", pod("a"))), [], "type 'NEWS'"),
    ):
        server.script = [handler]
        found, error = await collect(cluster, since)
        assert found == seen
        assert isinstance(error, Unreachable)
        assert message in str(error)


async def test_silence_ends_a_stream_within_the_configured_time(server: FakeServer, cluster: KubeCluster) -> None:
    loop = asyncio.get_running_loop()
    for since, seconds in ((None, QUICK.opening), ("1", 1 + QUICK.silence)):
        server.script = [stream(line("ADDED", pod("a")), 60.0)]
        began = loop.time()
        found, error = await collect(cluster, since)
        assert found == ["+a"]
        assert isinstance(error, Unreachable)
        assert "timed out" in str(error)
        assert seconds <= loop.time() - began < seconds + 5

    async def mute(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    server.script = [mute]  # not even headers
    assert isinstance((await collect(cluster, "1"))[1], Unreachable)


async def test_a_watch_says_that_it_is_open_before_anything_happens(server: FakeServer, cluster: KubeCluster) -> None:
    """Nothing may happen on it for minutes, and that is no reason to take the view of the cluster for old."""
    server.then(stream())
    async with aclosing(cluster.watch(PODS, "7")) as events:
        assert await anext(events) == Bookmark("7")


async def test_an_event_larger_than_any_buffer(server: FakeServer, cluster: KubeCluster) -> None:
    huge = pod("huge")
    huge["metadata"]["annotations"] = {"a": "x" * 6_000_000}
    server.then(stream(line("ADDED", huge) + line("ADDED", pod("a"))))
    assert await collect(cluster, "1") == (["+huge", "+a"], None)


async def test_closing_the_iterator_closes_the_connection(server: FakeServer, tmp_path: Path) -> None:
    server.then(stream(line("ADDED", pod("a")), 60.0))
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=QUICK) as cluster:
        async with aclosing(cluster.watch(PODS, "1")) as events:
            await anext(events)
            transport = server.requests[0].transport
            assert transport is not None
            assert not transport.is_closing()
        async with asyncio.timeout(5):
            while server.requests[0].transport is not None:  # noqa: ASYNC110  aiohttp has no event for it
                await asyncio.sleep(0.01)


def test_lines_come_whole_however_they_are_cut() -> None:
    text = b"one\ntwo\n\nthree is longer\nrest"
    for size in range(1, len(text) + 1):
        lines = Lines()
        got = [part for at in range(0, len(text), size) for part in lines.feed(text[at : at + size])]
        assert got == [b"one", b"two", b"three is longer"]
        assert lines.pending
        assert lines.feed(b"\n") == [b"rest"]
        assert not lines.pending
