"""What does a decision cost that has a thousand questions at once, on 10,000 nodes × 8 GPUs?

    python benchmarks/backlog.py [--nodes N] [--count N]

999 extras of one Job; as many refused shapes as that, when they come and each time a node gains room; the status of all
queues. One core, no cluster, no I/O; CPU time in milliseconds, and beside each decision how many were admitted.
"""

from __future__ import annotations

import argparse
import json
import time

import msgspec

from queuectl.engine.engine import Engine
from queuectl.model import changes as c
from queuectl.model.gangs import Gang, Member, Place, Record, Role, Shape, Stage
from queuectl.model.plan import Admit, AdmitExtra
from queuectl.model.queues import Entry, Queue
from queuectl.model.resources import CPU, GPU, MEMORY, PODS, amounts
from queuectl.model.topology import HOSTNAME, Level, Node

GI = 2**30
LEVELS = (Level("zone", ("zone",)), Level("rack", ("rack",)), Level("node", (HOSTNAME,)))


def cluster(nodes: int) -> Engine:
    """Racks of 16 nodes in zones of 400, and 40 queues on two levels."""
    engine = Engine()
    engine.observe(c.LevelsSeen(LEVELS))
    allocatable = amounts({GPU: 8000, CPU: 128_000, MEMORY: 1024 * GI, PODS: 110})
    for number in range(nodes):
        name = f"n{number:05}"
        labels = ((HOSTNAME, name), ("rack", f"r{number // 16:03}"), ("zone", f"z{number // 400:02}"))
        engine.observe(c.NodeSeen(Node(name=name, allocatable=allocatable, labels=labels)))
    for top in range(5):
        engine.observe(c.QueueSeen(Queue(name=f"t{top}", uid=f"t{top}", entries=(Entry(GPU, quota=16_000_000),))))
        for leaf in range(8):
            name = f"t{top}-{leaf}"
            queue = Queue(name=name, uid=name, parent=f"t{top}", entries=(Entry(GPU, quota=2_000_000),))
            engine.observe(c.QueueSeen(queue))
    return engine


def timed(engine: Engine, now: int) -> tuple[float, int]:
    """One decision: its milliseconds, and how many it admitted."""
    started = time.thread_time()
    plan = engine.decide(now)
    spent = (time.thread_time() - started) * 1000
    return round(spent, 1), sum(isinstance(action, Admit | AdmitExtra) for action in plan.actions)


def extras(nodes: int, count: int) -> dict[str, object]:
    """A plain Job of this parallelism: one pod is the gang, all others are extras, in one decision."""
    engine = cluster(nodes)
    shape = Shape(requests=amounts({GPU: 1000, CPU: 4000, MEMORY: 16 * GI, PODS: 1}))
    record = Record(1, (Place(0, "n00000"),))
    gang = Gang(
        uid="g", namespace="n", name="g", queue="t0-0", roles=(Role("", 1, count, shape),), record=record, round=1
    )
    engine.observe(c.GangSeen(gang))
    first = Member(uid="p0", gang="g", name="p0", rank=0, shape=shape, stage=Stage.RUNNING, node="n00000")
    engine.observe(c.MemberSeen(first))
    engine.decide(0)
    for rank in range(1, count):
        name = f"p{rank}"
        engine.observe(
            c.MemberSeen(msgspec.structs.replace(first, uid=name, name=name, rank=rank, stage=Stage.GATED, node=None))
        )
    spent, admitted = timed(engine, 1)
    return {"extras_ms": spent, "extras_admitted": admitted}


def parked(nodes: int, count: int) -> dict[str, object]:
    """No node is free for a gang of eight GPUs; gangs of as many shapes wait when one node gains room."""
    engine = cluster(nodes)
    for number in range(nodes):
        engine.observe(c.OccupantSeen(f"o{number}", f"n{number:05}", amounts({GPU: 1000, PODS: 1})))
    engine.decide(0)  # all rows are made once
    for number in range(count):
        shape = Shape(requests=amounts({GPU: 8000, CPU: 100_000 + number, MEMORY: GI, PODS: 1}))
        uid, queue = f"g{number:06}", f"t{number % 5}-{number % 8}"
        roles = (Role("", 1, 1, shape),)
        engine.observe(c.GangSeen(Gang(uid=uid, namespace="n", name=uid, queue=queue, roles=roles, queued_at=number)))
    fresh, none = timed(engine, 0)
    engine.observe(c.OccupantSeen("more", "n00007", amounts({GPU: 1000, PODS: 1})))
    engine.observe(c.OccupantGone("o7"))
    vain, still_none = timed(engine, 1)
    engine.observe(c.OccupantGone("more"))
    useful, one = timed(engine, 2)
    started = time.thread_time()
    engine.queues()
    return {
        "refusals_ms": fresh,
        "wake_in_vain_ms": vain,
        "wake_for_one_ms": useful,
        "queues_ms": round((time.thread_time() - started) * 1000, 2),
        "admitted": [none, still_none, one],
    }


def measure(nodes: int, count: int) -> dict[str, object]:
    """All of it."""
    return {"benchmark": "backlog", "nodes": nodes, "n": count, **extras(nodes, count), **parked(nodes, count)}


def main() -> None:
    """One JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--count", type=int, default=1000, help="pods of the Job, and refused shapes")
    given = parser.parse_args()
    print(json.dumps(measure(given.nodes, given.count)))


if __name__ == "__main__":
    main()
