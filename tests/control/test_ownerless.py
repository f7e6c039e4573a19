"""Pods that nobody makes again: never given back, unless whoever wrote them accepts that they are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.contract import foreign, names
from queuectl.control.ports import Throttled
from queuectl.control.steps import Step
from queuectl.model.changes import GangGone
from queuectl.model.gangs import Gang, GiveBack
from queuectl.model.plan import Admit, Assignment, Cause, Withdraw
from tests.control.tiny import NOW, Tiny, spec

Json = dict[str, Any]
ACCEPTED = {names.PREEMPTIBLE: "true"}
BUDGET = Throttled("Cannot evict pod as it would violate the pod's disruption budget.", 10)


@pytest.fixture
def tiny() -> Tiny:
    """An empty cluster."""
    return Tiny()


def pod(tiny: Tiny, name: str, *, group: str = "", annotations: Json | None = None) -> Json:
    """A tenant's pod, of a group where one is named."""
    labels = {names.QUEUE_LABEL: "q", **({names.POD_GROUP_LABEL: group} if group else {})}
    meta = {"name": name, "namespace": "ns", "labels": labels, "annotations": dict(annotations or {})}
    gated = {**spec(), "schedulingGates": [{"name": names.GATE}]}
    return tiny.put(foreign.PODS, {"metadata": meta, "spec": gated, "status": {"phase": "Pending"}})


def band(tiny: Tiny, annotations: Json | None = None) -> list[Json]:
    """A PodGroup written by hand whose two pods run."""
    meta = {"name": "band", "namespace": "ns", "annotations": dict(annotations or {})}
    tiny.put(foreign.POD_GROUPS, {"metadata": meta, "spec": {"queue": "q", "minMember": 2}})
    pods = [pod(tiny, f"band-{i}", group="band") for i in range(2)]
    start(tiny, pods)
    assert tiny.written[-1] is Step.NOTE
    return pods


def start(tiny: Tiny, pods: list[Json], round_: int = 1) -> None:
    """The engine admits the only PodGroup with these pods, and they run."""
    places = [Assignment(slot, "n0", one["metadata"]["uid"]) for slot, one in enumerate(pods)]
    tiny.release.accept(Admit(tiny.group()["metadata"]["uid"], round_, NOW, tuple(places)))
    tiny.settle()
    for one in pods:
        tiny.run(one)
    tiny.settle()


def known(tiny: Tiny, uid: str = "") -> Gang:
    """The gang of the only PodGroup, or of this UID."""
    found = tiny.source.gang(uid or tiny.group()["metadata"]["uid"])
    assert found is not None
    return found


def withdraw(tiny: Tiny, uid: str, cause: Cause = Cause.REQUESTED) -> None:
    """The engine gives a gang back."""
    tiny.release.accept(Withdraw(uid, 1, cause, "why", NOW + 30_000))


def test_a_group_that_accepts_it_is_deleted_and_may_be_made_again(tiny: Tiny) -> None:
    """Said first, each pod evicted by its UID, then back in the queue; new members make another round."""
    pods = band(tiny, ACCEPTED)
    assert known(tiny).give_back is GiveBack.EVICT
    withdraw(tiny, known(tiny).uid)
    assert [write.step for write in tiny.next()] == [Step.BUDGETS]
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT]
    for one in pods:
        tiny.drop(foreign.PODS, "ns", one["metadata"]["name"])
    assert tiny.settle() == [Step.RETURN]
    assert (known(tiny).record, known(tiny).evicted, known(tiny).minimum) == (None, False, 2)
    start(tiny, [pod(tiny, f"band-{i}", group="band") for i in range(2)], round_=2)
    assert tiny.written[-1] is Step.NOTE


