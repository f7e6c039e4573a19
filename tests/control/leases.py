"""A cluster that holds one Lease, as several processes see it over connections that fail; and processes that lead.

Only what an election needs of the API: names, resourceVersion as a precondition, merge of the spec. Runs in virtual time.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from queuectl.contract.foreign import Kind, Lease
from queuectl.control.lease import Leadership, Terms
from queuectl.control.ports import Cluster, ClusterError, Conflict, NotFound

EPOCH = 1_800_000_000_000  # ms; when virtual time begins
POLL = 0.25  # s between two writes of a leader
TERMS = Terms()


class Clock:
    """The loop's clock. ``skew`` moves the wall time (ms), ``frozen`` stops it.

    While ``running`` is not set the process is stopped: nothing that it awaits returns, and time goes by.
    """

    def __init__(self) -> None:
        self.skew = 0
        self.frozen = False
        self.running = asyncio.Event()
        self.running.set()

    def now(self) -> int:
        return EPOCH + self.skew + (0 if self.frozen else int(asyncio.get_running_loop().time() * 1000))

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.running.wait()


class Store:
    """The Lease that all see, and all that ever was written: (time, holder, transitions)."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.history: list[tuple[float, str, int]] = []

    @property
    def holder(self) -> str:
        return "" if self.lease is None else self.lease["spec"].get("holderIdentity") or ""

    def write(self, spec: Mapping[str, Any], version: str | None) -> dict[str, Any]:
        """Merge into the spec; a version that is not the present one is a Conflict."""
        if self.lease is None:
            raise NotFound("no lease", 404)
        if version is not None and version != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", 409)
        before = copy.deepcopy(self.lease["spec"])
        self.lease["spec"] |= spec
        if self.lease["spec"] != before:  # as the API: a write that changes nothing makes no version
            self.version += 1
            self.lease["metadata"]["resourceVersion"] = str(self.version)
        after = self.lease["spec"]
        loop = asyncio.get_running_loop()
        self.history.append((loop.time(), after.get("holderIdentity") or "", after.get("leaseTransitions") or 0))
        return copy.deepcopy(self.lease)

    def create(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise Conflict("already exists", 409)
        self.lease = {"metadata": {"name": "queuectl", "resourceVersion": "0"}, "spec": {}}
        return self.write(spec, None)


class Connection:
    """One process' way to the store. ``hang`` "before" or "after" the commit, or ``error``, concern all its requests."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.hang = ""
        self.error: ClusterError | None = None
        self.delay = 0.001
        self.asked: list[tuple[float, str]] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        await self._pass("before", "get")
        if self.store.lease is None:
            raise NotFound("no lease", 404)
        found = copy.deepcopy(self.store.lease)
        return await self._reply(found)

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Any:
        await self._pass("before", "create")
        return await self._reply(self.store.create(body["spec"]))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        await self._pass("before", "patch")
        return await self._reply(self.store.write(body["spec"], body["metadata"]["resourceVersion"]))

    async def _reply(self, lease: dict[str, Any]) -> Lease:
        await self._pass("after", "")
        return msgspec.convert(lease, Lease)

    async def _pass(self, when: str, what: str) -> None:
        if what:
            self.asked.append((asyncio.get_running_loop().time(), what))
        await self.clock.sleep(self.delay)
        if self.error is not None and when == "before":
            raise self.error
        if self.hang == when:
            await asyncio.Event().wait()


class Process:
    """A process of the controller: it leads when it may, and writes every 0.25 s if its lease is fresh."""

    def __init__(self, store: Store, identity: str, terms: Terms = TERMS) -> None:
        self.clock = Clock()
        self.connection = Connection(store, self.clock)
        self.leadership = Leadership(cast("Cluster", self.connection), identity, self.clock, terms=terms)
        self.writes: list[tuple[float, int]] = []
        self.spans: list[list[float]] = []  # of the leader coroutine: when it began, when it had ended
        self.tidying = 0.0
        self.crash: Exception | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self.leadership.run(self.lead))
        return self.task

    @property
    def leading(self) -> bool:
        return bool(self.spans) and len(self.spans[-1]) == 1

    async def lead(self) -> None:
        loop = asyncio.get_running_loop()
        self.spans.append([loop.time()])
        try:
            while self.crash is None:
                if self.leadership.fresh():
                    self.writes.append((loop.time(), self.leadership.fence))
                await self.clock.sleep(POLL)
            raise self.crash
        finally:
            try:
                await asyncio.sleep(self.tidying)
            finally:
                self.spans[-1].append(loop.time())


async def until(condition: Any, seconds: float = 120) -> float:
    """Wait in virtual time until the condition holds; how long that took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  virtual time: polling costs nothing
            await asyncio.sleep(0.01)
    return loop.time() - start


def check_exclusive(*processes: Process) -> None:
    """No write after one with a higher fence: all writes of one acquisition lie before all of the next."""
    ordered = sorted((at, fence, p.leadership.identity) for p in processes for at, fence in p.writes)
    owners: dict[int, str] = {}
    highest = 0
    for at, fence, identity in ordered:
        assert fence >= highest, f"{identity} wrote with fence {fence} at {at:.2f} s, after fence {highest} had begun"
        assert owners.setdefault(fence, identity) == identity, f"fence {fence} has two owners"
        highest = fence
