"""Events to changes: who belongs to which gang, in any order of arrival; and what is gone after a fresh list."""

from __future__ import annotations

import copy
import itertools
import logging
import random
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from queuectl.contract import cluster_scoped, foreign, translate
from queuectl.contract.foreign import Kind
from queuectl.contract.shapes import MOST
from queuectl.control import source as module
from queuectl.control.ports import Deleted, Malformed, Upserted
from queuectl.control.source import Source
from queuectl.control.steps import Step
from queuectl.model.changes import (
    GangGone,
    GangSeen,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    OccupantGone,
    OccupantSeen,
    PoolGone,
    PoolSeen,
    QueueGone,
)
from queuectl.model.gangs import Gang, Stage
from queuectl.model.pools import Pool
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


KINDS = {
    kind.plural: kind
    for kind in (
        foreign.JOBS,
        foreign.REPLICA_SETS,
        foreign.STATEFUL_SETS,
        foreign.JOB_SETS,
        foreign.LEADER_WORKER_SETS,
        foreign.POD_GROUPS,
        foreign.PODS,
        foreign.PRIORITY_CLASSES,
        foreign.QUEUES,
        foreign.NODES,
    )
}


def shuffled(whole: Tiny) -> None:
    """The objects of a cluster in 24 other orders: the same gangs, members and Jobs to derive from in the end."""
    expected = (final(whole), whole.source.underived, whole.source.invalid)
    bodies = [(KINDS[plural], body) for (plural, _, _), body in whole.objects.items()]
    for seed in range(24):
        other = Tiny()
        random.Random(seed).shuffle(bodies)
        for kind, body in bodies:
            other.changes += other.source.apply(kind, Upserted(msgspec.convert(body, kind.type)))
        assert (final(other), other.source.underived, other.source.invalid) == expected, seed


def gone_again(tiny: Tiny) -> None:
    """Everything goes, in some order: nothing is left."""
    for plural, namespace, name in random.Random(0).sample(sorted(tiny.objects), len(tiny.objects)):
        tiny.drop(KINDS[plural], namespace, name)
    assert final(tiny) == ({}, {})
    source = tiny.source
    left = (
        source.pods,
        source.members,
        source.groups,
        source.owners,
        source.underived,
        source.invalid,
        source.problems,
    )
    assert left == ({}, {}, {}, {}, {}, {}, {})
    kept = (source._gangs, source._tallies, source._crews, source._named, source._awaited)
    assert kept == ({}, {}, {}, {}, {})
    sets = source.sets
    assert (sets.by_uid, sets.groups, sets.unhoused, sets._named) == ({}, {}, {}, {})


def blocked(gang: Gang) -> list[Reason]:
    """Why the wire already keeps it."""
    return [misfit.reason for misfit in gang.blocked]


def solo(name: str = "solo", *, queue: str = "q", **fields: Any) -> dict[str, Any]:
    """A managed pod of its own behind our gate."""
    gated = {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]}
    labels = {"queuectl.io/queue": queue}
    return {"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": gated, "status": {}, **fields}


def asking(memory: str) -> dict[str, Any]:
    """A pod's spec of two containers with so much memory each, on a node."""
    container = {"resources": {"requests": {"memory": memory}}}
    return {"containers": [container, container], "nodeName": "n0"}


def test_order_of_arrival_does_not_matter() -> None:
    """Job, PodGroup and pods."""
    whole = Tiny()
    job = whole.job("train", 3)
    whole.settle()
    whole.pods(job, 3)
    assert whole.source.underived == {}
    shuffled(whole)
    gone_again(whole)


def test_order_of_arrival_does_not_matter_for_what_keeps_pods_alive() -> None:
    """With a gang, without one yet, scaled to 0, without a queue of its own; and one of the same name as another's."""
    whole = Tiny()
    web = whole.service(foreign.STATEFUL_SETS, "web", 3, gang="all")
    front = whole.service(foreign.REPLICA_SETS, "web", 2)
    whole.settle()
    for rank in range(2):
        whole.replica(foreign.STATEFUL_SETS, web, f"web-{rank}", rank=rank)
        whole.replica(foreign.REPLICA_SETS, front, f"web-x{rank}")
    assert len(whole.source.groups) == 2
    late = whole.service(foreign.STATEFUL_SETS, "late", 2)
    whole.replica(foreign.STATEFUL_SETS, late, "late-0", rank=0)
    whole.service(foreign.REPLICA_SETS, "old", 0)
    bare = whole.service(foreign.REPLICA_SETS, "bare", 1)
    del bare["spec"]["template"]["metadata"]
    whole.put(foreign.REPLICA_SETS, bare)
    whole.replica(foreign.REPLICA_SETS, bare, "bare-x")
    assert sorted(whole.source.underived) == sorted([late["metadata"]["uid"], bare["metadata"]["uid"]])
    shuffled(whole)
    gone_again(whole)


