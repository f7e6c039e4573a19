"""Shares that are kept up to date are those that would be computed from the start, whatever changed in between."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queuectl.engine.claims import Claim
from queuectl.engine.fairshare import ONE, Division, Shares, fair_shares
from queuectl.engine.rising import Cause
from tests.engine.share_trees import random_pool

GPU = "gpu"


def wants(name: str, amount: int, parent: str | None = None, quota: int = 0) -> Claim:
    """A leaf that wants GPUs."""
    return Claim(name=name, parent=parent, quota=((GPU, quota),), demand=(((GPU, amount),),))


def shown(division: Division) -> dict[str, int]:
    """Whole units of F."""
    return {name: division.fair(name)[0] // ONE for name in division.queues}


def differing(division: Division, fresh: Shares) -> list[str]:
    """Where whole units differ, or anything by more than a crumb."""
    found = []
    for name, share in fresh.queues.items():
        for what, kept, new in (
            ("E", division.entitlement(name), share.entitlement),
            ("F", division.fair(name), share.fair),
        ):
            for a, b, have in zip(kept, new, fresh.capacity, strict=True):
                if a // ONE != b // ONE or abs(a - b) > 1 + (have >> 20):
                    found.append(f"{what}({name}): {a / ONE}, from the start {b / ONE}")
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_any_change_of_demand_then_another(seed: int, draw: random.Random) -> None:
    """Also a queue that comes to want nothing, something else, or exactly what another wants."""
    capacity, claims = random_pool(seed)
    division = Division(capacity, claims)
    leaves = [number for number, claim in enumerate(claims) if all(one.parent != claim.name for one in claims)]
    for _ in range(4):
        changed = []
        for number in draw.sample(leaves, min(len(leaves), draw.choice((1, 1, 2)))):
            source = claims[draw.choice(leaves)].demand if draw.random() < 0.4 else claims[number].demand
            times = draw.choice((0, 1, 2, 3))
            demand = tuple(tuple((r, amount * times) for r, amount in vector) for vector in source) if times else ()
            claims[number] = replace(claims[number], demand=demand)
            changed.append(claims[number])
        before = {name: (division.entitlement(name), division.fair(name)) for name in division.queues}
        moved = division.refresh(changed)
        fresh = fair_shares(capacity, claims)
        assert differing(division, fresh) == []
        assert {name: division.share(name).claim for name in division.queues} == {
            name: share.claim for name, share in fresh.queues.items()
        }
        if not moved:
            assert {name: (division.entitlement(name), division.fair(name)) for name in division.queues} == before


def test_the_same_again_is_nothing() -> None:
    claims = [wants("a", 8), wants("b", 8)]
    division = Division({GPU: 10}, claims)
    assert not division.refresh(claims)
    assert not division.refresh([wants("a", 8)])
    assert not division.refresh([])


def test_more_of_what_it_does_not_get_is_nothing_until_it_matters() -> None:
    """a and b have five each; a's longer backlog is remembered, and counts when b leaves."""
    division = Division({GPU: 10}, [wants("a", 8), wants("b", 8)])
    assert not division.refresh([wants("a", 9)])
    assert not division.refresh([wants("a", 6)])
    assert division.share("a").demand == (6,)
    assert shown(division) == {"a": 5, "b": 5}
    assert division.refresh([Claim(name="b", quota=((GPU, 0),))])
    assert shown(division) == {"a": 6, "b": 0}
    assert division.share("a").stops[0].cause is Cause.MET


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (wants("a", 5), {"a": 5, "b": 5}),  # now it has all it wants: the amounts stay, the reason does not
        (wants("a", 4), {"a": 4, "b": 6}),
        (wants("a", 8, quota=8), {"a": 8, "b": 2}),  # not a change of demand
        (Claim(name="a", quota=((GPU, 0),)), {"a": 0, "b": 8}),
        (Claim(name="a", quota=((GPU, 0),), weight=3, demand=(((GPU, 99),),)), {"a": 7, "b": 2}),
    ],
    ids=["met", "less", "quota", "nothing", "weight"],
)
def test_what_matters_is_computed(changed: Claim, expected: dict[str, int]) -> None:
    division = Division({GPU: 10}, [wants("a", 8), wants("b", 8)])
    assert division.refresh([changed])
    assert shown(division) == expected


def test_a_claim_that_asks_for_another_resource_is_not_the_same_backlog() -> None:
    """Both before and after it wants one resource, and gets less than it wants."""
    both = {GPU: 10, "cpu": 10}
    division = Division(both, [wants("a", 18), wants("b", 18)])
    assert division.refresh([Claim(name="a", quota=((GPU, 0),), demand=((("cpu", 18),),))])
    assert {name: [amount // ONE for amount in division.fair(name)] for name in division.queues} == {
        "a": [10, 0],
        "b": [0, 10],
    }


def test_entitlement_that_moves_elsewhere_is_seen() -> None:
    """Quotas do not fit: when a wants less of its own, b's part of them grows, and what p hands out below it too."""
    claims = [wants("a", 9, quota=9), Claim(name="p", quota=((GPU, 9),)), wants("b", 9, "p", 9), wants("c", 9, "p")]
    division = Division({GPU: 12}, claims)
    assert shown(division) == {"a": 6, "p": 6, "b": 6, "c": 0}
    assert division.refresh([wants("a", 1, quota=9)])
    assert shown(division) == {"a": 1, "p": 11, "b": 9, "c": 2}
    assert [amount // ONE for name in ("a", "p", "b") for amount in division.entitlement(name)] == [1, 9, 9]


def test_an_unknown_queue_is_an_error() -> None:
    with pytest.raises(KeyError):
        Division({GPU: 10}, []).refresh([wants("x", 1)])
