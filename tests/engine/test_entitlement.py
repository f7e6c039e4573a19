"""Guarantees, quotas, limits and what is held of them: worked out by hand, since nobody has published such vectors."""

from __future__ import annotations

from fractions import Fraction

import pytest

from queuectl.engine.claims import Claim, Listed, by_support, quotas, refusals
from queuectl.engine.fairshare import ONE, Share, Stop, fair_shares
from queuectl.engine.rising import Cause
from queuectl.model.resources import CPU, GPU, MEMORY
from tests.engine.fairshare_exact import Tree

Amount = Fraction | int  # a whole one equals the integer


def claim(
    name: str, parent: str | None = None, *wants: Listed, q: Listed = (), g: Listed = (), top: Listed = (), **rest: int
) -> Claim:
    """A queue with quota ``q``, guarantee ``g`` and limit ``top``."""
    return Claim(name=name, parent=parent, demand=wants, quota=q, guarantee=g, limit=top, **rest)  # type: ignore[arg-type]  # weight, priority


def g(amount: int) -> Listed:
    """So many GPUs."""
    return (("gpu", amount),)


def gc(gpu: int, cpu: int) -> Listed:
    return (("cpu", cpu), ("gpu", gpu))


def divided(capacity: dict[str, int], claims: list[Claim]) -> dict[str, tuple[dict[str, Amount], dict[str, Amount]]]:
    """E and F of every queue, the exact ones, which the fast ones are asserted to equal."""
    exact, fast = Tree(capacity, claims).divide(), fair_shares(capacity, claims)
    found: dict[str, tuple[dict[str, Amount], dict[str, Amount]]] = {}
    for name, share in fast.queues.items():
        e, f = exact.queues[name].e, exact.queues[name].f
        for r, resource in enumerate(fast.resources):
            assert abs(Fraction(share.entitlement[r], ONE) - e[resource]) < Fraction(1, 2**60)
            assert abs(Fraction(share.fair[r], ONE) - f[resource]) < Fraction(1, 2**60)
        found[name] = dict(e), dict(f)
    return found


STORIES = {
    "an unused guarantee is held": (
        {"gpu": 10}, [claim("a", None, g=g(4)), claim("b", None, g(10))],
        {"a": (4, 4), "b": (0, 6)}),
    "guarantees come before quotas": (
        {"gpu": 10}, [claim("a", None, g(10), g=g(4)), claim("b", None, g(10), q=g(10))],
        {"a": (4, 4), "b": (6, 6)}),
    "guarantees that do not fit are scaled": (
        {"gpu": 9}, [claim("a", None, g(10), g=g(4)), claim("b", None, g(10), g=g(8))],
        {"a": (3, 3), "b": (6, 6)}),
    "quotas are scaled by what goes beyond the guarantee": (  # 4 + λ·2 and λ·6 of 8: λ = 1/2
        {"gpu": 8}, [claim("a", None, g(9), g=g(4), q=g(6)), claim("b", None, g(9), q=g(6))],
        {"a": (5, 5), "b": (3, 3)}),
    "a quota counts as far as it is wanted": (
        {"gpu": 10}, [claim("a", None, g(2), q=g(8)), claim("b", None, g(9), q=g(8))],
        {"a": (2, 2), "b": (8, 8)}),
    "a quota counts as far as those above it": (
        {"gpu": 12}, [claim("p", q=g(4)), claim("p1", "p", g(8), q=g(8)), claim("b", None, g(8), q=g(8))],
        {"p": (4, 4), "p1": (4, 4), "b": (8, 8)}),
    "an inner queue's guarantee is held for whoever comes": (
        {"gpu": 10}, [claim("p", g=g(6)), claim("p1", "p", g(2)), claim("b", None, g(10))],
        {"p": (6, 6), "p1": (0, 2), "b": (0, 4)}),
    "a limit holds for all below it together": (
        {"gpu": 10}, [claim("p", top=g(4)), claim("p1", "p", g(10)), claim("p2", "p", g(10)), claim("b", None, g(10))],
        {"p": (0, 4), "p1": (0, 2), "p2": (0, 2), "b": (0, 6)}),
    "weight 0 has what it is entitled to, and no more": (
        {"gpu": 10}, [claim("p", q=g(4), weight=0), claim("p1", "p", g(8)), claim("p2", "p", g(8)), claim("b", None, g(3))],
        {"p": (4, 4), "p1": (0, 2), "p2": (0, 2), "b": (0, 3)}),
    "bands below a quota": (
        {"gpu": 10}, [claim("p", q=g(6)), claim("p1", "p", g(4), priority=1), claim("p2", "p", g(8)), claim("b", None, g(10))],
        {"p": (6, 8), "p1": (0, 4), "p2": (0, 4), "b": (0, 2)}),
    "the level of a queue begins at what it is entitled to": (  # 12 = a's 4 and 4 + 4 of surplus
        {"gpu": 12}, [claim("a", None, g(20), q=g(4)), claim("b", None, g(20))],
        {"a": (4, 8), "b": (0, 4)}),
}  # fmt: skip


