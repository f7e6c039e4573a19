"""The stream behind ``Cluster.watch``: one HTTP watch, with the current state before it when no version is given.

It starts, reads and ends one stream; when to start the next one, and with what back-off, is for the informer above to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import aiohttp

from queuectl.contract.foreign import Kind, Meta
from queuectl.control.ports import Bookmark, Deleted, Event, Expired, Refused, Unreachable, Upserted
from queuectl.drivers.kube.decode import decoders
from queuectl.drivers.kube.session import Session

PAGE = 500  # objects; client-go's page, about 3 MB of pods
GATHER = 0.02  # seconds between two reads of a live stream
LITTLE = 2**16  # bytes at one read: a stream that brings more is behind, and is not made to wait
RESTARTS = 3  # of a list whose continue token expired under it; then the caller hears Expired and backs off


class Lines:
    """Cut chunks into lines, of any length: an object may be larger than any buffer."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, empty ones left out."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        if not others:
            return []
        whole = b"".join(self._parts)
        self._parts = [others.pop()]
        return [line for line in (whole, *others) if line]

    @property
    def pending(self) -> bool:
        """Whether a line has begun and not ended."""
        return any(self._parts)


async def watch(session: Session, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
    """See ``Cluster.watch``. One connection for as long as it is iterated; close it with ``aclosing``.

    Memory: one chunk (at most 4 MiB) or one page at a time. Time: about 15 µs an event beside what the consumer does.
    """
    if since is None and session.watch_list:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            async with aclosing(_stream(session, kind, query, initial=True)) as events:
                async for event in events:
                    yield event
        except Refused as error:
            if not _unserved(error):
                raise
            session.watch_list = False
        else:
            return
    if since is None:
        async with aclosing(_pages(session, kind)) as events:
            async for event in events:
                if isinstance(event, Bookmark):
                    since = event.version
                yield event
    async with aclosing(_stream(session, kind, {"resourceVersion": since}, initial=False)) as events:
        async for event in events:
            yield event


async def _stream(
    session: Session, kind: Kind, query: Mapping[str, object], *, initial: bool
) -> AsyncGenerator[Event, None]:
    """Events of one HTTP watch until the server ends it; ``initial``: not before the bookmark that ends the initial state."""
    timing = session.timing
    seconds = timing.draw()
    query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), **query}
    path, decode, lines = kind.path(), decoders(kind.type).line, Lines()
    async with session.open("GET", path, query) as response:
        if not initial:
            yield Bookmark(str(query["resourceVersion"]))  # it is live, though the first event may be minutes away
        while True:
            # Initial events flow without a pause; afterwards nothing may happen for as long as the watch lasts.
            async with asyncio.timeout(timing.opening if initial else seconds + timing.silence):
                chunk = await response.content.readany()
            if not chunk:
                break
            for line in lines.feed(chunk):
                event = decode(line)
                if isinstance(event, Bookmark) and event.synced:
                    initial = False
                yield event
            if not initial and len(chunk) < LITTLE:
                await _gather(response)
    if lines.pending:
        raise Unreachable(f"watch {path}: cut in the middle of an event")
    if initial:
        raise Unreachable(f"watch {path}: ended before the initial state was complete")


async def _gather(response: aiohttp.ClientResponse) -> None:
    """Let events come together, unread: each one that wakes us alone costs twice what it costs among others."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is None:
        return  # closed; the next read says so
    transport.pause_reading()
    try:
        await asyncio.sleep(GATHER)
    finally:
        transport.resume_reading()


async def _pages(session: Session, kind: Kind) -> AsyncGenerator[Event, None]:
    """The current state by pages, then ``Bookmark(synced=True)`` with the list's version.

    When the continue token expires, the list starts again: what was told of objects that are gone by then is taken back.
    """
    path, decode = kind.path(), decoders(kind.type).page
    told: dict[str, Meta] = {}
    for attempt in range(RESTARTS):
        seen: dict[str, Meta] = {}
        token = ""
        try:
            while True:
                query = {"limit": PAGE, **({"continue": token} if token else {})}
                events, page = decode(await session.request("GET", path, query, seconds=session.timing.page))
                for event in events:
                    if isinstance(event, Upserted):
                        seen[event.object.metadata.uid] = event.object.metadata
                    yield event
                token = page.continue_
                if not token:
                    break
        except Expired:
            told |= seen
            if attempt + 1 == RESTARTS:
                raise
            continue
        for uid, meta in told.items():
            if uid not in seen:
                yield Deleted(kind.type(metadata=meta))
        yield Bookmark(page.resource_version, synced=True)
        return


def _unserved(error: Refused) -> bool:
    """Whether the server does not know, or has switched off, initial events in a watch."""
    return error.status in {400, 422} and (
        "sendInitialEvents" in error.message or "resourceVersionMatch" in error.message
    )
