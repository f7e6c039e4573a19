"""What the objects on the wire mean to the engine, one object at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuectl.contract import owners, patches, translate
from queuectl.contract.foreign import Custom, Job, NodeSelector, Pod
from queuectl.contract.shapes import Shapes
from queuectl.contract.times import from_wire
from queuectl.contract.translate import Crew
from queuectl.model.gangs import Gang, Role, Stage
from queuectl.model.reasons import Reason

QUEUE = "queuectl.io/queue"


def job(annotations: dict[str, str] | None = None, *, status: dict[str, Any] | None = None, **fields: Any) -> Job:
    """A Job in queue q."""
    meta = {"name": "train", "namespace": "ns", "uid": "job-1", "labels": {QUEUE: "q"}, "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": fields, "status": status or {}}, Job)


def group(status: dict[str, Any] | None = None, **spec: Any) -> Custom:
    """A PodGroup."""
    meta = {"name": "g", "namespace": "ns", "uid": "group-1", "creationTimestamp": "2026-11-30T10:00:00Z"}
    return msgspec.convert({"metadata": meta, "spec": {"queue": "q", **spec}, "status": status or {}}, Custom)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("group-1:3:suspended", "suspended"),
        ("group-1:3:resumed", "resumed"),
        pytest.param("group-2:3:suspended", "", id="of the Job that this one was copied from"),
        pytest.param("group-1:2:suspended", "", id="of a round before"),
        pytest.param("3:suspended", "", id="of no PodGroup"),
        pytest.param("group-1:3:", "", id="no step"),
        pytest.param("group-1:3:eaten", "", id="no step of ours"),
        pytest.param("", "", id="empty"),
    ],
)
def test_what_we_did_to_an_owner(text: str, step: str) -> None:
    """Only what names this PodGroup and this round was us."""
    assert translate.suspension_step(job({"queuectl.io/suspension": text}), "group-1", 3) == step
    assert translate.suspension_step(job(), "group-1", 3) == ""


@pytest.mark.parametrize(("text", "own"), [("group-1:1:resumed", True), ("group-2:1:resumed", False)])
def test_a_copied_annotation_does_not_make_a_waiting_job_its_users_own_suspend(text: str, own: bool) -> None:
    """It was recorded and is not resumed yet; resumed before, it would be its user who suspended it again."""
    status = {"round": 1, "admission": {"round": 1}, "requeue": {"suspendedByUs": True}}
    assert translate.own_suspend(group(status), job({"queuectl.io/suspension": text}, suspend=True)) is own


def seen(found: Custom, owner: Job | None = None, crew: Crew | None = None) -> Gang:
    """The gang."""
    return translate.gang(found, owner, Shapes(), crew or Crew())


# ---- pins

NAME = "metadata.name"
TERMS = {
    "none": None,
    "expression": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}],
    "two terms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchFields": [{"key": NAME, "operator": "NotIn", "values": ["n9"]}]},
    ],
    "its own node, the same": [{"matchFields": [{"key": NAME, "operator": "In", "values": ["n1"]}]}],
    "an empty term": [{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}],
}


def test_a_gang_waits_since_its_owner_came() -> None:
    """Not since a controller came to write its PodGroup; a queue time in its status goes before both."""
    late, early = "2026-01-01T00:10:00Z", "2026-01-01T00:00:00Z"
    found, owner = group(), job()
    found.metadata.creation_timestamp, owner.metadata.creation_timestamp = late, early
    assert seen(found).queued_at == from_wire(late)
    assert seen(found, owner).queued_at == from_wire(early)
    again = group({"queuedAt": "2026-01-01T00:20:00Z"})
    again.metadata.creation_timestamp = late
    assert seen(again, owner).queued_at == from_wire("2026-01-01T00:20:00Z")


def pod(terms: list[dict[str, Any]] | None, *, gated: bool = False, fence: bool = True) -> Pod:
    """A managed pod with that required affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body = {
        "metadata": {
            "name": "p",
            "uid": "pod-1",
            "labels": {QUEUE: "q"},
            "annotations": {"queuectl.io/fence": "1"} if fence else {},
        },
        "spec": {
            "affinity": {"nodeAffinity": required} if terms is not None else None,
            "schedulingGates": [{"name": "queuectl.io/admission"}] if gated else [],
        },
    }
    return msgspec.convert(body, Pod)


def pinned(terms: list[dict[str, Any]] | None, node: str = "n1") -> list[dict[str, Any]]:
    """The terms after our patch."""
    before = msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector).node_selector_terms
    return patches.pin(before, node)


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_a_pin_of_ours_is_a_place_and_no_part_of_the_shape(terms: list[dict[str, Any]] | None) -> None:
    """Whatever affinity its owner gave it: the shape is the one it had while it was gated."""
    shapes = Shapes()
    before, _ = translate.member(pod(terms, gated=True), "g", shapes)
    after, _ = translate.member(pod(pinned(terms)), "g", shapes)
    assert (before.stage, before.pinned, after.stage, after.pinned) == (Stage.GATED, None, Stage.RELEASED, "n1")
    assert after.shape == before.shape
    assert after.shape is before.shape