def test_nobody_else_is_given_back(tiny: Tiny) -> None:
    """Without the annotation, or with any other value; nor what a Job that is gone has left."""
    band(tiny, {names.PREEMPTIBLE: "yes"})
    assert known(tiny).give_back is GiveBack.NONE
    lone = pod(tiny, "lone")
    assert known(tiny, lone["metadata"]["uid"]).give_back is GiveBack.NONE
    job = tiny.job("train", 1)
    tiny.drop(foreign.JOBS, "ns", "train")
    job["metadata"]["uid"] = "0a1b2c3d-0000-0000-0000-000000000000"
    tiny.put(foreign.JOBS, job)
    tiny.settle()
    orphan = tiny.group("job-train")
    orphan["metadata"] |= {"annotations": dict(ACCEPTED), "ownerReferences": []}
    tiny.put(foreign.POD_GROUPS, orphan)
    tiny.drop(foreign.JOBS, "ns", "train")
    assert known(tiny, orphan["metadata"]["uid"]).give_back is GiveBack.NONE


def test_what_was_begun_is_carried_through(tiny: Tiny) -> None:
    """Somebody takes the annotation back while its pods go: half a gang is worse than none."""
    pods = band(tiny, ACCEPTED)
    withdraw(tiny, known(tiny).uid)
    while tiny.written[-1] is not Step.EVICT:
        tiny.send(tiny.next()[0])
    group = tiny.group()
    del group["metadata"]["annotations"][names.PREEMPTIBLE]
    tiny.put(foreign.POD_GROUPS, group)
    assert tiny.settle() == [Step.EVICT]
    for one in pods:
        tiny.drop(foreign.PODS, "ns", one["metadata"]["name"])
    assert tiny.settle() == [Step.RETURN]
    assert known(tiny).give_back is GiveBack.NONE


def test_it_ends_when_all_have_succeeded(tiny: Tiny) -> None:
    """As any gang without an owner."""
    for one in band(tiny, ACCEPTED):
        tiny.run(one, "Succeeded")
    assert tiny.settle() == [Step.FINISH]


def lone(tiny: Tiny, phase: str = "Running") -> str:
    """A pod on its own that was released. Its UID."""
    one = pod(tiny, "lone", annotations=dict(ACCEPTED))
    uid: str = one["metadata"]["uid"]
    tiny.release.accept(Admit(uid, 1, NOW, (Assignment(0, "n0", uid),)))
    assert tiny.settle() == [Step.RELEASE]
    if phase:
        tiny.run(one, phase)
    return uid


def test_a_pod_on_its_own_goes_in_one_step(tiny: Tiny) -> None:
    """Nothing is left of it that could be queued: no PodGroup is made, and the gang is gone with the pod."""
    uid = lone(tiny)
    assert (known(tiny, uid).lone, known(tiny, uid).give_back) == (True, GiveBack.EVICT)
    assert tiny.settle() == []
    withdraw(tiny, uid, Cause.START_DEADLINE)
    (write,) = tiny.next()
    assert (write.step, write.body, tiny.release.due(write)) == (Step.EVICT, {"metadata": {"uid": uid}}, True)
    assert tiny.settle() == [Step.EVICT]
    tiny.drop(foreign.PODS, "ns", "lone")
    assert tiny.changes[-1] == GangGone(uid)
    tiny.release.forget(uid)
    assert tiny.release.withdrawals == {}


def test_a_budget_in_the_way_of_a_pod_on_its_own_is_named(tiny: Tiny) -> None:
    """And tried again."""
    uid = lone(tiny)
    withdraw(tiny, uid)
    tiny.refusals[Step.EVICT] = BUDGET
    tiny.send(tiny.next()[0])
    assert "disruption budget" in str(tiny.release.protected[uid].evidence)
    del tiny.refusals[Step.EVICT]
    assert tiny.settle() == [Step.EVICT]


def test_a_pod_that_has_ended_meanwhile_is_left_alone(tiny: Tiny) -> None:
    """There is nothing to take back."""
    uid = lone(tiny, "Succeeded")
    withdraw(tiny, uid)
    assert tiny.next() == []
