"""What happens when an admission does not come further, and how a gang comes back."""

from __future__ import annotations

from queuectl.model import changes as c
from queuectl.model.gangs import GiveBack, Stage
from queuectl.model.plan import Admit, Cause, Plan, Refuse, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from queuectl.model.settings import Settings
from tests.engine.world import World, gang, node, pods, queue, shape, told


def world(*things: object, settings: Settings | None = None) -> World:
    return World(node("n"), queue("q"), *things, settings=settings)


def test_released_but_not_bound_is_given_back() -> None:
    """60 s after the last progress; the detail names the pod, its node and what the cluster says about it."""
    story = world(one := gang("g", 2), pods(one))
    story.obey(story.decide())
    assert story.decide().wake_at == 1_060_000
    story.change("g-0", stage=Stage.BOUND, node="n")
    assert story.decide(after=30).wake_at == 1_090_000
    story.change("g-1", trouble="0/1 nodes available")
    assert story.decide(after=59) == Plan((), 1_090_000)
    assert story.decide(after=1).actions == (
        Withdraw("g", 1, Cause.BIND_DEADLINE, "g-1 n 0/1 nodes available", 1_090_000 + 30_000),
    )
    assert story.decide(after=500) == Plan((), None)


def test_bound_but_not_started_is_given_back() -> None:
    story = world(one := gang("g", 1), pods(one))
    story.obey(story.decide())
    story.run("g", Stage.BOUND)
    assert story.decide().wake_at == 1_900_000
    assert told(story.decide(after=900)) == ["withdraw g StartDeadline"]


def test_back_off_doubles_up_to_its_limit_then_deactivates() -> None:
    """30 s, 1 min, 2 min … and after max_requeues only a person helps."""
    waits, ends = [], []
    for requeues in (0, 1, 2, 5):
        story = world(one := gang("g", 1, requeues=requeues), pods(one), settings=Settings(backoff_limit=100_000))
        story.obey(story.decide())
        story.decide()
        (action,) = story.decide(after=60).actions
        assert isinstance(action, Withdraw)
        waits.append(action.not_before - story.now * 1000)
        ends.append(action.deactivate)
    assert (waits, ends) == ([30_000, 60_000, 100_000, 100_000], [False, False, False, True])


def test_a_failed_withdrawal_is_tried_again() -> None:
    story = world(one := gang("g", 1), pods(one))
    story.obey(story.decide())
    story.decide()
    assert told(story.decide(after=60)) == ["withdraw g BindDeadline"]
    story.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("busy")), retry=True))
    assert told(story.decide()) == ["withdraw g BindDeadline"]


def test_what_cannot_be_given_back_is_shown() -> None:
    story = world(one := gang("g", 1, give_back=GiveBack.NONE), pods(one))
    story.obey(story.decide())
    story.decide()
    assert told(story.decide(after=60)) == ["refuse g NotBinding NotRequeueable"]
    assert story.decide(after=60) == Plan((), None)
    story.run("g")
    assert story.decide() == Plan((Refuse("g", 0, ()),), None)
    assert story.why("g") == []
    assert story.decide(after=60) == Plan((), None)


def test_a_pod_on_its_own_goes_where_that_is_accepted() -> None:
    """It has no PodGroup and no owner, but may have said that it can be deleted."""
    said = []
    for give_back in (GiveBack.EVICT, GiveBack.NONE):
        story = world(one := gang("g", 1, give_back=give_back, lone=True), pods(one))
        story.obey(story.decide())
        story.run("g", Stage.BOUND)
        story.decide()
        said.append(told(story.decide(after=900)))
    assert said == [["withdraw g StartDeadline"], ["refuse g NotStarting NotRequeueable"]]


def test_an_admission_ends_what_was_said() -> None:
    """No empty refusal beside it, or after it."""
    story = world(gang("first", 8))
    story.decide()
    story.add(one := gang("g", 1), pods(one))
    assert told(story.decide()) == ["refuse g NoCapacity"]
    story.tell(c.GangGone("first"))
    assert told(story.obey(story.decide())) == ["admit g 0:g-0=n"]
    story.run("g")
    assert told(story.decide()) == []


def test_a_requeue_by_hand_ends_back_off_and_deactivation_once() -> None:
    """The answer counts nothing and waits for nothing; control then clears the status."""
    story = world(gang("g", 1, requeues=6))
    assert told(story.decide()) == ["refuse g Deactivated"]
    story.change("g", requested="now")
    assert story.decide().actions == (Withdraw("g", 0, Cause.REQUESTED, "now", 1_000_000),)
    story.change("g", handled="now", requeues=0)
    assert told(story.decide()) == ["admit g 0=n"]


