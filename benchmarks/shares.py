"""What does it cost to divide a cluster of 10,000 nodes × 8 GPUs among 1,000 and 10,000 queues?

    python benchmarks/shares.py [--leaves N ...] [--resources 1 | 3] [--seed SEED]

Three levels (tens, tens, leaves), weights 1 to 4, two priority bands, quotas of half of what there is, and twice as much
demand as there is of GPUs. With three resources gangs want GPUs, CPUs and memory in different proportions, three leaves in
ten have work besides that needs no GPU, and one in ten has nothing else.

*full*: from claims to shares. *refresh*: the demand of one leaf has changed. *unchanged*: it has grown for a leaf that wants one
resource and does not get what it wanted before. CPU time in milliseconds, medians; no cluster, no I/O. The collector of
cycles is off while a time is taken: when it runs is the business of the process around.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from queuectl.engine.claims import Claim, Listed
from queuectl.engine.fairshare import Division
from queuectl.model.resources import CPU, GPU, MEMORY, Amounts

CAPACITY = {GPU: 80_000_000, CPU: 1_280_000_000, MEMORY: 10_000 * 2**40}
TOPS, PER_MIDDLE = 10, 100  # queues at the top; leaves below each queue of the second level
WANTED = 2  # times the GPUs that there are


def cluster(leaves: int, resources: int, seed: int) -> tuple[dict[str, int], list[Claim]]:
    """Capacity and the claims of a tree with so many leaves."""
    draw = random.Random(seed)
    capacity = dict(list(CAPACITY.items())[:resources])

    def part(of: int) -> Listed:
        return tuple((resource, have // of) for resource, have in capacity.items())

    middles = max(1, leaves // PER_MIDDLE)
    claims = [Claim(name=f"t{top}", weight=draw.randint(1, 4), quota=part(2 * TOPS)) for top in range(TOPS)]
    for number in range(middles):
        quota = part(2 * max(middles, TOPS))
        claims.append(Claim(name=f"m{number}", parent=f"t{number % TOPS}", weight=draw.randint(1, 4), quota=quota))
    for number in range(leaves):
        gpus = draw.randint(1, 2 * WANTED * capacity[GPU] // leaves)
        each: Amounts = tuple(
            sorted(zip(capacity, (gpus, gpus * draw.randint(4, 12), gpus * draw.randint(4, 120) * 2**20), strict=False))
        )
        light: Amounts = ((CPU, draw.randint(1, 2 * CAPACITY[CPU] // leaves)),)
        kind = draw.random() if resources > 1 else 1.0
        claims.append(
            Claim(
                name=f"l{number:05}",
                parent=f"m{number % middles}",
                weight=draw.randint(1, 4),
                priority=draw.choice((0, 0, 0, 1)),
                quota=part(2 * leaves),
                demand=(light,) if kind < 0.1 else (light, each) if kind < 0.4 else (each,),
            )
        )
    return capacity, claims


def scaled(claim: Claim, percent: int) -> Claim:
    """The same with other amounts, at least one unit of each."""
    demand = tuple(tuple((r, amount * percent // 100 + 1) for r, amount in vector) for vector in claim.demand)
    return replace(claim, demand=demand)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Milliseconds of CPU, and what came out."""
    gc.collect()
    gc.disable()
    started = time.thread_time()
    result = work()
    spent = (time.thread_time() - started) * 1000
    gc.enable()
    return spent, result


def measure(leaves: int, resources: int, seed: int, times: int) -> dict[str, object]:
    """One line."""
    capacity, claims = cluster(leaves, resources, seed)
    full = [timed(lambda: Division(capacity, claims))[0] for _ in range(times)]
    division = Division(capacity, claims)
    draw = random.Random(seed)
    wanting = [claim for claim in claims if claim.demand]
    refreshed: list[float] = []
    for claim in draw.sample(wanting, 4 * times):
        spent, moved = timed(partial(division.refresh, [scaled(claim, draw.randint(50, 150))]))
        refreshed += [spent] if moved else []
    division = Division(capacity, claims)
    unchanged: list[float] = []
    for claim in [one for one in wanting if len(one.demand) == len(one.demand[0]) == 1]:
        if len(unchanged) < times:
            spent, moved = timed(partial(division.refresh, [scaled(claim, 110)]))
            unchanged += [] if moved else [spent]
    whole, part = statistics.median(full), statistics.median(refreshed)
    return {
        "benchmark": "shares",
        "leaves": leaves,
        "queues": len(claims),
        "resources": resources,
        "seed": seed,
        "rounds": len(division.rounds()),
        "full_ms": round(whole, 2),
        "refresh_ms": round(part, 2),
        "ratio": round(whole / part, 2),
        "unchanged_ms": round(statistics.median(unchanged), 3) if unchanged else None,
    }


def main() -> None:
    """One JSON line for each size and number of resources."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--leaves", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--resources", type=int, nargs="*", choices=(1, 3), default=[1, 3])
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--times", type=int, default=5, help="of which medians are taken")
    given = parser.parse_args()
    for leaves in given.leaves:
        for resources in given.resources:
            print(json.dumps(measure(leaves, resources, given.seed, given.times)), flush=True)


if __name__ == "__main__":
    main()
