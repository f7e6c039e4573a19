"""Decayed usage: HTCondor's and Slurm's published numbers, and that it does not matter when one looks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine.claims import Claim
from queuectl.engine.decay import ONE, decayed, kept, surplus_weights
from queuectl.engine.fairshare import ONE as UNIT
from queuectl.engine.fairshare import fair_shares

HOUR = 3_600_000
DAY = 24 * HOUR


def priority(usage: int, half_life: int) -> float:
    """HTCondor's real user priority: usage per time, as if the whole past had been like this."""
    return usage * math.log(2) / half_life / ONE


def usage(priority: float, half_life: int) -> int:
    """The other way round."""
    return int(priority * half_life / math.log(2) * ONE)


def test_htcondor_idle_halves() -> None:
    """10 → 5 → 2.5 after one and two half-lives."""
    one = decayed(usage(10, DAY), 0, DAY, DAY)
    two = decayed(one, 0, DAY, DAY)
    assert [priority(one, DAY), priority(two, DAY)] == pytest.approx([5, 2.5])


def test_htcondor_constant_use_is_approached() -> None:
    """From 0.5 with ten slots in use: 5.25, 7.625."""
    one = decayed(usage(0.5, DAY), 10, DAY, DAY)
    two = decayed(one, 10, DAY, DAY)
    assert [priority(one, DAY), priority(two, DAY)] == pytest.approx([5.25, 7.625])


def test_htcondor_slots_are_inversely_proportional_to_priority() -> None:
    """Effective 5:10:20 is 4:2:1: its formula, here for the record, since ours touches weights only."""
    effective = [5, 10, 20]
    parts = [1 / one for one in effective]
    assert [part / min(parts) for part in parts] == [4, 2, 1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 40 * HOUR), min_size=1, max_size=6), st.integers(0, 2**53), st.integers(HOUR, 30 * DAY))
def test_uneven_steps_do_not_matter(steps: list[int], charged: int, half_life: int) -> None:
    """To a unit·ms of each 2^32 of them: looking more often changes rounding only."""
    start = 12345 * ONE
    at_once = decayed(start, charged, sum(steps), half_life)
    stepwise = start
    for step in steps:
        stepwise = decayed(stepwise, charged, step, half_life)
    assert abs(at_once - stepwise) <= ONE + (at_once >> 32)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 100 * DAY), st.integers(1, 30 * DAY))
def test_what_is_kept_is_a_power_of_one_half(step: int, half_life: int) -> None:
    assert kept(step, half_life) / ONE == pytest.approx(0.5 ** (step / half_life), abs=1e-15)


@pytest.mark.parametrize(("step", "half_life"), [(-1, 5), (5, 0), (5, -5)])
def test_time_goes_forward_and_half_lives_are_positive(step: int, half_life: int) -> None:
    with pytest.raises(ValueError, match="time goes forward and a half-life is positive"):
        kept(step, half_life)


# ---- Slurm's classic and Fair Tree factors, from usage that our recurrence has decayed

TREE = {"A": (None, 40), "B": ("A", 30), "u1": ("B", 1), "C": ("A", 10), "u2": ("C", 1), "u3": ("C", 1),
        "D": (None, 60), "E": ("D", 25), "u4": ("E", 1), "F": ("D", 35), "u5": ("F", 1)}  # fmt: skip
USERS = ("u1", "u2", "u3", "u4", "u5")


def siblings(name: str) -> list[str]:
    return [one for one, (parent, _) in TREE.items() if parent == TREE[name][0]]


def part(name: str) -> float:
    """A queue's part of its siblings' shares."""
    return TREE[name][1] / sum(TREE[one][1] for one in siblings(name))


def normal(name: str) -> float:
    """The product of parts down the tree."""
    parent = TREE[name][0]
    return part(name) * (normal(parent) if parent else 1)


def slurm_usage() -> dict[str, float]:
    """Users held 20, 25, 0, 25 and 0 of 100 for nine uneven spans, then nothing for a while; normalised to all."""
    held = {"u1": 20, "u2": 25, "u3": 0, "u4": 25, "u5": 0, "others": 30}
    used = dict.fromkeys(held, 0)
    for span in (1, 7, 3, 11, 2, 9, 4, 8, 5):
        used = {name: decayed(used[name], held[name], span * HOUR, DAY) for name in used}
    used = {name: decayed(amount, 0, 5 * HOUR, DAY) for name, amount in used.items()}
    total = sum(used.values())
    actual = {name: used[name] / total for name in USERS}
    for name in ("B", "C", "E", "F", "A", "D"):
        actual[name] = sum(actual[one] for one, (parent, _) in TREE.items() if parent == name)
    return actual


