"""Leadership: one process at a time decides, and a number tells its writes from those of all before it.

The record is a Lease. A holder renews it; a candidate takes it over when it has watched the record stand still for as long
as the holder promised to renew it. Both measure by their own monotonic clocks: no two clocks are ever compared.

Three nets, each for what slips through the one before:

1. The holder stops deciding ``margin`` seconds before anybody may take over: ``run`` cancels the leader, and ``fresh``
   says no even where a blocked event loop or a stopped process kept that from happening.
2. Every write of the record is a compare-and-set, so two candidates never both acquire.
3. Every acquisition adds one to ``leaseTransitions``, the **fence** that all our writes carry. A process paused between
   its last look at ``fresh`` and its write is refused by the API server, which compares the two.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from queuectl.contract.foreign import LEASES, Lease, LeaseSpec
from queuectl.control.ports import Clock, Cluster, ClusterError, Conflict, NotFound, Throttled

_TICK = 0.001  # seconds; no request is answered in less, and clocks are not read more finely
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LeadershipLost(Exception):
    """The lease was taken over, deleted, or could not be renewed in time. The leader has ended when this is raised."""


class Leader(Protocol):
    """What a leader does, as a function without arguments, so that nothing starts before the lease is held."""

    def __call__(self) -> Coroutine[Any, Any, None]:
        """Lead until done; cancelled when the lease is lost."""
        ...


class Terms(Struct, frozen=True, kw_only=True):
    """How long a lease lasts. The defaults are client-go's (15 s, give up after 10 s, look every 2 s)."""

    duration: int = 15  # seconds (whole: the wire has no others) that others wait after the last renewal they saw
    margin: float = 5.0  # seconds before that at which we stop: covers a write in flight and clocks that run unequally
    look: float = 2.0  # seconds between two looks of a candidate
    release: float = 2.0  # seconds to spend on giving it back at the end

    def __post_init__(self) -> None:
        if not 0 < self.margin < self.duration:
            raise ValueError(f"margin {self.margin} s must be between 0 and the duration of {self.duration} s")

    @property
    def step(self) -> float:
        """Seconds between renewals, and for one try of a request: a hung one leaves time for two more."""
        return (self.duration - self.margin) / 3


