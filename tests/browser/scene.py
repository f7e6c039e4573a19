"""A cluster in memory with the real controller, in a thread of its own and in its own time, for pages to look at."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from queuectl.contract import names
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import JOBS, POD_GROUPS, PODS, QUEUES, TOPOLOGIES
from queuectl.control.loop import Controller
from queuectl.drivers.embedded.clock import VirtualClock, VirtualLoop
from queuectl.drivers.embedded.kubelet import RUN_SECONDS
from queuectl.drivers.embedded.whole import World, embedded

Json = dict[str, Any]
T = TypeVar("T")

START = (
    1_893_492_000_000  # milliseconds: 2030-01-01T10:00:00Z, so that nobody takes the browser's clock for the cluster's
)
GPU = "nvidia.com/gpu"
RACK = "example.com/rack"
ADMIN, TENANT = "admin", "tenant"
PATIENCE = 20.0  # seconds for anything that a test asks of the cluster


def node(name: str, gpus: int, rack: str) -> Json:
    """A node in a rack."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    labels = {"kubernetes.io/hostname": name, RACK: rack}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}


def queue(name: str, parent: str = "", quota: int | None = None, limit: int | None = None, **spec: Any) -> Json:
    """A queue with GPUs."""
    amounts = {key: str(value) for key, value in (("quota", quota), ("limit", limit)) if value is not None}
    above = {"parent": parent} if parent else {}
    return {"metadata": {"name": name}, "spec": {**above, "resources": [{"name": GPU, **amounts}], **spec}}


def job(
    name: str, of: str, pods: int, gpus: int, *, level: str = "", seconds: float | None = None, **spec: Any
) -> Json:
    """A Job whose pods start together or not at all; it runs until it is deleted unless ``seconds`` are given."""
    asks = {"cpu": "1", GPU: str(gpus)}
    notes = {RUN_SECONDS: str(seconds)} if seconds is not None else {}
    container = {"name": "main", "image": "example.com/none", "resources": {"requests": asks, "limits": asks}}
    return {
        "metadata": {
            "name": name,
            "labels": {names.QUEUE_LABEL: of},
            "annotations": {names.MIN_MEMBER: "all", **({names.TOPOLOGY_REQUIRED: level} if level else {})},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            **spec,
            "template": {
                "metadata": {"annotations": notes},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def stranger(name: str, on: str, gpus: int = 0) -> Json:
    """A pod of no queue, on a node already: a daemon's, say."""
    asks = {"cpu": "200m", **({GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "example.com/none", "resources": {"requests": asks, "limits": asks}}
    return {"metadata": {"name": name}, "spec": {"nodeName": on, "containers": [container]}}


def running(world: World) -> list[Json]:
    """Pods that run."""
    return [pod for pod in world.store.list(PODS) if pod["status"].get("phase") == "Running"]


class Scene:
    """The cluster, while the block lasts. ``do`` runs a function where it lives; ``wait`` until something is so there."""

    def __init__(self, nodes: Iterable[Json], queues: Iterable[Json], *, speed: float = 10.0) -> None:
        """``speed``: seconds of the cluster in a second of the test."""
        self.loop = VirtualLoop(speed)
        self.world: World
        self.controller: Controller
        self._nodes, self._queues = list(nodes), list(queues)
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the controller does not lead"
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(self, *_: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)
        if self._problem is not None:
            raise self._problem

    def do(self, act: Callable[[World], T]) -> T:
        """What ``act`` gives, run on the cluster's own loop."""

        async def there() -> T:
            return act(self.world)

        return asyncio.run_coroutine_threadsafe(there(), self.loop).result(PATIENCE)

    def until(self, look: Callable[[World], object]) -> None:
        """Wait until something is so, in the cluster's time."""

        async def there() -> None:
            while not look(self.world):  # noqa: ASYNC110 - in virtual time a look costs nothing, and any commit may be it
                await asyncio.sleep(0.5)

        asyncio.run_coroutine_threadsafe(there(), self.loop).result(PATIENCE)

    def faster(self, speed: float) -> None:
        """Let time pass at another speed."""
        self.do(lambda _: setattr(self.loop, "speed", speed))

    def submit(self, body: Json, namespace: str = "ml") -> None:
        """A tenant creates a Job."""
        self.do(lambda world: world.store.create(JOBS, namespace, body, TENANT))

    def end(self, name: str, namespace: str = "ml") -> None:
        """A tenant deletes a Job."""
        self.do(lambda world: world.store.delete(JOBS, namespace, name, TENANT))

    def group(self, name: str, namespace: str = "ml", **spec: Any) -> None:
        """A tenant writes a PodGroup."""
        body = {"metadata": {"name": name}, "spec": spec}
        self.do(lambda world: world.store.create(POD_GROUPS, namespace, body, TENANT))

    def pod(self, body: Json, namespace: str = "ml") -> None:
        """Somebody creates a pod."""
        self.do(lambda world: world.store.create(PODS, namespace, body, ADMIN))

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._live())
        except BaseException as problem:  # noqa: BLE001 - raised where the test is
            self._problem = problem
            self._ready.set()

    async def _live(self) -> None:
        self._end = asyncio.Event()
        clock = VirtualClock(START)
        async with embedded(self._nodes, clock=clock) as self.world:
            levels = [{"name": "rack", "keys": [RACK]}, {"name": "node", "keys": ["kubernetes.io/hostname"]}]
            store = self.world.store
            store.create(TOPOLOGIES, "", {"metadata": {"name": "default"}, "spec": {"levels": levels}}, ADMIN)
            for body in self._queues:
                store.create(QUEUES, "", body, ADMIN)
            self.controller = Controller(self.world.cluster(), clock, Configuration(), "controller-1")
            running = asyncio.create_task(self.controller.run())
            try:
                while not self.controller.leading:  # noqa: ASYNC110 - it says so nowhere else
                    await asyncio.sleep(0.05)
                self._ready.set()
                await self._end.wait()
                assert not running.done(), running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


def two_racks() -> Scene:
    """Two racks of two nodes with four GPUs each; research has vision and language, production is on its own."""
    nodes = [node(f"gpu-{number}", 4, f"rack-{number // 2}") for number in range(4)]
    queues = [
        queue("research", quota=12, limit=24),
        queue("vision", "research", quota=8, limit=12),
        queue("language", "research", quota=4),
        queue("production", quota=4, limit=8),
    ]
    return Scene(nodes, queues)
