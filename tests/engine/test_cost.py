"""What must not grow with the number of pods or of refused gangs: counted, not timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine import packing
from queuectl.engine import state as state_module
from queuectl.engine.branches import Branch, Branches
from queuectl.engine.fleet import Fleet
from queuectl.engine.ordering import Turns
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit, Group, Request
from queuectl.engine.rooms import Rooms
from queuectl.engine.state import State
from queuectl.model import changes as c
from queuectl.model.gangs import Role
from queuectl.model.plan import Admit, AdmitExtra
from queuectl.model.resources import GPU
from queuectl.model.topology import Node
from tests.engine.test_placement import USED, clusters, placement
from tests.engine.world import World, gang, node, pods, queue, shape, told


def test_a_thousand_extras_settle_their_gang_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain Job of parallelism 1,000: one of it is the gang, all others are extras."""
    world = World([node(f"n{number:03}", rack="r", zone="z") for number in range(125)], queue("q"))
    one = gang("g", 1, maximum=1000, required="rack", each=shape(1, 0, 0))
    world.start(one, pods(one, 1000))
    settled: list[str] = []
    settle = State.settle

    def counted(self: State, uid: str) -> None:
        settled.append(uid)
        settle(self, uid)

    monkeypatch.setattr(State, "settle", counted)
    plan = world.obey(world.decide())
    assert [type(action) for action in plan.actions] == [AdmitExtra] * 999
    assert settled == ["g"]
    assert world.usage("q") == 1000
    assert told(world.decide()) == []


