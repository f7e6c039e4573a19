"""Pods that are made again, or changed while they are gated: where they go, and what they may take."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from queuectl.model import changes as c
from queuectl.model.gangs import Gang, GiveBack, Member, Requirement, Shape, Stage, Term
from queuectl.model.plan import Plan
from queuectl.model.queues import Entry
from queuectl.model.reasons import Misfit, Reason, TextEvidence, sentence
from queuectl.model.resources import GPU
from tests.engine.world import World, gang, node, pods, queue, shape, told


def pinned(one: Member) -> Shape:
    """The shape as the API server shows it after our patch: the pin is part of the affinity."""
    return replace(one.shape, affinity=(Term(fields=(Requirement("metadata.name", "In", (one.pinned or "",)),)),))


def running(story: World, one: Gang, *, pin: bool) -> World:
    """The gang runs; with ``pin`` its pods' shapes carry ours."""
    story.start(one, pods(one))
    for member in story.members(one.uid):
        if pin:
            story.change(member.uid, shape=pinned(member))
    story.decide()
    return story


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("lost", ["cordoned", "gone", "full"])
def test_a_replacement_leaves_a_lost_node(lost: str, *, pin: bool, template: bool) -> None:
    """Whatever the old pod's shape carried, the new one is placed anew and the gang stays."""
    each = shape(8)
    one = (
        gang("g", 2, each=each)
        if template
        else replace(gang("g", 2), roles=(replace(gang("g", 2).roles[0], shape=None),))
    )
    story = World([node(f"n{number}") for number in range(3)], queue("q"))
    story.start(one, pods(one, shape=each))
    for member in story.members("g"):
        if pin:
            story.change(member.uid, shape=pinned(member))
    story.decide()
    at = story.member("g-0").node or ""
    story.tell_gone("g-0")
    if lost == "cordoned":
        story.add(node(at, cordoned=True))
    elif lost == "gone":
        story.tell(c.NodeGone(at))
    else:
        story.occupy("o", at, gpu=4)
    story.add(pods(one, 1, created=9, shape=each))
    assert told(story.obey(story.decide())) == ["extra g 0:g-0=n2"]
    assert (story.used("n2"), story.usage("q")) == (8, 16)


@pytest.mark.parametrize("pin", [False, True])
def test_a_replacement_without_a_node_waits_its_minute(*, pin: bool) -> None:
    """No other node: it is told, and not given back at once, for the node may come back."""
    one = gang("g", 2, each=shape(4))
    story = running(World(node("n"), queue("q")), one, pin=pin)
    story.tell_gone("g-1")
    story.add(node("n", cordoned=True), pods(one, 1, start=1, created=9))
    assert told(story.decide()) == ["refuse g Torn"]
    assert story.engine.explain("g") == (Misfit(Reason.TORN, TextEvidence("no place now for g-1")),)
    story.add(node("n"))
    assert told(story.decide(after=30)) == ["extra g 1:g-1=n", "refuse g"]
    assert story.engine.explain("g") == ()


def test_a_replacement_that_asks_more_obeys_the_limits() -> None:
    """Pods without GPUs, made again with four each, in a queue that may use none."""
    one = gang("g", 2, each=shape(0))
    story = World(node("n"), queue("top", limit=0), queue("q", "top"))
    story.start(one, pods(one))
    for member in story.members("g"):
        story.tell_gone(member.uid)
    story.add(pods(one, created=9, shape=shape(4)))
    assert told(story.decide()) == ["refuse g Torn"]
    assert sentence(story.engine.explain("g")[0]) == (
        "not all of the gang could be placed: no place now for g-0 and 1 more"
    )
    assert told(story.decide(after=30)) == []
    story.add(queue("top", limit=8))
    assert told(story.decide()) == ["extra g 0:g-0=n", "extra g 1:g-1=n", "refuse g"]


def test_a_replacement_that_may_not_have_more_is_given_back_in_time() -> None:
    one = gang("g", 1, each=shape(0))
    story = World(node("n"), queue("q", limit=0))
    story.start(one, pods(one))
    story.tell_gone("g-0")
    story.add(pods(one, created=9, shape=shape(4)))
    assert told(story.decide()) == ["refuse g Torn"]
    assert told(story.decide(after=60)) == ["withdraw g Torn", "refuse g"]


def test_a_limit_lowered_later_does_not_hold_a_replacement_that_asks_the_same() -> None:
    """Nothing is worsened by it."""
    one = gang("g", 2)
    story = running(World(node("n"), queue("q", limit=2)), one, pin=False)
    story.add(queue("q", entries=(Entry(GPU, limit=1000),)))
    story.tell_gone("g-1")
    story.add(pods(one, 1, start=1, created=9))
    assert told(story.decide()) == ["extra g 1:g-1=n"]


