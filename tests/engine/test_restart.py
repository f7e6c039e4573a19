"""The outcome depends on the facts: not on the order in which they came, and not on the process that saw them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queuectl.engine.engine import Engine
from queuectl.model import changes as c
from queuectl.model.changes import Change
from queuectl.model.gangs import Place, Record, Role, Stage
from tests.engine.world import NODE, RACK, World, entry, gang, node, pods, pool, queue, shape


def story() -> World:
    """Every kind of gang at once: running, torn, leaving, bypassed, waiting, blocked, with extras and with lost members."""
    world = World([node(f"n{n}", rack=f"r{n // 2}", zone="z") for n in range(6)])
    world.add(queue("top", limit=40), queue("r", "top", weight=3))
    world.add(queue("q", "top", entries=(entry(quota=8), entry("all", quota=8), entry("left", limit=9))))
    world.tell(c.LevelsSeen((RACK, NODE), "racks"))
    world.add(pool("all"), pool("left", topology="racks", rack="r0"))
    running = gang("running", 4, each=shape(2), required="rack", maximum=6)
    world.start(running, pods(running, 6))
    world.obey(world.decide())
    world.tell_gone("running-1")
    torn = gang("torn", 2, "r", record=Record(3, (Place(0, "n4"), Place(1, "n5")), 5), round=3)
    first, second = pods(torn)
    world.add(torn, replace(first, stage=Stage.BOUND, node="n4"), second)
    leaving = gang("leaving", 2, "r", record=Record(1, (Place(0, "n4"), Place(1, "n4"))), round=1, evicted=True)
    world.add(leaving, pods(leaving))
    bypassed = gang("bypassed", 2, "r")
    one, two = pods(bypassed)
    world.add(bypassed, replace(one, stage=Stage.RUNNING, node="n5"), two)
    solo = gang("solo", 1, lone=True)
    world.add(
        solo, [replace(pod, stage=Stage.RUNNING, node="n2", record=Record(7, (Place(0, "n2"),))) for pod in pods(solo)]
    )
    world.add(gang("never", 9, "r", each=shape(8)), gang("unknown", 1, required="row"), gang("lost", 1, "nowhere"))
    world.add(gang("mixed", roles=(Role("l", 1, 1, shape(0)), Role("w", 3, 4, shape(1)))), gang("inner", 1, "top"))
    world.occupy("daemon", "n3", cpu=3)
    return world


def rebuilt(changes: list[Change]) -> Engine:
    engine = Engine()
    for change in changes:
        engine.observe(change)
    return engine


@given(st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_arrival_does_not_matter(dice: random.Random) -> None:
    """The same facts in any order: the same view before, the same plan, the same view after."""
    changes = [change for _, change in sorted(story().facts.items())]
    shuffled = list(changes)
    dice.shuffle(shuffled)
    one, other = rebuilt(changes), rebuilt(shuffled)
    assert other.view() == one.view()
    assert other.decide(5_000_000) == one.decide(5_000_000)
    assert other.view() == one.view()
    other._state.check()


@given(st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_repeated_and_old_news_does_not_matter(dice: random.Random) -> None:
    """Every fact twice, and deletions of what came back, change nothing."""
    changes = [change for _, change in sorted(story().facts.items())]
    noisy = changes + changes
    dice.shuffle(noisy)
    one, other = rebuilt(changes), rebuilt(noisy)
    assert other.decide(5_000_000) == one.decide(5_000_000)
    assert other.view() == one.view()


def test_a_new_process_charges_the_same() -> None:
    """Use of every node and every queue is the same after a restart."""
    world = story()
    before = world.engine.view()
    after = rebuilt([change for _, change in sorted(world.facts.items())]).view()
    assert after.nodes == before.nodes
    assert [(one.name, one.usage) for one in after.queues] == [(one.name, one.usage) for one in before.queues]
    assert [(one.uid, one.phase, one.nodes, one.round) for one in after.gangs] == [
        (one.uid, one.phase, one.nodes, one.round) for one in before.gangs
    ]
