"""The tally convicts whoever breaks a promise, and nobody else. It is given histories written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuectl.contract.foreign import JOBS, NODES, POD_GROUPS, PODS, QUEUES, Kind
from queuectl.drivers.embedded.store import Stored
from queuectl.drivers.embedded.tally import TORN, Tally, quantile

START = 1_893_456_000_000
WIRE = "2030-01-01T00:00:00Z"
US, SCHEDULER, TENANT = "queuectl", "system:kube-scheduler", "tenant"


class History:
    """A Job of ``size`` single-GPU pods in queue q (limit 4), with its PodGroup, on node n of 2 GPUs."""

    def __init__(self, size: int = 2, limit: int = 4) -> None:
        self.tally, self.now, self.version, self.size = Tally(2), START, 0, size
        for name in ("n", "m"):
            self.add(NODES, {"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": "2"}}})
        resources = [{"name": "nvidia.com/gpu", "limit": limit}]
        self.add(QUEUES, {"metadata": {"name": "q"}, "spec": {"resources": resources}})
        self.job()
        self.group(None)

    def add(self, kind: Kind, body: dict[str, Any], user: str = TENANT, verb: str = "MODIFIED") -> None:
        """One committed write."""
        self.version += 1
        self.tally(Stored(self.version, kind, verb, body, user), self.now)

    def job(self, condition: str = "") -> None:
        """The Job, perhaps ended."""
        meta = {"name": "j", "uid": "j", "labels": {"queuectl.io/queue": "q"}, "creationTimestamp": WIRE}
        conditions = [{"type": condition, "status": "True"}] if condition else []
        self.add(JOBS, {"metadata": meta, "spec": {}, "status": {"conditions": conditions}})

    def group(self, slots: str | None, node: str = "n", round_: int = 1) -> None:
        """Its PodGroup, with a record of these slots on a node."""
        owner = {"uid": "j", "controller": True}
        meta = {"name": "g", "uid": "g", "creationTimestamp": WIRE, "ownerReferences": [owner]}
        status: dict[str, Any] = {}
        if slots is not None:
            status = {"admission": {"round": round_, "assignments": [{"node": node, "slots": slots}]}}
        self.add(POD_GROUPS, {"metadata": meta, "spec": {"queue": "q", "minMember": self.size}, "status": status}, US)

    def pod(
        self,
        rank: int,
        *,
        uid: str = "",
        gated: bool = False,
        node: str = "n",
        phase: str = "Pending",
        user: str = US,
        gpus: str = "1",
        record: dict[str, Any] | None = None,
        verb: str = "MODIFIED",
    ) -> None:
        """A pod of the Job."""
        annotations = {"batch.kubernetes.io/job-completion-index": str(rank)}
        if record is not None:
            annotations["queuectl.io/admission"] = json.dumps(record)
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec: dict[str, Any] = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]}
        if gated:
            spec["schedulingGates"] = [{"name": "queuectl.io/admission"}]
        else:
            affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
            spec |= {"affinity": affinity}
        meta = {
            "name": f"j-{rank}",
            "uid": uid or f"p{rank}",
            "labels": {"queuectl.io/queue": "q"},
            "annotations": annotations,
            "ownerReferences": [{"uid": "j", "controller": True}],
        }
        self.add(PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}}, user, verb)

    def gates(self) -> None:
        """All pods come, gated."""
        for rank in range(self.size):
            self.pod(rank, gated=True, user=TENANT, verb="ADDED")


def test_an_honest_gang_is_counted_and_blamed_for_nothing() -> None:
    """Two pods wait ten seconds, run for ninety on all GPUs, and end."""
    history = History()
    history.gates()
    history.group("0-1")
    for rank in range(2):
        history.pod(rank)
    history.now += 10_000
    for rank in range(2):
        history.pod(rank, phase="Running", user="kubelet")
    history.now += 90_000
    for rank in range(2):
        history.pod(rank, phase="Succeeded", user="kubelet")
    history.job("Complete")
    report = history.tally.report(history.now, START)
    assert (report.gangs, report.finished, report.failed, report.waiting) == (1, 1, 0, 0)
    assert (report.wait_p50_s, report.gpu_utilisation) == (10.0, 0.9)
    assert (report.partial_releases, report.double_charges, report.violations) == (0, 0, 0)
    assert history.tally.running_gpus == 0


def test_a_gate_without_a_record_of_that_node() -> None:
    """No record, another node's, a record of another slot: each is P1."""
    for slots, node in ((None, "n"), ("0-1", "m"), ("1", "n")):
        history = History()
        history.gates()
        history.group(slots, node)
        history.pod(0)
        assert [offence[:2] for offence in history.tally.offences] == ["P1"]


