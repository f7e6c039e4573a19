"""What is checked of the fair shares on random trees, by seed; the tests do a few of each, the proof all that are claimed."""

from __future__ import annotations

import random
from fractions import Fraction

from queuectl.engine.claims import Claim
from queuectl.engine.fairshare import fair_shares
from tests.engine.discrete_hdrf import Mode, Queue, hdrf
from tests.engine.fairshare_exact import Fill, Tree
from tests.engine.share_programs import Longest, flat_max_min
from tests.engine.share_trees import Pool, differences, random_pool, two_pools


def unlike(seed: int) -> list[str]:
    """Where the fast shares of two pools differ from the exact ones: outside the bound, or as whole units."""
    found = []
    for number, (capacity, claims) in enumerate(two_pools(seed)):
        problems = differences(fair_shares(capacity, claims), Tree(capacity, claims).divide())
        found += [f"seed {seed}, pool {number}: {problem}" for problem in problems]
    return found


def rounds(seed: int) -> tuple[int, float]:
    """Rounds of the exact fill of a random tree, and the most by which a program's optimum differs from one of them."""
    capacity, claims = random_pool(seed)
    tree = Tree(capacity, claims).entitled()
    count, worst = 0, 0.0
    for top in tree.tops(tree.root):
        fill = Fill(tree, top)
        for step in fill.steps():
            gains = Longest(fill, step).gains()
            count += 1
            for gain, (_, _, growth) in zip(gains, step.growth, strict=True):
                worst = max(worst, abs(gain - float(growth)))
    return count, worst


def plain_pool(seed: int, levels: int = 3) -> Pool:
    """A tree for published H-DRF: weights and demand only, one support set a leaf, up to two resources."""
    draw = random.Random(seed)
    names = "cm"[: draw.randint(1, 2)]
    capacity = {name: draw.randint(4, 30) for name in names}
    claims: list[Claim] = []

    def grow(parent: str | None, prefix: str, left: int) -> None:
        for letter in "abc"[: draw.randint(2, 3)]:
            name, inner = prefix + letter, left > 1 and draw.random() < 0.5
            support = [r for r in names if draw.random() < 0.7] or [names[0]]
            demand = () if inner else (tuple((r, draw.randint(1, 30)) for r in support),)
            claims.append(Claim(name=name, parent=parent, weight=draw.choice((1, 2, 3)), demand=demand))
            if inner:
                grow(name, name, left - 1)

    grow(None, "", levels)
    return capacity, claims


def distance(pool: Pool, tasks: int) -> float:
    """Between the fair shares and discrete H-DRF that cuts every demand into so many tasks; in parts of the capacity."""
    capacity, claims = pool
    queues = {
        claim.name: Queue(
            claim.name,
            claim.weight,
            {r: Fraction(amount, tasks) for r, amount in (claim.demand or ((),))[0]},
            [],
            tasks,
        )
        for claim in claims
    }
    root = Queue("", kids=[])
    for claim in claims:
        above = root if claim.parent is None else queues[claim.parent]
        above.kids = [*above.kids, queues[claim.name]]
    given = hdrf(root, {r: Fraction(have) for r, have in capacity.items()}, Mode.FULL)
    shares = Tree(capacity, claims).divide()
    return max(
        float(abs(Fraction(given[claim.name], tasks) * amount - shares.queues[claim.name].f[r]) / capacity[r])
        for claim in claims
        for vector in claim.demand
        for r, amount in vector
    )


def flat_distance(seed: int) -> float:
    """Between the fair shares of a flat pool and those of a series of linear programs, as a part of each demand."""
    draw = random.Random(seed)
    capacity = {name: draw.randint(4, 30) for name in "cgm"[: draw.randint(1, 3)]}
    claims = []
    for number in range(draw.randint(2, 7)):
        support = [r for r in capacity if draw.random() < 0.7] or [next(iter(capacity))]
        demand = tuple((r, draw.randint(1, 30)) for r in support)
        claims.append(Claim(name=f"q{number}", weight=draw.choice((1, 2, 5)), demand=(demand,)))
    parts = flat_max_min(capacity, claims)
    shares = Tree(capacity, claims).divide()
    return max(
        abs(float(shares.queues[claim.name].f[r] / amount) - parts[claim.name])
        for claim in claims
        for r, amount in claim.demand[0]
    )
