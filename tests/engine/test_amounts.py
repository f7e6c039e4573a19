"""Amounts as large as an API server holds, and their sums: nothing wraps around, nothing raises, all of it comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.model import changes as c
from queuectl.model.gangs import Role, Shape
from queuectl.model.resources import CPU, GPU, MAX, MEMORY, PODS, Amounts, amounts
from queuectl.model.topology import Node
from tests.engine.world import World, gang, node, pods, queue, shape, told

HUGE = (MAX // 2, 2**62, 2**62 + 1, MAX - 1, MAX, 3 * MAX)


def asks(resource: str, amount: int) -> Shape:
    return Shape(amounts({resource: amount, PODS: 1}))


@pytest.mark.parametrize("resource", [MEMORY, GPU, CPU, "example.com/units"])
@pytest.mark.parametrize("amount", HUGE)
def test_a_pod_that_asks_for_the_world_is_refused(resource: str, amount: int) -> None:
    """Three containers of 2^63-1 bytes each are a legal pod. It waits; the next one runs."""
    world = World(node("a", rack="r", zone="z"), node("b"), queue("q"))
    world.add(gang("g", 2, each=asks(resource, amount), required="rack"), gang("h", 1))
    assert told(world.decide())[0] == "admit h 0=a"
    assert "NeverFits" in world.why("g")


def test_two_occupants_of_everything_leave_nothing() -> None:
    """2^64 bytes used on one node are not 0 used; when both are gone all of it is free."""
    world = World(node("n"), queue("q"), gang("g", 1))
    for uid in ("x", "y", "z"):
        world.tell(c.OccupantSeen(uid, "n", amounts({MEMORY: MAX, GPU: MAX, PODS: 1})))
    assert told(world.decide()) == ["refuse g NoCapacity"]
    for uid in ("x", "y"):
        world.tell(c.OccupantGone(uid))
    assert told(world.decide()) == []
    world.tell(c.OccupantGone("z"))
    assert told(world.decide()) == ["admit g 0=n"]


def test_nodes_that_offer_the_world() -> None:
    """Sums over nodes exceed an int64: still the right answers, with unlike members too."""
    offer: Amounts = amounts({GPU: MAX, CPU: MAX, MEMORY: MAX, PODS: MAX})
    nodes = [Node(name=f"n{number}", allocatable=offer) for number in range(4)]
    world = World(nodes, queue("q"))
    roles = (Role("l", 1, 1, asks(MEMORY, 1)), Role("w", 3, 3, asks(GPU, 2**61)), Role("x", 2, 2, asks(CPU, 1)))
    world.add(gang("g", roles=roles), gang("h", 8, each=shape(8), required="node"))
    assert [line.split()[:2] for line in told(world.decide())] == [["admit", "g"], ["admit", "h"]]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 2**40, *HUGE])), max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_comes_and_goes(moves: list[tuple[int, int]]) -> None:
    """``World.decide`` compares every column with the exact ledger."""
    world = World(node("n"), queue("q"))
    present: dict[int, int] = {}
    for who, amount in moves:
        if present.pop(who, None) is None:
            present[who] = amount
            world.tell(c.OccupantSeen(f"o{who}", "n", amounts({MEMORY: amount, PODS: 1})))
        else:
            world.tell(c.OccupantGone(f"o{who}"))
        world.decide()
    for who in present:
        world.tell(c.OccupantGone(f"o{who}"))
    one = gang("g", 8)
    assert told(world.add(one, pods(one)).decide())[0].startswith("admit g")
