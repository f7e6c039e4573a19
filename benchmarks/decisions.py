"""How many gangs a second does the engine decide on a cluster of 10,000 nodes × 8 GPUs?

    python benchmarks/decisions.py [gangs] [--profile]

and, on the same cluster: how long do 1,000 extras of one gang take, 1,000 refused shapes when a node gains room, and the
status of all queues?

One core, no cluster, no I/O. 25 zones × 25 racks × 16 nodes; 50 shapes; gangs of 1 to 64 members (mean about 6) in
40 queues of two levels, one new gang a decision, half of them ended again at random to keep the cluster about half full.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import sys
import time

import msgspec

from queuectl.engine.engine import Engine
from queuectl.model import changes as c
from queuectl.model.gangs import Gang, GiveBack, Member, Place, Record, Role, Shape, Stage
from queuectl.model.plan import Admit, AdmitExtra
from queuectl.model.queues import Entry, Queue
from queuectl.model.resources import CPU, GPU, MEMORY, PODS, amounts
from queuectl.model.topology import HOSTNAME, Level, Node

GI = 2**30
LEVELS = (Level("zone", ("zone",)), Level("rack", ("rack",)), Level("node", (HOSTNAME,)))
# Gang sizes as in public GPU traces: most are small, a few are large, mean about 6 members.
SIZES = [1] * 40 + [2] * 20 + [4] * 16 + [8] * 12 + [16] * 8 + [32] * 3 + [64]


def shapes() -> list[Shape]:
    """50 shapes of 1, 2, 4 or 8 GPUs that differ in cpu and memory."""
    return [
        Shape(
            requests=amounts(
                {GPU: gpus * 1000, CPU: (4 + number % 7) * gpus * 1000, MEMORY: (16 + number) * gpus * GI, PODS: 1}
            )
        )
        for number, gpus in ((number, (1, 2, 4, 8)[number % 4]) for number in range(50))
    ]


def cluster(engine: Engine) -> None:
    """Nodes and queues."""
    engine.observe(c.LevelsSeen(LEVELS))
    for number in range(10_000):
        rack, zone = number // 16, number // 400
        labels = ((HOSTNAME, f"n{number:05}"), ("rack", f"r{rack:03}"), ("zone", f"z{zone:02}"))
        allocatable = amounts({GPU: 8000, CPU: 128_000, MEMORY: 1024 * GI, PODS: 110})
        engine.observe(c.NodeSeen(Node(name=f"n{number:05}", allocatable=allocatable, labels=labels)))
    for top in range(5):
        engine.observe(c.QueueSeen(Queue(name=f"t{top}", uid=f"t{top}", entries=(Entry(GPU, quota=16_000_000),))))
        for leaf in range(8):
            name = f"t{top}-{leaf}"
            engine.observe(
                c.QueueSeen(Queue(name=name, uid=name, parent=f"t{top}", entries=(Entry(GPU, quota=2_000_000),)))
            )


def run(count: int) -> None:
    """Decide on ``count`` gangs, one a decision, and print the times."""
    dice = random.Random(7)
    engine = Engine()
    cluster(engine)
    started = time.perf_counter()
    engine.decide(0)
    first = time.perf_counter() - started
    kinds, running, spent, members, refused = shapes(), list[str](), list[float](), 0, 0
    for number in range(count):
        size = dice.choice(SIZES)
        gang = Gang(
            uid=f"g{number:06}", namespace="n", name=f"g{number}", queue=f"t{dice.randrange(5)}-{dice.randrange(8)}",
            roles=(Role("", size, size, dice.choice(kinds)),), queued_at=number, give_back=GiveBack.EVICT,
        )  # fmt: skip
        if len(running) > 3000:
            engine.observe(c.GangGone(running.pop(dice.randrange(len(running)))))
        started = time.perf_counter()
        engine.observe(c.GangSeen(gang))
        plan = engine.decide(number)
        spent.append(time.perf_counter() - started)
        if plan.actions and isinstance(plan.actions[0], Admit):
            running.append(gang.uid)
            members += size
        else:
            refused += 1
    spent.sort()
    total = sum(spent)
    print(f"first decision (all rows)  {first * 1000:8.1f} ms")
    print(f"decisions                  {count:8d}, {refused} refused, {members} pods placed")
    print(f"decisions a second         {count / total:8.0f}")
    print(
        f"p50, p99, max              {spent[count // 2] * 1e6:8.0f} {spent[count * 99 // 100] * 1e6:8.0f}"
        f" {spent[-1] * 1e6:8.0f} µs"
    )


def timed(what: str, engine: Engine, now: int) -> int:
    """One decision, its time printed; how many admissions it made."""
    started = time.perf_counter()
    plan = engine.decide(now)
    spent = (time.perf_counter() - started) * 1000
    admitted = sum(isinstance(action, Admit | AdmitExtra) for action in plan.actions)
    print(f"{what:26} {spent:8.1f} ms, {admitted} admitted, {len(plan.actions) - admitted} refused")
    return admitted


def extras(count: int = 1000) -> None:
    """A plain Job of this parallelism: one pod is the gang, all others are extras, in one decision."""
    engine = Engine()
    cluster(engine)
    shape = shapes()[0]
    gang = Gang(uid="g", namespace="n", name="g", queue="t0-0", roles=(Role("", 1, count, shape),))
    record = Record(1, (Place(0, "n00000"),))
    engine.observe(c.GangSeen(msgspec.structs.replace(gang, record=record, round=1)))
    first = Member(uid="p0", gang="g", name="p0", rank=0, shape=shape, stage=Stage.RUNNING, node="n00000")
    engine.observe(c.MemberSeen(first))
    engine.decide(0)
    for rank in range(1, count):
        name = f"p{rank}"
        pod = Member(uid=name, gang="g", name=name, rank=rank, shape=shape, stage=Stage.GATED)
        engine.observe(c.MemberSeen(pod))
    timed(f"{count - 1} extras", engine, 1)


def backlog(count: int = 1000) -> None:
    """No node is free for a gang of eight GPUs; gangs of as many shapes wait when one node gains room."""
    engine = Engine()
    cluster(engine)
    for number in range(10_000):
        engine.observe(c.OccupantSeen(f"o{number}", f"n{number:05}", amounts({GPU: 1000, PODS: 1})))
    for number in range(count):
        shape = Shape(requests=amounts({GPU: 8000, CPU: 100_000 + number, MEMORY: GI, PODS: 1}))
        gang = Gang(uid=f"g{number:06}", namespace="n", name="g", queue=f"t{number % 5}-{number % 8}",
                    roles=(Role("", 1, 1, shape),), queued_at=number)  # fmt: skip
        engine.observe(c.GangSeen(gang))
    timed(f"{count} shapes, all new", engine, 0)
    engine.observe(c.OccupantSeen("more", "n00007", amounts({GPU: 1000, PODS: 1})))
    engine.observe(c.OccupantGone("o7"))
    timed("a wake that helps nobody", engine, 1)
    engine.observe(c.OccupantGone("more"))
    timed("a wake for one of them", engine, 2)
    started = time.perf_counter()
    engine.queues()
    print(f"{'all queues':26} {(time.perf_counter() - started) * 1000:8.1f} ms")


if __name__ == "__main__":
    gangs = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 4000)
    if "--profile" in sys.argv:
        profile = cProfile.Profile()
        profile.runcall(run, gangs)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    else:
        run(gangs)
        extras()
        backlog()
