"""Releases without an answer: until their fate is known their place is nobody else's, and what is done about them."""

from __future__ import annotations

import json

import pytest

from queuectl.contract import foreign
from queuectl.contract.foreign import STATEFUL_SETS
from queuectl.control.lost import LINGERS
from queuectl.control.ports import ClusterError, Conflict, Refused, Unreachable
from queuectl.control.steps import Step, Write, voiding
from queuectl.model.changes import WriteFailed
from queuectl.model.plan import Admit, AdmitExtra, Assignment, Cause, Withdraw
from queuectl.model.reasons import Reason
from tests.control.tiny import FENCE, NOW, Json, Tiny, spec

RESET = Unreachable("connection reset")
RECORD = "queuectl.io/admission"


@pytest.fixture
def tiny() -> Tiny:
    """An empty cluster."""
    return Tiny()


def until(tiny: Tiny, step: Step) -> Write:
    """Go on until such a write is the next one."""
    while (write := tiny.next()[0]).step is not step:
        tiny.send(write)
    return write


def lose(tiny: Tiny, write: Write) -> None:
    """It is sent, and nobody ever hears of it."""
    tiny.changes += tiny.release.on_reply(write, RESET)


def band(tiny: Tiny, count: int = 2) -> str:
    """A PodGroup and pods written by hand, admitted; its UID."""
    meta = {"name": "band", "namespace": "ns"}
    uid: str = tiny.put(foreign.POD_GROUPS, {"metadata": meta, "spec": {"queue": "q", "minMember": count}})["metadata"][
        "uid"
    ]
    for number in range(count):
        gated(tiny, f"p{number}", group="band")
    members = list(tiny.source.members[uid])
    tiny.release.accept(Admit(uid, 1, NOW, tuple(Assignment(slot, "n0", pod) for slot, pod in enumerate(members))))
    return uid


def gated(tiny: Tiny, name: str, *, group: str = "") -> Json:
    """A pod that somebody wrote by hand, behind our gate."""
    labels = {"queuectl.io/queue": "q"} | ({"queuectl.io/pod-group": group} if group else {})
    return tiny.put(
        foreign.PODS,
        {
            "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": {}},
            "spec": {**spec(), "schedulingGates": [{"name": RECORD}]},
            "status": {"phase": "Pending"},
        },
    )


def lingers(tiny: Tiny, gang: str) -> bool:
    """Whether a release of the gang's may still be carried out."""
    return tiny.release.lost.lingers(tiny.source, gang=gang)


def test_a_lost_release_that_is_still_called_for_is_sent_again(tiny: Tiny) -> None:
    """No other write is needed: whichever of the two is carried out, the other is refused."""
    gang = band(tiny)
    first = until(tiny, Step.RELEASE)
    lose(tiny, first)
    assert lingers(tiny, gang)
    assert tiny.settle() == [Step.RELEASE, Step.RELEASE]
    assert not lingers(tiny, gang)
    assert isinstance(tiny._answer(first), Conflict)


def test_one_that_was_carried_out_all_the_same_is_known_once_its_pod_is_seen(tiny: Tiny) -> None:
    """Its answer is lost and its effect is there."""
    gang = band(tiny)
    first = until(tiny, Step.RELEASE)
    lose(tiny, first)
    tiny._answer(first)
    assert not lingers(tiny, gang)
    assert tiny.settle() == [Step.RELEASE]


def test_it_is_made_void_when_its_podgroup_is_deleted(tiny: Tiny) -> None:
    """Nobody is to release that pod any more: another write to it, and the lost one is refused."""
    gang = band(tiny)
    first = until(tiny, Step.RELEASE)
    lose(tiny, first)
    tiny.drop(foreign.POD_GROUPS, "ns", "band")
    tiny.release.forget(gang)
    (void,) = tiny.next()
    assert (void.step, void.gang, void.member, void.subresource) == (Step.VOID, gang, first.member, "")
    meta = first.body["metadata"]
    note = json.dumps({"void": meta["resourceVersion"]}, separators=(",", ":"))
    assert void.body == {
        "metadata": {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "annotations": {"queuectl.io/fence": str(FENCE), RECORD: note},
        }
    }
    assert lingers(tiny, gang)
    tiny.send(void)
    assert not lingers(tiny, gang)
    assert tiny.settle() == []
    assert isinstance(tiny._answer(first), Conflict)
    assert tiny.get(foreign.PODS, "ns", first.name)["spec"]["schedulingGates"]


