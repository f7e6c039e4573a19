"""Drives the release protocol: sends its writes, paced, most urgent first, only while the lease is ours."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable

from queuectl.contract import foreign
from queuectl.contract.budgets import protected
from queuectl.contract.owners import shorten
from queuectl.control import muster
from queuectl.control.ledger import Ledger
from queuectl.control.ports import Clock, Cluster, ClusterError, NotFound, Refused, Throttled, Unreachable, Upserted
from queuectl.control.release import Release
from queuectl.control.source import Source
from queuectl.control.steps import Fenced, Step, Write
from queuectl.model.changes import Change

BUDGET = "isruption"  # in what the API server and we say of a disruption budget, and in no answer to too many requests
BUDGET_WAIT = 10.0  # seconds before budgets are asked again: as long as the API server tells an eviction to wait
RELEASES = (Step.RELEASE, Step.EXTRA)

log = logging.getLogger(__name__)


class Actuator:
    """At most ``in_flight`` requests at once; a 429 halves that, every success gives a little back.

    ``observe`` receives the changes that answers mean; ``fresh`` is asked before every single write.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        release: Release,
        clock: Clock,
        fresh: Callable[[], bool],
        observe: Callable[[list[Change]], None],
        in_flight: int,
    ) -> None:
        self.ledger = Ledger()
        self.outstanding: Counter[str] = Counter()  # writes queued or in flight, by gang
        self.releasing: set[str] = set()  # pods of which a release is queued or in flight
        self.written: Counter[str] = Counter()  # committed writes, by step
        self.refused: Counter[str] = Counter()
        self._cluster, self._source, self._release, self._clock = cluster, source, release, clock
        self._fresh, self._observe = fresh, observe
        self._most = in_flight
        self._limit = float(in_flight)
        self._waiting: list[tuple[int, int, Write]] = []
        self._order = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self.fenced: Fenced | None = None

    def offer(self, write: Write) -> None:
        """Queue a write unless its object is being written or must wait."""
        if self.ledger.free(write.target, self._clock.monotonic()):
            self.ledger.sent(write.target)
            self.outstanding[write.gang] += 1
            if write.step in RELEASES:
                self.releasing.add(write.member)
            heapq.heappush(self._waiting, (write.step, next(self._order), write))

    @property
    def busy(self) -> bool:
        """Whether more writes wait for their turn than may be in flight."""
        return len(self._waiting) > self._limit

    def pump(self) -> None:
        """Start as many waiting writes as the pace allows."""
        while self._waiting and len(self._tasks) < max(1, int(self._limit)):
            _, _, write = heapq.heappop(self._waiting)
            task = asyncio.create_task(self._send(write))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("a write failed in our own code", exc_info=problem)
        self.pump()

    async def close(self) -> None:
        """Cancel what is in flight: the lease is gone, or the process ends."""
        self._waiting.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, write: Write) -> None:
        try:
            if not self._fresh():
                self.ledger.dropped(write.target)
                return
            if not self._release.due(write):
                self.ledger.dropped(write.target)
                self._source.touched.add(write.gang)
                changes = []
            else:
                reply = await self._request(write)
                self._note(write, reply)
                changes = self._release.on_reply(write, reply)
        except Fenced as problem:
            self.fenced = problem
            self._observe([])
            return
        except Exception:
            self.ledger.failed(
                write.target, self._clock.monotonic()
            )  # a bug of ours holds up this object, not for ever
            raise
        finally:
            self._over(write)
        self._observe(changes)

    def _over(self, write: Write) -> None:
        """It was answered, given up or not sent: it is accounted for no more."""
        self.outstanding[write.gang] -= 1
        if not self.outstanding[write.gang]:
            del self.outstanding[write.gang]
        if write.step in RELEASES:
            self.releasing.discard(write.member)

    async def _request(self, write: Write) -> object:
        """The answer, with the mirror brought up to date by it; after an error by reading the object back."""
        try:
            if write.step is Step.CREATE:
                reply = await self._cluster.create(write.kind, write.namespace, write.body)
            elif write.step is Step.BUDGETS:
                return await self._budgets(write)
            elif write.step is Step.EVICT:
                await self._cluster.evict(write.namespace, write.name, write.body["metadata"]["uid"])
                await self._read_back(write)  # its answer does not say what became of the pod
                return None
            else:
                reply = await self._cluster.patch(
                    write.kind,
                    write.namespace,
                    write.name,
                    write.body,
                    subresource=write.subresource,
                    dry_run=write.dry_run,
                )
        except Throttled as problem:
            return problem
        except ClusterError as problem:
            if write.kind not in (foreign.QUEUES, foreign.BUDGETS):
                await self._read_back(write)
            return problem
        if not write.dry_run:
            self._observe(self._source.apply(write.kind, Upserted(reply)))
        return reply

    async def _budgets(self, write: Write) -> Throttled | None:
        """Why budgets do not let all running members go, as what the Eviction API would say of one; None when they do."""
        budgets = await self._cluster.list(foreign.BUDGETS, write.namespace)
        pods = await self._cluster.list(foreign.PODS, write.namespace) if budgets else ()
        running = {one.member.uid for one in muster.evictable(self._source, write.gang, running=True)}
        why = protected(budgets, (pod for pod in pods if pod.metadata.uid in running))
        return Throttled(why, BUDGET_WAIT) if why else None

    async def _read_back(self, write: Write) -> None:
        try:
            current = await self._cluster.get(write.kind, write.namespace, write.name)
        except NotFound:
            uid = write.member if write.kind is foreign.PODS else write.gang
            if write.kind in (foreign.PODS, foreign.POD_GROUPS) and uid:
                self._observe(list(self._source.gone(write.kind, uid)))
        except ClusterError:
            return
        else:
            if write.kind is foreign.PODS and write.member and current.metadata.uid != write.member:
                self._observe(self._source.gone(write.kind, write.member))  # another has its name
            self._observe(self._source.apply(write.kind, Upserted(current)))

    def _note(self, write: Write, reply: object) -> None:
        now = self._clock.monotonic()
        if not isinstance(reply, ClusterError):
            self.ledger.answered(write.target)
            self._limit = min(self._most, self._limit + 1 / self._limit)
            self.written[write.step.name] += 1
            return
        self.refused[type(reply).__name__] += 1
        details = {
            "step": write.step.name,
            "gang": write.gang,
            "object": f"{write.namespace}/{write.name}",
            "round": write.round,
        }
        if isinstance(reply, Throttled) and write.step in (Step.BUDGETS, Step.EVICT) and BUDGET in reply.message:
            log.info("not given back yet: %s", shorten(reply.message, 300), extra=details)  # nobody is overloaded
            self.ledger.failed(write.target, now, reply.retry_after)
        elif isinstance(reply, Throttled):
            self._limit = max(1.0, self._limit / 2)
            self.ledger.failed(write.target, now, reply.retry_after)
        elif isinstance(reply, Unreachable | Refused):
            log.warning("write not done: %s", shorten(reply.message.partition("Invalid value:")[0], 300), extra=details)
            if write.step is Step.BLOCKER and write.kind is foreign.PODS:
                self.ledger.dropped(write.target)  # said again in its time; the pod's release need not wait for that
            else:
                self.ledger.failed(write.target, now)
        else:  # a lost race: the object was read back, and the first retry need not wait
            log.debug("lost a race: %s", reply.message, extra=details)
            self.ledger.raced(write.target, now)
