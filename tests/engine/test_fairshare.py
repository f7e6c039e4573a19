"""Published oracles of dominant resource fairness, flat and hierarchical, and KAI's share vectors; each row is a test.

The numbers are from the literature and from KAI's and our own recomputation of it. Every row is asked of the fast shares and of
the exact ones. Where a wrong variant of the algorithm exists, the row that tells it apart shows that it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from queuectl.engine.apportionment import Part, whole_parts
from queuectl.engine.claims import Claim
from queuectl.engine.decay import surplus_weights
from queuectl.engine.fairshare import ONE, Shares, fair_shares
from queuectl.model.resources import GPU
from tests.engine.discrete_hdrf import Mode, Queue, hdrf
from tests.engine.fairshare_exact import Rule, Tree, collapsed
from tests.engine.share_oracles import H6, HIERARCHIES, IN_TASKS, PLENTY, UNIT, inner, leaf, sized, whole_tasks

F = Fraction


def amount(shares: Shares, queue: str, resource: str) -> Fraction:
    """A fair share, as exact as it is held."""
    return F(shares.queues[queue].fair[shares.resources.index(resource)], ONE)


def assert_fair(
    capacity: Mapping[str, int], claims: list[Claim], expected: Mapping[str, Mapping[str, Fraction | int]]
) -> None:
    """Both ways to divide give exactly these shares; the fast one within 2^-60 of the capacity."""
    exact = Tree(capacity, claims).divide()
    fast = fair_shares(capacity, claims)
    for name, amounts in expected.items():
        assert {resource: exact.queues[name].f[resource] for resource in amounts} == dict(amounts), name
        for resource, true in amounts.items():
            assert abs(amount(fast, name, resource) - true) <= F(capacity[resource], 2**60), (name, resource)


# ---- flat

A, B = {"c": 1, "m": 4}, {"c": 3, "m": 1}
FLAT = [
    ("D1", {"c": 9, "m": 18}, {"A": (1, A), "B": (1, B)}, {"A": F(3), "B": F(2)}),
    ("D4", {"c": 9, "m": 18}, {"A": (2, A), "B": (1, B)}, {"A": F(54, 13), "B": F(18, 13)}),
    ("D5-1:2", {"c": 9, "m": 18}, {"A": (1, A), "B": (2, B)}, {"A": F(9, 5), "B": F(12, 5)}),
    ("D5-3:1", {"c": 9, "m": 18}, {"A": (3, A), "B": (1, B)}, {"A": F(81, 19), "B": F(18, 19)}),
    ("D6", {"c": 30, "m": 30}, {"A": (1, {"c": 1, "m": 3}), "B": (1, {"c": 1, "m": 1})}, {"A": F(5), "B": F(15)}),
    (
        "D8",
        {"c": UNIT, "m": UNIT},
        {"n1": (2, {"c": 1, "m": 1}), "n21": (1, {"c": 1}), "n22": (1, {"m": 1})},
        {"n1": F(2 * UNIT, 3), "n21": F(UNIT, 3), "n22": F(UNIT, 3)},
    ),
]


@pytest.mark.parametrize(("capacity", "users", "tasks"), [row[1:] for row in FLAT], ids=[row[0] for row in FLAT])
def test_flat(
    capacity: dict[str, int], users: dict[str, tuple[int, dict[str, int]]], tasks: dict[str, Fraction]
) -> None:
    claims = [sized(name, task, weight) for name, (weight, task) in users.items()]
    expected = {name: {r: tasks[name] * size for r, size in task.items()} for name, (_, task) in users.items()}
    assert_fair(capacity, claims, expected)


DISCRETE = [("D1", 1, 1, 3, 2), ("D4", 2, 1, 4, 1), ("D5-1:2", 1, 2, 3, 2), ("D5-3:1", 3, 1, 4, 1)]


@pytest.mark.parametrize(("wa", "wb", "a", "b"), [row[1:] for row in DISCRETE], ids=[row[0] for row in DISCRETE])
def test_flat_in_whole_tasks(wa: int, wb: int, a: int, b: int) -> None:
    tasks = {name: {r: F(size) for r, size in task.items()} for name, task in (("A", A), ("B", B))}
    root = Queue("", kids=[Queue("A", wa, tasks["A"]), Queue("B", wb, tasks["B"])])
    assert hdrf(root, {"c": F(9), "m": F(18)}, Mode.FULL) == {"A": a, "B": b}


D7 = {
    "u1": {"c": 2, "m": 10},
    "u2": {"c": 10, "m": 2},
}  # a fifth of a CPU and one GB, and the other way round, in tenths


@pytest.mark.parametrize(
    ("capacity", "tasks"),
    [({"c": 20, "m": 120}, {"u1": 5, "u2": 1}), ({"c": 120, "m": 20}, {"u1": 1, "u2": 5})],
    ids=["D7-first-server", "D7-second-server"],
)
def test_each_pool_is_a_fill_of_its_own(capacity: dict[str, int], tasks: dict[str, int]) -> None:
    claims = [sized(name, task) for name, task in D7.items()]
    assert_fair(
        capacity, claims, {name: {r: F(tasks[name] * size) for r, size in task.items()} for name, task in D7.items()}
    )


def test_d7_one_pool_without_borders_between_nodes() -> None:
    claims = [sized(name, task) for name, task in D7.items()]
    assert_fair({"c": 140, "m": 140}, claims, {"u1": {"m": F(350, 3)}, "u2": {"c": F(350, 3)}})


# ---- hierarchical


@pytest.mark.parametrize(("claims", "size", "tasks"), HIERARCHIES.values(), ids=HIERARCHIES)
def test_hierarchies(claims: list[Claim], size: int, tasks: dict[str, int]) -> None:
    wants = {claim.name: [r for r, _ in claim.demand[0]] if claim.demand else ["c"] for claim in claims}
    expected = {name: dict.fromkeys(wants[name], F(count)) for name, count in tasks.items()}
    assert_fair({"c": size, "m": size}, claims, expected)


@pytest.mark.parametrize(("row", "naive", "rescaled", "full"), IN_TASKS, ids=[row[0] for row in IN_TASKS])
def test_hierarchies_in_whole_tasks(
    row: str, naive: dict[str, int], rescaled: dict[str, int], full: dict[str, int]
) -> None:
    """Published H-DRF, and what becomes of it without its repairs."""
    found = {}
    for mode in Mode:
        root, size = whole_tasks(row)
        found[mode] = hdrf(root, {"c": F(size), "m": F(size)}, mode)
    assert found == {Mode.NAIVE: naive, Mode.RESCALE: rescaled, Mode.FULL: full}


def test_collapsing_the_tree_breaks_its_promise() -> None:
    """H1 at capacity 1 flattened is D8: n2 gets a third of each resource although it was promised half."""
    claims = HIERARCHIES["H1"][0]
    half, third = {"c": F(UNIT, 2)}, F(UNIT, 3)
    assert_fair({"c": UNIT, "m": UNIT}, claims, {"n1": half, "n21": half, "n22": {"m": F(UNIT, 2)}})
    flat = collapsed({"c": UNIT, "m": UNIT}, claims)
    assert {name: max(flat.queues[name].f.values()) for name in ("n1", "n21", "n22")} == {
        "n1": 2 * third,
        "n21": third,
        "n22": third,
    }


def test_h6_siblings_wait_for_each_other() -> None:
    """n31 leads n3 while there is c; when it is used up n3 is far behind n4 in m, and n4 waits."""
    assert_fair({"c": UNIT, "m": UNIT}, H6, {"n32": {"m": F(UNIT, 2)}, "n4": {"m": F(UNIT, 2)}})
    wrong = Tree({"c": UNIT, "m": UNIT}, H6).divide(Rule.EQUAL_RATE).queues
    assert (wrong["n32"].f["m"] / UNIT, wrong["n4"].f["m"] / UNIT) == (F(19, 54), F(35, 54))


def test_queues_whose_level_stands_still_catch_up_by_weight() -> None:
    """When c is used up (levels 10/3), a and b lead by c and have little m: they alone get m, 1:2, until that is used up too.

    m: d has 10/3, a 1/3, b 2/3; of the 17/3 that are left a gets 17/9 and b 34/9.
    """
    sets = ((("c", 10 * PLENTY),), (("m", PLENTY),))
    claims = [
        Claim(name="a", demand=sets),
        Claim(name="b", weight=2, demand=sets),
        leaf("d", m=1),
    ]
    assert_fair(
        {"c": 10, "m": 10},
        claims,
        {"a": {"c": F(10, 3), "m": F(20, 9)}, "b": {"c": F(20, 3), "m": F(40, 9)}, "d": {"c": F(0), "m": F(10, 3)}},
    )


def test_sibling_weights_that_differ_do_not_distort_the_parent() -> None:
    """volcano issue 1661: 45/5/50, where rescaling by unweighted shares gives 73/9/18."""
    claims = [
        inner("dev", weight=50),
        leaf("big", "dev", c=1, weight=90),
        leaf("little", "dev", c=1, weight=10),
        leaf("alt", c=1, weight=50),
    ]
    assert_fair({"c": 100}, claims, {"big": {"c": F(45)}, "little": {"c": F(5)}, "alt": {"c": F(50)}})


# ---- KAI's vectors: GPUs, whole ones as it shows them


def gpus(name: str, q: int = 0, w: int = 1, r: int = 100, p: int = 100, limit: int | None = None) -> Claim:
    """A queue of KAI's table."""
    return Claim(
        name=name,
        weight=w,
        priority=p,
        quota=((GPU, q * 1000),),
        limit=() if limit is None else ((GPU, limit * 1000),),
        demand=(((GPU, r * 1000),),),
    )