class Leadership:
    """One process' part in the election. ``run`` once, or again after ``LeadershipLost``; one event loop.

    Cost: while leading, one PATCH about every 3 s; while waiting, one GET about every 2 s.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        clock: Clock,
        *,
        namespace: str = "queuectl-system",
        name: str = "queuectl",
        terms: Terms | None = None,
    ) -> None:
        """``identity`` must be new for every process (host name and a UUID): whoever bears it believes it wrote the record.

        ``clock`` must run as the event loop's clock does; its wall time is only written down for people to read.
        """
        self.identity = identity
        self.terms = terms or Terms()
        self.holder = ""  # whoever held the lease when we last looked
        self.trouble = ""  # the last thing that went wrong, "" when all is well
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._fence = 0
        self._highest = 0  # of all fences seen: a Lease that somebody deleted does not start again from 1
        self._until = -math.inf  # monotonic: writing is allowed before
        self._version = ""
        self._asked = False  # a write that may have made us the holder was sent, and was not undone since
        self._seen: LeaseSpec | None = None
        self._seen_at = -math.inf
        self._stamp = 0

    @property
    def fence(self) -> int:
        """The number of our last acquisition, at least 1; 0 before the first."""
        return self._fence

    def expect(self, fence: int) -> None:
        """Objects carry this fence: ours will be higher, even if somebody deleted the Lease and its count with it."""
        self._highest = max(self._highest, fence)

    def fresh(self) -> bool:
        """Whether a write may be sent now. Ask before each batch; it is true only while we hold the lease for certain.

        The time runs from the *start* of the last renewal that succeeded: others can only have seen it later.
        """
        return self._clock.monotonic() < self._until

    async def run(self, leader: Leader) -> None:
        """Wait until the lease is ours, lead, and give it back.

        Returns when ``leader`` returns; raises what it raises; raises LeadershipLost when the lease was lost. In each
        case, and when cancelled, the leader has ended before the lease is given back, and the next may take over at once.
        """
        try:
            await self._acquire()
            await self._lead(leader)
        finally:
            self._until = -math.inf
            await self._release()

    async def _lead(self, leader: Leader) -> None:
        keeping = asyncio.create_task(self._keep(), name="lease")
        leading = asyncio.create_task(leader(), name="leader")
        try:
            done, _ = await asyncio.wait({keeping, leading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # In this order: while a leader that was cancelled tidies up, the lease is still renewed.
            try:
                await _end(leading)
            finally:
                await _end(keeping)
        if leading in done:
            leading.result()
        else:
            raise LeadershipLost(keeping.result()) from (None if leading.cancelled() else leading.exception())

    async def _acquire(self) -> None:
        """Return when the lease is ours."""
        wait = 0.0
        while True:
            await self._clock.sleep(wait)
            try:
                async with asyncio.timeout(self.terms.step):
                    wait = await self._try()
            except (ClusterError, TimeoutError) as error:
                self._note(error)
                wait = self._pause(error)
            if self.fresh():
                return

    async def _try(self) -> float:
        """Look at the record and take it if it may be taken. Returns the seconds until it is worth looking again."""
        try:
            lease: Lease = await self._cluster.get(LEASES, self._namespace, self._name)
        except NotFound:
            started, spec = self._clock.monotonic(), self._acquisition(self._highest + 1)
            self._asked = True
            body = {"metadata": {"name": self._name}, "spec": spec}
            self._acquired(started, await self._cluster.create(LEASES, self._namespace, body))
            return 0.0
        self.trouble = ""
        now, spec_seen = self._clock.monotonic(), lease.spec
        self.holder = spec_seen.holder_identity or ""
        self._highest = max(self._highest, spec_seen.lease_transitions)
        if spec_seen != self._seen:
            self._seen, self._seen_at = spec_seen, now
        # A record without a duration is not one of ours; nobody promised to renew it in any other time than ours.
        left = self._seen_at + (spec_seen.lease_duration_seconds or self.terms.duration) - now
        if self.holder not in {"", self.identity} and left > 0:
            return min(_jitter(self.terms.look), left)
        spec = self._acquisition(self._highest + 1)
        self._asked = True
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        self._acquired(now, await self._cluster.patch(LEASES, self._namespace, self._name, body))
        return 0.0

    def _acquired(self, started: float, lease: Lease) -> None:
        self._fence = self._highest = lease.spec.lease_transitions
        self._version = lease.metadata.resource_version
        self._until = started + self.terms.duration - self.terms.margin
        self.holder, self.trouble = self.identity, ""

    async def _keep(self) -> str:
        """Renew until that fails for too long, or somebody else holds the lease. Returns why it is lost."""
        wait = _jitter(self.terms.step)
        while True:
            await self._clock.sleep(min(wait, max(_TICK, self._until - self._clock.monotonic())))
            left = self._until - self._clock.monotonic()
            if left < _TICK:
                return (
                    f"not renewed for {self.terms.duration - self.terms.margin:g} s: {self.trouble or 'we were paused'}"
                )
            try:
                async with asyncio.timeout(min(left, self.terms.step)):
                    taken = await self._renew()
            except NotFound:
                taken = "the Lease was deleted"
            except (ClusterError, TimeoutError) as error:
                self._note(error)
                wait = self._pause(error)
                continue
            if taken:
                self._until = -math.inf
                return taken
            self.trouble, wait = "", _jitter(self.terms.step)

    async def _renew(self) -> str:
        """One renewal; why the lease is no longer ours, or "". On a conflict, look whose it is, and try once more."""
        for last in (False, True):
            started = self._clock.monotonic()
            body = {"metadata": {"resourceVersion": self._version}, "spec": {"renewTime": self._time()}}
            try:
                lease: Lease = await self._cluster.patch(LEASES, self._namespace, self._name, body)
            except Conflict:
                # Our own last renewal, if its reply was lost; a label; or a successor.
                lease = await self._cluster.get(LEASES, self._namespace, self._name)
                self.holder = lease.spec.holder_identity or ""
                if self.holder != self.identity or lease.spec.lease_transitions != self._fence:
                    return f"taken over by {self.holder or 'nobody'}, fence {lease.spec.lease_transitions}"
                self._version = lease.metadata.resource_version
                if last:
                    raise
            else:
                self._version = lease.metadata.resource_version
                self._until = started + self.terms.duration - self.terms.margin
                return ""
        raise AssertionError("unreachable: the second turn returns or raises")

    async def _release(self) -> None:
        """Give the lease back if it is ours, or may be: the fate of our last write is unknown when it was cancelled."""
        if not self._asked:
            return
        try:
            async with asyncio.timeout(self.terms.release):
                lease: Lease = await self._cluster.get(LEASES, self._namespace, self._name)
                if lease.spec.holder_identity == self.identity:
                    body = {
                        "metadata": {"resourceVersion": lease.metadata.resource_version},
                        "spec": {"holderIdentity": ""},
                    }
                    await self._cluster.patch(LEASES, self._namespace, self._name, body)
        except (ClusterError, TimeoutError) as error:
            self._note(error)  # then the next one waits for the whole duration
        else:
            self._asked = False

    def _acquisition(self, fence: int) -> dict[str, Any]:
        now = self._time()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.terms.duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": fence,
        }

    def _time(self) -> str:
        """Wall time as MicroTime, never the same twice: a renewal that changes nothing is not seen by anybody."""
        self._stamp = max(self._clock.now() * 1000, self._stamp + 1)
        return (_EPOCH + timedelta(microseconds=self._stamp)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _note(self, error: Exception) -> None:
        self.trouble = str(error) or "the API server did not answer in time"

    def _pause(self, error: Exception) -> float:
        """Seconds before the next try: short beside the lease, and what a throttling server asks for, up to one step."""
        asked = error.retry_after if isinstance(error, Throttled) else 0.0
        return max(_jitter(self.terms.step / 4), min(asked, self.terms.step))


def _jitter(seconds: float) -> float:
    """80 to 100 % of it, so that candidates do not ask in step."""
    return seconds * random.uniform(0.8, 1.0)  # noqa: S311  spreading load, not keeping secrets


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, however often we are cancelled meanwhile."""
    cancelled = False
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
            task.cancel()
    if cancelled:
        raise asyncio.CancelledError
