"""What does a viewer of the dashboard cost the controller with 5,000 gangs on 10,000 nodes?

    python benchmarks/dashboard.py [gangs]

One core, no cluster, no browser: the answers that a page or a command asks for, made from the engine's view as for the first
who asks after a change (``ms`` of work, of which the controller's loop is held for ``held_ms`` at a time), and the look for
changes that runs while somebody listens.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from queuectl.contract.config import Configuration
from queuectl.control.clock import RealClock
from queuectl.control.loop import Controller
from queuectl.model import changes as c
from queuectl.model.gangs import Gang, Place, Record, Role, Shape
from queuectl.model.queues import Entry, Queue
from queuectl.model.resources import CPU, GPU, MEMORY, PODS, amounts
from queuectl.model.topology import HOSTNAME, Level, Node
from queuectl.serve.choice import Choice
from queuectl.serve.live import INTERVAL
from queuectl.serve.slices import PAUSE, Making, Steps, whole
from queuectl.serve.world import World
from tests.serve.standin import NoCluster

T = TypeVar("T")
GI = 2**30
NODES = 10_000
PER_RACK = 16


def fill(controller: Controller, gangs: int) -> None:
    """Racks of nodes, forty queues, and gangs of two pods with eight GPUs each; every fourth waits."""
    tell = controller.engine.observe
    tell(c.LevelsSeen((Level("rack", ("rack",)), Level("node", (HOSTNAME,)))))
    for number in range(NODES):
        name = f"n{number:05}"
        labels = ((HOSTNAME, name), ("rack", f"r{number // PER_RACK:03}"))
        has = amounts({GPU: 8000, CPU: 128_000, MEMORY: 1024 * GI, PODS: 110})
        tell(c.NodeSeen(Node(name=name, allocatable=has, labels=labels)))
    for number in range(40):
        tell(c.QueueSeen(Queue(name=f"q{number}", uid=f"q{number}", entries=(Entry(GPU, quota=2_000_000),))))
    shape = Shape(requests=amounts({GPU: 8000, CPU: 8000, PODS: 1}))
    impossible = Shape(requests=amounts({GPU: 16_000, CPU: 8000, PODS: 1}))
    for number in range(gangs):
        waits = number % 4 == 3
        places = tuple(Place(slot, f"n{(number * 2 + slot) % NODES:05}") for slot in range(2))
        tell(
            c.GangSeen(
                Gang(
                    uid=f"g{number:06}",
                    namespace=f"team-{number % 20}",
                    name=f"gang-{number}",
                    queue=f"q{number % 40}",
                    roles=(Role("", 2, 2, impossible if waits else shape),),
                    queued_at=1 + number,
                    round=0 if waits else 1,
                    record=None if waits else Record(1, places, 1),
                )
            )
        )
    controller.engine.decide(gangs + 1)


async def worked(making: Making[T]) -> tuple[T, dict[str, float]]:
    """An answer as its readers have it made: all of the work, and the longest that the loop is held by it (CPU time)."""
    slices, found = [], None
    while found is None:
        began = time.thread_time()
        found = making.work()
        slices.append(time.thread_time() - began)
        await asyncio.sleep(PAUSE)
    return found, {"ms": round(sum(slices) * 1000, 1), "held_ms": round(max(slices) * 1000, 1)}


async def main(gangs: int) -> None:
    """Print one JSON line."""
    controller = Controller(NoCluster(), RealClock(), Configuration(), "benchmark")
    fill(controller, gangs)
    gc.collect()
    gc.freeze()  # as the controller has it
    gc.set_threshold(50_000, 50, 1000)
    clock = [0.0]
    world = World(controller, lambda: clock[0] + time.monotonic())
    figures: dict[str, Any] = {"gangs": gangs, "nodes": NODES}

    async def read() -> dict[str, float]:
        making = world.reading()
        return (await worked(making))[1] if making is not None else {}

    figures["view"] = await read()
    clock[0] += 1000  # it is too old now
    controller.engine.observe(c.GangGone("g000000"))
    figures["view_after_one_change"] = await read()
    asked: dict[str, Callable[[], Steps[Any]]] = {
        "waiting": lambda: world.gang_listing(Choice(phases=frozenset({"Pending"}), sort="position", limit=200)),
        "all_gangs": lambda: world.gang_listing(Choice()),
        "queues": lambda: whole(world.listing("QueueList", world.queues())),
        "all_nodes": world.node_listing,
        "map": world.occupancy,
    }
    for name, make in asked.items():
        answer, cost = await worked(world.answer(make, name))
        figures[name] = {**cost, "kb": round(len(answer.body) / 1000)}
    rounds = 1000
    began = time.process_time()
    for _ in range(rounds):
        world.state()
    figures["look_us"] = round((time.process_time() - began) / rounds * 1e6, 1)
    figures["listening_core"] = round(figures["look_us"] / 1e6 / INTERVAL, 6)
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
