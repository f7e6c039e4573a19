"""Gangs of StatefulSets and ReplicaSets: how they are derived, and given back by eviction, step by step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queuectl.contract import foreign
from queuectl.contract.foreign import REPLICA_SETS, STATEFUL_SETS, Kind
from queuectl.control.ports import Conflict, Refused, Throttled, Unreachable
from queuectl.control.release import SPARED, Release
from queuectl.control.steps import Step, Write
from queuectl.model.changes import WriteFailed
from queuectl.model.gangs import GiveBack
from queuectl.model.plan import Admit, AdmitExtra, Assignment, Cause, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from tests.control.tiny import FENCE, NOW, Tiny

Json = dict[str, Any]
KINDS = (foreign.JOBS, REPLICA_SETS, STATEFUL_SETS, foreign.POD_GROUPS, foreign.PODS)
BUDGET = Throttled("Cannot evict pod as it would violate the pod's disruption budget.", 10)


@pytest.fixture
def tiny() -> Tiny:
    """An empty cluster."""
    return Tiny()


def running(tiny: Tiny, count: int = 3) -> list[Json]:
    """A StatefulSet of so many pods that are one gang, admitted and running."""
    owner = tiny.service(STATEFUL_SETS, "web", count, gang="all")
    assert tiny.settle() == [Step.CREATE]
    pods = [tiny.replica(STATEFUL_SETS, owner, f"web-{rank}", rank=rank) for rank in range(count)]
    tiny.admit(count)
    assert tiny.settle() == [Step.RECORD, *[Step.RELEASE] * count]
    for pod in pods:
        tiny.run(pod)
    assert tiny.settle() == [Step.NOTE]
    return [tiny.get(foreign.PODS, "ns", pod["metadata"]["name"]) for pod in pods]


def give_back(tiny: Tiny, cause: Cause = Cause.REQUESTED) -> None:
    """The engine withdraws the only gang."""
    uid = tiny.group()["metadata"]["uid"]
    tiny.release.accept(Withdraw(uid, 1, cause, "2026-11-30T12:00:00Z", NOW + 30_000))


def made_anew(tiny: Tiny, pod: Json) -> Json:
    """The kubelet is done with it, and the StatefulSet's controller makes it again under its name."""
    meta = pod["metadata"]
    tiny.drop(foreign.PODS, "ns", meta["name"])
    owner = tiny.get(STATEFUL_SETS, "ns", meta["ownerReferences"][0]["name"])
    return tiny.replica(STATEFUL_SETS, owner, meta["name"], rank=int(meta["labels"]["apps.kubernetes.io/pod-index"]))


def restarted(tiny: Tiny) -> Tiny:
    """Another process on the same objects."""
    fresh = Tiny()
    fresh._version, fresh._uid = tiny._version, tiny._uid
    for kind in KINDS:
        for (plural, _, _), body in list(tiny.objects.items()):
            if plural == kind.plural:
                fresh.put(kind, copy.deepcopy(body))
    return fresh


@pytest.mark.parametrize("kind", [REPLICA_SETS, STATEFUL_SETS], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("gang", "least"), [("1", 1), ("2", 2), ("all", 3)])
def test_a_gang_is_derived_from_replicas_and_template(tiny: Tiny, kind: Kind, gang: str, least: int) -> None:
    """One pod is enough unless annotated; all slots are known from the template, before there are pods."""
    tiny.service(kind, "web", 3, gang=gang)
    assert tiny.settle() == [Step.CREATE]
    meta, spec = tiny.group()["metadata"], tiny.group()["spec"]
    assert meta["name"].startswith(f"{kind.kind.lower()}-web-")
    assert spec == {"queue": "q", "minMember": least, "maxMember": 3}
    known = tiny.source.gang(meta["uid"])
    assert known is not None
    (role,) = known.roles
    assert (role.minimum, role.maximum, role.shape is not None) == (least, 3, True)
    assert (known.give_back, known.resumes, known.rolling, known.blocked) == (GiveBack.EVICT, False, True, ())


def test_members_go_to_the_slots_of_their_ordinals(tiny: Tiny) -> None:
    """A StatefulSet's pods are numbered; a ReplicaSet's are not."""
    pods = running(tiny)
    ranks = [tiny.source.pods[pod["metadata"]["uid"]].member.rank for pod in pods]
    assert ranks == [0, 1, 2]
    owner = tiny.service(REPLICA_SETS, "front", 1)
    pod = tiny.replica(REPLICA_SETS, owner, "front-x")
    assert tiny.source.pods[pod["metadata"]["uid"]].member.rank is None


