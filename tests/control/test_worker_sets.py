"""LeaderWorkerSets: a gang for each group, whose workers come when the leader is ready; released, given back, scaled."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.contract import foreign, names
from queuectl.contract.foreign import LEADER_WORKER_SETS, STATEFUL_SETS
from queuectl.control.steps import Step
from queuectl.model.gangs import Gang, GiveBack
from queuectl.model.plan import Admit, AdmitExtra, Assignment, Cause, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from tests.control.test_source import blocked, final, gone_again, shuffled
from tests.control.tiny import NOW, Tiny, spec

Json = dict[str, Any]


@pytest.fixture
def tiny() -> Tiny:
    """An empty cluster."""
    return Tiny()


def template(queue: str = "q") -> Json:
    """A pod template of one GPU."""
    return {"metadata": {"labels": {names.QUEUE_LABEL: queue} if queue else {}}, "spec": spec()}


def worker_set(tiny: Tiny, name: str = "serve", *, groups: int = 1, size: int = 3, **parts: Any) -> Json:
    """A tenant's set, and the StatefulSet of its leaders."""
    body = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"replicas": groups, "leaderWorkerTemplate": {"size": size, "workerTemplate": template(), **parts}},
    }
    owner = tiny.put(LEADER_WORKER_SETS, body)
    labels = {names.SET_NAME: name}
    meta = {
        "name": name,
        "namespace": "ns",
        "labels": labels,
        "ownerReferences": [reference(owner, LEADER_WORKER_SETS)],
    }
    tiny.put(STATEFUL_SETS, {"metadata": meta, "spec": {"replicas": groups, "template": template()}})
    return owner


def reference(owner: Json, kind: foreign.Kind) -> Json:
    """To the object that controls another."""
    meta = owner["metadata"]
    found = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True}


def pod(tiny: Tiny, name: str, controller: Json, labels: Json, queue: str = "q") -> Json:
    """What a StatefulSet's controller makes: a pod behind our gate."""
    meta: Json = {"name": name, "namespace": "ns", "labels": {names.QUEUE_LABEL: queue, **labels}}
    meta["ownerReferences"] = [reference(controller, STATEFUL_SETS)]
    gated = {**spec(), "schedulingGates": [{"name": names.GATE}]}
    return tiny.put(foreign.PODS, {"metadata": meta, "spec": gated, "status": {"phase": "Pending"}})


def leader(tiny: Tiny, owner: Json, group: int = 0) -> Json:
    """The leader of a group."""
    name = owner["metadata"]["name"]
    labels = {names.SET_NAME: name, names.GROUP_INDEX: str(group), names.WORKER_INDEX: "0", names.POD_INDEX: str(group)}
    return pod(tiny, f"{name}-{group}", tiny.get(STATEFUL_SETS, "ns", name), labels)


def workers(tiny: Tiny, owner: Json, count: int, group: int = 0) -> list[Json]:
    """Its workers, whose StatefulSet the leader controls."""
    name = owner["metadata"]["name"]
    labels = {names.SET_NAME: name, names.GROUP_INDEX: str(group)}
    first = tiny.get(foreign.PODS, "ns", f"{name}-{group}")
    meta: Json = {"name": f"{name}-{group}", "namespace": "ns", "labels": labels}
    meta["ownerReferences"] = [reference(first, foreign.PODS)]
    made = tiny.put(STATEFUL_SETS, {"metadata": meta, "spec": {"replicas": count, "template": template()}})
    return [
        pod(tiny, f"{name}-{group}-{i}", made, {**labels, names.WORKER_INDEX: str(i), names.POD_INDEX: str(i)})
        for i in range(1, count + 1)
    ]


def known(tiny: Tiny, group: str = "") -> Gang:
    """The gang of the only PodGroup, or of this one."""
    found = tiny.source.gang(tiny.group(group)["metadata"]["uid"])
    assert found is not None
    return found