def test_what_marks_it_as_void_is_no_admission_and_goes_with_the_release(tiny: Tiny) -> None:
    """Behind the gate it means nothing, and pods are as alike as before."""
    gang = band(tiny, 1)
    pod = tiny.source.pods[next(iter(tiny.source.members[gang]))]
    lose(tiny, until(tiny, Step.RELEASE))
    tiny.drop(foreign.POD_GROUPS, "ns", "band")
    tiny.release.forget(gang)
    assert tiny.settle() == [Step.VOID]
    again = tiny.source.pods[pod.member.uid]
    assert (again.member.record, again.likeness) == (None, pod.likeness)
    band_again = {"metadata": {"name": "band", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 1}}
    uid = tiny.put(foreign.POD_GROUPS, band_again)["metadata"]["uid"]
    tiny.release.accept(Admit(uid, 1, NOW, (Assignment(0, "n1", pod.member.uid),)))
    assert tiny.settle() == [Step.RECORD, Step.RELEASE]
    assert RECORD not in tiny.get(foreign.PODS, "ns", "p0")["metadata"]["annotations"]


def test_a_void_that_is_lost_too_is_sent_again_and_no_two_are_alike(tiny: Tiny) -> None:
    """One that changes nothing would leave the version as it is, so each names the version that it ends."""
    gang = band(tiny, 1)
    lose(tiny, until(tiny, Step.RELEASE))
    tiny.drop(foreign.POD_GROUPS, "ns", "band")
    tiny.release.forget(gang)
    (void,) = tiny.next()
    lose(tiny, void)
    assert tiny.next() == [void]
    tiny.send(void)
    pod = tiny.source.pods[void.member]
    assert voiding(pod, void, FENCE).body["metadata"]["annotations"] != void.body["metadata"]["annotations"]


@pytest.mark.parametrize("how", ["changed", "deleted", "replaced"])
def test_a_pod_that_is_no_longer_what_it_was_settles_it(tiny: Tiny, how: str) -> None:
    """Whoever changed it: the lost release names UID and version."""
    gang = band(tiny)
    first = until(tiny, Step.RELEASE)
    lose(tiny, first)
    tiny.drop(foreign.POD_GROUPS, "ns", "band")
    tiny.release.forget(gang)
    if how == "changed":
        pod = tiny.get(foreign.PODS, "ns", first.name)
        pod["metadata"]["annotations"]["example.com/note"] = "x"
        tiny.put(foreign.PODS, pod)
    else:
        tiny.drop(foreign.PODS, "ns", first.name)
    if how == "replaced":
        gated(tiny, first.name)
    assert not lingers(tiny, gang)
    assert Step.VOID not in [write.step for write in tiny.next()]
    assert isinstance(tiny._answer(first), ClusterError)


def web(tiny: Tiny) -> tuple[str, Write]:
    """A StatefulSet of two, of which the release of one was lost, and which is then given back; its gang."""
    owner = tiny.service(STATEFUL_SETS, "web", 2, gang="all")
    tiny.settle()
    for rank in range(2):
        tiny.replica(STATEFUL_SETS, owner, f"web-{rank}", rank=rank)
    tiny.admit(2)
    lost = until(tiny, Step.RELEASE)
    lose(tiny, lost)
    gang = tiny.group()["metadata"]["uid"]
    tiny.release.accept(Withdraw(gang, 1, Cause.BIND_DEADLINE, "node n0", NOW + 30_000))
    return gang, lost


def test_a_gang_whose_pods_are_evicted_returns_only_when_none_lingers(tiny: Tiny) -> None:
    """Gated pods stay where they are: one of them would be let go of in the next round, to a place that is not its own."""
    gang, lost = web(tiny)
    assert [write.step for write in tiny.next()] == [Step.EVICTED, Step.VOID]
    tiny.send(tiny.next()[0])
    assert [write.step for write in tiny.next()] == [Step.VOID]
    assert tiny.settle() == [Step.VOID, Step.RETURN]
    assert not lingers(tiny, gang)
    assert isinstance(tiny._answer(lost), Conflict)


