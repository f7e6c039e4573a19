"""The models: every rule with a right and a wrong object, and messages that name the field and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.contract.v1alpha1 import (
    MAX_MEMBERS,
    InvalidObject,
    format_slots,
    parse_slots,
    placed,
    validate,
)
from queuectl.model.queues import QueueState
from tests.contract.cases import CASES, Case

Json = dict[str, Any]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}")
def test_cases(case: Case) -> None:
    if case.path is None:
        assert validate(case.kind, case.manifest()).metadata.name == case.object_name
        return
    with pytest.raises(InvalidObject) as refused:
        validate(case.kind, case.manifest())
    message = str(refused.value)
    assert message.startswith(f"{case.path}: ")
    assert case.says in message
    assert "\n" not in message
    assert len(message) < 250


def test_every_bad_field_is_named_at_once() -> None:
    spec = {"weight": -1, "state": "Shut", "resources": [{"name": "nvidia.com/gpu", "quota": "0.5"}]}
    with pytest.raises(InvalidObject) as refused:
        validate("Queue", {"metadata": {"name": "a"}, "spec": spec})
    assert str(refused.value).split("; ")[:2] == [
        "spec.weight: should be greater than or equal to 0",
        "spec.resources[0].quota: must be a whole number: only cpu comes in fractions (a shared GPU is a resource of its own)",
    ]


def test_defaults_and_wire_names() -> None:
    queue = validate(
        "Queue", {"metadata": {"name": "a", "resourceVersion": "7", "labels": {"a": "b"}, "managedFields": []}}
    )
    assert (queue.spec.weight, queue.spec.priority, queue.spec.state, queue.spec.resources) == (
        1,
        0,
        QueueState.OPEN,
        [],
    )
    assert queue.metadata.resource_version == "7"
    entry = {"name": "cpu", "quota": 3}
    queue = validate("Queue", {"metadata": {"name": "a"}, "spec": {"resources": [entry]}})
    (resource,) = queue.spec.resources
    assert (resource.pool, resource.quota, resource.limit) == ("*", "3", None)
    wire = queue.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert wire["spec"]["resources"] == [{"name": "cpu", "pool": "*", "quota": "3"}]
    assert wire["apiVersion"] == "queuectl.io/v1alpha1"


STATUS: Json = {
    "fence": 3,
    "conditions": [
        {"type": "Placed", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": "2026-01-31T14:05:09Z"}
    ],
    "queuedAt": "2026-01-31T14:05:09Z",
    "startedAt": "2026-01-31T14:06:09.25+01:00",
    "requeue": {
        "count": 2, "notBefore": "2026-01-31T15:00:00Z", "reason": "BindDeadline", "suspendedByUs": True, "requested": "x",
    },
    "admission": {
        "round": 3,
        "fence": 3,
        "decidedAt": "2026-01-31T14:05:09Z",
        "assignments": [{"node": "gpu-1", "slots": "0-3,7"}, {"node": "gpu-2", "slots": "4-6"}],
    },
    "counts": {"members": 8, "released": 8, "bound": 8, "running": 8, "succeeded": 0, "failed": 0},
    "blocker": {"reason": "NoCapacity", "message": "…"},
    "round": 3,
    "observedGeneration": 1,
}  # fmt: skip


def pod_group(queue: str = "a", status: Json | None = None) -> Json:
    body = {"metadata": {"name": "g"}, "spec": {"queue": queue, "minMember": 8}}
    return body if status is None else {**body, "status": status}


def test_the_whole_status_is_read() -> None:
    group = validate("PodGroup", pod_group(status=STATUS))
    assert group.status is not None
    assert group.status.admission is not None
    assert [parse_slots(one.slots) for one in group.status.admission.assignments] == [(0, 1, 2, 3, 7), (4, 5, 6)]
    assert group.status.model_dump(by_alias=True) == STATUS
    assert placed(group)


def test_a_newer_status_is_still_read() -> None:
    """After a roll-back to this version, records of the newer one must still count."""
    status = {**STATUS, "preemption": {"round": 4}, "counts": {"members": 8, "leaving": 1}}
    assert placed(validate("PodGroup", pod_group(status=status)))


def admission(**change: Any) -> Json:
    return {"admission": {**STATUS["admission"], **change}}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"queuedAt": "yesterday"}, "status.queuedAt"),
        ({"queuedAt": "2026-02-30T00:00:00Z"}, "status.queuedAt"),
        ({"queuedAt": 17}, "status.queuedAt"),
        ({"fence": -1}, "status.fence"),
        (admission(round=0), "status.admission.round"),
        (admission(assignments=[{"node": "a", "slots": "0-"}]), "status.admission.assignments[0].slots"),
        (admission(assignments=[{"node": "a", "slots": "0"}] * 2), "status.admission.assignments"),
        ({"conditions": STATUS["conditions"] * 2}, "status.conditions"),
    ],
)  # fmt: skip
def test_a_broken_status_is_refused(change: Json, path: str) -> None:
    with pytest.raises(InvalidObject, match=rf"^{path.replace('[', '.').replace(']', '.')}: "):
        validate("PodGroup", pod_group(status={**STATUS, **change}))


def test_the_queue_of_a_placed_gang_cannot_change() -> None:
    with pytest.raises(InvalidObject, match=r"^spec\.queue: cannot change while the gang is placed"):
        validate("PodGroup", pod_group("b"), pod_group("a", STATUS))
    validate("PodGroup", pod_group("a"), pod_group("a", STATUS))
    away = {**STATUS, "conditions": [{**STATUS["conditions"][0], "status": "False"}]}
    validate("PodGroup", pod_group("b"), pod_group("a", away))
    validate("PodGroup", pod_group("b"), pod_group("a"))


def test_unknown_kind() -> None:
    with pytest.raises(KeyError):
        validate("Gang", {})


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=200))
def test_slots_there_and_back(slots: set[int]) -> None:
    text = format_slots(sorted(slots))
    assert parse_slots(text) == tuple(sorted(slots))
    assert "--" not in text


@pytest.mark.parametrize(("slots", "text"), [((0,), "0"), ((1, 0), "0-1"), ((3, 1, 2, 7, 9), "1-3,7,9")])
def test_slots_are_written_short(slots: tuple[int, ...], text: str) -> None:
    assert format_slots(slots) == text


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1,,2", "-1", "1-", " 1", "0-999999999", f"0-{MAX_MEMBERS}", "1-2-3", "٣"]
)
def test_bad_slots(text: str) -> None:
    with pytest.raises(ValueError, match="slots"):
        parse_slots(text)


def test_no_slots_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="no slots"):
        format_slots(())
