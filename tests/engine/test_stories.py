"""A gang's life, told from outside: what is seen, what is planned, what is charged."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from queuectl.model import changes as c
from queuectl.model.gangs import Place, Record, Role, Stage
from queuectl.model.plan import Admit, AdmitExtra, Assignment, Plan, Refuse
from queuectl.model.queues import QueueState
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from tests.engine.world import World, gang, node, pods, queue, shape, told


def rack(name: str, count: int, **rest: Any) -> list[object]:
    return [node(f"{name}{number}", rack=name, zone="z", **rest) for number in range(count)]


def test_a_gang_is_admitted_whole_and_charged_at_once() -> None:
    """Two members of four GPUs fill one node; the plan names every slot and its pod."""
    world = World(rack("a", 2), queue("q"))
    one = gang("g", 2, each=shape(4))
    world.add(one, pods(one))
    plan = world.decide()
    assert plan == Plan((Admit("g", 1, 1_000_000, (Assignment(0, "a0", "g-0"), Assignment(1, "a0", "g-1"))),), None)
    assert (world.used("a0"), world.usage("q"), world.phase("g")) == (8, 8, "Assumed")
    assert world.decide() == Plan((), None)


def test_from_assumed_to_running() -> None:
    """Each phase follows from the facts alone; the charge stays the same all the way."""
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    plan = world.add(one, pods(one)).decide()
    phases = [world.phase("g")]
    assert isinstance(plan.actions[0], Admit)
    world.record(plan.actions[0])
    phases.append(world.phase("g"))
    world.obey(plan)
    phases.append(world.phase("g"))
    world.run("g", Stage.BOUND)
    phases.append(world.phase("g"))
    world.run("g")
    phases.append(world.phase("g"))
    assert phases == ["Assumed", "Recorded", "Released", "Bound", "Running"]
    assert (world.used("a0"), world.usage("q"), told(world.decide())) == (2, 2, [])


def test_too_big_for_what_is_free_waits_and_is_told_once() -> None:
    """A refusal is said once, and again only when its reasons change."""
    world = World(rack("a", 1), queue("q"))
    world.start(gang("first", 6), pods(gang("first", 6)))
    world.add(gang("second", 4))
    assert told(world.decide()) == ["refuse second NoCapacity"]
    world.add(gang("third", 1))
    assert told(world.decide()) == ["admit third 0=a0"]
    world.tell(c.GangGone("first"))
    for one in world.members("first"):
        world.tell(c.MemberGone(one.uid))
    assert told(world.decide()) == ["admit second 0=a0 1=a0 2=a0 3=a0"]


def test_an_assumption_outlives_a_stale_echo() -> None:
    """A GangSeen from before our write is no news; a failed write is."""
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    world.add(one, pods(one)).decide()
    world.change("g", priority=1)
    assert (world.phase("g"), world.used("a0")) == ("Assumed", 2)
    world.tell(c.WriteFailed("g", 1, Misfit(Reason.PATCH_REJECTED, TextEvidence("no")), retry=True))
    assert world.used("a0") == 0
    assert told(world.decide()) == ["admit g 0:g-0=a0 1:g-1=a0"]
    world.tell(c.WriteFailed("g", 2, Misfit(Reason.PATCH_REJECTED, TextEvidence("no"))))
    assert told(world.decide()) == ["refuse g PatchRejected"]
    world.change("g", priority=2)
    assert told(world.decide()) == ["admit g 0:g-0=a0 1:g-1=a0"]


def test_a_record_outlives_a_stale_echo() -> None:
    """Our own reply is ahead of the watch: an older GangSeen without the record does not take it back."""
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    plan = world.add(one, pods(one)).decide()
    assert isinstance(plan.actions[0], Admit)
    world.tell(c.RecordSeen("g", Record(1, plan.actions[0].places)))
    world.change("g", priority=1)
    assert (world.phase("g"), world.used("a0"), told(world.decide())) == ("Recorded", 2, [])
    world.change("g", round=1)
    assert (world.phase("g"), world.used("a0")) == ("Pending", 0)


def test_members_may_come_late() -> None:
    """Slots known from a template are placed before their pods exist; the same admission is told again when they do."""
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    assert told(world.obey(world.add(one, pods(one, 1)).decide())) == ["admit g 0:g-0=a0 1=a0"]
    assert told(world.decide()) == []
    world.add(pods(one, 1, start=1))
    assert told(world.decide()) == ["admit g 0:g-0=a0 1:g-1=a0"]


def test_without_a_template_the_gang_waits_for_its_members() -> None:
    world = World(rack("a", 1), queue("q"))
    one = gang("g", roles=(Role("", 2, 2),))
    world.add(one, pods(one, 1))
    assert told(world.decide()) == ["refuse g WaitingForMembers"]
    world.add(pods(one, 1, start=1))
    assert told(world.decide()) == ["admit g 0:g-0=a0 1:g-1=a0"]


def test_a_lost_member_is_replaced_on_its_node() -> None:
    """The slot stays charged while its pod is gone, and the new pod goes where the old one was."""
    world = World(rack("a", 2), queue("q"))
    one = gang("g", 2, each=shape(8))
    world.start(one, pods(one))
    world.tell(c.MemberGone("g-1"))
    world.add(gang("other", 1, each=shape(8)))
    assert told(world.decide()) == ["refuse other NoCapacity"]
    world.add(pods(one, 1, start=1, created=7))
    assert told(world.obey(world.decide())) == ["extra g 1:g-1=a1"]
    assert (world.used("a1"), world.usage("q")) == (8, 16)


def test_a_replacement_goes_elsewhere_when_its_node_is_lost() -> None:
    world = World(rack("a", 3), queue("q"))
    one = gang("g", 2, each=shape(8))
    world.start(one, pods(one))
    world.tell(c.MemberGone("g-0"))
    world.add(node("a0", rack="a", zone="z", cordoned=True), pods(one, 1))
    assert told(world.obey(world.decide())) == ["extra g 0:g-0=a2"]
    assert [world.used(name) for name in ("a0", "a1", "a2")] == [0, 8, 8]


def test_extras_come_one_by_one_and_obey_the_limit() -> None:
    world = World(rack("a", 1), queue("q", limit=3))
    one = gang("g", 2, maximum=4)
    world.add(one, pods(one, 4))
    assert told(world.obey(world.decide())) == ["admit g 0:g-0=a0 1:g-1=a0"]
    plan = world.obey(world.decide())
    assert plan.actions == (AdmitExtra("g", 1, 1_000_000, 2, "a0", "g-2"),)
    assert (world.usage("q"), told(world.decide())) == (3, [])
    world.add(queue("q", limit=4))
    assert told(world.decide()) == ["extra g 3:g-3=a0"]


def test_a_succeeded_member_frees_its_node_and_a_finished_gang_everything() -> None:
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    world.start(one, pods(one))
    world.change("g-0", stage=Stage.SUCCEEDED)
    assert (world.used("a0"), world.phase("g")) == (1, "Running")
    world.change("g-1", stage=Stage.SUCCEEDED)
    world.change("g", finished=True)
    assert (world.used("a0"), world.usage("q"), world.phase("g")) == (0, 0, "Finished")


def test_a_restart_finds_the_record_and_completes_a_torn_gang_first() -> None:
    """One member was released before the crash; the other is told again, before anything new is admitted."""
    one = gang("torn", 2, record=Record(3, (Place(0, "a0"), Place(1, "a0")), 5), round=3)
    first, second = pods(one)
    world = World(rack("a", 1), queue("q"), gang("a-new-one", 1), one, second)
    world.add(replace(first, stage=Stage.RELEASED, pinned="a0"))
    assert told(world.decide()) == ["admit torn 0:torn-0=a0 1:torn-1=a0", "admit a-new-one 0=a0"]
    assert world.used("a0") == 3


def test_a_gang_given_back_returns_to_its_old_place() -> None:
    """The record is gone and the round is ours: uncharged, pending again, with the queue time it had."""
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2, queued_at=5)
    world.start(one, pods(one))
    for member in world.members("g"):
        world.tell(c.MemberGone(member.uid))
    world.change("g", evicted=True)
    assert (world.phase("g"), world.used("a0")) == ("Leaving", 2)
    world.change("g", evicted=False, record=None, requeues=1, not_before=(world.now + 30) * 1000)
    plan = world.decide()
    assert (told(plan), plan.wake_at) == (["refuse g Backoff"], (world.now + 30) * 1000)
    assert (world.phase("g"), world.used("a0")) == ("Pending", 0)
    assert told(world.decide(after=29)) == []
    plan = world.decide(after=1)
    assert isinstance(plan.actions[0], Admit)
    assert plan.actions[0].round == 2


def test_a_bypassed_gate_is_charged_and_shown() -> None:
    world = World(rack("a", 1), queue("q"))
    one = gang("g", 2)
    first, second = pods(one)
    world.add(one, first, second)
    world.change("g-0", stage=Stage.RUNNING, node="a0")
    world.change("g-1", stage=Stage.RUNNING, node="a0")
    assert told(world.decide()) == ["refuse g BypassedGate BypassedGate"]
    assert (world.phase("g"), world.used("a0"), world.usage("q")) == ("Running", 2, 2)


def test_a_group_of_one_restores_its_round_from_the_pod() -> None:
    one = gang("solo", 1, lone=True)
    (pod,) = pods(one)
    world = World(rack("a", 1), queue("q"), one, pod)
    assert world.decide().actions == (Admit("solo", 1, 1_000_000, (Assignment(0, "a0", "solo-0"),)),)
    again = World(rack("a", 1), queue("q"), one, pod)
    again.change("solo-0", stage=Stage.BOUND, node="a0", record=Record(4, (Place(0, "a0"),)))
    assert told(again.decide()) == []
    assert (again.used("a0"), again.usage("q"), again.phase("solo")) == (1, 1, "Bound")


def test_a_held_queue_says_so() -> None:
    world = World(rack("a", 1), queue("top", state=QueueState.HELD), queue("q", "top"), gang("g", 1))
    plan = world.decide()
    assert isinstance(plan.actions[0], Refuse)
    assert [one.reason for one in plan.actions[0].misfits] == [Reason.QUEUE_HELD]
