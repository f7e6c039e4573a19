"""Whose turn it is, worked out by hand."""

from __future__ import annotations

from queuectl.model.changes import GangGone
from queuectl.model.gangs import Gang
from queuectl.model.plan import Admit, Plan
from queuectl.model.queues import Entry
from queuectl.model.reasons import Reason
from queuectl.model.resources import GPU
from tests.engine.world import World, gang, node, pods, queue, shape, told


def admitted(plan: Plan) -> str:
    """The gangs of a plan in the order of their turns."""
    return "".join(action.gang for action in plan.actions if isinstance(action, Admit))


def eight(*queues: object) -> World:
    """One node of eight GPUs, plenty of the rest."""
    return World(node("n", cpu=1000), *queues)


def test_inside_a_leaf_priority_then_queue_time_then_uid() -> None:
    world = eight(queue("q"))
    world.add(
        gang("d", queued_at=2), gang("c", queued_at=1), gang("b", queued_at=1), gang("a", queued_at=9, priority=5)
    )
    assert admitted(world.decide()) == "abcd"


def test_a_refused_gang_does_not_block_its_leaf() -> None:
    world = eight(queue("q"), gang("a", 9, queued_at=1), gang("b", 2, queued_at=2))
    assert told(world.decide()) == ["admit b 0=n 1=n", "refuse a NeverFits"]


def test_queues_take_turns_by_weight() -> None:
    """Weights 3 and 1 without quotas: after each admission the lower share ÷ weight is next; of equals the older, then the UID.

    x: 1/3 2/3 3/3 4/3 …, y: 1 2 …: x, x, then y's 1 against x's 3/3 (equal, UID), and so on: 6 to 2.
    """
    world = eight(queue("x", weight=3), queue("y", weight=1))
    world.add(gang(f"x{n}", queue="x", each=shape(1, 0, 0)) for n in range(8))
    world.add(gang(f"y{n}", queue="y", each=shape(1, 0, 0)) for n in range(8))
    assert admitted(world.decide()) == "x0x1x2y0x3x4x5y1"


def test_within_quota_comes_before_borrowing() -> None:
    """y has no quota and the older gangs; x takes its quota of three first, fullest share last."""
    world = eight(queue("x", quota=3), queue("y"))
    world.add(gang(f"y{n}", queue="y", queued_at=1) for n in range(8))
    world.add(gang(f"x{n}", queue="x", queued_at=9) for n in range(8))
    assert admitted(world.decide())[:6] == "x0x1x2"


def test_of_two_within_quota_the_emptier_is_next() -> None:
    """Shares of quota counting the gang: x 1/4 2/4 3/4 4/4, y 1/2 2/2."""
    world = eight(queue("x", quota=4), queue("y", quota=2))
    world.add(gang(f"x{n}", queue="x", queued_at=5) for n in range(4))
    world.add(gang(f"y{n}", queue="y", queued_at=1) for n in range(2))
    assert admitted(world.decide()) == "x0y0x1x2y1x3"


def test_higher_queue_priority_is_fed_first_but_never_before_quota() -> None:
    world = eight(queue("x", priority=1), queue("y", quota=2))
    world.add(gang(f"x{n}", queue="x") for n in range(8))
    world.add(gang(f"y{n}", queue="y") for n in range(4))
    assert admitted(world.decide()) == "y0y1x0x1x2x3x4x5"


def test_weight_zero_is_last() -> None:
    world = eight(queue("x", weight=0), queue("y"))
    world.add(gang(f"x{n}", queue="x", queued_at=1) for n in range(4))
    world.add(gang(f"y{n}", queue="y", queued_at=2) for n in range(6))
    assert admitted(world.decide()) == "y0y1y2y3y4y5x0x1"