def test_a_requeue_by_hand_of_a_gang_that_waits_is_answered_too() -> None:
    """Nothing to do for it; unanswered, it would be acted on days later, by a process that was started then."""
    story = world(one := gang("g", 9), pods(one))
    assert told(story.decide()) == ["refuse g NeverFits"]
    story.change("g", requested="now")
    assert story.decide().actions == (Withdraw("g", 0, Cause.REQUESTED, "now", 1_000_000),)
    assert told(story.decide(after=9)) == []
    story.change("g", handled="now")
    assert told(story.decide()) == []
    story.change("g", requested="again", roles=gang("g", 2).roles)
    assert told(story.obey(story.decide())) == ["withdraw g Requested", "admit g 0:g-0=n 1:g-1=n"]


def test_a_requeue_by_hand_ends_a_refused_release() -> None:
    """The API server said no; its owner has mended that and asks again."""
    story = world(one := gang("g", 1), pods(one))
    story.decide()
    story.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("no"))))
    assert told(story.decide()) == ["refuse g PatchRejected"]
    story.change("g", requested="now")
    assert told(story.decide()) == ["withdraw g Requested", "admit g 0:g-0=n"]


def test_a_requeue_by_hand_of_a_running_gang() -> None:
    story = world(one := gang("g", 1), pods(one))
    story.obey(story.decide())
    story.run("g")
    story.change("g", requested="now")
    assert told(story.decide()) == ["withdraw g Requested"]
    assert told(story.decide(after=9)) == []
    again = world(replaced := gang("h", 1, requested="old", handled="old"), pods(replaced))
    assert told(again.decide()) == ["admit h 0:h-0=n"]


def test_a_member_unlike_its_template_that_no_longer_fits_tears_the_gang() -> None:
    """Admitted from the template; the pod that comes asks for more than its node has left."""
    story = world(gang("g", 2, each=shape(2)), gang("h", 1, each=shape(4)))
    assert told(story.obey(story.decide())) == ["admit g 0=n 1=n", "admit h 0=n"]
    story.add(pods(gang("g", 1, each=shape(4)), shape=shape(4)))
    assert told(story.decide()) == ["withdraw g Torn"]
    other = world(gang("g", 2, each=shape(2)))
    other.obey(other.decide())
    other.add(pods(gang("g", 1), shape=shape(4)))
    assert told(other.decide()) == ["admit g 0:g-0=n 1=n"]
    assert other.used("n") == 6


def test_a_member_without_a_node_to_go_to_is_given_back_in_time() -> None:
    """The node was lost between the record and the release, and there is no other."""
    story = world(one := gang("g", 2, each=shape(4)))
    story.obey(story.decide())
    story.add(node("n", cordoned=True), pods(one))
    assert told(story.decide()) == ["refuse g Torn"]
    assert told(story.decide(after=60)) == ["withdraw g NodeLost", "refuse g"]


def test_time_never_goes_back() -> None:
    story = world(one := gang("g", 1), pods(one))
    story.obey(story.decide())
    assert story.decide().wake_at == 1_060_000
    story.change("g", priority=1)
    assert story.decide(after=-500).wake_at == 1_060_000


def test_a_release_refused_for_good_is_rolled_back_at_once() -> None:
    """The record is committed, one pod's patch is not: no second try, the gang is given back whole."""
    story = world(one := gang("g", 2), pods(one))
    plan = story.decide()
    assert isinstance(plan.actions[0], Admit)
    story.record(plan.actions[0])
    story.change("g-0", stage=Stage.RELEASED, pinned="n")
    story.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("denied by policy")), member="g-1"))
    assert story.decide().actions == (Withdraw("g", 1, Cause.TORN, "denied by policy", 1_030_000),)
    assert story.decide(after=100) == Plan((), None)


def test_an_extra_refused_for_good_waits_until_it_changes() -> None:
    story = world(one := gang("g", 1, maximum=2), pods(one, 2))
    story.obey(story.decide())
    story.run("g")
    assert told(story.decide()) == ["extra g 1:g-1=n"]
    story.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("denied")), member="g-1"))
    assert (told(story.decide()), story.used("n")) == ([], 1)
    story.change("g-1", created=5)
    assert told(story.decide()) == ["extra g 1:g-1=n"]


def test_a_withdrawal_refused_for_good_waits_for_news() -> None:
    story = world(one := gang("g", 1), pods(one))
    story.obey(story.decide())
    story.decide()
    story.decide(after=60)
    story.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("denied"))))
    assert told(story.decide(after=60)) == []
    story.change("g", priority=3)
    assert told(story.decide()) == ["withdraw g BindDeadline"]
