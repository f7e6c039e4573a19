"""The cluster in memory as a tier: virtual time, so a scenario of an hour takes a moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from queuectl.contract.config import Configuration
from queuectl.contract.foreign import NODES, PODS, Kind
from queuectl.control.loop import Controller
from queuectl.control.release import Release
from queuectl.control.source import Source
from queuectl.drivers.embedded.clock import VirtualClock, VirtualLoop
from queuectl.drivers.embedded.whole import ADMIN, World, embedded
from queuectl.drivers.replay.play import Outcome, play
from queuectl.drivers.replay.reading import Scenario
from tests.drivers.replicas import controllers
from tests.drivers.worker_sets import WorkerSets
from tests.tiers.wired import WiredTier

Json = dict[str, Any]
START = 1_893_456_000_000  # 2030-01-01, as good as any


class Memory:
    """Hands in a ``World``."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self._world, self._store, self._clock = world, world.store, clock
        self._serial = itertools.count(1)

    async def create(self, kind: Kind, namespace: str, body: Json) -> None:
        self._store.create(kind, namespace, body, ADMIN)

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Json, *, merge: bool = True, status: bool = False
    ) -> None:
        self._store.patch(
            kind, namespace, name, body, ADMIN, subresource="status" if status else "", strategic=not merge
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, force: bool = False) -> None:
        self._store.delete(kind, namespace, name, ADMIN, grace=0 if force else None)

    async def list(self, kind: Kind, namespace: str) -> list[Json]:
        return self._store.list(kind, namespace)

    async def add_node(self, body: Json) -> None:
        self._store.create(NODES, "", body, ADMIN)

    async def end(self, namespace: str, name: str, *, failed: bool) -> None:
        body = {"status": {"phase": "Failed" if failed else "Succeeded"}}
        await self.patch(PODS, namespace, name, body, status=True)

    async def silence(self, node: str) -> None:
        self._world.kubelet.silence(node)

    async def revive(self, node: str) -> None:
        self._world.kubelet.revive(node)

    def controller(self, configuration: Configuration, release: Callable[[Source], Release]) -> Controller:
        name = f"controller-{next(self._serial)}"
        return Controller(self._world.cluster(), self._clock, configuration, name, release=release)


def played(scenario: Scenario) -> Outcome:
    """Play a scenario from beginning to end, and shut everything down."""

    async def whole() -> Outcome:
        clock = VirtualClock(START)
        async with embedded(clock=clock, releasers=frozenset({ADMIN})) as world:
            tier = WiredTier(Memory(world, clock))
            sets = WorkerSets(world.store, world._failed)
            try:
                with controllers(world):
                    return await play(scenario, tier)
            finally:
                sets.close()
                await tier.close()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(None)) as runner:
        return runner.run(whole())