KAI = [
    ("bands", 5, [gpus("A", 1, 1, 1, 2), gpus("B", 1, 2, 3, 1), gpus("C", 0, 1, 2, 1)], [1, 3, 1]),
    ("weights", 100, [gpus("A", 10, 3), gpus("B", 10, 1)], [70, 30]),
    ("thirds-of-10", 10, [gpus("A"), gpus("B"), gpus("C")], [4, 3, 3]),
    ("thirds-of-8", 8, [gpus("A"), gpus("B"), gpus("C")], [3, 3, 2]),
    ("limit", 10, [gpus("A", 2, r=10, limit=4), gpus("B", 2, r=10)], [4, 6]),
    ("weight-0", 10, [gpus("A", 2, 0, 10), gpus("B", 2, 1, 4)], [2, 4]),
    ("band-before-weight", 10, [gpus("A", 2, 1, p=2), gpus("B", 2, 100, p=1)], [8, 2]),
    # KAI gives quotas that do not fit in full (6/6 of 8, 6/2 of 7); ours are scaled down, so shares are never more than there is.
    ("quotas-12-of-8", 8, [gpus("A", 6, r=10), gpus("B", 6, r=10)], [4, 4]),
    ("quotas-8-of-7", 7, [gpus("A", 6, r=6), gpus("B", 4, r=2)], [5, 2]),
    ("usage-k1", 16, [gpus("A", w=1), gpus("B", w=2)], [5, 11]),
]