def admit(tiny: Tiny, *pods: Json | None, round_: int = 1) -> None:
    """The engine's decision for the only PodGroup: slot by slot, with the members that exist."""
    uid = tiny.group()["metadata"]["uid"]
    places = [Assignment(i, "n0", one["metadata"]["uid"] if one else None) for i, one in enumerate(pods)]
    tiny.release.accept(Admit(uid, round_, NOW, tuple(places)))


def running(tiny: Tiny) -> list[Json]:
    """A group of three that runs."""
    owner = worker_set(tiny)
    first = leader(tiny, owner)
    tiny.settle()
    admit(tiny, first, None, None)
    tiny.settle()
    tiny.run(first)
    pods = [first, *workers(tiny, owner, 2)]
    admit(tiny, *pods)
    tiny.settle()
    for one in pods[1:]:
        tiny.run(one)
    assert tiny.settle() == [Step.NOTE]
    return pods


def drop(tiny: Tiny, *pods: Json) -> None:
    """The kubelet is done with them."""
    for one in pods:
        tiny.drop(foreign.PODS, "ns", one["metadata"]["name"])


def test_each_group_is_a_gang_of_a_leader_and_its_workers(tiny: Tiny) -> None:
    """Known as a whole from the leader's pod on; neither the set nor its StatefulSets have gangs of their own."""
    owner = worker_set(tiny, groups=2)
    assert tiny.settle() == []
    for group in range(2):
        leader(tiny, owner, group)
    workers(tiny, owner, 2, group=1)
    assert tiny.settle() == [Step.CREATE, Step.CREATE]
    uid = owner["metadata"]["uid"]
    groups = {body["metadata"]["name"]: body for (plural, _, _), body in tiny.objects.items() if plural == "podgroups"}
    assert sorted(groups) == [f"leaderworkerset-serve-{i}-{uid[:5]}" for i in range(2)]
    assert [one["metadata"]["ownerReferences"][0]["uid"] for one in groups.values()] == [uid, uid]
    assert groups[f"leaderworkerset-serve-0-{uid[:5]}"]["spec"]["roles"] == [
        {"name": "leader", "minMember": 1, "maxMember": 1},
        {"name": "worker", "minMember": 2, "maxMember": 2},
    ]
    gang = known(tiny, "serve-1")
    assert [(role.name, role.minimum, role.maximum, role.shape is not None) for role in gang.roles] == [
        ("leader", 1, 1, True),
        ("worker", 2, 2, True),
    ]
    assert (gang.queue, gang.give_back, gang.rolling, gang.resumes, gang.blocked) == (
        "q",
        GiveBack.EVICT,
        True,
        False,
        (),
    )
    members = {one.name: (one.role, one.rank) for one in final(tiny)[1].values() if one.gang == gang.uid}
    assert members == {"serve-1": ("leader", 0), "serve-1-1": ("worker", 0), "serve-1-2": ("worker", 1)}
    shuffled(tiny)
    gone_again(tiny)


def test_order_of_arrival_does_not_matter(tiny: Tiny) -> None:
    """With a PodGroup, without one yet, of a set that nobody knows, and beside a hand-written PodGroup."""
    owner = worker_set(tiny, groups=3)
    leader(tiny, owner, 0)
    tiny.settle()
    workers(tiny, owner, 2)
    leader(tiny, owner, 2)
    stray = worker_set(tiny, "stray")
    leader(tiny, stray)
    tiny.drop(LEADER_WORKER_SETS, "ns", "stray")
    assert sorted(tiny.source.underived) == [f"{owner['metadata']['uid']}/2"]
    own = {names.POD_GROUP_LABEL: "mine"}
    tiny.put(
        foreign.POD_GROUPS, {"metadata": {"name": "mine", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 2}}
    )
    mine = worker_set(tiny, "mine", workerTemplate={**template(), "metadata": {"labels": own}})
    labels = {names.SET_NAME: "mine", names.GROUP_INDEX: "0", names.WORKER_INDEX: "1", **own}
    pod(tiny, "mine-0-1", tiny.get(STATEFUL_SETS, "ns", "mine"), labels)
    assert f"{mine['metadata']['uid']}/0" not in tiny.source.underived
    member = next(one for one in final(tiny)[1].values() if one.name == "mine-0-1")
    assert (member.gang, member.role, member.rank) == (tiny.group("mine")["metadata"]["uid"], "", 1)
    # What was of the set that is gone remembers it; who comes later only knows its name: another stand-in, charged alike.
    drop(tiny, tiny.get(foreign.PODS, "ns", "stray-0"))
    leader(tiny, stray)
    shuffled(tiny)
    gone_again(tiny)


