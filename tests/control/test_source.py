"""Events to changes: who belongs to which gang, in any order of arrival; and what is gone after a fresh list."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from queuectl.contract import foreign
from queuectl.control.ports import Deleted, Malformed, Upserted
from queuectl.control.source import Source
from queuectl.model.changes import GangGone, GangSeen, LevelsSeen, MemberGone, MemberSeen, OccupantGone, OccupantSeen
from queuectl.model.gangs import Stage
from queuectl.model.reasons import Reason
from tests.control.tiny import Tiny, spec


@pytest.fixture
def tiny() -> Tiny:
    """An empty cluster."""
    return Tiny()


def final(tiny: Tiny) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the engine has been told, in the end: gangs and members."""
    gangs: dict[str, Any] = {}
    members: dict[str, Any] = {}
    for change in tiny.changes:
        match change:
            case GangSeen(gang):
                gangs[gang.uid] = gang
            case GangGone(uid):
                gangs.pop(uid, None)
            case MemberSeen(member):
                members[member.uid] = member
            case MemberGone(uid):
                members.pop(uid, None)
    return gangs, members


def test_order_of_arrival_does_not_matter() -> None:
    """Job, PodGroup and pods in every order of 24 shuffles: the same gangs and members in the end."""
    whole = Tiny()
    job = whole.job("train", 3)
    whole.settle()
    whole.pods(job, 3)
    expected = final(whole)
    kinds = {k.plural: k for k in (foreign.JOBS, foreign.POD_GROUPS, foreign.PODS)}
    bodies = [(kinds[plural], body) for (plural, _, _), body in whole.objects.items()]
    for seed in range(24):
        other = Tiny()
        random.Random(seed).shuffle(bodies)
        for kind, body in bodies:
            other.changes += other.source.apply(kind, Upserted(msgspec.convert(body, kind.type)))
        assert final(other) == expected
        assert other.source.underived == {}


def test_a_group_of_one(tiny: Tiny) -> None:
    """A managed pod without owner is its own gang, with the pod's own record."""
    pod = {
        "metadata": {
            "name": "solo",
            "namespace": "ns",
            "labels": {"queuectl.io/queue": "q"},
            "annotations": {
                "queuectl.io/admission": '{"round":2,"fence":1,"slot":0,"node":"n0","decidedAt":"2026-11-30T10:00:00Z"}'
            },
        },
        "spec": {**spec(), "nodeName": "n0"},
        "status": {"phase": "Running"},
    }
    uid = tiny.put(foreign.PODS, pod)["metadata"]["uid"]
    gangs, members = final(tiny)
    assert gangs[uid].lone
    assert (gangs[uid].round, gangs[uid].queue) == (2, "q")
    assert members[uid].stage is Stage.RUNNING
    tiny.drop(foreign.PODS, "ns", "solo")
    assert final(tiny) == ({}, {})


def test_a_job_that_is_scaled_below_its_gang_has_no_more_slots_than_pods(tiny: Tiny) -> None:
    """It is told that its annotation asks for more; what it held beyond is free for others."""
    job = tiny.job("train", 6, gang="4")
    tiny.settle()
    job["spec"]["parallelism"] = 2
    tiny.put(foreign.JOBS, job)
    (gang,) = final(tiny)[0].values()
    assert (gang.minimum, gang.maximum, [m.reason for m in gang.blocked]) == (2, 2, [Reason.INVALID_REQUEST])


FORGED = '{"round":3,"fence":9,"slot":0,"node":"n0","decidedAt":"2026-11-30T10:00:00Z"}'


