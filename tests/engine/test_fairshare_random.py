"""The fair shares on random trees: exact arithmetic, linear programs, H-DRF in ever smaller tasks, and properties.

``SHARE_TREES=10000`` compares as many trees as are claimed (minutes); a few hundred are part of the ordinary tests.
"""

from __future__ import annotations

import os
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queuectl.engine.claims import Claim
from queuectl.engine.fairshare import ONE, Shares, fair_shares
from queuectl.engine.rising import Cause
from tests.engine import share_checks as checks
from tests.engine.fairshare_exact import Fill, Tree
from tests.engine.share_trees import Pool, differences, random_pool

TREES = int(os.environ.get("SHARE_TREES", "300"))
SEEDS = st.integers(0, 10**9)


@pytest.mark.parametrize("first", range(0, TREES, 50))
def test_fast_shares_are_the_exact_ones(first: int) -> None:
    """Two pools for each tree; within the stated bound, and equal as whole units."""
    assert [problem for seed in range(first, first + 50) for problem in checks.unlike(seed)] == []


def test_the_comparison_would_tell() -> None:
    """A leaf with one unit more is found, and so is one with a little more than the bound allows."""
    capacity, claims = random_pool(11)
    exact = Tree(capacity, claims).divide()
    shares = fair_shares(capacity, claims)
    assert differences(shares, exact) == []
    name = max(shares.queues)
    share = shares.queues[name]
    for more in (ONE, 256 * capacity["cpu"]):  # at most four levels and a few events
        wrong = replace(share, fair=(share.fair[0] + more, *share.fair[1:]))
        problems = differences(replace(shares, queues=shares.queues | {name: wrong}), exact)
        assert len(problems) == 1


def test_random_trees_have_everything_in_them() -> None:
    """Every kind of event, stalled siblings, waiting ones, shields, bands: a comparison of empty fills would prove nothing."""
    causes, stalls, several, shields, bands = set(), 0, 0, 0, 0
    for seed in range(150):
        capacity, claims = random_pool(seed)
        bands += len({claim.priority for claim in claims if claim.parent is None}) > 1
        causes |= {one.cause for one in fair_shares(capacity, claims).rounds}
        causes |= {stop.cause for share in fair_shares(capacity, claims).queues.values() for stop in share.stops}
        tree = Tree(capacity, claims).entitled()
        for top in tree.tops(tree.root):
            fill = Fill(tree, top)
            for step in fill.steps():
                stalls += any(stalled for _, stalled in step.members.values())
                several += any(len(fill.growing(queue)) > len(step.members[queue.name][0])
                               for queue in top.below() if queue.name in step.members)  # fmt: skip
                shields += any(
                    fill.used[queue.name][r] < min(queue.g[r], queue.e[r])
                    for queue in top.below()
                    if queue.kids and queue is not top
                    for r in capacity
                )
    assert causes == set(Cause)
    assert min(stalls, several, shields, bands) >= 10, (stalls, several, shields, bands)


def test_programs_confirm_every_round() -> None:
    results = [checks.rounds(seed) for seed in range(60)]
    assert sum(count for count, _ in results) > 80
    assert max(worst for _, worst in results) < 1e-9


def test_programs_divide_flat_pools_alike() -> None:
    """Weighted max–min of dominant shares by a series of programs, which knows nothing of filling."""
    assert max(checks.flat_distance(seed) for seed in range(40)) < 1e-6


def test_published_hdrf_in_small_tasks_comes_close() -> None:
    """Every demand in 20 and in 80 tasks: with a quarter of the task's size the distance falls, to a few hundredths."""
    coarse, fine = ([checks.distance(checks.plain_pool(seed), tasks) for seed in range(12)] for tasks in (20, 80))
    assert max(fine) < 0.06
    assert sum(fine) < sum(coarse) / 2


# ---- properties


def near(one: Shares, other: Shares, factor: int = 1) -> bool:
    """Equal but for the last digits, ``other`` scaled up by ``factor``."""
    return all(
        abs(factor * a - b) <= ONE >> 20
        for name, share in one.queues.items()
        for a, b in zip(
            share.fair + share.entitlement, other.queues[name].fair + other.queues[name].entitlement, strict=True
        )
    )


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_queues_does_not_matter(seed: int, shuffle: random.Random) -> None:
    """To the last bit; and asking again gives the same."""
    capacity, claims = random_pool(seed)
    shares = fair_shares(capacity, claims)
    assert fair_shares(capacity, claims) == shares
    shuffle.shuffle(claims)
    assert fair_shares(dict(reversed(capacity.items())), claims) == shares


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_names_do_not_matter(seed: int) -> None:
    capacity, claims = random_pool(seed)
    names = {claim.name: f"{number:04}" for number, claim in enumerate(reversed(claims))}
    renamed = [
        replace(claim, name=names[claim.name], parent=None if claim.parent is None else names[claim.parent])
        for claim in claims
    ]
    shares, others = fair_shares(capacity, claims), fair_shares(capacity, renamed)
    back = replace(others, queues={name: others.queues[other] for name, other in names.items()})
    assert near(shares, back)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(2, 1000))
