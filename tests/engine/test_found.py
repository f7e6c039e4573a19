"""Found on the real control plane, told again without one."""

from __future__ import annotations

from msgspec.structs import replace

from queuectl.model.gangs import Gang, Role, Stage
from queuectl.model.plan import Admit, AdmitExtra
from queuectl.model.resources import GPU
from tests.engine.world import World, gang, node, pods, queue, shape


def used(world: World, name: str = "q") -> int:
    """GPUs charged to a queue."""
    return next(dict(q.usage).get(GPU, 0) // 1000 for q in world.engine.view().queues if q.name == name)


def size(of: Gang, count: int) -> Gang:
    """The gang with another number of members, all of which belong together."""
    return replace(of, roles=(Role("", count, count, shape()),))


def running(world: World, uid: str) -> None:
    """A released pod starts where it was pinned."""
    world.change(uid, stage=Stage.RUNNING, node=world.member(uid).pinned, pinned=None)


def test_a_gang_that_shrinks_gives_its_slots_back_and_grows_again_only_where_there_is_room() -> None:
    """4 → 2 frees two places; another gang takes them; 2 → 4 then waits, and starts when it ends."""
    one, other = gang("one", 4), gang("other", 2)
    world = World(node("n0", gpu=4), queue("q"), one, pods(one))
    world.obey(world.decide())
    for uid in ("one-0", "one-1", "one-2", "one-3"):
        running(world, uid)
    for uid in ("one-2", "one-3"):
        world.tell_gone(uid)
    world.add(size(world.gang("one"), 2), other, pods(other))
    world.obey(world.decide())
    assert {m.stage for m in world.members("other")} == {Stage.RELEASED}
    assert used(world) == 4
    world.add(size(world.gang("one"), 4), pods(one, 2, start=2))
    assert [a for a in world.decide().actions if isinstance(a, AdmitExtra)] == []
    assert used(world) == 4
    for member in world.members("other"):
        world.change(member.uid, stage=Stage.SUCCEEDED)
    plan = world.obey(world.decide())
    assert [a.member for a in plan.actions if isinstance(a, AdmitExtra)] == ["one-2", "one-3"]
    assert used(world) == 4


def test_a_gang_that_must_be_whole_grows_while_it_runs() -> None:
    """3 → 5: the two new members are extras, for the record stays what it was."""
    one = gang("one", 3)
    world = World(node("n0", gpu=8), queue("q"), one, pods(one))
    world.obey(world.decide())
    for uid in ("one-0", "one-1", "one-2"):
        running(world, uid)
    world.add(size(world.gang("one"), 5), pods(one, 2, start=3))
    plan = world.obey(world.decide())
    assert [a.slot for a in plan.actions if isinstance(a, AdmitExtra)] == [3, 4]
    assert used(world) == 5


def test_a_rolling_gang_passes_its_slots_on() -> None:
    """Two slots, five pods: each takes the slot of one that succeeded, at no further charge."""
    one = gang("one", 2, rolling=True)
    world = World(node("n0", gpu=2), queue("q"), one, pods(one))
    world.obey(world.decide())
    for rank in range(2, 5):
        done = f"one-{rank - 2}"
        running(world, done)
        world.change(done, stage=Stage.SUCCEEDED, node="n0")
        world.add(pods(one, 1, start=rank))
        world.obey(world.decide())
        assert world.member(f"one-{rank}").stage is Stage.RELEASED
        assert used(world) == 2


def test_an_extra_of_a_gang_that_ran_before_we_knew_it_frees_its_place_when_it_has_ended() -> None:
    """Its PodGroup was deleted and made anew, so no record says how it came there; one pod runs, one more is released."""
    one = gang("one", 1, maximum=2)
    first = replace(pods(one, 1)[0], stage=Stage.RUNNING, node="n0")
    world = World(node("n0", gpu=4), queue("q"), one, first, pods(one, 1, start=1))
    plan = world.obey(world.decide())
    assert [(a.member, a.round) for a in plan.actions if isinstance(a, AdmitExtra)] == [("one-1", 0)]
    assert used(world) == 2
    running(world, "one-1")
    assert used(world) == 2
    world.change("one-1", stage=Stage.SUCCEEDED)
    assert used(world) == 1


def test_an_extra_that_has_ended_before_it_was_seen_to_run_frees_its_place() -> None:
    """It was released, ran and ended while the watch was cut off."""
    one = gang("one", 1, maximum=2)
    world = World(node("n0", gpu=4), queue("q"), one, pods(one, 2))
    world.record(next(a for a in world.decide().actions if isinstance(a, Admit)))
    world.decide()
    assert used(world) == 2
    world.change("one-1", stage=Stage.FAILED)
    assert used(world) == 1