def test_a_pin_that_is_not_ours_is_its_owners_wish() -> None:
    """Without our fence on it, while it is gated, or where the terms name different nodes."""
    shapes = Shapes()
    for one in (
        pod(pinned(None), fence=False),
        pod(pinned(None), gated=True),
        pod([*pinned(None), *pinned(None, "n2")]),
    ):
        member, _ = translate.member(one, "g", shapes)
        assert member.shape.affinity


# ---- sizes


def test_gates_of_the_template_are_the_slots() -> None:
    """Ours is not foreign."""
    gates = [{"name": "queuectl.io/admission"}, {"name": "z.example/wait"}, {"name": "a.example/wait"}]
    owner = job(parallelism=2, completions=2, template={"spec": {"schedulingGates": gates}})
    (role,) = seen(group(minMember=1), owner).roles
    assert role.gates == ("a.example/wait", "z.example/wait")
    (role,) = seen(group(minMember=1)).roles
    assert role.gates == ()


ALL = {"queuectl.io/min-member": "all"}


@pytest.mark.parametrize(
    ("spec", "succeeded", "seen_", "present", "left"),
    [
        pytest.param((16, 16), 0, 0, 16, 16, id="nothing done"),
        pytest.param((16, 16), 6, 6, 16, 16, id="done and still there: their slots are closed"),
        pytest.param((16, 16), 6, 0, 0, 10, id="done and cleaned up"),
        pytest.param((16, 16), 6, 2, 12, 12, id="some of them"),
        pytest.param((16, 16), 6, 5, 16, 16, id="counted, but our pods do not show it yet"),
        pytest.param((16, 16), 16, 0, 0, 0, id="all done"),
        pytest.param((16, 16), 20, 0, 0, 0, id="more than all"),
        pytest.param((4, 16), 6, 0, 4, 4, id="the next ones come"),
        pytest.param((4, 16), 14, 0, 2, 2, id="the last ones"),
        pytest.param((4, None), 3, 0, 1, 4, id="a work queue: how many are left, only it knows"),
        pytest.param((0, 16), 0, 0, 0, 0, id="paused"),
        pytest.param((16, 0), 0, 0, 0, 0, id="nothing to complete"),
    ],
)
def test_how_many_pods_are_left(
    spec: tuple[int, int | None], succeeded: int, seen_: int, present: int, left: int
) -> None:
    """By parallelism and completions, successes as the Job counts them, and members as we see them."""
    owner = job(ALL, parallelism=spec[0], completions=spec[1], status={"succeeded": succeeded})
    cleaned = owners.JOB.cleaned(owner, seen_)
    assert owners.left(owners.JOB, owner, cleaned, present) == left
    gang = seen(group(minMember=1), owner, Crew(empty=not present, cleaned=cleaned, present=present))
    assert (gang.minimum, gang.maximum) == (left, left)
    assert [misfit.reason for misfit in gang.blocked] == ([] if left else [Reason.SUSPENDED])


def test_a_gang_size_beyond_what_a_gang_may_have() -> None:
    """Of a Job, at once and by name; and of roles that are too many together."""
    huge = job(ALL, parallelism=2_000_000_000)
    with pytest.raises(owners.InvalidAnnotation, match="2000000000 pods"):
        owners.size(owners.JOB, huge)
    assert "spec.maxMember" in translate.underivable(huge, "q")
    roles = [{"name": f"r{i}", "minMember": 60_000} for i in range(2)]
    gang = seen(group(roles=roles))
    assert (gang.roles, [misfit.reason for misfit in gang.blocked]) == ((), [Reason.INVALID_REQUEST])
    assert seen(group(roles=roles[:1])).roles == (Role("r0", 60_000, 60_000),)


@pytest.mark.parametrize("name", ["job-train-0a1b2", "job-a-b-c-fffff"])
def test_a_derived_pod_group_without_owner_and_members_is_over(name: str) -> None:
    """Only if it was admitted, and never one that has either."""
    loose = group({"round": 1, "admission": {"round": 1, "assignments": [{"node": "n0", "slots": "0"}]}}, minMember=1)
    loose.metadata.name = name
    assert seen(loose).finished
    assert not seen(loose, crew=Crew(empty=False)).finished
    loose.status = {}
    assert not seen(loose).finished


@pytest.mark.parametrize("name", ["band", "job-train", "job-train-0a1bz", "xjob-train-0a1b2"])
def test_a_pod_group_that_somebody_wrote_keeps_its_place_without_members(name: str) -> None:
    """Its creator may make them anew."""
    own = group({"round": 1, "admission": {"round": 1, "assignments": [{"node": "n0", "slots": "0"}]}}, minMember=1)
    own.metadata.name = name
    assert not seen(own).finished


def test_a_status_that_we_did_not_write_does_not_make_the_spec_invalid() -> None:
    """The status is ours, and read as far as it goes."""
    assert seen(group({"blocker": {"reason": "no word"}, "conditions": []}, minMember=1)).blocked == ()


@pytest.mark.parametrize(("labels", "ours"), [({QUEUE: "q"}, True), ({QUEUE: ""}, False), ({}, False)])
def test_a_managed_pod_names_a_queue(labels: dict[str, str], ours: bool) -> None:
    """An empty name is none, as in the policies."""
    assert translate.managed(msgspec.convert({"metadata": {"name": "p", "labels": labels}}, Pod)) is ours
