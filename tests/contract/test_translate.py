"""What the objects on the wire mean to the engine, one object at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuectl.contract import translate
from queuectl.contract.foreign import Custom, Job

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