@given(clusters(), st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_same_pod_again_goes_where_a_fresh_look_would_send_it(
    cluster: tuple[list[Node], USED], gpus: list[int]
) -> None:
    """Single pods one after another: the short cut and the search agree."""
    nodes, used = cluster
    once = placement(nodes, used)
    requests = {gpu: Request((Group(shape(gpu), 1),)) for gpu in gpus}
    for gpu in gpus:
        found, fresh = once.place(requests[gpu]), Placement(once._state).place(requests[gpu])
        assert isinstance(found, Fit) == isinstance(fresh, Fit)
        if isinstance(found, Fit):
            assert found == fresh
            once._state.charge("", found.nodes[0][0][0], shape(gpu), 1)


def test_a_large_gang_of_unlike_members_is_packed_without_recursion() -> None:
    """Roles of 10 and 1,000: too many states for the curves."""
    world = World([node(f"n{number:03}", rack="r", zone="z") for number in range(130)], queue("q"))
    roles = (Role("l", 10, 10, shape(2, 1)), Role("w", 1000, 1000, shape(1, 2)))
    world.add(gang("g", roles=roles, required="rack"))
    (admit,) = world.decide().actions
    assert isinstance(admit, Admit)
    assert len(admit.assignments) == 1010
    assert max(world.used(f"n{number:03}") for number in range(130)) == 8


def test_a_pack_that_cannot_be_proven_ends_with_its_budget() -> None:
    """It fits by every count, not together: told as such, not searched for ever."""
    world = World([node(f"n{number:03}", 4, cpu=4, rack="r", zone="z") for number in range(400)], queue("q"))
    roles = (Role("l", 300, 300, shape(3, 2)), Role("w", 300, 300, shape(2, 2)))
    assert told(world.add(gang("g", roles=roles)).decide()) == ["refuse g SearchBudget"]
    assert packing.STEPS <= 50_000


def refused(count: int) -> World:
    """One node is free for one GPU; ``count`` gangs of as many shapes ask for more."""
    world = World([node(f"n{number}", rack="r", zone="z") for number in range(4)], queue("q"))
    world.occupy("o", "n0", gpu=7)
    for number in range(1, 4):
        world.start(one := gang(f"h{number}", each=shape(8)), pods(one))
    world.add(gang(f"g{number:03}", 1 + number % 3, each=shape(2 + number % 7, 1 + number)) for number in range(count))
    world.decide()
    return world


def test_a_wake_asks_the_nodes_that_gained_room_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 shapes are parked; a GPU comes free where two were asked for: no tally is made, no refusal renewed."""
    world = refused(300)
    world.engine.view()
    made = []
    monkeypatch.setattr(Rooms, "_kept", lambda *_, **__: made.append(1))
    world.tell(c.OccupantGone("o"))
    world.occupy("o", "n0", gpu=7)
    assert (told(world.decide()), made) == ([], [])


def test_a_wake_finds_those_that_fit() -> None:
    """The node comes free: as many as fit start, in their turn, and all others sleep on."""
    world = refused(300)
    world.tell(c.OccupantGone("o"))
    assert told(world.decide()) == ["admit g000 0=n0", "admit g001 0=n0 1=n0"]


def test_room_that_comes_in_pieces_adds_up() -> None:
    """A gang of three; its three nodes come free one after another."""
    world = World([node(f"n{number}") for number in range(3)], queue("q"))
    for number in range(3):
        world.occupy(f"o{number}", f"n{number}", gpu=1)
    world.add(gang("g", 3, each=shape(8)))
    assert told(world.decide()) == ["refuse g NoCapacity"]
    for number in range(2):
        world.tell(c.OccupantGone(f"o{number}"))
        assert told(world.decide()) == []
    world.tell(c.OccupantGone("o2"))
    assert told(world.decide()) == ["admit g 0=n0 1=n1 2=n2"]


def test_room_in_many_racks_does_not_try_a_gang_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four racks of two nodes one node each comes free: as many as the gang has pods, and it is not tried once."""
    world = World([node(f"{rack}{number}", rack=rack, zone="z") for rack in "abcd" for number in "01"], queue("q"))
    for name in ("a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"):
        world.occupy(f"on-{name}", name, gpu=1)
    world.add(gang("g", 2, each=shape(8), required="rack"))
    assert told(world.decide()) == ["refuse g NoCapacity NoDomainFits NoDomainFits"]
    tried: list[Request] = []
    find = Placement._find

    def noted(self: Placement, request: Request, *rest: Any) -> Any:
        tried.append(request)
        return find(self, request, *rest)

    monkeypatch.setattr(Placement, "_find", noted)
    plans = []
    for name in ("a0", "b0", "c0", "d0"):
        world.tell(c.OccupantGone(f"on-{name}"))
        plans.append(told(world.decide()))
    # Once, when the cluster has room for both: what is told of it is another thing then.
    assert (plans, len(tried)) == ([[], ["refuse g NoDomainFits"], [], []], 1)
    world.tell(c.OccupantGone("on-c1"))
    assert told(world.decide()) == ["admit g 0=c0 1=c1"]


def test_the_queues_alone_are_read_without_looking_at_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters kept as gangs move: by phase, and what waits, summed up the tree."""
    world = World(node("n"), queue("top"), queue("q", "top"), queue("r", "top"), queue("old"))
    world.start(first := gang("first", 2), pods(first))
    world.add(gang("a", 3, "q"), gang("b", 7, "r"), gang("c", 9, "r", each=shape(2)), gang("d", 1, "nowhere"))
    world.add(gang("e", 1, "old", finished=True))
    world.decide()
    monkeypatch.setattr(state_module, "need", None)
    found = {
        one.name: (dict(one.pending).get(GPU, 0) // 1000, one.gangs_pending, one.gangs_admitted, one.gangs_running)
        for one in world.engine.queues()
    }
    assert found == {"top": (25, 2, 1, 1), "q": (0, 0, 1, 1), "r": (25, 2, 0, 0), "old": (0, 0, 0, 0)}


def test_a_large_gang_is_charged_by_nodes_not_by_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 pods on 32 nodes: an entry for each node, and one for the queue; as many when it ends."""
    world = World([node(f"n{number:02}", rack="r", zone="z") for number in range(32)], queue("q"))
    world.decide()
    entries: list[str] = []
    charge, charge_queue = Fleet.charge, Branches.charge

    def node_charged(self: Fleet, name: str, *rest: Any, **more: Any) -> None:
        entries.append("node")
        charge(self, name, *rest, **more)

    def queue_charged(self: Branches, name: str, *rest: Any) -> None:
        entries.append("queue")
        charge_queue(self, name, *rest)

    monkeypatch.setattr(Fleet, "charge", node_charged)
    monkeypatch.setattr(Branches, "charge", queue_charged)
    world.add(gang("g", 256)).decide()
    assert Counter(entries) == {"node": 32, "queue": 1}
    world.tell(c.GangGone("g"))
    world.decide()
    assert Counter(entries) == {"node": 64, "queue": 2}


def test_only_queues_with_something_to_try_get_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs end in 20 queues; of those that come, one alone needs no key, and of two each those of its path.

    When the first has started, only the second is left, and then nobody.
    """
    world = World(node("n", 64), queue("top"), [queue(f"m{number}", "top") for number in range(3)])
    world.add([queue(f"q{number}", f"m{number % 3}") for number in range(21)])
    for number in range(20):
        world.start(one := gang(f"g{number}", 1, f"q{number}"), pods(one))
    keyed: list[str] = []
    rekey = Turns._rekey

    def counted(self: Turns, branch: Branch, capacity: dict[str, int]) -> None:
        keyed.append(branch.queue.name)
        rekey(self, branch, capacity)

    monkeypatch.setattr(Turns, "_rekey", counted)
    for number in range(20):
        world.tell(c.MemberGone(f"g{number}-0"))
        world.tell(c.GangGone(f"g{number}"))
    world.add(gang("new", 1, "q20"))
    assert (told(world.decide()), keyed) == (["admit new 0=n"], [])
    world.add(gang("one", 1, "q0"), gang("two", 1, "q1"))
    assert told(world.decide()) == ["admit one 0=n", "admit two 0=n"]
    assert keyed == ["q0", "q1", "m0", "m1", "top"]
