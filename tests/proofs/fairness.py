"""``make proof-fairness``: what is claimed of the fair shares. Turn order and reclaim will have their rows here too."""

from __future__ import annotations

import asyncio
import json
import sys
from fractions import Fraction
from itertools import pairwise

from tests.engine import share_checks as checks
from tests.engine.discrete_hdrf import Mode, hdrf
from tests.engine.fairshare_exact import Rule, Tree, collapsed
from tests.engine.share_oracles import H2, H4, H6, HELD, HIERARCHIES, UNIT, whole_tasks
from tests.proofs.demo import ours, run, suite
from tests.proofs.table import Proof

CHUNK = 100  # trees between two looks at the event loop


async def oracles(proof: Proof) -> None:
    """Every published row is a test with its id."""
    await suite(
        proof,
        "D1, D4–D8, H1–H6, 480 servers, KAI's share vectors with the stated differences, Slurm, HTCondor: each a test",
        60,
        "tests/engine/test_fairshare.py",
        "tests/engine/test_decay.py",
        rig="off",
    )
    await suite(
        proof,
        "guarantees, limits, support sets, pools, bands, weight 0, refusals, grace: by hand, as nobody has published any",
        25,
        "tests/engine/test_entitlement.py",
        "tests/engine/test_grace.py",
        rig="off",
    )


def _amounts(tasks: dict[str, int]) -> str:
    return "/".join(str(tasks[name]) for name in sorted(tasks))


async def variants(proof: Proof) -> None:
    """Wrong ways to divide give wrong numbers where they must."""
    for row, mode, right in (
        ("H2", Mode.NAIVE, H2),
        ("H3", Mode.NAIVE, H2),
        ("H4-held", Mode.NAIVE, HELD),
        ("H4", Mode.RESCALE, H4),
    ):
        root, size = whole_tasks(row)
        wrong = hdrf(root, {"c": Fraction(size), "m": Fraction(size)}, mode)
        proof.row(f"{row}, {mode.value}: fails", _amounts(wrong), f"not {_amounts(right)}", wrong != right)
    flat = collapsed({"c": UNIT, "m": UNIT}, HIERARCHIES["H1"][0]).queues
    found = [max(flat[name].f.values()) / UNIT for name in ("n1", "n21", "n22")]
    proof.row(
        "H1 at capacity 1, collapsed: becomes D8",
        "/".join(map(str, found)),
        "2/3, 1/3, 1/3, not 1/2 each",
        found == [Fraction(2, 3), Fraction(1, 3), Fraction(1, 3)],
    )
    rate = Tree({"c": UNIT, "m": UNIT}, H6).divide(Rule.EQUAL_RATE).queues
    pair = [rate[name].f["m"] / UNIT for name in ("n32", "n4")]
    proof.row(
        "H6, all at one rate: fails",
        ", ".join(map(str, pair)),
        "19/54, 35/54, not 1/2 each",
        pair == [Fraction(19, 54), Fraction(35, 54)],
    )


async def exact(proof: Proof) -> None:
    """Fast shares against rationals."""
    count = 300 if proof.sample else 10_000
    problems: list[str] = []
    for first in range(0, count, CHUNK):
        problems += await asyncio.to_thread(_unlike, range(first, first + CHUNK))
    proof.row(
        f"{count:,} random trees (≤ 4 levels, ≤ 3 resources, limits, guarantees, weights from 0, quotas, bands, support "
        "sets) in two pools: fast against exact, beyond depth × rounds × 2^-64 of the capacity or unequal as whole units",
        f"{len(problems)} differences" + (f"; {problems[0]}" if problems else ""),
        "0",
        not problems,
    )


def _unlike(seeds: range) -> list[str]:
    return [problem for seed in seeds for problem in checks.unlike(seed)]


def _distances(count: int, tasks: int) -> list[float]:
    return [checks.distance(checks.plain_pool(seed), tasks) for seed in range(count)]


async def programs(proof: Proof) -> None:
    """Linear programs."""
    count = 40 if proof.sample else 500
    results = await asyncio.to_thread(lambda: [checks.rounds(seed) for seed in range(count)])
    rounds, worst = sum(one for one, _ in results), max(two for _, two in results)
    proof.row(
        f"a linear program for each round of the exact fill of {count} trees: largest difference of what anybody gains",
        f"{worst:.1e} of a demand, {rounds:,} rounds",
        "≤ 1e-9",
        worst <= 1e-9 and rounds >= count,
    )
    flat = await asyncio.to_thread(lambda: max(checks.flat_distance(seed) for seed in range(count)))
    proof.row(
        f"{count} flat pools by a series of programs: largest difference",
        f"{flat:.1e} of a demand",
        "≤ 1e-6",
        flat <= 1e-6,
    )


async def discrete(proof: Proof) -> None:
    """Published H-DRF with ever smaller tasks."""
    count, sizes = (8, (20, 80)) if proof.sample else (100, (20, 80, 320))
    mean, worst = [], []
    for tasks in sizes:
        found = await asyncio.to_thread(_distances, count, tasks)
        mean.append(sum(found) / count)
        worst.append(max(found))
    proof.row(
        f"discrete H-DRF on {count} trees with every demand in {', '.join(map(str, sizes))} tasks: mean (largest) distance, in "
        "parts of the capacity",
        ", ".join(f"{a:.4f} ({b:.3f})" for a, b in zip(mean, worst, strict=True)),
        "each mean less than half of the one before",
        all(later < earlier / 2 for earlier, later in pairwise(mean)),
    )


async def properties(proof: Proof) -> None:
    """Hypothesis."""
    await suite(
        proof,
        "properties: order and names do not matter, scaling, weight, idle queues, no-op on repeat, work conservation, no envy, "
        "sharing incentive",
        15,
        "tests/engine/test_fairshare_random.py",
        rig="off",
    )
    await suite(proof, "kept up to date is as from the start", 10, "tests/engine/test_fairshare_refresh.py", rig="off")


async def cost(proof: Proof) -> None:
    """The benchmark's own figures."""
    sizes = ["1000"] if proof.sample else ["1000", "10000"]
    code, out, err = await run([sys.executable, "benchmarks/shares.py", "--leaves", *sizes], ours())
    assert code == 0, err[-500:]
    for line in out.splitlines():
        found = json.loads(line)
        small = found["leaves"] == 1000
        proof.row(
            f"share refresh at {found['leaves']:,} leaves, {found['resources']} counted resource(s), CPU",
            f"{found['refresh_ms']} ms, from the start {found['full_ms']} ms (ratio {found['ratio']}), without effect "
            f"{found['unchanged_ms']} ms; {found['rounds']:,} rounds",
            "< 20 ms" if small else "told",
            not small or found["refresh_ms"] < 20,
        )


async def prove(proof: Proof) -> None:
    """All parts, in the order of the issue's list."""
    await proof.part("variants", lambda: variants(proof))
    if not proof.sample:  # the tests show these anyhow
        await proof.part("oracles", lambda: oracles(proof))
        await proof.part("properties", lambda: properties(proof))
    await proof.part("exact", lambda: exact(proof))
    await proof.part("programs", lambda: programs(proof))
    await proof.part("discrete", lambda: discrete(proof))
    if not proof.sample:  # a figure that a busy machine would spoil
        await proof.part("cost", lambda: cost(proof))


def main() -> int:
    """Exit code 0 when every row holds."""
    proof = Proof("fairness")
    asyncio.run(prove(proof))
    return proof.end()


if __name__ == "__main__":
    sys.exit(main())
