"""The loop around the engine: drain changes, decide, hand over, remember.

One process, one loop. Everybody mirrors the cluster and feeds the engine; only the leader decides and writes. A process
that loses the lease ends: everything it knew is in the cluster, and a fresh one reads it from there.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from queuectl.contract import foreign
from queuectl.contract.config import Configuration
from queuectl.control.actuator import Actuator
from queuectl.control.answers import is_stale_fence
from queuectl.control.informer import Informer
from queuectl.control.lease import Leadership, Terms
from queuectl.control.metrics import Metrics
from queuectl.control.notices import Blockers, QueueStatuses
from queuectl.control.ports import Clock, Cluster, ClusterError, Refused
from queuectl.control.release import Release
from queuectl.control.source import KINDS, Source
from queuectl.control.steps import Target, derive
from queuectl.engine.engine import Engine
from queuectl.engine.view import View
from queuectl.model.changes import Change, GangGone, MemberGone, MemberSeen
from queuectl.model.plan import Admit, AdmitExtra, Plan, Refuse, Withdraw
from queuectl.model.reasons import Misfit

log = logging.getLogger(__name__)

GATHER = 0.005  # seconds to gather changes that arrive together (a Job's pods) into one decision
BUSY = 0.25  # … and the most while more writes wait than may be in flight: deciding sooner would only make their queue longer
BUSY_LOOK = 0.02  # seconds between two looks at whether that is still so
REVISIT = 0.5  # seconds between two looks at a gang whose writes are still under way: a look costs O(its members)
# Kinds whose lateness could release a place twice.
RELEASED_BY = (foreign.PODS, foreign.POD_GROUPS, foreign.JOBS, foreign.JOB_SETS)
PROBES = 3  # objects to ask about the fence; one may be refused for a reason of its own
FENCE_WAIT = 5.0  # seconds after which a fence that does not hold is complained about; we never lead without it


class Controller:
    """A controller process. ``run`` once."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        configuration: Configuration,
        identity: str,
        *,
        release: Callable[[Source], Release] = Release,
    ) -> None:
        """``identity`` must be new for every process. ``release`` is replaced by tests that break the protocol."""
        self.clock = clock
        self.configuration = configuration
        self.engine = Engine(configuration.settings)
        self.source = Source()
        self.release = release(self.source)
        self.metrics = Metrics()
        terms = Terms(
            duration=max(2, configuration.lease_duration // 1000),
            margin=configuration.lease_duration / 3000,
            look=min(2.0, configuration.lease_duration / 8000),
        )
        self.leadership = Leadership(cluster, identity, clock, namespace=configuration.lease_namespace, terms=terms)
        self.actuator = Actuator(
            cluster,
            self.source,
            self.release,
            clock,
            self.leadership.fresh,
            self.observe,
            configuration.in_flight,
        )
        self.informers = [Informer(cluster, kind, self.source, clock, self.observe) for kind in KINDS]
        self.leading = False
        self.fence_proven = False
        self._started, self._started_wall = 0.0, 0  # monotonic seconds and wall-clock milliseconds of the same moment
        self._decision = 0  # number of the last decision that did something, for the log
        self.decided_at = 0  # wall-clock milliseconds of the last decision
        self.revision = 0  # grows with every change and decision: equal numbers, equal views
        self._cluster = cluster
        self._wake = asyncio.Event()
        self._blockers = Blockers(self.source, configuration.blocker_interval / 1000)
        self._queues = QueueStatuses(self.source, configuration.queue_status_interval / 1000)
        self._looked: dict[str, float] = {}
        self._going: set[str] = set()  # gangs that are gone, while a member of theirs may still be released
        self._moving: set[str] = set()  # pods that belong to another gang now, likewise
        self._queues_looked = float("-inf")
        self._queues_stale = True

    # ---- what others may see

    @property
    def synced(self) -> bool:
        """Whether the first state of every kind was read."""
        return all(informer.synced.is_set() for informer in self.informers)

    @property
    def behind(self) -> float:
        """Seconds for which some kind's events have been cut off; 0 when all streams are live."""
        now = self.clock.monotonic()
        return max((now - i.lost_at for i in self.informers if i.lost_at is not None), default=0.0)

    def prepare(self) -> Iterator[None]:
        """Most of the work of the next ``view``, in steps of a fraction of a millisecond."""
        return self.engine.prepare()

    def view(self) -> View:
        """The engine's view; O(gangs + queues + nodes)."""
        found = self.engine.view()
        if not self.release.protected:
            return found
        gangs = (
            replace(one, misfits=(*self._protected(one.uid), *one.misfits))
            if one.uid in self.release.protected
            else one
            for one in found.gangs
        )
        return replace(found, gangs=tuple(gangs))

    def explain(self, gang: str) -> tuple[Misfit, ...]:
        """All blockers of a waiting gang, dominant first; of one that is to be given back, what does not let it go."""
        return (*self._protected(gang), *self.engine.explain(gang))

    def _protected(self, gang: str) -> tuple[Misfit, ...]:
        found = self.release.protected.get(gang)
        return (found,) if found is not None else ()

    # ---- in

    def observe(self, changes: list[Change]) -> None:
        """One way in for the cluster's events and for the answers to our own writes."""
        for change in changes:
            match change:
                case GangGone(uid):
                    self.release.forget(uid)
                    self._blockers.forget(uid)
                    self._looked.pop(uid, None)
                    if self._may_release(uid):
                        self._going.add(uid)
                        continue
                case MemberGone(uid) if uid in self.source.pods and self._may_be_released(uid):
                    self._moving.add(uid)
                    continue
                case MemberGone(uid):
                    self._moving.discard(uid)
                case MemberSeen(member) if member.uid in self._moving:
                    continue
                case _:
                    pass
            self.engine.observe(change)
        self._let_go()
        if not self.leading:
            self.source.touched.clear()  # a leader begins by looking at all gangs
        self.metrics.observed(len(changes))
        self.revision += 1
        self._queues_stale = True
        self._wake.set()

    def _let_go(self) -> None:
        """What a gang holds is free, and a pod another gang's, when no release is left that could still start a pod there."""
        for uid in sorted(uid for uid in self._moving if not self._may_be_released(uid)):
            self._moving.discard(uid)
            if (tracked := self.source.pods.get(uid)) is not None:
                self.engine.observe(MemberSeen(tracked.member))
        for uid in sorted(uid for uid in self._going if not self._may_release(uid)):
            self._going.discard(uid)
            self.engine.observe(GangGone(uid))

    def _may_release(self, gang: str) -> bool:
        return bool(self.actuator.outstanding[gang]) or self.release.lost.lingers(self.source, gang=gang)

    def _may_be_released(self, pod: str) -> bool:
        return pod in self.actuator.releasing or self.release.lost.lingers(self.source, pod=pod)

    # ---- life

    async def run(self) -> None:
        """Mirror, wait for the lease, lead. Raises LeadershipLost or Fenced when another process leads now."""
        gc.disable()  # until the mirror is complete: collections while it grows would walk all of it again and again
        mirrors = [asyncio.create_task(informer.run(), name=informer.kind.plural) for informer in self.informers]
        leading = asyncio.create_task(self._stand(), name="leadership")
        try:
            done, _ = await asyncio.wait([*mirrors, leading], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (leading, *mirrors):
                task.cancel()
            await asyncio.gather(leading, *mirrors, return_exceptions=True)

    async def _stand(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()
        gc.collect()
        gc.freeze()  # the mirror lives for ever: full collections need not walk it
        gc.set_threshold(50_000, 50, 1000)  # and what comes and goes later is mostly free of cycles
        gc.enable()
        for custom in (*self.source.groups.values(), *self.source.queues.values()):
            self.leadership.expect(int((custom.status or {}).get("fence") or 0))
        log.info("synced", extra={"pods": len(self.source.pods), "podgroups": len(self.source.groups)})
        await self.leadership.run(self._lead)

    async def _lead(self) -> None:
        log.info("leading", extra={"fence": self.leadership.fence, "identity": self.leadership.identity})
        try:
            await self._prove_fence()
            self.leading = True
            self._started, self._started_wall = self.clock.monotonic(), self.clock.now()
            self.source.touched.update(self.source.groups)
            while True:
                wait = self._round()
                self._wake.clear()
                try:
                    # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the event.
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                await self._gather()
        finally:
            self.leading = False
            await self.actuator.close()

    async def _gather(self) -> None:
        """Let changes come together before the next decision: a moment, and longer while there is enough to write."""
        until = self.clock.monotonic() + BUSY
        await self.clock.sleep(GATHER)
        while self.actuator.busy and self.clock.monotonic() < until:
            await self.clock.sleep(BUSY_LOOK)

    async def _prove_fence(self) -> None:
        """Return once nobody older can write, and everything that they wrote is in our mirror.

        The API server must refuse a write with the fence before ours; others that serve the same cluster get a moment to
        learn of the Lease, too. Then what releases rest on is read anew: a stream may be behind without knowing it. There
        is nothing to fence at the first acquisition, nor while there is no object of ours to ask about.
        """
        started, complained = self.clock.monotonic(), False
        while not await self._refuses(self.leadership.fence - 1):
            if not complained and self.clock.monotonic() - started > FENCE_WAIT:
                complained = True
                log.error(
                    "the API server accepts writes with an old fence, so another controller could still write: "
                    "install the admission policies (`queuectl crds | kubectl apply --server-side -f -`); waiting"
                )
            await self.clock.sleep(0.02)  # the policy learns of the new Lease after about 30 ms
        if self.leadership.fence > 1:
            await self.clock.sleep(self.configuration.fence_grace / 1000)
            await asyncio.gather(*(i.renew() for i in self.informers if i.kind in RELEASED_BY))
        self.fence_proven = True

    async def _refuses(self, stale: int) -> bool:
        """Whether a write with this fence is refused for it (a dry run on any object of ours); true when there is none."""
        groups = [(foreign.POD_GROUPS, g.metadata.namespace, g.metadata.name) for g in self.source.groups.values()]
        objects = [*groups[:PROBES], *((foreign.QUEUES, "", name) for name in list(self.source.queues)[:PROBES])]
        if stale < 1 or not objects:
            return True
        for kind, namespace, name in objects:
            body = {"status": {"fence": stale}}
            try:
                await self._cluster.patch(kind, namespace, name, body, subresource="status", dry_run=True)
            except Refused as answer:
                if is_stale_fence(answer.message):
                    return True
                log.info("asking whether the fence holds: %s", answer.message)  # something else about it; ask another
            except ClusterError as problem:
                log.info("asking whether the fence holds: %s", problem.message)
            else:
                return False
        return False

    def _round(self) -> float | None:
        """Decide and write what follows. Returns the seconds until something is due although nothing happens."""
        if self.actuator.fenced is not None:
            raise self.actuator.fenced
        if self.behind * 1000 > self.configuration.stale_after:
            log.warning("not deciding: the view of the cluster is %.0f s old", self.behind)
            return 1.0
        now = self.clock.monotonic()
        wall = self._started_wall + round((now - self._started) * 1000)  # a clock that is set must not end deadlines
        self.release.lost.expire(self.source, wall)
        self._let_go()
        with self.metrics.deciding():
            plan = self.engine.decide(wall)
        self.revision += 1
        self._accept(plan)
        self._blockers.recall(plan)
        later = self._write(wall, now)
        self.actuator.pump()
        self.decided_at = wall
        if plan.wake_at is not None:
            later.append(max(0.0, (plan.wake_at - wall) / 1000))
        return min(later) if later else None

    def _accept(self, plan: Plan) -> None:
        self._decision += bool(plan.actions)
        for action in plan.actions:
            before = self.release.intents.get(action.gang)
            self.release.accept(action)
            self.metrics.decided(action)
            match action:
                case Admit() if before is not None and before.admit.round == action.round:
                    pass  # the same admission, with one more of its members
                case Admit():
                    self._blockers.admit(action.gang)
                    log.info("admit", extra=self._named(action.gang, round=action.round, pods=len(action.assignments)))
                case AdmitExtra():
                    log.info("admit extra", extra=self._named(action.gang, member=action.member, node=action.node))
                case Withdraw():
                    details = self._named(action.gang, round=action.round, cause=action.cause.value)
                    log.warning("give back: %s", action.detail, extra=details)
                case Refuse():
                    self._blockers.refuse(action.gang, action.misfits)

    def _named(self, uid: str, **more: object) -> dict[str, object]:
        """Fields of a log line about a gang: its UID, and its name as people know it."""
        gang = self.source.gang(uid)
        return {
            "decision": self._decision,
            "gang": uid,
            "object": f"{gang.namespace}/{gang.name}" if gang is not None else "",
            **more,
        }

    def _write(self, wall: int, now: float) -> list[float]:
        """Offer every write that is called for; returns when (seconds from now) to look again."""
        fence, later = self.leadership.fence, []
        for void in self.release.lost.voids(self.source, fence, self.release.due):
            self.actuator.offer(void)
        for owner, wanted in list(self.source.underived.items()):
            if (write := derive(self.source, owner, wanted)) is not None:
                self.actuator.offer(write)
        deferred: set[str] = set()

        def free(target: Target) -> bool:
            if self.actuator.ledger.free(target, now):
                return True
            deferred.add(gang)  # nothing else may ever touch it again
            return False

        for gang in sorted(self.source.touched):
            if self.actuator.outstanding[gang] and now - self._looked.get(gang, 0.0) < REVISIT:
                deferred.add(gang)
                continue
            self._looked[gang] = now
            for write in self.release.next_writes(gang, fence, wall, free):
                if self.actuator.ledger.free(write.target, now):
                    self.actuator.offer(write)
                else:
                    deferred.add(gang)
        self.source.touched = deferred
        for write in self._blockers.next_writes(fence, now, wall):
            self.actuator.offer(write)
        interval = self.configuration.queue_status_interval / 1000
        if self._queues_stale and now - self._queues_looked >= interval:
            self._queues_looked, self._queues_stale = now, False
            for queue in self.engine.queues():
                self._queues.show(queue)
        for write in self._queues.next_writes(fence, now, wall):
            self.actuator.offer(write)
        if deferred:
            later.append(REVISIT)
        dues = (self.actuator.ledger.next_due(now), self._blockers.next_due(now), self._queues.next_due(now))
        later.extend(max(due - now, 0.01) for due in dues if due is not None)
        if self._queues_stale:  # a hundredth at least, as above: less than the clock can tell apart would never pass
            later.append(max(0.01, interval - (now - self._queues_looked)))
        return later