@pytest.mark.parametrize(("total", "claims", "expected"), [row[1:] for row in KAI], ids=[row[0] for row in KAI])
def test_kai(total: int, claims: list[Claim], expected: list[int]) -> None:
    shares = fair_shares({GPU: total * 1000}, claims)
    parts = [
        Part(shares.queues[claim.name].fair[0], position, claim.name, shares.queues[claim.name].claim[0] * ONE)
        for position, claim in enumerate(claims)  # the first is the oldest
    ]
    assert whole_parts(parts, 1000 * ONE) == expected


def test_kai_two_requests_of_six_tenths_on_one_gpu() -> None:
    """Half each: KAI's rounding gives the whole GPU to one of them, more than it asks for."""
    claims = [Claim(name=name, demand=(((GPU, 600),),)) for name in "AB"]
    assert_fair({GPU: 1000}, claims, {"A": {GPU: F(500)}, "B": {GPU: F(500)}})


def test_kai_quota_of_minus_one_is_refused_with_advice() -> None:
    """KAI takes -1 for the whole level (8/2 of 8)."""
    with pytest.raises(ValueError, match=r"quota of nvidia.com/gpu is -1, .* write the pool's capacity"):
        gpus("A", -1)


USAGE = [
    ("half", 13, [60, 10], 1000, [F(4), F(9)]),
    ("all-and-nothing", 16, [100, 0], 1000, [F(0), F(16)]),
    ("24-GPU-hours", 16, [24, 0], 500, [F(16 * 63, 138), F(16 * 75, 138)]),
    ("k1", 16, [60, 20], 1000, [F(16, 3), F(32, 3)]),
    ("k3", 16, [90, 5], 3000, [F(0), F(16)]),
    ("nobody-has-used-anything", 16, [0, 0], 1000, [F(8), F(8)]),
]


@pytest.mark.parametrize(("total", "used", "k", "expected"), [row[1:] for row in USAGE], ids=[row[0] for row in USAGE])
def test_kai_usage_lowers_the_weight(total: int, used: list[int], k: int, expected: list[Fraction]) -> None:
    """Its vectors give usage as a part of the cluster's; ours is a part of the siblings', so they are asked of the weights."""
    weights = surplus_weights([1, 1], used, k, whole=100)
    claims = [gpus(name, w=weight) for name, weight in zip("AB", weights, strict=True)]
    assert_fair(
        {GPU: total * 1000}, claims, {name: {GPU: 1000 * one} for name, one in zip("AB", expected, strict=True)}
    )
