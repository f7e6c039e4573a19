"""A gang that is only partly there does not hold its places for ever; one that is whole is not ended by its extras."""

from __future__ import annotations

import pytest

from queuectl.model.gangs import Gang, GiveBack, Stage
from queuectl.model.plan import Cause, Plan, Withdraw
from tests.engine.world import World, gang, node, pods, queue, told


def recorded(one: Gang, count: int) -> World:
    """Admitted and recorded with its first ``count`` pods, none of them released yet."""
    story = World(node("n"), queue("q"), one, pods(one, count))
    (admit,) = story.decide().actions
    story.record(admit)  # type: ignore[arg-type]  # the only action, an admission
    return story


def test_recorded_but_its_pods_are_never_created() -> None:
    """15 minutes, for creators may be slow; then the places are free again."""
    story = recorded(gang("g", 4), 0)
    assert story.decide().wake_at == 1_900_000
    assert story.decide(after=900).actions == (
        Withdraw("g", 1, Cause.BIND_DEADLINE, "4 of 4 pods were not created", 1_930_000),
    )


def test_recorded_but_the_release_keeps_failing() -> None:
    """The pods are there and stay gated: a minute after the last step."""
    story = recorded(gang("g", 3), 3)
    story.change("g-0", stage=Stage.RELEASED, pinned="n")
    assert story.decide(after=10).wake_at == 1_070_000
    story.change("g-0", stage=Stage.RUNNING, node="n")
    assert story.decide(after=10).wake_at == 1_080_000
    story.change("g-2", foreign_gates=("example.com/late",))
    story.change("g-1", stage=Stage.RELEASED, pinned="n")
    story.change("g-1", stage=Stage.RUNNING, node="n")
    assert story.decide(after=10).wake_at == 1_090_000
    assert story.decide(after=60).actions == (
        Withdraw(
            "g", 1, Cause.BIND_DEADLINE, "1 of 3 pods not released: g-2 gates example.com/late", 1_120_000
        ),
    )  # fmt: skip


def test_some_run_and_the_others_never_come() -> None:
    """Staged creators make workers once the leader runs: every first step of a pod gives the missing ones 15 minutes."""
    story = recorded(gang("g", 4), 2)
    story.obey(story.decide())
    for uid in ("g-0", "g-1"):
        story.change(uid, stage=Stage.RELEASED, pinned="n")
    story.run("g", Stage.BOUND)
    story.decide(after=10)
    story.run("g")
    assert story.decide(after=600).wake_at == 2_510_000
    assert story.decide(after=900).actions == (
        Withdraw("g", 1, Cause.BIND_DEADLINE, "2 of 4 pods were not created", 2_540_000),
    )


def test_a_lost_member_that_is_never_made_again() -> None:
    """All ran, one pod went: its place is kept for 15 minutes, then the gang is no gang."""
    story = World(node("n"), queue("q"))
    story.start(one := gang("g", 2), pods(one))
    assert story.decide() == Plan((), None)
    story.tell_gone("g-1")
    assert story.decide(after=5).wake_at == 1_905_000
    assert told(story.decide(after=900)) == ["withdraw g BindDeadline"]


@pytest.mark.parametrize("at_once", [False, True])
def test_finished_pods_may_be_cleaned_away(*, at_once: bool) -> None:
    """A slot that has succeeded waits for nobody, and is not charged, although its pod is deleted, perhaps at once."""
    story = World(node("n"), queue("q"))
    story.start(one := gang("g", 2), pods(one))
    story.decide()
    story.change("g-0", stage=Stage.SUCCEEDED)
    if not at_once:
        story.decide()
    story.tell_gone("g-0")
    assert story.decide(after=5) == Plan((), None)
    assert story.used("n") == 1


def test_nobody_to_ask_is_told() -> None:
    """No owner that could take the pods back: the reasons say what is missing, once, and go with it."""
    story = recorded(gang("g", 2, give_back=GiveBack.NONE), 1)
    story.change("g-0", stage=Stage.RUNNING, node="n", pinned="n")
    story.decide()
    assert told(story.decide(after=900)) == ["refuse g WaitingForMembers NotRequeueable"]
    assert story.decide(after=900) == Plan((), None)
    story.add(pods(gang("g", 2), 1, start=1))
    story.obey(story.decide())
    story.run("g")
    story.decide()
    assert story.why("g") == []


def test_a_stuck_extra_does_not_end_a_gang_that_is_whole() -> None:
    """Its lateness is told; the gang goes on."""
    story = World(node("n"), queue("q"))
    one = gang("g", 2, maximum=3)
    story.start(one, pods(one))
    story.obey(story.add(pods(one, 1, start=2)).decide())
    assert story.member("g-2").stage is Stage.RELEASED
    assert told(story.decide(after=60)) == []
    assert told(story.decide(after=60)) == ["refuse g NotBinding"]
    assert story.decide(after=5000) == Plan((), None)


def test_a_replacement_that_the_gang_does_well_without_does_not_end_it() -> None:
    """A plain Job of one and its extras: the pod in the gang's own slot is replaced and hangs."""
    story = World(node("n"), queue("q"))
    one = gang("g", 1, maximum=3)
    story.start(one, pods(one, 3))
    story.obey(story.decide())
    story.run("g")
    story.decide()
    story.tell_gone("g-0")
    story.obey(story.add(pods(one, 1, created=9)).decide())
    story.decide()
    assert told(story.decide(after=60)) == ["refuse g NotBinding"]
    for uid in ("g-1", "g-2"):
        story.tell_gone(uid)  # now the gang is that pod alone, and its clock starts
    assert story.decide(after=60).wake_at == story.now * 1000 + 60_000
    assert told(story.decide(after=60)) == ["withdraw g BindDeadline"]


def test_pods_that_come_and_go_give_a_stuck_member_no_more_time() -> None:
    """A busy gang: one of its members hangs while another is lost and made again, over and over."""
    story = World(node("n"), queue("q"))
    one = gang("g", 3, maximum=4)
    story.start(one, pods(one))
    story.tell_gone("g-2")
    story.obey(story.add(pods(one, 1, start=2, created=7)).decide())
    story.decide()
    for turn in range(5):
        story.tell_gone("g-1")
        story.obey(story.add(pods(one, 1, start=1, created=8 + turn)).decide())
        story.change("g-1", stage=Stage.RUNNING, node="n")
        assert told(story.decide(after=10)) == []
    assert told(story.decide(after=10)) == ["withdraw g BindDeadline"]