def test_one_that_was_carried_out_after_the_eviction_was_said_is_evicted_too(tiny: Tiny) -> None:
    """It overtook the write that was to make it void."""
    gang, lost = web(tiny)
    tiny.send(tiny.next()[0])
    (void,) = tiny.next()
    tiny._answer(lost)
    assert not tiny.release.due(void)
    assert tiny.settle() == [Step.EVICT]
    tiny.drop(foreign.PODS, "ns", lost.name)
    assert tiny.settle() == [Step.RETURN]
    assert not lingers(tiny, gang)


def test_a_job_that_its_user_suspends_returns_only_when_none_lingers(tiny: Tiny) -> None:
    """Its pods go, but not at once."""
    job = tiny.job("train", 2)
    tiny.settle()
    tiny.pods(job, 2)
    tiny.admit(2)
    lost = until(tiny, Step.RELEASE)
    lose(tiny, lost)
    job["spec"]["suspend"] = True
    tiny.put(foreign.JOBS, job)
    assert not tiny.release.due(lost)
    assert tiny.settle() == [Step.VOID, Step.RETURN]


def test_a_group_of_one_whose_release_is_refused_after_one_was_lost(tiny: Tiny) -> None:
    """A refusal says nothing of the first one: only when that is void, a refusal frees the place."""
    uid = gated(tiny, "solo")["metadata"]["uid"]
    tiny.release.accept(Admit(uid, 1, NOW, (Assignment(0, "n0", uid),)))
    lost = tiny.next()[0]
    assert lost.step is Step.RELEASE
    lose(tiny, lost)
    tiny.refusals[Step.RELEASE] = Refused("policy engine says no", 403)
    tiny.send(tiny.next()[0])
    assert not [change for change in tiny.changes if isinstance(change, WriteFailed)]
    (void,) = tiny.next()
    assert void.step is Step.VOID
    tiny.send(void)
    tiny.send(tiny.next()[0])
    (failed,) = [change for change in tiny.changes if isinstance(change, WriteFailed)]
    assert (failed.gang, failed.misfit.reason) == (uid, Reason.PATCH_REJECTED)
    assert tiny.settle() == []
    tiny.refusals.clear()
    assert isinstance(tiny._answer(lost), Conflict)


def test_an_extra_whose_release_is_refused_after_one_was_lost(tiny: Tiny) -> None:
    """Likewise: its place is promised until the first release is void."""
    gang = band(tiny, 1)
    tiny.settle()
    uid = gated(tiny, "p1", group="band")["metadata"]["uid"]
    tiny.release.accept(AdmitExtra(gang, 1, NOW, 1, "n0", uid))
    lost = tiny.next()[0]
    assert lost.step is Step.EXTRA
    lose(tiny, lost)
    tiny.refusals[Step.EXTRA] = Refused("policy engine says no", 403)
    tiny.send(tiny.next()[0])
    assert not [change for change in tiny.changes if isinstance(change, WriteFailed)]
    assert [write.step for write in tiny.next()] == [Step.VOID]
    tiny.send(tiny.next()[0])
    tiny.send(tiny.next()[0])
    (failed,) = [change for change in tiny.changes if isinstance(change, WriteFailed)]
    assert (failed.member, failed.misfit.reason) == (uid, Reason.PATCH_REJECTED)


def test_where_the_pod_cannot_be_written_to_at_all_it_ends_with_the_request(tiny: Tiny) -> None:
    """A policy refuses every write to it: no request lives for five minutes, and the place is given back."""
    gang, _ = web(tiny)
    tiny.refusals[Step.VOID] = Refused("policy engine says no", 403)
    tiny.send(tiny.next()[0])
    tiny.send(tiny.next()[0])
    tiny.release.lost.expire(tiny.source, NOW + LINGERS - 1)
    assert lingers(tiny, gang)
    assert [write.step for write in tiny.next()] == [Step.VOID]
    tiny.source.touched.clear()
    tiny.release.lost.expire(tiny.source, NOW + LINGERS)
    assert not lingers(tiny, gang)
    assert tiny.source.touched == {gang}
    assert tiny.settle() == [Step.RETURN]
