"""How many gangs a second does the engine admit on a cluster of 10,000 nodes × 8 GPUs that is nine tenths full?

    python benchmarks/decisions.py [--seconds S | --decisions N] [--nodes N] [--seed SEED] [--profile]

One core, no cluster, no I/O. Zones of 25 racks of 16 nodes; 1,000 queues on three levels, with quotas and, at the top,
limits; every gang draws one of 60 shapes, a size from 1 to 256 and a leaf. Three in ten must stay inside one rack, or
inside one zone where a rack is too small. The cluster is filled to 90 % of its GPUs; from then on gangs end at random and
new ones come, one a decision. Who is refused goes on waiting, and is admitted later or gives up.

Only admissions count as decisions. The time is all that the engine spends, refusals and the news of ended gangs included.
It is CPU time, so that a busy machine does not show as a slow engine; the wall's figures stand beside it. Two figures do
not depend on the machine's mood at all: calls of functions, and instructions where ``perf`` can count them. The garbage
collector is set as the controller sets it once it has seen its cluster.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import math
import pstats
import random
import shutil
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from queuectl.engine.engine import Engine
from queuectl.model import changes as c
from queuectl.model.gangs import Gang, GiveBack, Role, Shape
from queuectl.model.plan import Admit
from queuectl.model.queues import Entry, Queue
from queuectl.model.resources import CPU, GPU, MEMORY, PODS, amounts
from queuectl.model.topology import HOSTNAME, Level, Node

GI = 2**30
LEVELS = (Level("zone", ("zone",)), Level("rack", ("rack",)), Level("node", (HOSTNAME,)))
GPUS, PER_RACK, PER_ZONE = 8, 16, 400  # GPUs a node, nodes a rack, nodes a zone
FULL = 0.9
REQUIRED = 0.3
SHAPES = 60
COUNTED = 200  # decisions whose calls, and 1,000 whose instructions, are counted: a seed decides which they are
WAITING = 100  # gangs; when more wait, the one that waits longest gives up
# Gang sizes as in public GPU traces: most are small, a few are large, mean 5.6 members.
SIZES = {1: 450, 2: 200, 4: 140, 8: 110, 16: 60, 32: 25, 64: 9, 128: 4, 256: 2}
TOPS, MIDDLES, LEAVES = 10, 9, 10  # below each: 10 + 90 + 900 queues


class Figures(Struct):
    """What is counted while the cluster is full. Times in seconds; those of one decision are CPU, then wall."""

    decided: list[tuple[float, float]]
    cpu: float = 0.0
    wall: float = 0.0
    admitted: int = 0
    pods: int = 0
    refused: int = 0
    gave_up: int = 0


def shapes() -> list[Shape]:
    """Shapes of 1, 2, 4 or 8 GPUs that differ in cpu and memory; as many of each as fill a node's GPUs fit its cpu."""
    return [
        Shape(
            requests=amounts(
                {GPU: gpus * 1000, CPU: (4 + number % 11) * gpus * 1000, MEMORY: (16 + number) * gpus * GI, PODS: 1}
            )
        )
        for number, gpus in ((number, (1, 2, 4, 8)[number % 4]) for number in range(SHAPES))
    ]