def test_a_statefulset_that_counts_from_seven_is_noted_as_started(tiny: Tiny) -> None:
    """Its ordinals are beyond its slots; the pods count one by one."""
    owner = tiny.service(STATEFUL_SETS, "web", 2, gang="all")
    tiny.settle()
    pods = [tiny.replica(STATEFUL_SETS, owner, f"web-{rank}", rank=rank) for rank in (7, 8)]
    uid = tiny.group()["metadata"]["uid"]
    places = tuple(Assignment(slot, "n0", pod["metadata"]["uid"]) for slot, pod in enumerate(pods))
    tiny.release.accept(Admit(uid, 1, NOW, places))
    tiny.settle()
    tiny.run(pods[0])
    assert tiny.settle() == []
    tiny.run(pods[1])
    assert tiny.settle() == [Step.NOTE]


def test_old_revisions_of_a_deployment_have_no_gang(tiny: Tiny) -> None:
    """Scaled to 0 from the start, they ask for nothing; scaled up, they do."""
    owner = tiny.service(REPLICA_SETS, "web-1", 0)
    assert tiny.settle() == []
    owner["spec"]["replicas"] = 2
    tiny.put(REPLICA_SETS, owner)
    assert tiny.settle() == [Step.CREATE]


def test_only_the_labels_of_the_template_count(tiny: Tiny) -> None:
    """Its own queue label means nothing to its pods: none of them would ever come to the gang."""
    owner = tiny.service(STATEFUL_SETS, "web", 2)
    owner["metadata"]["labels"] = owner["spec"]["template"]["metadata"].pop("labels")
    tiny.put(STATEFUL_SETS, owner)
    assert tiny.settle() == []


def test_pods_that_a_namespace_gave_a_queue_bring_their_owner_a_gang(tiny: Tiny) -> None:
    """The template names none, its pods do: by the namespace's default."""
    owner = tiny.service(REPLICA_SETS, "web", 2)
    del owner["spec"]["template"]["metadata"]
    tiny.put(REPLICA_SETS, owner)
    assert tiny.settle() == []
    pod = tiny.replica(REPLICA_SETS, owner, "web-x")
    assert tiny.settle() == [Step.CREATE]
    assert list(tiny.source.members[tiny.group()["metadata"]["uid"]]) == [pod["metadata"]["uid"]]


def test_it_is_said_first_then_every_member_is_evicted_and_the_gang_returns(tiny: Tiny) -> None:
    """Budgets are asked, Evicted is written, each pod goes by its UID; those made anew stay behind the gate."""
    pods = running(tiny)
    give_back(tiny)
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT, Step.EVICT]
    status = tiny.group()["status"]
    assert (status["requeue"]["reason"], status["requeue"]["suspendedByUs"]) == ("Requested", False)
    assert status["admission"]["round"] == 1
    for pod in pods[:2]:
        made_anew(tiny, pod)
    assert tiny.settle() == []
    made_anew(tiny, pods[2])
    assert tiny.settle() == [Step.RETURN]
    gang = tiny.source.gang(tiny.group()["metadata"]["uid"])
    assert gang is not None
    assert (gang.record, gang.evicted, gang.round) == (None, False, 1)
    tiny.admit(3, round_=2)
    assert tiny.settle() == [Step.RECORD, *[Step.RELEASE] * 3]


def test_what_does_not_run_yet_goes_without_asking_budgets(tiny: Tiny) -> None:
    """They guard running pods only; a gang that is stuck in binding is given back whatever they say."""
    owner = tiny.service(STATEFUL_SETS, "web", 2, gang="all")
    tiny.settle()
    for rank in range(2):
        tiny.replica(STATEFUL_SETS, owner, f"web-{rank}", rank=rank)
    tiny.admit(2)
    tiny.settle()
    give_back(tiny, Cause.BIND_DEADLINE)
    assert [write.step for write in tiny.next()] == [Step.EVICTED]
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT]


def test_a_restart_at_any_moment_goes_on_where_it_was(tiny: Tiny) -> None:
    """Before each write, and after each pod's going: the next process ends what the one before began."""
    pods = running(tiny)
    uids = {pod["metadata"]["uid"] for pod in pods}
    give_back(tiny)
    while tiny.written[-1] is not Step.EVICTED:
        tiny.send(tiny.next()[0])
    seen: list[Step] = []
    left = list(pods)
    for _ in range(20):
        tiny = restarted(tiny)
        if writes := tiny.next():
            assert len({write.target for write in writes}) == len(writes)
            tiny.send(writes[0])
            seen.append(tiny.written[-1])
        elif left:
            made_anew(tiny, left.pop())
        else:
            break
    assert seen == [Step.EVICT] * 3 + [Step.RETURN]
    assert not uids & set(tiny.source.pods)
    assert all(body["spec"]["schedulingGates"] for (plural, _, _), body in tiny.objects.items() if plural == "pods")


