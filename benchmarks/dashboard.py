"""What does a viewer of the dashboard cost the controller with 5,000 gangs on 10,000 nodes?

    python benchmarks/dashboard.py [gangs]

One core, no cluster, no browser: the answers that a page asks for, made from the engine's view as for the first who asks
after a change, and the look for changes that runs while somebody listens.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import msgspec

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
from queuectl.serve.slices import PAUSE
from queuectl.serve.world import World
from tests.serve.standin import NoCluster

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


async def sliced(world: World) -> dict[str, float]:
    """The map, as its viewers have it made: all of it, and the longest that the loop is held."""
    making, longest, found = world.occupancy(), 0.0, None
    while found is None:
        began = time.perf_counter()
        found = making.work()
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(PAUSE)
    spent, held = round(making.spent * 1000, 1), round(longest * 1000, 1)
    return {"map_ms": spent, "map_held_ms": held, "map_kb": round(len(found.body) / 1000)}


async def main(gangs: int) -> None:
    """Print one JSON line."""
    controller = Controller(NoCluster(), RealClock(), Configuration(), "benchmark")
    fill(controller, gangs)
    world = World(controller)
    encode = msgspec.json.Encoder().encode
    asked: dict[str, Callable[[], msgspec.Struct]] = {
        "waiting": lambda: world.gang_listing(Choice(phases=frozenset({"Pending"}), sort="position", limit=200)),
        "all_gangs": lambda: world.gang_listing(Choice()),
        "queues": lambda: world.listing("QueueList", list(world.queues())),
    }
    figures: dict[str, float] = {"gangs": gangs, "nodes": NODES}
    began = time.perf_counter()
    world.view()
    figures["view_ms"] = round((time.perf_counter() - began) * 1000, 1)
    for name, make in asked.items():
        began = time.perf_counter()
        body = encode(make())
        figures[f"{name}_ms"] = round((time.perf_counter() - began) * 1000, 1)
        figures[f"{name}_kb"] = round(len(body) / 1000)
    figures |= await sliced(world)
    rounds = 1000
    began = time.process_time()
    for _ in range(rounds):
        world.state()
    figures["look_us"] = round((time.process_time() - began) / rounds * 1e6, 1)
    figures["listening_core"] = round(figures["look_us"] / 1e6 / INTERVAL, 6)
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