def test_everything_times_k_is_every_share_times_k(seed: int, k: int) -> None:
    capacity, claims = random_pool(seed)
    larger = [
        replace(
            claim,
            quota=tuple((r, k * amount) for r, amount in claim.quota),
            limit=tuple((r, k * amount) for r, amount in claim.limit),
            guarantee=tuple((r, k * amount) for r, amount in claim.guarantee),
            demand=tuple(tuple((r, k * amount) for r, amount in vector) for vector in claim.demand),
        )
        for claim in claims
    ]
    assert near(fair_shares(capacity, claims), fair_shares({r: k * have for r, have in capacity.items()}, larger), k)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 9))
def test_an_idle_queue_changes_nothing(seed: int, weight: int) -> None:
    capacity, claims = random_pool(seed)
    idle = Claim(name="idle", weight=weight, quota=tuple((r, have // 2) for r, have in capacity.items()))
    assert near(fair_shares(capacity, claims), fair_shares(capacity, [*claims, idle]))


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_nobody_gets_more_than_there_is_and_nothing_is_left_over(seed: int) -> None:
    """Shares within demand or guarantee, within limits and within the parent; whoever wants more is stopped by something full."""
    capacity, claims = random_pool(seed)
    shares = fair_shares(capacity, claims)
    by_name = {claim.name: claim for claim in claims}
    for r, resource in enumerate(shares.resources):
        tops = [shares.queues[claim.name].fair[r] for claim in claims if claim.parent is None]
        assert sum(tops) <= capacity[resource] * ONE
        for name, share in shares.queues.items():
            claim = by_name[name]
            kids = [shares.queues[one.name].fair[r] for one in claims if one.parent == name]
            assert share.entitlement[r] <= share.fair[r] <= share.claim[r] * ONE
            assert sum(kids) <= share.fair[r] + len(kids)
            assert share.fair[r] <= dict(claim.limit).get(resource, capacity[resource]) * ONE
    for name, share in shares.queues.items():
        for stop in share.stops:
            if stop.cause is Cause.CAPACITY:
                r = shares.resources.index(stop.resource or "")
                held = sum(shares.queues[claim.name].fair[r] for claim in claims if claim.parent is None)
                assert capacity[shares.resources[r]] * ONE - held <= len(claims)
            if stop.cause is Cause.NO_WEIGHT:
                assert by_name[stop.queue].weight == 0
            if stop.cause is Cause.MET:
                assert stop.queue == name


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.data())
def test_more_weight_is_never_less(seed: int, data: st.DataObject) -> None:
    """In flat pools: the dominant share does not fall when the weight rises."""
    pool = flat(seed)
    capacity, claims = pool
    number = data.draw(st.integers(0, len(claims) - 1))
    heavier = list(claims)
    heavier[number] = replace(claims[number], weight=claims[number].weight + data.draw(st.integers(1, 5)))
    name = claims[number].name
    before, after = fair_shares(capacity, claims).queues[name], fair_shares(capacity, heavier).queues[name]
    assert all(a <= b + (ONE >> 20) for a, b in zip(before.fair, after.fair, strict=True))


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_nobody_envies_and_nobody_is_worse_off_than_alone_with_his_part(seed: int) -> None:
    """Envy-freeness by weight and the sharing incentive of dominant resource fairness, in flat pools without quotas."""
    capacity, claims = flat(seed)
    shares = fair_shares(capacity, claims)
    total = sum(claim.weight for claim in claims)

    def could(claim: Claim, amounts: dict[str, Fraction]) -> Fraction:
        """The part of its demand that a queue could run with these amounts."""
        return min([Fraction(1), *(amounts[r] / wanted for r, wanted in claim.demand[0])])

    held = {name: {r: Fraction(f, ONE) for r, f in zip(shares.resources, share.fair, strict=True)}
            for name, share in shares.queues.items()}  # fmt: skip
    slack = Fraction(1, 10**6)
    for claim in claims:
        has = could(claim, held[claim.name])
        part = {r: Fraction(have * claim.weight, total) for r, have in capacity.items()}
        assert could(claim, part) <= has + slack
        for other in claims:
            theirs = {r: amount * claim.weight / other.weight for r, amount in held[other.name].items()}
            assert could(claim, theirs) <= has + slack


def flat(seed: int) -> Pool:
    """Two to six queues with one support set each, weights from 1 and no quotas."""
    draw = random.Random(seed)
    capacity = {name: draw.randint(4, 30) for name in "cgm"[: draw.randint(1, 3)]}
    claims = []
    for number in range(draw.randint(2, 6)):
        support = [r for r in capacity if draw.random() < 0.7] or [next(iter(capacity))]
        demand = tuple((r, draw.randint(1, 30)) for r in support)
        claims.append(Claim(name=f"q{number}", weight=draw.randint(1, 5), demand=(demand,)))
    return capacity, claims
