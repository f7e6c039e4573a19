"""The defects of kubernetes_asyncio's elector, run through the same faults as ours in ``test_lease.py``.

Each test here passes because the defect is there: it keeps the scenarios of ``test_lease.py`` honest. When one fails, a
newer version of the library has mended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection import leaderelection
from kubernetes_asyncio.leaderelection.electionconfig import Config
from kubernetes_asyncio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

from tests.control.leases import EPOCH, until

pytestmark = pytest.mark.looptime


class Lock:
    """The lock that the elector asks for, over a record that all share; ``hang`` as a connection that does."""

    def __init__(self, shared: dict[str, LeaderElectionRecord], identity: str) -> None:
        self.shared = shared
        self.identity = identity
        self.name = self.namespace = "queuectl"
        self.hang = False
        self.asked: list[float] = []

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        await self._pass()
        if "record" not in self.shared:
            missing = ApiException(404)
            missing.body = '{"code": 404}'  # type: ignore[assignment]  # the mock's body is declared as what the real one gives
            return False, missing
        return True, self.shared["record"]

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        return await self.update(name, namespace, election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        await self._pass()
        self.shared["record"] = updated_record
        return True

    async def _pass(self) -> None:
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001)
        if self.hang:
            await asyncio.Event().wait()


class Candidate:
    def __init__(self, shared: dict[str, LeaderElectionRecord], identity: str) -> None:
        self.lock = Lock(shared, identity)
        self.leading = False
        self.crash = False
        self.task: asyncio.Task[None] | None = None
        self.worker: asyncio.Task[Any] | None = None

    def start(self) -> None:
        async def stopped() -> None:
            pass

        config = Config(cast("Any", self.lock), 15, 10, 2, self.lead, stopped)
        self.task = asyncio.create_task(leaderelection.LeaderElection(config).run())

    async def lead(self) -> None:
        self.leading, self.worker = True, asyncio.current_task()
        try:
            while not self.crash:  # noqa: ASYNC110 - the mock has a flag, no event
                await asyncio.sleep(0.25)
            raise ZeroDivisionError
        finally:
            self.leading = False


@pytest.fixture
async def shared() -> AsyncIterator[dict[str, LeaderElectionRecord]]:
    """The record. Afterwards everything is ended that the elector left behind."""
    yield {}
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The wall clock of the elector: virtual, and moved by ``jump["seconds"]``."""
    ahead = {"seconds": 0.0}
    wall = SimpleNamespace(time=lambda: EPOCH / 1000 + asyncio.get_running_loop().time() + ahead["seconds"])
    monkeypatch.setattr(leaderelection, "time", wall)
    return ahead


async def leader(shared: dict[str, LeaderElectionRecord]) -> Candidate:
    first = Candidate(shared, "a")
    first.start()
    await until(lambda: first.leading)
    return first


async def test_a_hanging_renewal_makes_two_leaders(
    shared: dict[str, LeaderElectionRecord], jump: dict[str, float]
) -> None:
    a, b = await leader(shared), Candidate(shared, "b")
    b.start()
    await asyncio.sleep(30)
    a.lock.hang = True
    await until(lambda: b.leading)
    await asyncio.sleep(60)
    assert a.leading
    assert b.leading


async def test_a_crashed_leader_goes_on_renewing(
    shared: dict[str, LeaderElectionRecord], jump: dict[str, float]
) -> None:
    a, b = await leader(shared), Candidate(shared, "b")
    b.start()
    a.crash = True
    await asyncio.sleep(60)
    assert a.task is not None
    assert not a.task.done()
    assert a.worker is not None
    assert isinstance(a.worker.exception(), ZeroDivisionError)
    assert not a.leading
    assert not b.leading


async def test_a_cancelled_run_leaves_its_leader_running_and_the_lease_held(
    shared: dict[str, LeaderElectionRecord], jump: dict[str, float]
) -> None:
    a = await leader(shared)
    assert a.task is not None
    a.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await a.task
    await asyncio.sleep(5)
    assert a.leading
    assert shared["record"].holder_identity == "a"


async def test_a_jump_of_the_wall_clock_makes_two_leaders(
    shared: dict[str, LeaderElectionRecord], jump: dict[str, float]
) -> None:
    a, b = await leader(shared), Candidate(shared, "b")
    b.start()
    await asyncio.sleep(10.9)
    a.lock.hang = True  # only to hold the older record still for the moment of the jump
    jump["seconds"] = 3600
    await asyncio.sleep(4)
    assert a.leading
    assert b.leading


async def test_candidates_ask_in_step(shared: dict[str, LeaderElectionRecord], jump: dict[str, float]) -> None:
    await leader(shared)
    b = Candidate(shared, "b")
    b.start()
    await asyncio.sleep(60)
    assert {round(later - earlier, 2) for earlier, later in itertools.pairwise(b.lock.asked)} == {2.0}


def test_local_time_is_called_utc_and_transitions_are_not_counted() -> None:
    lock = LeaseLock("queuectl", "queuectl", "a", cast("Any", object()))
    local = datetime(2027, 1, 15, 17, 0, 0, 1)  # noqa: DTZ001  as its datetime.fromtimestamp does, here in Tokyo
    spec = lock.update_lease(LeaderElectionRecord("a", "15", str(local), str(local)))
    assert spec.renew_time == "2027-01-15T17:00:00.000001Z"
    assert datetime.fromisoformat(spec.renew_time) != datetime(2027, 1, 15, 8, 0, 0, 1, tzinfo=UTC)
    assert spec.lease_transitions is None