@pytest.mark.parametrize(("capacity", "claims", "expected"), STORIES.values(), ids=STORIES)
def test_one_resource(capacity: dict[str, int], claims: list[Claim], expected: dict[str, tuple[int, int]]) -> None:
    found = divided(capacity, claims)
    assert {name: (e["gpu"], f["gpu"]) for name, (e, f) in found.items()} == expected


def test_growth_below_an_unused_guarantee_uses_that_first() -> None:
    """p holds six GPUs; p1 lacks only CPU, which the root has. When the root has no GPU left, p1 still grows."""
    claims = [claim("p", g=g(6)), claim("p1", "p", gc(4, 4)), claim("b", None, g(10))]
    found = {name: f for name, (_, f) in divided({"cpu": 10, "gpu": 10}, claims).items()}
    assert found == {
        "p": {"cpu": 4, "gpu": 6},
        "p1": {"cpu": 4, "gpu": 4},
        "b": {"cpu": 0, "gpu": 4},
    }


def test_an_entitlement_that_nobody_below_can_use_is_lowered() -> None:
    """p1 takes GPU and CPU alike and may have two CPUs only: six of p's eight GPUs go to b."""
    claims = [
        claim("p", q=gc(8, 8)),
        claim("p1", "p", gc(8, 8), top=(("cpu", 2),)),
        claim("b", None, g(10)),
    ]
    assert {name: (e["gpu"], f["gpu"]) for name, (e, f) in divided({"cpu": 10, "gpu": 10}, claims).items()} == {
        "p": (2, 2),
        "p1": (0, 2),
        "b": (0, 8),
    }


def test_full_gpus_do_not_freeze_work_that_needs_none() -> None:
    found = divided({"cpu": 100, "gpu": 4}, [claim("a", None, gc(8, 8), (("cpu", 50),))])
    assert found["a"][1] == {"cpu": 54, "gpu": 4}


def test_limits_block_and_do_not_bend_the_ray() -> None:
    """Asked for eight and eight with at most two CPUs: two and two, not eight and two."""
    found = divided({"cpu": 10, "gpu": 10}, [claim("a", None, gc(8, 8), top=(("cpu", 2),))])
    assert found["a"][1] == {"cpu": 2, "gpu": 2}


def test_a_resource_of_capacity_0_is_full_from_the_start() -> None:
    """Two fifths of the entitled CPU belong to the set that cannot run: the other gets its three."""
    found = divided({"cpu": 10, "gpu": 0}, [claim("a", None, gc(2, 2), (("cpu", 3),), q=gc(5, 1))])
    assert found["a"] == ({"cpu": 1, "gpu": 0}, {"cpu": Fraction(2, 5) + 3, "gpu": 0})


def test_the_answer_in_full() -> None:
    """a's demand is met, then p's limit is reached, then nothing is left; p1 has no weight.

    Levels: a tenth of the capacity at a third of the weights is 0.3; p2 is alone in p, with three tenths; b ends with four.
    """
    claims = [
        claim("a", None, g(1)),
        claim("p", top=g(3)),
        claim("p1", "p", g(9), q=g(1), weight=0),
        claim("p2", "p", g(9)),
        claim("b", None, g(9), q=g(2)),
    ]

    def share(demand: int, most: int, quota: int, e: int, f: int, *stops: Stop) -> Share:
        return Share((demand,), (most,), (quota,), (0,), (e * ONE,), (f * ONE,), "gpu" if f else None, stops)

    shares = fair_shares({"gpu": 10}, claims)
    gpu = ("gpu",)
    assert (shares.resources, shares.capacity) == (gpu, (10,))
    assert shares.queues == {
        "a": share(1, 1, 0, 0, 1, Stop(gpu, Cause.MET, "a")),
        "b": share(9, 9, 2, 2, 6, Stop(gpu, Cause.CAPACITY, "", "gpu")),
        "p": share(18, 3, 0, 0, 3),
        "p1": share(9, 9, 1, 0, 0, Stop(gpu, Cause.NO_WEIGHT, "p1")),
        "p2": share(9, 9, 0, 0, 3, Stop(gpu, Cause.LIMIT, "p", "gpu")),
    }
    assert [(one.top, one.cause, one.queue, one.resource, round(one.level / ONE, 9)) for one in shares.rounds] == [
        ("", Cause.MET, "a", None, 0.3),
        ("", Cause.LIMIT, "p", "gpu", 0.3),
        ("", Cause.CAPACITY, "", "gpu", 1.2),
    ]