def test_shares_are_compared_from_the_root_down() -> None:
    """a has two leaves, b one: a and b get four each, a1 and a2 two each."""
    world = eight(queue("a"), queue("b"), queue("a1", "a"), queue("a2", "a"))
    for name in ("a1", "a2", "b"):
        world.add(gang(f"{name}-{n}", queue=name) for n in range(8))
    world.decide()
    assert {name: world.usage(name) for name in ("a", "b", "a1", "a2")} == {"a": 4, "b": 4, "a1": 2, "a2": 2}


def test_a_queue_is_represented_by_the_head_within_its_quota() -> None:
    """top's quota has no GPU left but plenty of CPU: its CPU-only head speaks for it, although the GPU head is older."""
    entries = (Entry(GPU, quota=0), Entry("cpu", quota=500_000))
    world = eight(queue("top", entries=entries), queue("g", "top"), queue("c", "top"), queue("other", quota=8))
    world.add(gang("gpu", queue="g", queued_at=1), gang("cpu", queue="c", queued_at=3, each=shape(0)))
    world.add(gang("lent", queue="other", queued_at=2, each=shape(8)))
    assert [line.split()[1] for line in told(world.decide())] == ["cpu", "lent", "gpu"]


def test_an_unlisted_resource_is_due_like_the_largest_listed_one() -> None:
    """A GPU-only quota of half the GPUs is a quota of half the CPUs too: 400 of 1,000 are within it, 700 are not."""
    world = eight(queue("x", quota=4), queue("y"))
    world.add(gang("y", 1, "y", each=shape(1, 100), queued_at=1), gang("x", 1, "x", each=shape(1, 400), queued_at=2))
    assert admitted(world.decide()) == "xy"
    world = eight(queue("x", quota=4), queue("y"))
    world.add(gang("y", 1, "y", each=shape(1, 100), queued_at=1), gang("x", 1, "x", each=shape(1, 700), queued_at=2))
    assert admitted(world.decide()) == "yx"


def test_a_limit_holds_on_every_level() -> None:
    """Two leaves of four under a parent of five."""
    world = eight(queue("top", limit=5), queue("a", "top", limit=4), queue("b", "top", limit=4))
    world.add(gang(f"a{n}", queue="a") for n in range(8))
    world.add(gang(f"b{n}", queue="b") for n in range(8))
    world.decide()
    assert {name: world.usage(name) for name in ("top", "a", "b")} == {"top": 5, "a": 3, "b": 2}


def test_gangs_come_before_extras() -> None:
    """Three GPUs are left: an older gang's extra waits for the younger gang of its leaf."""
    world = eight(queue("q"))
    first = gang("first", 5, maximum=6, queued_at=1)
    world.start(first, pods(first))
    world.add(pods(first, 1, start=5), gang("late", 3, queued_at=9))
    assert told(world.decide()) == ["admit late 0=n 1=n 2=n"]


def test_an_order_does_not_depend_on_the_order_of_arrival() -> None:
    gangs: list[Gang] = [gang(f"{name}{n}", queue=name, queued_at=n) for name in "xy" for n in range(6)]
    plans = []
    for arrival in (gangs, gangs[::-1]):
        world = eight(queue("x", weight=2), queue("y", quota=2), arrival)
        plans.append(world.decide())
    assert plans[0] == plans[1]


def test_siblings_that_lose_their_heads_together() -> None:
    """Room for one comes free: b's gang takes it and empties its line while a's goes back to sleep."""
    world = eight(queue("top"), queue("a", "top"), queue("b", "top"))
    holder = gang("holder", 1, "a", each=shape(8))
    world.add(holder).decide()
    world.add(gang("younger", 1, "a", each=shape(8), queued_at=9), gang("older", 1, "b", each=shape(8), queued_at=1))
    assert told(world.decide()) == ["refuse older NoCapacity", "refuse younger NoCapacity"]
    world.tell(GangGone("holder"))
    assert told(world.decide()) == ["admit older 0=n"]
    assert world.why("younger") == [Reason.NO_CAPACITY]
