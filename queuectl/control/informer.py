"""List and watch one kind for ever, above Cluster: resume where a stream ended, start anew when its past is gone."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing

from queuectl.contract import owners
from queuectl.contract.foreign import Kind
from queuectl.control.mirror import older
from queuectl.control.ports import (
    Bookmark,
    Clock,
    Cluster,
    ClusterError,
    Event,
    Expired,
    Malformed,
    NotFound,
    Throttled,
    Upserted,
)
from queuectl.control.source import Source
from queuectl.model.changes import Change

log = logging.getLogger(__name__)

OPTIONAL = frozenset(row.kind for row in owners.OWNERS.values() if row.optional)

LOOK_AGAIN = 300.0  # seconds between two looks for a kind that the cluster does not know
LOOK_SOON = (
    5.0  # … and after something has named an owner of that kind: it may be there now, or its definition just went
)
FIRST_WAIT, LAST_WAIT = 0.1, 15.0  # seconds between attempts to connect, doubling
BREATH = 200  # events after which other tasks get a turn: about 5 ms of work


def take_in(source: Source, kind: Kind, event: Event, observe: Callable[[list[Change]], None]) -> None:
    """One event into the mirror; ``observe`` hears of what follows from it.

    Also where that is no change: what the engine does not ask about (pods that an owner counts) may still call for a write.
    """
    touched = len(source.touched)
    changes = source.apply(kind, event)
    if changes or len(source.touched) > touched:
        observe(changes)


class Informer:
    """Feeds a Source from one kind's events. ``synced`` once the first state is complete; it never goes back."""

    def __init__(
        self, cluster: Cluster, kind: Kind, source: Source, clock: Clock, observe: Callable[[list[Change]], None]
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.absent = False  # the cluster does not know this kind, which may be so of optional ones
        self.lists = 0  # times the whole state was read
        self.lost_at: float | None = clock.monotonic()  # since when there is no live stream; None while there is one
        self._cluster, self._source, self._clock, self._observe = cluster, source, clock, observe

    async def run(self) -> None:
        """Until cancelled. Connection trouble is waited out with jittered back-off; it never raises ClusterError."""
        since: str | None = None
        wait = FIRST_WAIT
        while True:
            started = self._clock.monotonic()
            if self._anew:
                self._anew, since = False, None
            try:
                self._streaming = asyncio.create_task(self._stream(since), name=f"{self.kind.plural} stream")
                since = await self._streaming
                if self._clock.monotonic() - started > 1.0:  # recycled by the server after a normal life
                    wait = FIRST_WAIT
                    continue
            except asyncio.CancelledError:
                if not self._anew:
                    raise
                continue
            except Expired:
                log.info("watch expired; reading the state anew", extra={"kind": self.kind.plural})
                since = None
            except Throttled as trouble:
                wait = max(wait, trouble.retry_after)
            except ClusterError as trouble:
                if isinstance(trouble, NotFound) and self.kind in OPTIONAL:
                    await self._without()
                    since, wait = None, FIRST_WAIT
                    continue
                log.warning("watch interrupted: %s", trouble.message, extra={"kind": self.kind.plural})
                since = self._version or since
            if self.lost_at is None and self._clock.monotonic() - started > LAST_WAIT:
                wait = FIRST_WAIT  # it was well until now: whatever ended the one before is long over
            self.lost_at = self.lost_at or self._clock.monotonic()
            await self._clock.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, not a secret
            wait = min(wait * 2, LAST_WAIT)

    _version: str | None = None
    _streaming: asyncio.Task[str | None] | None = None
    _anew = False

    async def renew(self) -> None:
        """Read the whole state anew; returns when it is complete, so that all that was written before the call is seen."""
        if self.absent:
            return
        self._anew = True
        self.synced.clear()
        if self._streaming is not None:
            self._streaming.cancel()
        await self.synced.wait()

    async def _stream(self, since: str | None) -> str | None:
        """One stream, to its end; returns the version to resume from."""
        reading = since is None
        seen: set[str] = set()
        if reading:
            self.lists += 1
            self._version = None
        count = 0
        async with aclosing(self._cluster.watch(self.kind, since)) as stream:
            async for event in stream:
                if not reading:
                    self.lost_at = None
                match event:
                    case Bookmark(version, synced):
                        self._version = version
                        if synced and reading:
                            reading = False
                            self._forget_all_but(seen, version)
                            self.synced.set()
                            self.lost_at = None
                    case Upserted(obj):
                        if reading:
                            seen.add(obj.metadata.uid)
                            self._source.exists(obj.metadata.uid)
                        else:
                            self._version = obj.metadata.resource_version
                    case Malformed(uid=uid) if reading:
                        seen.add(uid)  # it is there, whatever it looks like
                take_in(self._source, self.kind, event, self._observe)
                count += 1
                if count % BREATH == 0:
                    await asyncio.sleep(0)
        return self._version

    async def _without(self) -> None:
        """The cluster does not know the kind, or not any more: there are no such objects, until it is looked for again.

        So it is now and then, and soon where an object is controlled by one of them.
        """
        self._forget_all_but(set(), "")
        self.synced.set()
        self.lost_at, self.absent = None, True
        named = asyncio.Event()
        self._source.missed[self.kind.kind] = named.set
        waiting = asyncio.create_task(self._clock.sleep(LOOK_AGAIN)), asyncio.create_task(named.wait())
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            del self._source.missed[self.kind.kind]
            for task in waiting:
                task.cancel()
        if named.is_set():
            await self._clock.sleep(LOOK_SOON)
        self.absent = False

    def _forget_all_but(self, seen: set[str], version: str) -> None:
        """What the mirror holds and a complete state does not show was deleted while nobody looked.

        Not so what is newer than that state: we wrote it while the state was read.
        """
        for uid in sorted(self._source.known(self.kind) - seen):
            if older(version, self._source.version(self.kind, uid)):
                continue
            if changes := self._source.gone(self.kind, uid):
                self._observe(changes)
