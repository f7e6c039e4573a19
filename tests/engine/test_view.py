"""What others see: the views that were kept are those that would be made now."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine.engine import Engine
from queuectl.engine.view import Snapshots
from queuectl.model import changes as c
from queuectl.model.gangs import Stage
from tests.engine.test_restart import story
from tests.engine.world import World, gang, node, pods, queue


def seen_as_it_is(engine: Engine) -> None:
    """The engine's view is the one that is made without anything kept."""
    view = engine.view()
    anew = Snapshots(engine._state, engine._said)
    assert view.gangs == anew.gangs({one.uid: one.position for one in view.gangs})
    assert view.nodes == anew.nodes()
    assert engine.view() == view


@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_whatever_happens_while_a_view_is_prepared_is_seen(dice: random.Random) -> None:
    """Facts come and go between any two of its steps; decisions too."""
    world = story()
    engine = world.engine
    facts = [change for _, change in sorted(world.facts.items())]
    gone: list[c.Change] = []
    for moment in range(12):
        for _ in engine.prepare():
            change = dice.choice(facts)
            match change:
                case c.MemberSeen(one) if dice.random() < 0.5:
                    gone.append(c.MemberGone(one.uid))
                case c.NodeSeen(one) if dice.random() < 0.3:
                    gone.append(c.NodeGone(one.name))
                case c.GangSeen(one) if dice.random() < 0.3:
                    gone.append(c.GangGone(one.uid))
                case _:
                    gone.append(change)
            engine.observe(gone[-1])
        seen_as_it_is(engine)
        if dice.random() < 0.5:
            engine.decide(5_000_000 + moment * 60_000)
            seen_as_it_is(engine)


def test_what_has_not_changed_is_not_made_again() -> None:
    """It is the very same; what has is another."""
    one, other = gang("one", 1), gang("other", 1)
    world = World(node("a"), node("b"), queue("q"), one, other, pods(one), pods(other))
    world.obey(world.decide())
    before = world.engine.view()
    world.change("one-0", stage=Stage.RUNNING, node="a")
    after = world.engine.view()
    assert [x is y for x, y in zip(before.gangs, after.gangs, strict=True)] == [False, True]
    assert all(x is y for x, y in zip(before.nodes, after.nodes, strict=True))
    world.occupy("stranger", "b", cpu=1)
    assert [x is y for x, y in zip(before.nodes, world.engine.view().nodes, strict=True)] == [True, False]
    world.tell(c.NodeGone("b"))
    assert [x is y for x, y in zip(before.nodes, world.engine.view().nodes, strict=False)] == [True]


def test_positions_follow_the_turns_of_others() -> None:
    """Nothing of the second gang changes when the first is deleted, but that it is first."""
    world = World(node("n", gpu=0), queue("q"), gang("a", 1, queued_at=1), gang("b", 1, queued_at=2))
    world.decide()
    assert [one.position for one in world.engine.view().gangs] == [1, 2]
    world.tell(c.GangGone("a"))
    world.decide()
    assert [(one.uid, one.position) for one in world.engine.view().gangs] == [("b", 1)]