def test_pods_that_ran_as_groups_of_one_join_the_gang_of_their_owner() -> None:
    """Of a version that knew no ReplicaSets: they stay where they are, and none is a gang of its own any more."""
    whole = Tiny()
    front = whole.service(foreign.REPLICA_SETS, "front", 3)
    for name in ("a", "b"):
        pod = whole.replica(foreign.REPLICA_SETS, front, name)
        record = '{"round":1,"fence":1,"slot":0,"node":"n0","decidedAt":"2026-11-30T10:00:00Z"}'
        pod["metadata"]["annotations"] = {"queuectl.io/admission": record, "queuectl.io/fence": "1"}
        pod["spec"]["schedulingGates"] = []
        whole.run(pod)
    assert [gang.roles for gang in final(whole)[0].values()] == [
        ()
    ]  # charged, and nothing more, until it has a PodGroup
    whole.settle()
    ((uid, gang),) = final(whole)[0].items()
    assert uid == whole.group()["metadata"]["uid"]
    assert (gang.minimum, gang.maximum, gang.record) == (1, 3, None)
    assert [member.gang for member in final(whole)[1].values()] == [uid, uid]
    shuffled(whole)


def job_set(whole: Tiny, name: str, *, queue: str = "q", pods: int = 2) -> list[dict[str, Any]]:
    """A JobSet of a driver and two Jobs of workers, with its Jobs and their pods. Returns those."""
    labels = {"queuectl.io/queue": queue} if queue else {}
    parts: list[dict[str, Any]] = [
        {
            "name": role,
            "replicas": jobs,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"parallelism": count, "completions": count, "template": {"spec": spec()}},
            },
        }
        for role, jobs, count in (("driver", 1, 1), ("worker", 2, pods))
    ]
    top = whole.put(
        foreign.JOB_SETS, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"replicatedJobs": parts}}
    )
    made = []
    for one in parts:
        for index in range(one["replicas"]):
            body = whole.job(f"{name}-{one['name']}-{index}", one["template"]["spec"]["parallelism"], queue=queue)
            uid, kind = top["metadata"]["uid"], {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
            body["metadata"]["ownerReferences"] = [{**kind, "name": name, "uid": uid, "controller": True}]
            whole.put(foreign.JOBS, body)
            for pod in whole.pods(body, one["template"]["spec"]["parallelism"]):
                pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = one["name"]
                made.append(whole.put(foreign.PODS, pod))
    return made


def test_order_of_arrival_does_not_matter_for_the_jobs_of_a_jobset() -> None:
    """Its PodGroup, its Jobs and their pods in any order: one gang of two roles, and none for the Jobs."""
    whole = Tiny()
    job_set(whole, "train")
    whole.job("alone", 1)
    whole.settle()
    groups = [body for (plural, _, _), body in whole.objects.items() if plural == "podgroups"]
    assert sorted(group["metadata"]["ownerReferences"][0]["kind"] for group in groups) == ["Job", "JobSet"]
    train = next(gang for gang in final(whole)[0].values() if gang.name.startswith("jobset-"))
    assert [(role.name, role.minimum, role.maximum, role.shape is not None) for role in train.roles] == [
        ("driver", 1, 1, True),
        ("worker", 4, 4, True),
    ]
    assert {(member.role, member.rank) for member in final(whole)[1].values()} == {("driver", None), ("worker", None)}
    assert {member.gang for member in final(whole)[1].values()} == {train.uid}
    shuffled(whole)
    gone_again(whole)


def test_pods_whose_job_is_gone_stay_with_their_jobset(tiny: Tiny) -> None:
    """A restart of the JobSet deletes its Jobs first; what still runs is the gang's until it is gone."""
    pods = job_set(tiny, "train")
    tiny.settle()
    gang = tiny.group()["metadata"]["uid"]
    tiny.drop(foreign.JOBS, "ns", "train-worker-0")
    for pod in pods:
        pod["metadata"]["labels"]["seen"] = "again"
        tiny.put(foreign.PODS, pod)
    assert {tiny.source.pods[pod["metadata"]["uid"]].member.gang for pod in pods} == {gang}


def test_a_jobset_of_a_namespaces_default_queue_gets_its_gang_by_its_pods(tiny: Tiny) -> None:
    """Its templates name none; its pods do, and they may be seen before their Jobs."""
    pods = job_set(tiny, "train", queue="")
    assert tiny.settle() == []
    for pod in pods:
        pod["metadata"]["labels"]["queuectl.io/queue"] = "q"
        tiny.put(foreign.PODS, pod)
    tiny.settle()
    assert tiny.group()["spec"]["queue"] == "q"
    assert {tiny.source.pods[pod["metadata"]["uid"]].member.gang for pod in pods} == {tiny.group()["metadata"]["uid"]}


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


def test_what_a_job_held_is_free_when_it_and_its_pods_are_gone(tiny: Tiny) -> None:
    """Whenever the garbage collector comes for its PodGroup."""
    job = tiny.job("train", 2)
    tiny.settle()
    pods = tiny.pods(job, 2)
    tiny.admit(2)
    tiny.settle()
    tiny.drop(foreign.JOBS, "ns", "train")
    (gang,) = final(tiny)[0].values()
    assert not gang.finished
    for pod in pods:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    (gang,) = final(tiny)[0].values()
    assert gang.finished


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
        "[" * 200_000,
        '{"round":Infinity,"slot":0,"node":"n0"}',
        '{"round":1,"slot":NaN,"node":"n0"}',
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


def test_the_echo_of_our_own_write_is_not_taken_in_twice(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch shows the version that the reply brought: there is nothing to translate."""
    job = tiny.job("train", 1)
    tiny.settle()
    (pod,) = tiny.pods(job, 1)
    echo = Upserted(msgspec.convert(pod, foreign.Pod))
    monkeypatch.setattr(Source, "tracked", None)
    assert tiny.source.apply(foreign.PODS, echo) == []
    assert not tiny.source.problems


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
    assert (source.pods, source.groups, source.owners, source.members, source.underived) == ({}, {}, {}, {}, {})


def test_a_bad_topology_leaves_the_old_levels(tiny: Tiny) -> None:
    """And is noted as a problem of that object."""
    body = {"metadata": {"name": "default"}, "spec": {"levels": [{"name": "rack", "keys": ["rack"]}]}}
    tiny.put(foreign.TOPOLOGIES, body)
    assert [level.name for level in tiny.changes[-1].levels] == ["rack", "node"]  # type: ignore[union-attr]  # LevelsSeen
    tiny.put(foreign.TOPOLOGIES, {**body, "spec": {"levels": []}})
    assert sum(isinstance(c, LevelsSeen) for c in tiny.changes) == 1
    assert ("topologies", "", "default") in tiny.source.problems


def test_a_bad_pool_stays_what_it_was(tiny: Tiny) -> None:
    """It is noted, and other pools and those that come after it are taken in."""
    body = {
        "metadata": {"name": "h100"},
        "spec": {"nodeSelector": {"gpu": "h100", "a": "b"}, "resources": ["x/y", "cpu"]},
    }
    tiny.put(foreign.POOLS, body)
    tiny.put(foreign.POOLS, {**body, "spec": {"nodeSelector": {"a b": "c"}}})
    tiny.put(foreign.POOLS, {"metadata": {"name": "all"}, "spec": None})
    assert [change for change in tiny.changes if isinstance(change, PoolSeen)] == [
        PoolSeen(Pool(name="h100", selector=(("a", "b"), ("gpu", "h100")), resources=("cpu", "x/y"))),
        PoolSeen(Pool(name="all")),
    ]
    assert list(tiny.source.problems) == [("pools", "", "h100")]
    tiny.drop(foreign.POOLS, "", "h100")
    assert tiny.changes[-1] == PoolGone("h100")
    assert list(tiny.source.problems) == []


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


# ---- one object harms nobody else


def test_what_cannot_be_taken_in_is_logged_once_and_noted(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours with one object: no exception, the others go on, and the note goes when the object is well again."""
    right = cluster_scoped.queue

    def wrong(custom: foreign.Custom) -> Any:
        if custom.metadata.name == "bad":
            raise ZeroDivisionError("of all things")
        return right(custom)

    monkeypatch.setattr(cluster_scoped, "queue", wrong)
    with caplog.at_level(logging.ERROR):
        bad = tiny.put(foreign.QUEUES, {"metadata": {"name": "bad"}, "spec": {}})
        tiny.put(foreign.QUEUES, bad)
        tiny.put(foreign.QUEUES, {"metadata": {"name": "good"}, "spec": {}})
    ((exception, name),) = ((record.exc_info, vars(record)["object"]) for record in caplog.records)
    assert (exception is not None, name) == (True, "/bad")
    assert list(tiny.source.queues) == ["good"]
    assert tiny.source.problems == {("queues", "", "bad"): "ZeroDivisionError: of all things"}
    monkeypatch.undo()
    tiny.put(foreign.QUEUES, bad)
    assert tiny.source.problems == {}
    assert set(tiny.source.queues) == {"good", "bad"}
    monkeypatch.setattr(cluster_scoped, "queue", wrong)
    tiny.put(foreign.QUEUES, bad)
    assert len(caplog.records) == 2
    tiny.drop(foreign.QUEUES, "", "bad")
    assert tiny.source.problems == {}


def test_a_problem_ends_with_its_object_or_when_it_is_well(tiny: Tiny) -> None:
    """Malformed, corrected, malformed again, deleted; and one that a fresh list does not show any more."""
    source = tiny.source
    pod = tiny.put(foreign.PODS, solo())
    uid = pod["metadata"]["uid"]
    source.apply(foreign.PODS, Malformed("ns", "solo", uid, "bad"))
    assert uid in source.pods
    tiny.put(foreign.PODS, pod)
    assert source.problems == {}
    source.apply(foreign.PODS, Malformed("ns", "solo", uid, "bad"))
    tiny.drop(foreign.PODS, "ns", "solo")
    source.apply(foreign.PODS, Malformed("ns", "other", "uid-other", "bad"))
    assert list(source.problems) == [("pods", "ns", "other")]
    assert source.known(foreign.PODS) == {"uid-other"}
    assert source.gone(foreign.PODS, "uid-other") == []
    assert source.problems == {}


@pytest.mark.parametrize("memory", ["7Ei", "plenty"])
def test_an_unmanaged_pod_that_cannot_be_read_fills_its_node(tiny: Tiny, memory: str) -> None:
    """It sits there, whatever it asks for."""
    pod = {"metadata": {"name": "other", "namespace": "ns"}, "spec": asking(memory), "status": {"phase": "Running"}}
    uid = tiny.put(foreign.PODS, pod)["metadata"]["uid"]
    assert tiny.changes == [OccupantSeen(uid, "n0", (("memory", MOST), ("pods", 1)))]
    assert list(tiny.source.problems) == [("pods", "ns", "other")]
    tiny.drop(foreign.PODS, "ns", "other")
    assert tiny.changes[-1] == OccupantGone(uid)
    assert tiny.source.problems == {}


def test_a_managed_pod_that_cannot_be_read_says_so_on_its_gang(tiny: Tiny) -> None:
    """Of a Job, and alone."""
    job = tiny.job("train", 2)
    tiny.settle()
    pods = tiny.pods(job, 2)
    good = copy.deepcopy(pods[1]["spec"])
    pods[1]["spec"] = {**asking("7Ei"), "nodeName": None, "schedulingGates": good["schedulingGates"]}
    tiny.put(foreign.PODS, pods[1])
    alone = solo(spec=asking("7Ei"))
    tiny.put(foreign.PODS, alone)
    gangs, members = final(tiny)
    assert [blocked(gang) for gang in gangs.values()] == [[Reason.INVALID_REQUEST]] * 2
    assert "pod train-1-a: memory: " in str(next(iter(gangs.values())).blocked[0].evidence)
    assert len(members) == 3
    shuffled(tiny)
    pods[1]["spec"] = good
    tiny.put(foreign.PODS, pods[1])
    tiny.drop(foreign.PODS, "ns", "solo")
    assert [blocked(gang) for gang in final(tiny)[0].values()] == [[]]
    gone_again(tiny)


# ---- what is gone


@pytest.mark.parametrize("kind", [foreign.PODS, foreign.JOBS, foreign.POD_GROUPS, foreign.QUEUES])
def test_an_answer_to_our_write_does_not_bring_back_what_is_gone(tiny: Tiny, kind: Kind) -> None:
    """The watch was faster: it showed the deletion before we read the reply."""
    job = tiny.job("train", 1)
    tiny.settle()
    tiny.pods(job, 1)
    tiny.put(foreign.QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    (key,) = (key for key in tiny.objects if key[0] == kind.plural)
    reply = copy.deepcopy(tiny.objects[key])
    reply["metadata"]["resourceVersion"] = "999"
    tiny.drop(kind, key[1], key[2])
    before = final(tiny)
    assert tiny.source.apply(kind, Upserted(msgspec.convert(reply, kind.type))) == []
    assert final(tiny) == before
    assert reply["metadata"]["uid"] not in tiny.source.known(kind)
    tiny.source.exists(reply["metadata"]["uid"])  # a complete state shows it: it was never gone
    tiny.source.apply(kind, Upserted(msgspec.convert(reply, kind.type)))
    assert reply["metadata"]["uid"] in tiny.source.known(kind)


def test_what_is_gone_is_remembered_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr(module, "DEPARTED", 3)
    source = Source()
    for number in range(10):
        source.gone(foreign.PODS, f"uid-{number}")
    assert list(source._departed) == ["uid-7", "uid-8", "uid-9"]


@pytest.mark.parametrize(
    ("kind", "gone"),
    [(foreign.NODES, NodeGone("one")), (foreign.QUEUES, QueueGone("one")), (foreign.POOLS, PoolGone("one"))],
    ids=["node", "queue", "pool"],
)
def test_made_anew_under_its_name_before_the_old_one_was_seen_to_go(tiny: Tiny, kind: Kind, gone: Any) -> None:
    """During an outage: the fresh list shows the new one, and then the old one is missed."""
    for uid in ("old", "new"):
        tiny.put(kind, {"metadata": {"name": "one", "uid": uid}})
    assert tiny.source.gone(kind, "old") == []
    assert tiny.source.known(kind) == {"new"}
    assert tiny.source.gone(kind, "new") == [gone]


def test_a_topology_and_a_class_made_anew(tiny: Tiny) -> None:
    """As nodes and queues."""
    levels = {"spec": {"levels": [{"name": "rack", "keys": ["rack"]}]}}
    for uid in ("old", "new"):
        tiny.put(foreign.TOPOLOGIES, {"metadata": {"name": "default", "uid": f"t-{uid}"}, **levels})
        tiny.put(foreign.PRIORITY_CLASSES, {"metadata": {"name": "high", "uid": f"c-{uid}"}, "value": 7})
    assert tiny.source.gone(foreign.TOPOLOGIES, "t-old") == []
    assert tiny.source.gone(foreign.PRIORITY_CLASSES, "c-old") == []
    job = tiny.job("train", 1)
    job["spec"]["template"]["spec"]["priorityClassName"] = "high"
    tiny.put(foreign.JOBS, job)
    tiny.settle()
    assert [gang.priority for gang in final(tiny)[0].values()] == [7]


def test_a_pod_group_made_anew_takes_the_members_of_the_old_one(tiny: Tiny) -> None:
    """Whichever of the two events comes first."""
    pod = solo()
    pod["metadata"]["labels"]["queuectl.io/pod-group"] = "band"
    tiny.put(foreign.PODS, pod)
    for uid in ("old", "new"):
        meta = {"name": "band", "namespace": "ns", "uid": uid}
        tiny.put(foreign.POD_GROUPS, {"metadata": meta, "spec": {"queue": "q", "minMember": 1}})
    assert [member.gang for member in final(tiny)[1].values()] == ["new"]
    tiny.changes += tiny.source.gone(foreign.POD_GROUPS, "old")
    gangs, members = final(tiny)
    assert (set(gangs), [member.gang for member in members.values()]) == ({"new"}, ["new"])


def test_a_pod_that_becomes_managed_is_charged_once(tiny: Tiny) -> None:
    """As a member, no more as somebody who only takes room; and back."""
    pod = solo(spec={**spec(), "nodeName": "n0"}, status={"phase": "Running"})
    labels = pod["metadata"].pop("labels")
    uid = tiny.put(foreign.PODS, pod)["metadata"]["uid"]
    pod["metadata"]["labels"] = labels
    tiny.put(foreign.PODS, pod)
    assert tiny.changes[1] == OccupantGone(uid)
    assert set(final(tiny)[1]) == {uid}
    pod["metadata"]["labels"] = {"queuectl.io/queue": ""}  # no queue at all
    tiny.put(foreign.PODS, pod)
    assert final(tiny) == ({}, {})
    assert isinstance(tiny.changes[-1], OccupantSeen)


# ---- shapes of released pods


def test_a_released_pod_keeps_its_shape(tiny: Tiny) -> None:
    """Our pin is a place, not a wish of its owner: it is told apart, and the template's shape stays the gang's only one."""
    job = tiny.job("train", 3)
    tiny.settle()
    tiny.pods(job, 3)
    before = {member.shape for member in final(tiny)[1].values()}
    tiny.admit(3)
    tiny.settle()
    gangs, members = final(tiny)
    assert {(member.stage, member.pinned) for member in members.values()} == {(Stage.RELEASED, "n0")}
    assert {member.shape for member in members.values()} == before == {next(iter(gangs.values())).roles[0].shape}


# ---- Jobs and their PodGroups


def test_a_job_whose_pods_alone_name_the_queue_gets_its_pod_group(tiny: Tiny) -> None:
    """Whatever comes first, and after any later event of the Job."""
    job = tiny.job("train", 2)
    labels = job["metadata"].pop("labels")
    tiny.put(foreign.JOBS, job)
    assert tiny.source.underived == {}
    tiny.pods({**job, "metadata": {**job["metadata"], "labels": labels}}, 2)
    assert tiny.source.underived == {job["metadata"]["uid"]: "q"}
    tiny.put(foreign.JOBS, job)
    assert tiny.source.underived == {job["metadata"]["uid"]: "q"}
    shuffled(tiny)
    assert tiny.settle() == [Step.CREATE]
    assert [blocked(gang) for gang in final(tiny)[0].values()] == [[]]
    gone_again(tiny)


def test_a_job_with_pods_has_only_a_stand_in_until_its_pod_group_is_there(tiny: Tiny) -> None:
    """Named as the Job is."""
    job = tiny.job("train", 2)
    tiny.pods(job, 2)
    ((uid, gang),) = final(tiny)[0].items()
    assert (uid, gang.name, gang.queue) == (f"missing/ns/{job['metadata']['uid']}", "train", "q")
    assert blocked(gang) == [Reason.POD_GROUP_MISSING]


REFUSED = {
    "queue": {"labels": {"queuectl.io/queue": "Team_A"}},
    "level": {"annotations": {"queuectl.io/topology-required": "Rack_1"}},
    "preference": {"annotations": {"queuectl.io/topology-preferred": "a b"}},
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("pods", [0, 2])
def test_a_job_whose_pod_group_would_be_refused_is_told(tiny: Tiny, wrong: dict[str, Any], pods: int) -> None:
    """It would be asked for for ever; instead a gang stands for it, with the message, until the Job is corrected."""
    job = tiny.job("train", 2)
    right = copy.deepcopy(job)
    for field, words in wrong.items():
        job["metadata"][field] |= words
    tiny.put(foreign.JOBS, job)
    tiny.pods(job, pods)
    assert (tiny.settle(), tiny.source.underived) == ([], {})
    ((uid, gang),) = final(tiny)[0].items()
    assert (uid, gang.name, blocked(gang)) == (
        f"missing/ns/{job['metadata']['uid']}",
        "train",
        [Reason.INVALID_REQUEST],
    )
    assert tiny.source.invalid[job["metadata"]["uid"]] in str(gang.blocked[0].evidence)
    shuffled(tiny)
    tiny.put(foreign.JOBS, right)
    assert tiny.settle() == [Step.CREATE]
    assert [blocked(gang) for gang in final(tiny)[0].values()] == [[]]
    gone_again(tiny)


def test_a_job_of_two_thousand_million_pods_is_refused(tiny: Tiny) -> None:
    """At once, without a list of them; and one that grows so keeps what it has."""
    tiny.job("huge", 2_000_000_000)
    assert tiny.settle() == []
    (gang,) = final(tiny)[0].values()
    assert (blocked(gang), gang.maximum) == ([Reason.INVALID_REQUEST], 0)
    tiny.drop(foreign.JOBS, "ns", "huge")
    job = tiny.job("grows", 2)
    tiny.settle()
    job["spec"] |= {"parallelism": 2_000_000_000, "completions": 2_000_000_000}
    tiny.put(foreign.JOBS, job)
    (gang,) = final(tiny)[0].values()
    assert blocked(gang) == [Reason.INVALID_REQUEST]
    assert gang.maximum <= 100_000


def claimant(job: dict[str, Any], group: str, *, namespace: str = "ns", **more: Any) -> dict[str, Any]:
    """A PodGroup that somebody wrote with an ownerReference to a Job."""
    meta = job["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "metadata": {"name": group, "namespace": namespace, "ownerReferences": [{**reference, **more}]},
        "spec": {"queue": "stranger", "minMember": 1},
    }


@pytest.mark.parametrize(
    ("group", "more"),
    [
        pytest.param("mine", {}, id="of another name"),
        pytest.param("job-train-uid-1", {"namespace": "elsewhere"}, id="in another namespace"),
        pytest.param("job-other-uid-1", {"name": "other"}, id="of another Job name"),
    ],
)
def test_no_pod_group_takes_a_job_by_its_owner_reference(tiny: Tiny, group: str, more: dict[str, Any]) -> None:
    """Who may write PodGroups could take other people's Jobs: such a one is a plain PodGroup, and the Job gets its own."""
    job = tiny.job("train", 2)
    tiny.put(foreign.POD_GROUPS, claimant(job, group, **more))
    tiny.pods(job, 2)
    assert tiny.settle() == [Step.CREATE]
    gangs, members = final(tiny)
    queues = {gang.queue: gang.maximum for gang in gangs.values()}
    assert queues == {"stranger": 1, "q": 2}
    assert {gangs[member.gang].queue for member in members.values()} == {"q"}
    shuffled(tiny)
    gone_again(tiny)


def test_a_pod_group_in_the_way_of_a_jobs_own_is_named(tiny: Tiny) -> None:
    """It has the Job's name for it, but is not controlled by it; when it goes, the Job gets its own."""
    job = tiny.job("train", 1)
    tiny.put(foreign.POD_GROUPS, claimant(job, "job-train-uid-1", controller=False))
    assert tiny.settle() == []
    stand_in = final(tiny)[0][f"missing/ns/{job['metadata']['uid']}"]
    assert blocked(stand_in) == [Reason.INVALID_REQUEST]
    assert "job-train-uid-1" in str(stand_in.blocked[0].evidence)
    shuffled(tiny)
    tiny.drop(foreign.POD_GROUPS, "ns", "job-train-uid-1")
    assert tiny.settle() == [Step.CREATE]
    assert [gang.queue for gang in final(tiny)[0].values()] == ["q"]


@pytest.mark.parametrize("pods_first", [True, False])
def test_pods_that_outlive_their_job_are_charged_once(tiny: Tiny, pods_first: bool) -> None:
    """``kubectl delete job --cascade=orphan`` cuts pods and PodGroup loose: each pod is its own, the gang holds nothing."""
    uid = "0a1b2c3d-0000-0000-0000-000000000000"
    job = tiny.job("train", 2)
    tiny.drop(foreign.JOBS, "ns", "train")
    job["metadata"]["uid"] = uid
    tiny.put(foreign.JOBS, job)
    tiny.settle()
    pods = tiny.pods(job, 2)
    tiny.admit(2)
    tiny.settle()
    for pod in pods:
        tiny.run(pod)
    gang = tiny.group()["metadata"]["uid"]
    loose = [tiny.group(), *(tiny.get(foreign.PODS, "ns", pod["metadata"]["name"]) for pod in pods)]
    for body in reversed(loose) if pods_first else loose:
        body["metadata"]["ownerReferences"] = []
        tiny.put(foreign.PODS if "status" in body and "phase" in body["status"] else foreign.POD_GROUPS, body)
    tiny.drop(foreign.JOBS, "ns", "train")
    gangs, members = final(tiny)
    assert gangs[gang].finished
    assert {member.gang for member in members.values()} == set(members) == {uid for uid in gangs if gangs[uid].lone}
    shuffled(tiny)
    gone_again(tiny)


# ---- priorities


def test_a_priority_class_that_comes_late_or_changes_reaches_gangs_without_members(tiny: Tiny) -> None:
    """Their priority is the template's class; that of others is their pods'."""
    job = tiny.job("train", 1)
    job["spec"]["template"]["spec"]["priorityClassName"] = "high"
    tiny.put(foreign.JOBS, job)
    tiny.job("plain", 1)
    tiny.settle()
    high = tiny.put(foreign.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 7})
    for name, value in (("low", 3), ("lower", 2)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": True}
        tiny.put(foreign.PRIORITY_CLASSES, body)

    def priorities() -> list[int]:
        return sorted(gang.priority for gang in final(tiny)[0].values())

    assert priorities() == [2, 7]
    shuffled(tiny)
    high["value"] = 9
    tiny.put(foreign.PRIORITY_CLASSES, high)
    assert priorities() == [2, 9]
    tiny.drop(foreign.PRIORITY_CLASSES, "", "lower")
    assert priorities() == [3, 9]


def test_a_gang_whose_last_member_goes_has_its_templates_priority_again(tiny: Tiny) -> None:
    """And not that of a pod which is no more."""
    job = tiny.job("train", 2)
    tiny.settle()
    pods = tiny.pods(job, 2)
    for pod, priority in zip(pods, (5, 9), strict=True):
        pod["spec"]["priority"] = priority
        tiny.put(foreign.PODS, pod)
    told = []
    for pod in pods:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
        (gang,) = final(tiny)[0].values()
        told.append((gang.priority, blocked(gang)))
    assert told == [(9, []), (0, [])]


# ---- cost


def test_a_gang_of_ten_thousand_is_looked_at_a_few_times_only(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a pod, neither as they come, nor as they move to their PodGroup, nor as they go."""
    looks = Mock(wraps=translate.gang)
    checks = Mock(wraps=translate.underivable)
    monkeypatch.setattr(translate, "gang", looks)
    monkeypatch.setattr(translate, "underivable", checks)
    job = tiny.job("train", 10_000)
    tiny.pods(job, 5_000)
    assert (looks.call_count, checks.call_count) == (0, 1)
    tiny.settle()
    pods = tiny.pods(job, 5_000, generation="b")
    assert looks.call_count <= 4
    for pod in pods:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    assert looks.call_count <= 4
    assert len(tiny.source.members) == 1


# ---- what is left to do


def test_a_requeued_job_asks_only_for_what_is_left(tiny: Tiny) -> None:
    """6 of 16 have succeeded; whether their pods can still be seen makes no difference to what it asks for."""
    job = tiny.job("train", 16)
    tiny.settle()
    pods = tiny.pods(job, 16)

    def asked() -> int:
        gangs, members = final(tiny)
        (minimum,) = (gang.minimum for gang in gangs.values())
        return int(minimum) - sum(member.stage is Stage.SUCCEEDED for member in members.values())

    for pod in pods[:6]:
        tiny.run(pod, "Succeeded")
    assert asked() == 10
    job["status"] = {"succeeded": 6}
    tiny.put(foreign.JOBS, job)
    assert asked() == 10
    for pod in pods[:3]:  # cleaned up
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
        assert asked() == 10
    for pod in pods[6:]:  # given back
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    assert asked() == 10
    for pod in pods[3:6]:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    assert asked() == 10
    shuffled(tiny)
    gone_again(tiny)


def test_a_job_whose_count_is_ahead_of_our_view_of_its_pods_keeps_their_slots(tiny: Tiny) -> None:
    """Its status says that one has succeeded; which one, the pods will tell."""
    job = tiny.job("train", 4)
    tiny.settle()
    tiny.pods(job, 4)
    job["status"] = {"succeeded": 1}
    tiny.put(foreign.JOBS, job)
    (gang,) = final(tiny)[0].values()
    assert (gang.minimum, gang.maximum) == (4, 4)


def test_parallelism_0_is_nothing_to_admit(tiny: Tiny) -> None:
    """A paused Job has no slot, and no complaint about its gang size; a recorded one gives its slots back."""
    job = tiny.job("train", 4, gang="4")
    tiny.settle()
    job["spec"]["parallelism"] = 0
    tiny.put(foreign.JOBS, job)
    (gang,) = final(tiny)[0].values()
    assert (gang.roles, blocked(gang)) == ((), [Reason.SUSPENDED])
    job["spec"]["parallelism"] = 4
    tiny.put(foreign.JOBS, job)
    tiny.admit(4)
    tiny.settle()
    job["spec"]["parallelism"] = 0
    tiny.put(foreign.JOBS, job)
    (gang,) = final(tiny)[0].values()
    assert ([(role.minimum, role.maximum) for role in gang.roles], blocked(gang)) == ([(0, 0)], [Reason.SUSPENDED])