def test_a_gate_that_somebody_else_removed() -> None:
    """Even where there is a record."""
    history = History()
    history.gates()
    history.group("0-1")
    history.pod(0, user=TENANT)
    assert history.tally.offences == ["P1: the gate of j-0 was removed by tenant"]


def test_a_replacement_brings_its_own_record() -> None:
    """In the same write, for its node and the gang's round; one of an older round does not count."""
    history = History()
    history.gates()
    history.group("0-1", round_=2)
    history.pod(0, node="m", record={"node": "m", "round": 2})
    assert history.tally.offences == []
    history.pod(1, node="m", record={"node": "m", "round": 1})
    assert [offence[:2] for offence in history.tally.offences] == ["P1"]


def test_a_node_and_a_limit_that_are_exceeded() -> None:
    """Three GPUs on a node of two; three in a queue that may have two."""
    history = History(size=3)
    history.gates()
    history.group("0-2")
    for rank in range(3):
        history.pod(rank)
    assert history.tally.offences == ["P2: 3 of 2 GPUs of n"]
    history = History(size=3, limit=2)
    history.gates()
    history.group("0-2", "n")
    history.pod(0)
    history.pod(1)
    history.group("0-2", "m")
    history.pod(2, node="m")
    assert history.tally.offences == ["P2: 3 of 2 GPUs of queue q"]


def test_what_ended_is_not_charged_any_more() -> None:
    """Its place may be used again."""
    history = History(size=3)
    history.gates()
    history.group("0-2")
    history.pod(0)
    history.pod(1)
    history.pod(0, phase="Succeeded", user="kubelet")
    history.pod(2)
    assert history.tally.offences == []


def test_a_slot_that_is_filled_twice() -> None:
    """Two live released pods of one rank; one after the other is no fault."""
    history = History()
    history.gates()
    history.group("0-1")
    history.pod(0)
    history.pod(0, verb="DELETED", user="kubelet")
    history.pod(0, uid="second", gated=True, user=TENANT, verb="ADDED")
    history.pod(0, uid="second")
    assert history.tally.doubles == []
    history.pod(0, uid="third", gated=True, user=TENANT, verb="ADDED")
    history.pod(0, uid="third")
    assert history.tally.doubles == ["j/0"]


@pytest.mark.parametrize(("later", "partial"), [(TORN // 2, 0), (TORN + 1, 1)])
def test_a_gang_that_comes_to_rest_in_part(later: int, partial: int) -> None:
    """One of two released: for a moment that is how releasing goes, for longer it is a broken promise."""
    history = History()
    history.gates()
    history.group("0-1")
    history.pod(0)
    history.now += later
    history.pod(1)
    assert history.tally.report(history.now).partial_releases == partial


def test_what_is_still_torn_at_the_end_counts() -> None:
    """Nobody will make it whole."""
    history = History()
    history.gates()
    history.group("0-1")
    history.pod(0)
    assert history.tally.report(history.now + 1).partial_releases == 1


def test_what_is_not_ours_is_not_touched() -> None:
    """A pod and a Job without our label, written by our account."""
    history = History()
    other = {"metadata": {"name": "other", "uid": "o"}, "spec": {"containers": []}, "status": {}}
    history.add(PODS, other, TENANT)
    assert history.tally.offences == []
    history.add(PODS, other, US)
    history.add(JOBS, other, US)
    assert [offence[:2] for offence in history.tally.offences] == ["P4", "P4"]


def test_quantiles() -> None:
    """Of none it is nothing; else a value that occurred."""
    assert quantile([], 0.5) == 0
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.95) == 4.0