def test_a_group_of_one_is_its_leader(tiny: Tiny) -> None:
    """A set of size 1 has no workers; its leader is made by the workers' template where it has none of its own."""
    leader(tiny, worker_set(tiny, size=1))
    tiny.settle()
    assert [(role.name, role.maximum, role.shape is not None) for role in known(tiny).roles] == [("leader", 1, True)]


def test_a_leader_may_ask_for_other_things_than_its_workers(tiny: Tiny) -> None:
    """Each role has its template's shape."""
    small = template()
    small["spec"] = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    leader(tiny, worker_set(tiny, leaderTemplate=small))
    tiny.settle()
    shapes = [role.shape for role in known(tiny).roles]
    assert [dict(shape.requests) for shape in shapes if shape is not None] == [
        {"cpu": 1000, "pods": 1},
        {"nvidia.com/gpu": 1000, "pods": 1},
    ]


def test_workers_are_released_to_their_slots_as_they_come(tiny: Tiny) -> None:
    """All slots are in the record before there is a worker; the gang has started when all three run."""
    owner = worker_set(tiny)
    first = leader(tiny, owner)
    tiny.settle()
    admit(tiny, first, None, None)
    assert tiny.settle() == [Step.RECORD, Step.RELEASE]
    assert tiny.group()["status"]["admission"]["assignments"] == [{"node": "n0", "slots": "0-2"}]
    tiny.run(first)
    assert tiny.settle() == []
    pods = [first, *workers(tiny, owner, 2)]
    admit(tiny, *pods)
    assert tiny.settle() == [Step.RELEASE, Step.RELEASE]
    tiny.run(pods[2])
    assert tiny.settle() == []
    tiny.run(pods[1])
    assert tiny.settle() == [Step.NOTE]


def test_a_group_is_given_back_by_eviction_and_starts_anew(tiny: Tiny) -> None:
    """Every pod of it goes by its UID; the leader that is made anew waits behind the gate for the next round."""
    pods = running(tiny)
    uid = tiny.group()["metadata"]["uid"]
    tiny.release.accept(Withdraw(uid, 1, Cause.REQUESTED, "now", NOW + 30_000))
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT, Step.EVICT]
    drop(tiny, *pods)
    owner = tiny.get(LEADER_WORKER_SETS, "ns", "serve")
    first = leader(tiny, owner)
    assert tiny.settle() == [Step.RETURN]
    assert (known(tiny).record, known(tiny).evicted, known(tiny).round) == (None, False, 1)
    admit(tiny, first, None, None, round_=2)
    assert tiny.settle() == [Step.RECORD, Step.RELEASE]


def test_a_successor_takes_the_slot_of_the_worker_that_was_lost(tiny: Tiny) -> None:
    """In the same round, with a record of its own."""
    pods = running(tiny)
    drop(tiny, pods[2])
    meta = pods[2]["metadata"]
    fresh = pod(tiny, meta["name"], tiny.get(STATEFUL_SETS, "ns", "serve-0"), meta["labels"])
    tiny.release.accept(AdmitExtra(tiny.group()["metadata"]["uid"], 1, NOW, 2, "n0", fresh["metadata"]["uid"]))
    assert tiny.settle() == [Step.EXTRA]


