"""Random queue trees for the fair shares, valid by construction, and what is compared between two ways to divide them."""

from __future__ import annotations

import random
from fractions import Fraction

from queuectl.engine.claims import Claim, Listed
from queuectl.engine.fairshare import ONE, Shares
from queuectl.model.resources import Amounts
from tests.engine.fairshare_exact import Tree

NAMES = ("cpu", "gpu", "memory")
Pool = tuple[dict[str, int], list[Claim]]


def random_pool(seed: int, levels: int = 4, resources: int = 3) -> Pool:
    """Up to ``levels`` levels and ``resources`` resources: limits, guarantees, weights from 0, quotas, bands, several sets.

    Amounts are small, so that exact ties (everything fits exactly, two siblings alike) are common.
    """
    draw = random.Random(seed)
    names = NAMES[: draw.randint(1, resources)]
    scale = draw.choice((1, 1, 7, 1000, 2**40))
    capacity = {
        name: draw.choice((0, 5, 12, 30, 60)) * scale if draw.random() < 0.1 else draw.randint(4, 60) * scale
        for name in names
    }
    claims: list[Claim] = []
    _grow(draw, None, "", draw.randint(1, levels), capacity, scale, dict.fromkeys(names, 10**18), claims)
    draw.shuffle(claims)
    return capacity, claims


def two_pools(seed: int) -> list[Pool]:
    """The same queues in two pools: each pool has entries and demand of its own."""
    return [random_pool(2 * seed), random_pool(2 * seed + 1)]


def _grow(
    draw: random.Random,
    parent: str | None,
    prefix: str,
    levels: int,
    capacity: dict[str, int],
    scale: int,
    room: dict[str, int],
    claims: list[Claim],
) -> None:
    """Children below ``parent``; what they guarantee together stays within ``room``, the limits above them."""
    left = dict(room)
    for number in range(draw.randint(1 if parent else 2, 4)):
        name = f"{prefix}{'abcd'[number]}"
        inner = levels > 1 and draw.random() < 0.55
        limit: dict[str, int] = {}
        guarantee: dict[str, int] = {}
        quota: dict[str, int] = {}
        for resource, have in capacity.items():
            size = max(1, have // scale)
            if draw.random() < 0.25:
                limit[resource] = draw.randint(0, size) * scale
            if draw.random() < 0.15:
                most = min(left[resource], limit.get(resource, 10**18), size * scale // draw.choice((2, 6)))
                guarantee[resource] = draw.randint(0, most // scale) * scale
            if draw.random() < 0.4:
                quota[resource] = draw.randint(0, max(1, size // draw.choice((1, 4, 8)))) * scale
        below = {resource: min(left[resource], limit.get(resource, 10**18), room[resource]) for resource in capacity}
        held = dict(guarantee)
        if inner:
            before = len(claims)
            _grow(draw, name, name, levels - 1, capacity, scale, below, claims)
            for resource in capacity:
                kids = [_held(claims, claim, resource) for claim in claims[before:] if claim.parent == name]
                held[resource] = max(held.get(resource, 0), sum(kids))
        for resource, amount in held.items():
            left[resource] -= amount
        claims.append(
            Claim(
                name=name,
                parent=parent,
                weight=draw.choice((0, 1, 1, 1, 1, 2, 2, 3, 9)),
                priority=draw.choice((0, 0, 0, 5)),
                quota=_listed(quota),
                limit=_listed(limit),
                guarantee=_listed(guarantee),
                demand=() if inner else _demand(draw, capacity, scale),
            )
        )


def _held(claims: list[Claim], claim: Claim, resource: str) -> int:
    kids = sum(_held(claims, kid, resource) for kid in claims if kid.parent == claim.name)
    return max(dict(claim.guarantee).get(resource, 0), kids)


def _demand(draw: random.Random, capacity: dict[str, int], scale: int) -> tuple[Amounts, ...]:
    """No, one, two or three support sets, from nothing to more than there is."""
    found: dict[tuple[str, ...], Amounts] = {}
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        support = tuple(name for name in capacity if draw.random() < 0.6)
        if support:
            most = draw.choice((10, 40, 200))
            found[support] = tuple((name, draw.randint(1, most) * scale) for name in support)
    return tuple(vector for _, vector in sorted(found.items()))


def _listed(amounts: dict[str, int]) -> Listed:
    return tuple(sorted(amounts.items()))


def differences(shares: Shares, exact: Tree) -> list[str]:
    """Where the fast shares are not the exact ones: outside the stated bound, or unequal as whole units."""
    found: list[str] = []
    events = len(shares.rounds) + 1
    levels = max(exact.depths().values())
    for name, share in shares.queues.items():
        queue = exact.queues[name]
        for r, resource in enumerate(shares.resources):
            bound = Fraction(levels * events * shares.capacity[r] + 1, ONE)  # and the last digit, which is cut off
            for what, fast, true in (
                ("E", share.entitlement[r], queue.e[resource]),
                ("F", share.fair[r], queue.f[resource]),
            ):
                if abs(Fraction(fast, ONE) - true) > bound or fast // ONE != true.__floor__():
                    found.append(f"{what}({name})[{resource}] is {fast / ONE}, not {true} = {float(true)}")
    return found