def effective(name: str, actual: dict[str, float]) -> float:
    """UE = UA + (UE(parent) - UA) · S(child) / S(siblings)."""
    parent = TREE[name][0]
    return actual[name] if parent is None else actual[name] + (effective(parent, actual) - actual[name]) * part(name)


def test_slurm_classic() -> None:
    actual = slurm_usage()
    found = {name: effective(name, actual) for name in USERS}
    assert list(found.values()) == pytest.approx([0.3875, 0.275, 0.15, 0.25, 0.14583333], abs=1e-7)
    factors = [2 ** (-found[name] / normal(name)) for name in USERS]
    assert factors == pytest.approx([0.408479, 0.022097, 0.125, 0.5, 0.749154], abs=1e-6)


def test_slurm_fair_tree() -> None:
    """Siblings by share ÷ usage, both normalised among them; depth first; the best has 1."""
    actual = slurm_usage()

    def level_fair_share(name: str) -> float:
        total = sum(actual[one] for one in siblings(name))
        return math.inf if not actual[name] else part(name) / (actual[name] / total)

    def ranked(parent: str | None) -> list[str]:
        below = sorted((one for one, (above, _) in TREE.items() if above == parent), key=level_fair_share, reverse=True)
        return [user for one in below for user in ([one] if one in USERS else ranked(one))]

    assert [level_fair_share(name) for name in "ADBCEF"] == pytest.approx(
        [0.6222222, 1.68, 1.6875, 0.45, 0.4166667, math.inf]
    )
    order = ranked(None)
    factors = {name: (len(USERS) - position) / len(USERS) for position, name in enumerate(order)}
    assert factors == {"u5": 1.0, "u4": 0.8, "u1": 0.6, "u3": 0.4, "u2": 0.2}


# ---- in the shares


def test_usage_is_normalised_to_the_siblings_however_small_their_part_is() -> None:
    """Below a twentieth of the cluster the same usage weighs as much as at the root: all against nothing is 0 to everything."""
    for weight in (1, 19):
        claims = [
            Claim(name="p", weight=weight, usage_weight=1000),
            Claim(name="p1", parent="p", usage=(("gpu", 77),), demand=((("gpu", 100),),)),
            Claim(name="p2", parent="p", demand=((("gpu", 100),),)),
            Claim(name="rest", weight=20 - weight, demand=((("gpu", 100),),)),
        ]
        shares = fair_shares({"gpu": 100}, claims)
        fair = {name: share.fair[0] // UNIT for name, share in shares.queues.items()}
        assert fair == {"p": 5 * weight, "p1": 0, "p2": 5 * weight, "rest": 100 - 5 * weight}


def test_usage_counts_by_its_largest_resource_below_the_queue_that_says_so_and_never_against_entitlement() -> None:
    """b used 40 of 100 GPUs, a 20 of 100 CPUs: two thirds and one third, weights ⅔ and ⅓ at k = 1. The root does not care."""
    claims = [
        Claim(name="p", usage_weight=1000),
        Claim(name="a", parent="p", usage=(("cpu", 20),), demand=((("gpu", 100),),)),
        Claim(name="b", parent="p", usage=(("gpu", 40),), demand=((("gpu", 100),),), quota=(("gpu", 20),)),
        Claim(name="q", usage=(("gpu", 999),), demand=((("gpu", 100),),), quota=()),
        Claim(name="p0", parent="p", usage_weight=0),
        Claim(name="c", parent="p0", usage=(("gpu", 1),)),
    ]
    claims[0] = Claim(name="p", usage_weight=1000, quota=(("gpu", 50),))
    shares = fair_shares({"cpu": 100, "gpu": 100}, [one for one in claims if one.name not in ("p0", "c")])
    assert {name: tuple(amount // UNIT for amount in share.fair) for name, share in shares.queues.items()} == {
        "p": (0, 75),
        "a": (0, 36),
        "b": (0, 38),
        "q": (0, 25),
    }


def test_weights_without_usage_or_without_k_stay_as_they_are() -> None:
    assert surplus_weights([3, 1], [0, 0], 1000) == [3, 1]
    assert surplus_weights([3, 1], [5, 9], 0) == [3, 1]
