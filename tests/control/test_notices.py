"""What people read in status is written until it is there, and no oftener than it may be."""

from __future__ import annotations

from typing import Any

from queuectl.contract import foreign
from queuectl.control.notices import Blockers, QueueStatuses
from queuectl.control.steps import Write
from queuectl.engine.view import QueueView
from queuectl.model.plan import Admit, Cause, Plan, Refuse, Withdraw
from queuectl.model.reasons import Misfit, QueueEvidence, Reason, TextEvidence
from tests.control.tiny import FENCE, NOW, Tiny, spec

HELD = Misfit(Reason.HELD, TextEvidence("by the operator"))


def test_a_blocker_that_was_not_written_is_written_again() -> None:
    """A lost race or a broken connection does not leave a gang without its reason."""
    tiny = Tiny()
    tiny.job("train", 1)
    tiny.settle()
    uid = tiny.group()["metadata"]["uid"]
    blockers = Blockers(tiny.source, 30.0)
    blockers.refuse(uid, (HELD,))

    def at(now: float) -> list[Write]:
        return list(blockers.next_writes(FENCE, now, NOW))

    assert len(at(100.0)) == 1  # and it is lost on its way
    assert at(129.0) == []
    assert blockers.next_due(129.0) == 130.0
    (write,) = at(130.0)
    tiny.send(write)
    assert at(160.0) == []
    assert blockers.next_due(160.0) is None


class Lone:
    """A pod on its own, and what is said on it."""

    def __init__(self) -> None:
        self.tiny = Tiny()
        self.tiny.put(foreign.PODS, alone())
        self.blockers = Blockers(self.tiny.source, 30.0)

    def at(self, now: float) -> list[Write]:
        """What is to be written at this time."""
        return list(self.blockers.next_writes(FENCE, now, NOW))

    def stage(self, **changes: Any) -> None:
        """Others change the pod."""
        self.tiny.put(foreign.PODS, {**self.tiny.get(foreign.PODS, "ns", "shell"), **changes})


def alone() -> dict[str, Any]:
    return {
        "metadata": {"name": "shell", "namespace": "ns", "uid": "shell", "labels": {"queuectl.io/queue": "q"}},
        "spec": {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]},
        "status": {"phase": "Pending"},
    }


def said(write: Write) -> tuple[str, str, str | None, bool]:
    """What a write says of the pod: status, reason, message, and whether that is another status than before."""
    (found,) = write.body["status"]["conditions"]
    assert (write.kind, write.subresource, found["type"]) == (foreign.PODS, "status", "queuectl.io/Waiting")
    return found["status"], found["reason"], found["message"], "lastTransitionTime" in found


def test_a_group_of_one_says_on_its_pod_why_it_waits() -> None:
    """Again when that changes; once it was released, that it waits no more; and not before, for that would hold it up."""
    lone = Lone()
    lone.blockers.refuse("shell", (HELD,))
    (write,) = lone.at(100.0)
    assert said(write) == ("True", "Held", "held: by the operator; remove the hold", True)
    assert write.body["metadata"]["resourceVersion"] == "1"
    lone.tiny.send(write)
    lone.blockers.refuse("shell", (Misfit(Reason.QUEUE_MISSING, QueueEvidence("q")),))
    assert lone.at(129.0) == []
    (write,) = lone.at(130.0)
    assert said(write)[1::2] == ("QueueMissing", False)
    lone.tiny.send(write)
    lone.blockers.admit("shell")
    assert lone.at(131.0) == []
    lone.stage(spec={**spec(), "nodeName": "n0"})
    (write,) = lone.at(133.0)
    assert said(write) == ("False", "Admitted", None, True)
    lone.tiny.send(write)
    assert lone.at(200.0) == []
    assert lone.blockers.next_due(200.0) is None


def test_a_group_of_one_that_never_waited_says_nothing() -> None:
    lone = Lone()
    lone.blockers.admit("shell")
    assert (lone.at(1.0), lone.blockers.next_due(1.0)) == ([], None)