def test_a_restart_before_it_was_said_begins_again(tiny: Tiny) -> None:
    """The answer about budgets leaves no trace: the next process asks anew, and evicts nobody before it was said."""
    running(tiny)
    give_back(tiny)
    tiny.send(tiny.next()[0])  # budgets
    tiny = restarted(tiny)
    assert tiny.settle() == []
    give_back(tiny)
    assert [write.step for write in tiny.next()] == [Step.BUDGETS]
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT, Step.EVICT]


def test_an_eviction_names_the_pod_by_its_uid(tiny: Tiny) -> None:
    """A pod of the same name that was made meanwhile is not meant: nothing happens to it."""
    pods = running(tiny)
    give_back(tiny)
    while (writes := tiny.next())[0].step is not Step.EVICT:
        tiny.send(writes[0])
    assert [write.body for write in writes] == [{"metadata": {"uid": pod["metadata"]["uid"]}} for pod in pods]
    assert [write.member for write in writes] == [pod["metadata"]["uid"] for pod in pods]
    successor = made_anew(tiny, pods[0])
    assert not tiny.release.due(writes[0])
    tiny.changes += tiny.release.on_reply(writes[0], Conflict("Precondition failed: UID in precondition", 409))
    tiny.settle()
    assert "deletionTimestamp" not in tiny.get(foreign.PODS, "ns", successor["metadata"]["name"])["metadata"]
    assert successor["spec"]["schedulingGates"]