def cluster(engine: Engine, nodes: int) -> list[str]:
    """Nodes and queues; the leaves' names."""
    engine.observe(c.LevelsSeen(LEVELS))
    allocatable = amounts({GPU: GPUS * 1000, CPU: 128_000, MEMORY: 1024 * GI, PODS: 110})
    for number in range(nodes):
        name = f"n{number:05}"
        labels = ((HOSTNAME, name), ("rack", f"r{number // PER_RACK:03}"), ("zone", f"z{number // PER_ZONE:02}"))
        engine.observe(c.NodeSeen(Node(name=name, allocatable=allocatable, labels=labels)))
    whole = nodes * GPUS * 1000
    leaves = []
    for top in range(TOPS):
        share = whole // TOPS
        entries = (Entry(GPU, quota=share, limit=2 * share),)
        engine.observe(c.QueueSeen(Queue(name=f"t{top}", uid=f"t{top}", entries=entries)))
        for middle in range(MIDDLES):
            inner, part = f"t{top}-{middle}", share // MIDDLES
            queue = Queue(name=inner, uid=inner, parent=f"t{top}", entries=(Entry(GPU, quota=part),))
            engine.observe(c.QueueSeen(queue))
            for number in range(LEAVES):
                leaf = f"{inner}-{number}"
                queue = Queue(name=leaf, uid=leaf, parent=inner, entries=(Entry(GPU, quota=part // LEAVES),))
                engine.observe(c.QueueSeen(queue))
                leaves.append(leaf)
    return leaves


class Load:
    """Gangs that come, run, wait, end or give up; and the GPUs held by those that run."""

    def __init__(self, engine: Engine, nodes: int, seed: int) -> None:
        self._engine = engine
        self._dice = random.Random(seed)
        self._leaves = cluster(engine, nodes)
        self._shapes = shapes()
        self._number = 0
        self._asked: OrderedDict[str, int] = OrderedDict()  # gangs that wait, oldest first -> GPUs
        self._running: list[tuple[str, int]] = []
        self._held = 0
        self._full = int(nodes * GPUS * FULL)

    @property
    def waiting(self) -> int:
        """How many gangs wait."""
        return len(self._asked)

    @property
    def full(self) -> bool:
        """Whether nine tenths of the GPUs are held."""
        return self._held >= self._full

    def step(self, figures: Figures) -> None:
        """Gangs end while the cluster is full, one comes, and the engine decides."""
        changes: list[c.Change] = []
        while self.full:
            at = self._dice.randrange(len(self._running))
            self._running[at], last = self._running[-1], self._running[at]
            self._running.pop()
            self._held -= last[1]
            changes.append(c.GangGone(last[0]))
        if len(self._asked) > WAITING:
            figures.gave_up += 1
            changes.append(c.GangGone(self._asked.popitem(last=False)[0]))
        gang = self._gang()
        changes.append(c.GangSeen(gang))
        wall, cpu = time.perf_counter(), time.thread_time()
        for change in changes:
            self._engine.observe(change)
        wall_told, cpu_told = time.perf_counter(), time.thread_time()
        plan = self._engine.decide(self._number)
        cpu_end, wall_end = time.thread_time(), time.perf_counter()
        figures.decided.append((cpu_end - cpu_told, wall_end - wall_told))
        figures.cpu += cpu_end - cpu
        figures.wall += wall_end - wall
        for action in plan.actions:
            if isinstance(action, Admit):
                gpus = self._asked.pop(action.gang)
                self._held += gpus
                self._running.append((action.gang, gpus))
                figures.admitted += 1
                figures.pods += len(action.assignments)
        figures.refused += gang.uid in self._asked

    def _gang(self) -> Gang:
        dice = self._dice
        (size,) = dice.choices(list(SIZES), list(SIZES.values()))
        shape = dice.choice(self._shapes)
        gpus = size * dict(shape.requests)[GPU] // 1000
        required = None
        if dice.random() < REQUIRED:
            required = "rack" if gpus <= PER_RACK * GPUS else "zone"
        self._number += 1
        uid = f"g{self._number:07}"
        self._asked[uid] = gpus
        return Gang(
            uid=uid, namespace="n", name=uid, queue=dice.choice(self._leaves), roles=(Role("", size, size, shape),),
            required=required, queued_at=self._number, give_back=GiveBack.EVICT,
        )  # fmt: skip


def quantile(spent: list[float], per_mille: int) -> float:
    """The value that ``per_mille`` thousandths do not exceed, in ms."""
    return round(sorted(spent)[math.ceil(len(spent) * per_mille / 1000) - 1] * 1000, 3)


def calls(load: Load, count: int) -> float:
    """Calls of functions in a decision, those of C included, as the mean of this many; the load's own few are among them."""
    found = 0

    def note(_frame: object, event: str, _what: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    gc.disable()  # whoever listens to collections would be counted
    sys.setprofile(note)
    try:
        for _ in range(count):
            load.step(Figures([]))
    finally:
        sys.setprofile(None)
        gc.enable()
    return found / count


def instructions(nodes: int, seed: int, count: int = 1000) -> int | None:
    """Instructions of a decision, from two runs of which one goes on for longer; None where nobody can count them."""
    if shutil.which("perf") is None:
        return None
    found = []
    for decisions in (1, 1 + count):
        given = [__file__, "--decisions", str(decisions), "--nodes", str(nodes), "--seed", str(seed), "--plain"]
        command = ["perf", "stat", "-x,", "-e", "instructions:u", sys.executable, *given]
        line = subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip().rpartition("\n")[2]
        number = line.partition(",")[0]
        if not number.isdecimal():
            return None
        found.append(int(number))
    return (found[1] - found[0]) // count


@contextmanager
def mirrored() -> Iterator[None]:
    """The garbage collector as ``Controller`` has it once the cluster is mirrored (queuectl/control/loop.py)."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def measure(nodes: int, seconds: float, seed: int, decisions: int = 1) -> dict[str, object]:
    """Fill the cluster, go on for ``seconds`` and ``decisions`` at least, and what came of that time."""
    load = Load(Engine(), nodes, seed)
    filling, figures = Figures([]), Figures([])
    while not load.full:
        load.step(filling)
    called = calls(load, COUNTED)
    with mirrored():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(figures.decided) < decisions or not figures.admitted:
            load.step(figures)
    cpu, wall = ([one[kind] for one in figures.decided] for kind in (0, 1))
    return {
        "benchmark": "decisions",
        "seed": seed,
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "filled": FULL,
        "shapes": SHAPES,
        "queues": TOPS * (1 + MIDDLES * (1 + LEAVES)),
        "decisions_per_s": round(figures.admitted / figures.cpu, 1),
        "p50_ms": quantile(cpu, 500),
        "p99_ms": quantile(cpu, 990),
        "max_ms": quantile(cpu, 1000),
        "n": len(figures.decided),
        "admitted": figures.admitted,
        "refused": figures.refused,
        "gave_up": figures.gave_up,
        "waiting": load.waiting,
        "pods": figures.pods,
        "wall": {
            "decisions_per_s": round(figures.admitted / figures.wall, 1),
            "p50_ms": quantile(wall, 500),
            "p99_ms": quantile(wall, 990),
        },
        "filling": {"n": len(filling.decided), "decisions_per_s": round(filling.admitted / filling.cpu, 1)},
        "calls_per_decision": round(called),
    }


def main() -> None:
    """One JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of decisions, once the cluster is full")
    parser.add_argument("--decisions", type=int, default=0, help="this many instead")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of figures")
    parser.add_argument("--plain", action="store_true", help="without counting instructions")
    given = parser.parse_args()
    if given.decisions:
        given.seconds = 0.0
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(measure, given.nodes, given.seconds, given.seed, given.decisions)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    else:
        line = measure(given.nodes, given.seconds, given.seed, given.decisions)
        line["instructions_per_decision"] = None if given.plain else instructions(given.nodes, given.seed)
        print(json.dumps(line))


if __name__ == "__main__":
    main()