def test_a_gated_pod_carries_no_record_whatever_stands_on_it(tiny: Tiny) -> None:
    """Ours comes with the write that takes the gate away; a forged one would be a place without a decision."""
    meta = {"name": "p", "namespace": "ns", "labels": {"queuectl.io/queue": "q"}}
    meta["annotations"] = {"queuectl.io/admission": FORGED}
    gated = {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]}
    uid = tiny.put(foreign.PODS, {"metadata": meta, "spec": gated, "status": {}})["metadata"]["uid"]
    gangs, members = final(tiny)
    assert (gangs[uid].record, gangs[uid].round, members[uid].record) == (None, 0, None)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500,
        "[" * 100_000,
        "{}",
        '{"round":1e999,"slot":0,"node":"n0"}',
        '{"round":-1,"slot":0,"node":"n0"}',
        '{"round":1,"slot":100000,"node":"n0"}',
        f'{{"round":{"9" * 300},"slot":0,"node":"n0"}}',
        '{"round":1,"slot":0,"node":"n0","decidedAt":"yesterday"}',
        "²",
        "9" * 5000,
    ],
)
def test_annotations_that_are_ours_or_the_job_controllers_may_hold_anything(tiny: Tiny, text: str) -> None:
    """Anybody who may write pods may write there: a pod without record and without rank, and no harm to others."""
    annotations = {"queuectl.io/admission": text, "batch.kubernetes.io/job-completion-index": text}
    meta = {"name": "p", "namespace": "ns", "labels": {"queuectl.io/queue": "q"}, "annotations": annotations}
    body = {"metadata": meta, "spec": {**spec(), "nodeName": "n0"}, "status": {"phase": "Running"}}
    uid = tiny.put(foreign.PODS, body)["metadata"]["uid"]
    member = final(tiny)[1][uid]
    assert (member.record, member.rank) == (None, None)


def test_an_unmanaged_pod_only_takes_its_node(tiny: Tiny) -> None:
    """Seen once bound, gone when it ends; an unbound one is nobody's business."""
    pod = {"metadata": {"name": "other", "namespace": "ns"}, "spec": spec(), "status": {"phase": "Pending"}}
    tiny.put(foreign.PODS, pod)
    assert tiny.changes == []
    pod["spec"] = {**spec(), "nodeName": "n0"}
    uid = tiny.put(foreign.PODS, pod)["metadata"]["uid"]
    assert tiny.changes == [OccupantSeen(uid, "n0", (("nvidia.com/gpu", 1000), ("pods", 1)))]
    pod["status"] = {"phase": "Succeeded"}
    tiny.put(foreign.PODS, pod)
    assert tiny.changes[-1] == OccupantGone(uid)


def test_a_missing_pod_group_is_named_and_its_members_move_when_it_comes(tiny: Tiny) -> None:
    """Until it exists a stand-in says PodGroupMissing."""
    labels = {"queuectl.io/queue": "q", "queuectl.io/pod-group": "band"}
    pod = {"metadata": {"name": "p", "namespace": "ns", "labels": labels}, "spec": spec(), "status": {}}
    tiny.put(foreign.PODS, pod)
    gangs, _ = final(tiny)
    assert [m.reason for gang in gangs.values() for m in gang.blocked] == [Reason.POD_GROUP_MISSING]
    group = tiny.put(
        foreign.POD_GROUPS, {"metadata": {"name": "band", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 1}}
    )
    gangs, members = final(tiny)
    assert set(gangs) == {group["metadata"]["uid"]}
    assert [m.gang for m in members.values()] == [group["metadata"]["uid"]]
    tiny.drop(foreign.POD_GROUPS, "ns", "band")
    gangs, members = final(tiny)
    assert [m.reason for gang in gangs.values() for m in gang.blocked] == [Reason.POD_GROUP_MISSING]
    assert [m.gang for m in members.values()] == list(gangs)


def test_a_job_whose_pods_name_a_pod_group_makes_no_gang_of_its_own(tiny: Tiny) -> None:
    """Else its pods would be charged twice: there, and here as slots that nobody ever fills."""
    job = tiny.job("train", 2)
    job["spec"]["template"]["metadata"] = {"labels": {"queuectl.io/pod-group": "band"}}
    tiny.put(foreign.JOBS, job)
    assert tiny.settle() == []