def test_without_the_mark_of_eviction_nobody_is_evicted(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: a machine that skips the mark would leave a restart with half a gang and no cause."""

    def skip(self: Release, withdraw: Withdraw, group: Any, record: Any, fence: int, now: int) -> Any:
        return self._give_back(group, self._view.owner(group), record, fence, now, lambda _: True)

    running(tiny)
    give_back(tiny)
    assert Step.EVICT not in {write.step for write in tiny.next()}
    monkeypatch.setattr(Release, "_withdraw", skip)
    (write, *_) = tiny.next()
    assert write.step is Step.EVICT
    assert not tiny.release.due(write)  # and even then it is not sent


def test_a_budget_in_the_way_is_waited_for_and_named(tiny: Tiny) -> None:
    """Nothing is begun while not all may go; the status says why, once, and it begins when they may."""
    running(tiny)
    tiny.refusals[Step.BUDGETS] = Throttled("PodDisruptionBudget web lets 1 of 3 pods go now", 10)
    give_back(tiny)
    tiny.send(tiny.next()[0])
    asked, said = tiny.next()
    assert (asked.step, said.step) == (Step.BUDGETS, Step.BLOCKER)
    tiny.send(said)
    blocker = tiny.group()["status"]["blocker"]
    assert blocker["reason"] == "VictimProtected"
    assert "PodDisruptionBudget web lets 1 of 3 pods go now" in blocker["message"]
    tiny.send(tiny.next()[0])
    assert [write.step for write in tiny.next()] == [Step.BUDGETS]
    assert not [change for change in tiny.changes if isinstance(change, WriteFailed)]
    del tiny.refusals[Step.BUDGETS]
    assert tiny.settle() == [Step.EVICTED, Step.EVICT, Step.EVICT, Step.EVICT]


def test_the_answer_about_budgets_does_not_hold_for_long(tiny: Tiny) -> None:
    """Others use them up: a mark that could not be written at once is asked about anew."""
    running(tiny)
    give_back(tiny)
    tiny.send(tiny.next()[0])
    assert [write.step for write in tiny.next(NOW + SPARED - 1)] == [Step.EVICTED]
    assert [write.step for write in tiny.next(NOW + SPARED)] == [Step.BUDGETS]


def test_a_budget_that_somebody_used_up_meanwhile_is_waited_for(tiny: Tiny) -> None:
    """Some are gone, one may not go yet: it is named and tried again, and the gang returns in the end."""
    pods = running(tiny)
    give_back(tiny)
    while (writes := tiny.next())[0].step is not Step.EVICT:
        tiny.send(writes[0])
    tiny.send(writes[0])
    tiny.send(writes[1])
    tiny.refusals[Step.EVICT] = BUDGET
    tiny.send(writes[2])
    assert [write.step for write in tiny.next()] == [Step.EVICT, Step.BLOCKER]
    tiny.send(tiny.next()[1])
    assert tiny.group()["status"]["blocker"]["reason"] == "VictimProtected"
    assert [write.step for write in tiny.next()] == [Step.EVICT]
    del tiny.refusals[Step.EVICT]
    assert tiny.settle() == [Step.EVICT]
    for pod in pods:
        made_anew(tiny, pod)
    assert tiny.settle() == [Step.RETURN]


@pytest.mark.parametrize(
    "answer", [Refused("pods is forbidden: cannot create resource", 403), Unreachable("reset")], ids=["rights", "lost"]
)
def test_an_eviction_that_fails_is_tried_again(tiny: Tiny, answer: Exception) -> None:
    """Rights may come back, and a lost answer tells nothing."""
    running(tiny, 1)
    give_back(tiny)
    while (write := tiny.next()[0]).step is not Step.EVICT:
        tiny.send(write)
    tiny.refusals[Step.EVICT] = answer  # type: ignore[assignment]  # both are ClusterErrors
    tiny.send(write)
    assert Step.EVICT in [one.step for one in tiny.next()]
    tiny.refusals.clear()
    assert tiny.settle()[-1] in (Step.EVICT, Step.BLOCKER)
    assert "deletionTimestamp" in tiny.get(foreign.PODS, "ns", "web-0")["metadata"]


def test_the_gang_does_not_return_while_a_release_is_on_its_way(tiny: Tiny) -> None:
    """It would let go of a pod that belongs to the next round, on a place that is no longer ours."""
    owner = tiny.service(STATEFUL_SETS, "web", 2, gang="all")
    tiny.settle()
    for rank in range(2):
        tiny.replica(STATEFUL_SETS, owner, f"web-{rank}", rank=rank)
    tiny.admit(2)
    while (writes := tiny.next())[0].step is not Step.RELEASE:
        tiny.send(writes[0])
    flying: Write = writes[0]
    give_back(tiny, Cause.BIND_DEADLINE)
    tiny.send(tiny.next()[0])
    gang = tiny.group()["metadata"]["uid"]
    assert [w.step for w in tiny.release.next_writes(gang, FENCE, NOW)] == [Step.RETURN]
    assert [*tiny.release.next_writes(gang, FENCE, NOW, lambda target: target != flying.target)] == []
    tiny.send(flying)  # committed after all
    assert [w.step for w in tiny.release.next_writes(gang, FENCE, NOW)] == [Step.EVICT]


def test_scaled_to_nothing_it_returns_and_waits_until_it_is_scaled_up(tiny: Tiny) -> None:
    """Its user takes it away; nobody evicts, and what it held is free."""
    pods = running(tiny, 2)
    owner = tiny.get(STATEFUL_SETS, "ns", "web")
    owner["spec"]["replicas"] = 0
    tiny.put(STATEFUL_SETS, owner)
    assert tiny.settle() == []
    for pod in pods:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    assert tiny.settle() == [Step.RETURN]
    known = tiny.source.gang(tiny.group()["metadata"]["uid"])
    assert known is not None
    assert known.blocked == (Misfit(Reason.SUSPENDED, TextEvidence("StatefulSet ns/web asks for no pods")),)
    owner["spec"]["replicas"] = 2
    tiny.put(STATEFUL_SETS, owner)
    known = tiny.source.gang(tiny.group()["metadata"]["uid"])
    assert known is not None
    assert (known.blocked, known.record, known.maximum) == ((), None, 2)


def test_a_replacement_is_released_alone_in_the_same_round(tiny: Tiny) -> None:
    """Whatever took one pod away, the gang goes on: its successor carries its own record."""
    pods = running(tiny)
    fresh = made_anew(tiny, pods[1])
    uid = fresh["metadata"]["uid"]
    tiny.release.accept(AdmitExtra(tiny.group()["metadata"]["uid"], 1, NOW, 1, "n0", uid))
    assert tiny.settle() == [Step.EXTRA]
    assert '"slot":1' in tiny.get(foreign.PODS, "ns", "web-1")["metadata"]["annotations"]["queuectl.io/admission"]


def test_an_owner_that_is_deleted_ends_its_gang(tiny: Tiny) -> None:
    """Evicted or not: its pods are collected, and the gang is over."""
    pods = running(tiny, 2)
    give_back(tiny)
    tiny.settle()
    tiny.drop(STATEFUL_SETS, "ns", "web")
    for pod in pods:
        tiny.drop(foreign.PODS, "ns", pod["metadata"]["name"])
    assert tiny.settle() == [Step.FINISH]