def test_a_group_that_is_scaled_away_returns_and_waits(tiny: Tiny) -> None:
    """What it held is free once its pods are gone; scaled up again, it is queued as any other."""
    pods = running(tiny)
    owner = tiny.get(LEADER_WORKER_SETS, "ns", "serve")
    owner["spec"]["replicas"] = 0
    tiny.put(LEADER_WORKER_SETS, owner)
    assert known(tiny).blocked == ()
    assert tiny.settle() == []
    drop(tiny, *pods)
    assert tiny.settle() == [Step.RETURN]
    assert known(tiny).blocked == (
        Misfit(Reason.SUSPENDED, TextEvidence("LeaderWorkerSet ns/serve group 0 asks for no pods")),
    )
    shuffled(tiny)
    owner["spec"]["replicas"] = 1
    tiny.put(LEADER_WORKER_SETS, owner)
    assert (known(tiny).blocked, known(tiny).record, known(tiny).maximum) == ((), None, 3)


def test_a_group_beyond_the_replicas_is_one_while_it_has_pods(tiny: Tiny) -> None:
    """A rolling update may make new groups before it takes old ones away."""
    owner = worker_set(tiny)
    extra = leader(tiny, owner, 1)
    assert tiny.settle() == [Step.CREATE]
    assert (known(tiny).maximum, known(tiny).blocked) == (3, ())
    shuffled(tiny)
    drop(tiny, extra)
    assert (known(tiny).roles, blocked(known(tiny))) == ((), [Reason.SUSPENDED])


def test_pods_of_a_set_that_is_gone_are_no_members_of_its_namesake(tiny: Tiny) -> None:
    """They are older than it."""
    owner = worker_set(tiny)
    old = leader(tiny, owner)
    tiny.settle()
    tiny.drop(LEADER_WORKER_SETS, "ns", "serve")
    tiny.drop(STATEFUL_SETS, "ns", "serve")
    anew = {"metadata": {"name": "serve", "namespace": "ns", "creationTimestamp": "2026-11-30T10:05:00Z"}}
    tiny.put(LEADER_WORKER_SETS, {**anew, "spec": owner["spec"]})
    old["metadata"]["labels"]["seen"] = "again"
    tiny.put(foreign.PODS, old)
    assert tiny.source.pods[old["metadata"]["uid"]].member.gang == tiny.group()["metadata"]["uid"]
    tiny.drop(foreign.POD_GROUPS, "ns", tiny.group()["metadata"]["name"])
    assert tiny.source.underived == {}
    gone_again(tiny)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"leaderTemplate": template("other")}, "different queues (other, q)"),
        ({"leaderTemplate": template("")}, "different queues (none, q)"),
        ({"size": 2_000_000_000}, "PodGroup would be refused"),
    ],
    ids=["queues", "unlabelled", "huge"],
)
def test_a_set_that_cannot_be_gangs_says_why(tiny: Tiny, change: Json, says: str) -> None:
    """Its pods stay behind their gate, and a stand-in tells."""
    owner = worker_set(tiny, **change)
    first = leader(tiny, owner)
    assert tiny.settle() == []
    stand_in = final(tiny)[0][f"missing/ns/{owner['metadata']['uid']}/0"]
    assert blocked(stand_in) == [Reason.INVALID_REQUEST]
    assert says in str(stand_in.blocked[0].evidence)
    shuffled(tiny)
    drop(tiny, first)
    gone_again(tiny)


def test_a_size_of_its_own_is_refused(tiny: Tiny) -> None:
    """A group starts as a whole."""
    owner = worker_set(tiny)
    owner["metadata"]["annotations"] = {names.MIN_MEMBER: "2"}
    tiny.put(LEADER_WORKER_SETS, owner)
    leader(tiny, owner)
    tiny.settle()
    assert blocked(known(tiny)) == [Reason.INVALID_REQUEST]
    assert "each group of a LeaderWorkerSet starts as a whole" in str(known(tiny).blocked[0].evidence)