def test_an_older_event_than_the_answer_to_our_write_changes_nothing(tiny: Tiny) -> None:
    """The watch is behind the reply: the pod stays released."""
    job = tiny.job("train", 1)
    tiny.settle()
    (pod,) = tiny.pods(job, 1)
    old = msgspec.convert(pod, foreign.Pod)
    pod["spec"]["schedulingGates"] = []
    tiny.put(foreign.PODS, pod)
    before = len(tiny.changes)
    assert tiny.source.apply(foreign.PODS, Upserted(old)) == []
    assert len(tiny.changes) == before


def test_conflicting_priorities_are_refused_on_the_gang(tiny: Tiny) -> None:
    """One gang, one priority."""
    job = tiny.job("train", 2)
    tiny.settle()
    for pod, priority in zip(tiny.pods(job, 2), (5, 9), strict=True):
        pod["spec"]["priority"] = priority
        tiny.put(foreign.PODS, pod)
    (gang,) = final(tiny)[0].values()
    assert gang.priority == 9
    assert [m.reason for m in gang.blocked] == [Reason.INVALID_REQUEST]


@pytest.mark.parametrize("text", ["1e400", "0", "-1", "abc", "½", "9" * 1000, "17"])
def test_a_bad_annotation_is_that_gangs_alone(tiny: Tiny, text: str) -> None:
    """The Job's PodGroup exists and says what is wrong; the next Job is fine."""
    tiny.job("bad", 16, gang=text)
    tiny.job("good", 16)
    tiny.settle()
    blocked = {g.name.split("-")[1]: [m.reason for m in g.blocked] for g in final(tiny)[0].values()}
    assert blocked == {"bad": [Reason.INVALID_REQUEST], "good": []}


def test_after_a_fresh_list_what_was_not_in_it_is_gone(tiny: Tiny) -> None:
    """``known`` and ``gone`` leave nothing behind."""
    job = tiny.job("train", 2)
    tiny.settle()
    tiny.pods(job, 2)
    source = tiny.source
    for kind in (foreign.PODS, foreign.POD_GROUPS, foreign.JOBS):
        for uid in sorted(source.known(kind)):
            tiny.changes += source.gone(kind, uid)
    assert final(tiny) == ({}, {})
    assert (source.pods, source.groups, source.jobs, source.members, source.underived) == ({}, {}, {}, {}, {})


def test_a_bad_topology_leaves_the_old_levels(tiny: Tiny) -> None:
    """And is noted as a problem of that object."""
    body = {"metadata": {"name": "default"}, "spec": {"levels": [{"name": "rack", "keys": ["rack"]}]}}
    tiny.put(foreign.TOPOLOGIES, body)
    assert [level.name for level in tiny.changes[-1].levels] == ["rack", "node"]  # type: ignore[union-attr]  # LevelsSeen
    tiny.put(foreign.TOPOLOGIES, {**body, "spec": {"levels": []}})
    assert sum(isinstance(c, LevelsSeen) for c in tiny.changes) == 1
    assert ("topologies", "", "default") in tiny.source.problems


def test_a_malformed_object_is_noted_and_gives_no_change() -> None:
    """It harms nobody else."""
    source = Source()
    assert source.apply(foreign.NODES, Malformed("", "n9", "", "allocatable: bad")) == []
    assert source.problems == {("nodes", "", "n9"): "allocatable: bad"}


def test_deleting_twice_is_harmless(tiny: Tiny) -> None:
    """A watch may repeat itself."""
    job = tiny.job("train", 1)
    tiny.settle()
    (pod,) = tiny.pods(job, 1)
    gone = Deleted(msgspec.convert(pod, foreign.Pod))
    assert len(list(itertools.chain(tiny.source.apply(foreign.PODS, gone)))) == 1
    assert tiny.source.apply(foreign.PODS, gone) == []