@pytest.mark.parametrize("lone", [False, True])
def test_torn_but_nobody_takes_it_back(*, lone: bool) -> None:
    """No owner to ask: it is told, and the rest of the gang is served."""
    one = gang("g", 2, each=shape(3), give_back=GiveBack.NONE, lone=lone)
    story = World(node("a", gpu=4), node("b", gpu=4), queue("q"), one)
    story.obey(story.decide())
    first, second = pods(one)
    story.add(first, replace(second, shape=shape(6)))
    assert told(story.decide()) == ["admit g 0:g-0=a 1=b", "refuse g Torn NotRequeueable"]
    assert told(story.decide(after=60)) == ["refuse g Torn NotRequeueable NotBinding"]
    assert told(story.decide(after=600)) == []


def test_a_gated_member_that_was_changed_is_placed_anew() -> None:
    """Its user tightened the selector after we told its place: same place if it suits, else another."""
    one = gang("g", 2, each=shape(4))
    story = World(node("a"), node("b", labels={"disk": "ssd"}), queue("q"), one, pods(one))
    assert told(story.decide()) == ["admit g 0:g-0=a 1:g-1=a"]
    story.change("g-1", shape=shape(4, selector=(("disk", "ssd"),)))
    assert told(story.obey(story.decide())) == ["extra g 1:g-1=b"]
    assert (story.used("a"), story.used("b")) == (4, 4)


def test_a_changed_member_that_still_suits_is_told_again() -> None:
    one = gang("g", 2)
    story = World(node("a", labels={"disk": "ssd"}), queue("q"), one, pods(one))
    story.decide()
    story.change("g-1", shape=shape(selector=(("disk", "ssd"),)))
    assert told(story.decide()) == ["admit g 0:g-0=a 1:g-1=a"]
    assert story.decide() == Plan((), None)


def test_a_changed_extra_is_placed_anew() -> None:
    one = gang("g", 1, maximum=2)
    story = World(node("a"), node("b", labels={"disk": "ssd"}), queue("q"))
    story.start(one, pods(one))
    assert told(story.add(pods(one, 1, start=1)).decide()) == ["extra g 1:g-1=a"]
    story.change("g-1", shape=shape(selector=(("disk", "ssd"),)))
    assert told(story.obey(story.decide())) == ["extra g 1:g-1=b"]
    assert (story.used("a"), story.used("b"), story.usage("q")) == (1, 1, 2)


def test_a_member_that_asks_for_more_than_any_node_has_tears_the_gang_once_it_is_recorded() -> None:
    """While the record is on its way there is nothing to give back."""
    one = gang("g", 2)
    story = World(node("a"), queue("q"), one, pods(one))
    (admit,) = story.decide().actions
    story.change("g-1", shape=shape(9))
    assert told(story.decide()) == []
    story.record(admit)  # type: ignore[arg-type]  # the only action, an admission
    assert told(story.decide()) == ["withdraw g Torn"]


def test_a_changed_member_that_suits_no_node_is_given_back_in_time() -> None:
    """It asks for no more than was decided, so a node may yet come."""
    one = gang("g", 2)
    story = World(node("a"), queue("q"), one, pods(one))
    (admit,) = story.decide().actions
    story.change("g-1", shape=shape(selector=(("disk", "ssd"),)))
    story.record(admit)  # type: ignore[arg-type]  # the only action, an admission
    story.change("g-0", stage=Stage.RUNNING, node="a", pinned="a")
    assert told(story.decide()) == ["refuse g Torn"]
    assert told(story.decide(after=60)) == ["withdraw g Torn", "refuse g"]


def test_a_member_that_cannot_be_pinned_any_more_is_not_told() -> None:
    one = gang("g", 2)
    story = World(node("a"), queue("q"), one, pods(one))
    (admit,) = story.decide().actions
    story.change("g-1", pinnable=False)
    story.record(admit)  # type: ignore[arg-type]  # the only action, an admission
    assert told(story.decide()) == []
    assert told(story.decide(after=60)) == ["withdraw g BindDeadline"]


def test_an_own_suspend_frees_the_places_with_the_record() -> None:
    """Suspended by its user while it runs: charged while pods or record are there, then not, and it waits."""
    one = gang("g", 2)
    story = running(World(node("n"), queue("q")), one, pin=False)
    story.change("g", blocked=(Misfit(Reason.SUSPENDED, TextEvidence("Job g")),))
    story.tell_gone("g-0")
    assert (told(story.decide()), story.used("n")) == ([], 2)
    story.tell_gone("g-1")
    assert (told(story.decide()), story.used("n")) == ([], 2)
    story.change("g", record=None)
    assert told(story.decide()) == ["refuse g Suspended"]
    assert (story.used("n"), story.usage("q"), story.phase("g")) == (0, 0, "Pending")
    story.add(pods(one))
    story.change("g", blocked=())
    assert told(story.decide()) == ["admit g 0:g-0=n 1:g-1=n"]


def test_pods_that_outlive_the_record_of_a_suspended_gang_stay_charged() -> None:
    one = gang("g", 2)
    story = running(World(node("n"), queue("q")), one, pin=False)
    story.change("g", blocked=(Misfit(Reason.SUSPENDED, TextEvidence("Job g")),), record=None)
    story.tell_gone("g-0")
    story.change("g-1", leaving=True)
    assert story.used("n") == 1
    story.change("g-1", stage=Stage.FAILED)
    assert story.used("n") == 0