def test_a_word_that_is_on_its_way_when_the_pod_is_admitted_is_taken_back() -> None:
    """The answer had not come yet."""
    lone = Lone()
    lone.blockers.refuse("shell", (HELD,))
    (write,) = lone.at(100.0)
    lone.blockers.admit("shell")
    lone.tiny.send(write)
    lone.stage(spec={**spec(), "nodeName": "n0"})
    (write,) = lone.at(102.0)
    assert said(write)[0] == "False"


def test_a_pod_that_leaves_or_is_gone_is_told_nothing() -> None:
    lone = Lone()
    lone.blockers.refuse("shell", (HELD,))
    lone.stage(metadata={**alone()["metadata"], "deletionTimestamp": "2026-11-30T10:00:00Z"})
    assert (lone.at(1.0), lone.blockers.next_due(1.0)) == ([], None)
    lone.blockers.refuse("shell", (HELD,))
    lone.tiny.drop(foreign.PODS, "ns", "shell")
    assert (lone.at(2.0), lone.blockers.next_due(2.0)) == ([], None)


def test_the_first_decision_takes_back_what_nobody_says_any_more() -> None:
    """Of gangs that it neither refuses nor gives back; an admission takes it back with its record."""
    tiny = Tiny()
    told = {"reason": "NotBinding", "message": "by another process"}
    for name in ("runs", "waits", "starts", "leaves", "evicted", "well"):
        tiny.job(name, 1)
    tiny.settle()
    uids = {}
    for name in ("runs", "waits", "starts", "leaves", "evicted", "well"):
        group = tiny.group(name)
        uids[name] = group["metadata"]["uid"]
        status: dict[str, Any] = {} if name == "well" else {"blocker": told}
        if name == "evicted":
            status["conditions"] = [{"type": "Evicted", "status": "True"}]
        tiny.put(foreign.POD_GROUPS, {**group, "status": status})
    no_room = {"type": "queuectl.io/Waiting", "status": "True", "reason": "NoCapacity", "message": "no room"}
    running = {"phase": "Running", "conditions": [no_room]}
    tiny.put(foreign.PODS, {**alone(), "spec": {**spec(), "nodeName": "n0"}, "status": running})
    blockers = Blockers(tiny.source, 30.0)
    plan = Plan(
        (
            Refuse(uids["waits"], 0, (HELD,)),
            Admit(uids["starts"], 1, NOW, ()),
            Withdraw(uids["leaves"], 1, Cause.NODE_LOST, "n0", NOW),
        ),
        None,
    )
    blockers.recall(plan)
    writes = list(blockers.next_writes(FENCE, 1.0, NOW))
    of_gang, of_pod = sorted(writes, key=lambda write: write.kind is foreign.PODS)
    assert (of_gang.gang, of_gang.body["status"]["blocker"]) == (uids["runs"], None)
    assert (of_pod.gang, said(of_pod)[0]) == ("shell", "False")
    blockers.recall(Plan((), None))  # later decisions tell what changed
    assert list(blockers.next_writes(FENCE, 2.0, NOW)) == []


def test_a_queue_status_that_was_not_written_is_written_again() -> None:
    """And one that stands already is not."""
    tiny = Tiny()
    tiny.put(foreign.QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    statuses = QueueStatuses(tiny.source, 10.0)
    statuses.show(
        QueueView(
            name="q",
            parent=None,
            leaf=True,
            weight=1,
            priority=0,
            usage=(("nvidia.com/gpu", 8000), ("pods", 8)),
            entries=(),
            pending=(),
            gangs_pending=0,
            gangs_admitted=1,
            gangs_running=0,
            misfits=(),
        )
    )
    assert len(list(statuses.next_writes(FENCE, 5.0, NOW))) == 1
    assert statuses.next_due(5.0) == 15.0
    (write,) = statuses.next_writes(FENCE, 15.0, NOW)
    assert write.body["status"]["allocated"] == [{"name": "nvidia.com/gpu", "pool": "*", "amount": "8"}]
    tiny.send(write)
    assert list(statuses.next_writes(FENCE, 25.0, NOW)) == []
    assert statuses.next_due(25.0) is None
