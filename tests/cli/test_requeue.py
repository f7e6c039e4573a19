"""Whom ``queuectl requeue`` means, and what it says when it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.cli.problems import Problem
from queuectl.cli.requeue import find, words
from queuectl.contract.foreign import POD_GROUPS, Custom, Kind, Meta, OwnerReference
from queuectl.control.ports import NotFound, Refused, Unreachable
from tests.serve.standin import NoCluster


class Some(NoCluster):
    """A namespace with these PodGroups, and a pod named lonely."""

    def __init__(self, *groups: Custom) -> None:
        self.groups = groups

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        for group in self.groups if kind is POD_GROUPS else ():
            if group.metadata.name == name:
                return group
        if kind is not POD_GROUPS and name == "lonely":
            return object()
        raise NotFound(f'"{name}" not found', 404)

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        return list(self.groups)


def group(name: str, owner: str = "", created: str = "2026-11-30T09:00:00Z") -> Custom:
    owners = (OwnerReference("Job", owner, "u"),) if owner else ()
    return Custom(metadata=Meta(name=name, uid=name, owner_references=owners, creation_timestamp=created))


async def test_a_group_is_found_by_its_name_and_its_jobs() -> None:
    old, new = group("job-train-a", "train"), group("job-train-b", "train", "2026-11-30T10:00:00Z")
    cluster = Some(old, new, group("train"), group("sweep"))
    assert (await find(cluster, "ml", "train")).metadata.name == "train"
    assert (await find(Some(old, new), "ml", "train")) is new
    assert (await find(cluster, "ml", "sweep")).metadata.name == "sweep"


async def test_a_pod_on_its_own_cannot_be_requeued() -> None:
    with pytest.raises(Problem) as raised:
        await find(Some(), "ml", "lonely")
    assert raised.value.message == '"lonely" is a pod on its own, without a PodGroup: it cannot be requeued'
    assert raised.value.advice.endswith("kubectl -n ml delete pod lonely")


async def test_nothing_of_that_name() -> None:
    with pytest.raises(Problem) as raised:
        await find(Some(group("job-train-a", "train")), "ml", "trian")
    assert (raised.value.message, raised.value.advice) == (
        'no PodGroup or Job "trian" in namespace "ml"',
        "nearest: train",
    )


def test_what_to_do() -> None:
    assert "the role queuectl-edit allows it" in words(Refused("forbidden", 403), "ml")[1]
    assert "queuectl crds" in words(NotFound("no such resource", 404), "ml")[1]
    assert words(Unreachable("connection refused", 0), "ml") == (
        "the API server does not answer: connection refused",
        "Check --kubeconfig and --context.",
    )