# ---- what is refused, and how demand and quotas are read


def test_unlisted_resources_have_the_largest_listed_fraction() -> None:
    """Eight of 32 GPUs are a quarter; a listed 0 is 0, and no entry at all is no quota."""
    capacity = {CPU: 128_000, GPU: 32_000, MEMORY: 1001}
    assert quotas({GPU: 8000}, capacity) == {CPU: 32_000, GPU: 8000, MEMORY: 250}
    assert quotas({GPU: 8000, CPU: 0}, capacity) == {CPU: 0, GPU: 8000, MEMORY: 250}
    assert quotas({}, capacity) == {CPU: 0, GPU: 0, MEMORY: 0}
    assert quotas({GPU: 8000}, {GPU: 0, CPU: 4}) == {CPU: 0, GPU: 8000}


def test_demand_by_support_set() -> None:
    """Pods are not counted; of one set the amounts are summed."""
    requests = [((CPU, 1), (GPU, 2), ("pods", 1)), ((CPU, 5),), ((CPU, 3), (GPU, 4)), (("pods", 7),)]
    assert by_support(requests, (CPU, GPU)) == (((CPU, 5),), ((CPU, 4), (GPU, 6)))


BAD: dict[str, tuple[dict[str, object], str]] = {
    "weight": ({"weight": -1}, "queue q: weight -1 is negative; 0 means no share of the surplus"),
    "quota": ({"quota": ((GPU, -1000),)}, ("queue q: quota of nvidia.com/gpu is -1, a negative amount; leave it out for "
              "none, or write the pool's capacity to entitle the queue to all of it")),
    "limit": ({"limit": ((CPU, -1),)}, "queue q: limit of cpu is -1m, a negative amount; leave it out for no limit"),
    "guarantee": ({"guarantee": ((CPU, -1),)}, "queue q: guarantee of cpu is -1m, a negative amount; leave it out for none"),
    "demand": ({"demand": (((CPU, -5),),)}, "queue q: demand for cpu is negative: -5"),
    "usage": ({"usage": ((CPU, -1),)}, "queue q: usage of cpu is -1m, a negative amount; usage starts at 0"),
    "usage weight": ({"usage_weight": -1}, "queue q: usage weight -1 is negative; 0 switches it off"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), BAD.values(), ids=BAD)
def test_negative_numbers_are_refused_with_what_to_write_instead(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match="negative") as refusal:
        Claim(name="q", **fields)  # type: ignore[arg-type]  # by name
    assert str(refusal.value) == says


def test_an_unsound_tree_is_refused_queue_by_queue_and_the_rest_is_divided() -> None:
    claims = [
        claim("fine", None, g(5)),
        claim("orphan", "nobody"),
        claim("below", "orphan"),
        claim("hen", "egg"),
        claim("egg", "hen"),
        claim("twice"),
        claim("twice"),
        claim("own", g=g(5), top=g(4)),
        claim("p", top=g(6)),
        claim("p1", "p", g=g(4)),
        claim("p2", "p"),
        claim("p21", "p2", g=g(3)),
        claim("p3", "p"),
    ]
    found = refusals(claims)
    above = "the guarantees below p add up to 7 gpu, above its limit of 6; lower them or raise it"
    assert found == {
        "orphan": "its parent nobody does not exist; create it or name another",
        "below": "queue orphan above it is refused: its parent nobody does not exist; create it or name another",
        "hen": "its parents form a cycle; name another parent",
        "egg": "its parents form a cycle; name another parent",
        "twice": "there are two queues of this name; remove one",
        "own": "its guarantee of 5 gpu is above its limit of 4; lower the one or raise the other",
        "p1": above,
        "p2": above,
        "p21": f"queue p2 above it is refused: {above}",
    }
    with pytest.raises(ValueError, match=r"^queue below: .*; queue egg: "):
        fair_shares({"gpu": 10}, claims)
    sound = [one for one in claims if one.name not in found]
    assert {name: share.fair[0] // ONE for name, share in fair_shares({"gpu": 10}, sound).queues.items()} == {
        "fine": 5,
        "p": 0,
        "p3": 0,
    }
