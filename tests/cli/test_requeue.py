"""Whom ``queuectl requeue`` means, and what it says when it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from queuectl.cli.problems import Problem
from queuectl.cli.requeue import find, irrevocable, words
from queuectl.contract.foreign import (
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Custom,
    Job,
    JobSet,
    Kind,
    Meta,
    OwnerReference,
    Pod,
    ReplicaSet,
)
from queuectl.control.ports import NotFound, Refused, Unreachable
from tests.serve.standin import NoCluster

KINDS = (JOBS, JOB_SETS, REPLICA_SETS, STATEFUL_SETS)


class Some(NoCluster):
    """A namespace with these objects. It knows no JobSets, unless there is one."""

    def __init__(self, *objects: Any) -> None:
        self.objects = objects

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        for one in await self.list(kind, namespace):
            if one.metadata.name == name:
                return one
        raise NotFound(f'"{name}" not found', 404)

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        found = [one for one in self.objects if isinstance(one, kind.type)]
        if kind is JOB_SETS and not found:
            raise NotFound("the server could not find the requested resource", 404)
        return found


def meta(name: str, *owners: OwnerReference, created: str = "2026-11-30T09:00:00Z", **rest: Any) -> Meta:
    return Meta(
        name=name, namespace="ml", uid=f"uid-{name}", owner_references=owners, creation_timestamp=created, **rest
    )


def by(kind: Kind, name: str) -> OwnerReference:
    """Made by this."""
    return OwnerReference(kind.kind, name, f"uid-{name}", kind.api_version, controller=True)


def group(name: str, owner: Kind | None = None, of: str = "", created: str = "2026-11-30T09:00:00Z") -> Custom:
    return Custom(metadata=meta(name, *((by(owner, of),) if owner else ()), created=created))


async def named(cluster: Some, name: str) -> str:
    """The PodGroup that is meant."""
    return (await find(cluster, "ml", name)).metadata.name


async def test_a_group_is_found_by_its_own_name_first_and_then_as_its_youngest_owners() -> None:
    old, new = group("job-train-a", JOBS, "train"), group("job-train-b", JOBS, "train", "2026-11-30T10:00:00Z")
    assert await named(Some(old, new, group("train"), group("sweep")), "train") == "train"
    assert await named(Some(old, new, group("sweep")), "train") == "job-train-b"
    assert await named(Some(old, new, group("sweep")), "sweep") == "sweep"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
async def test_a_group_is_found_by_every_kind_of_owner(kind: Kind) -> None:
    assert await named(Some(group("derived", kind, "mine"), group("other")), "mine") == "derived"


async def test_a_deployment_and_a_cron_job_are_named_as_people_know_them() -> None:
    """Their names are two owners up: the PodGroup is their ReplicaSet's, their Job's."""
    deployment = OwnerReference("Deployment", "api", "uid-api", "apps/v1", controller=True)
    cron = OwnerReference("CronJob", "nightly", "uid-nightly", "batch/v1", controller=True)
    cluster = Some(
        ReplicaSet(metadata=meta("api-1", deployment)),
        ReplicaSet(metadata=meta("api-2", deployment)),
        Job(metadata=meta("nightly-7", cron)),
        group("replicaset-api-1", REPLICA_SETS, "api-1"),
        group("replicaset-api-2", REPLICA_SETS, "api-2", "2026-11-30T10:00:00Z"),
        group("job-nightly-7", JOBS, "nightly-7"),
    )
    assert await named(cluster, "api") == "replicaset-api-2"
    assert await named(cluster, "nightly") == "job-nightly-7"


async def test_a_pod_stands_for_its_gang() -> None:
    """By its label, its owner, or its owner's owner."""
    labelled: dict[str, Any] = {"labels": {"queuectl.io/pod-group": "band"}}
    cluster = Some(
        Pod(metadata=meta("band-0", **labelled)),
        Pod(metadata=meta("train-0", by(JOBS, "train"))),
        Pod(metadata=meta("set-w-0-0", by(JOBS, "set-w-0"))),
        Job(metadata=meta("set-w-0", by(JOB_SETS, "set"))),
        JobSet(metadata=meta("set")),
        group("band"),
        group("job-train", JOBS, "train"),
        group("jobset-set", JOB_SETS, "set"),
    )
    assert [await named(cluster, pod) for pod in ("band-0", "train-0", "set-w-0-0")] == [
        "band",
        "job-train",
        "jobset-set",
    ]


class Told(Struct):
    """A refusal."""

    message: str
    advice: str


async def refusal(cluster: Some, name: str) -> Told:
    with pytest.raises(Problem) as raised:
        await find(cluster, "ml", name)
    return Told(raised.value.message, raised.value.advice)


async def test_a_pod_on_its_own_cannot_be_requeued() -> None:
    assert await refusal(Some(Pod(metadata=meta("lonely"))), "lonely") == Told(
        '"lonely" is a pod on its own, without a PodGroup: it cannot be requeued',
        "Delete it and create it again, or make it a Job: kubectl -n ml delete pod lonely",
    )
    daemon = OwnerReference("DaemonSet", "exporter", "uid-exporter", "apps/v1", controller=True)
    assert (await refusal(Some(Pod(metadata=meta("exporter-1", daemon))), "exporter-1")).message == (
        '"exporter-1" is a pod on its own, without a PodGroup: it cannot be requeued'
    )


async def test_a_pod_whose_gang_has_no_pod_group_yet() -> None:
    assert await refusal(Some(Pod(metadata=meta("train-0", by(JOBS, "train")))), "train-0") == Told(
        '"train-0" is a pod of train, which has no PodGroup',
        "Does the controller run, and does the pod have a queue? queuectl explain gang train-0 -n ml",
    )


async def test_of_a_set_with_several_groups_one_must_be_named() -> None:
    """By its PodGroup or by a pod of it; one group alone needs no more than the set's name."""
    groups = [group(f"leaderworkerset-serve-{i}-uid-s", LEADER_WORKER_SETS, "serve") for i in range(4)]
    label = "leaderworkerset.sigs.k8s.io"

    def pod(name: str, of: Kind, above: str, index: int) -> Pod:
        return Pod(
            metadata=meta(name, by(of, above), labels={f"{label}/name": "serve", f"{label}/group-index": str(index)})
        )

    pods = [pod("serve-2", STATEFUL_SETS, "serve", 2), pod("serve-1-3", STATEFUL_SETS, "serve-1", 1)]
    shown = ", ".join(one.metadata.name for one in groups[:3])
    assert await refusal(Some(*groups), "serve") == Told(
        '"serve" has 4 gangs, one for each of its groups', f"Name one of them: {shown}, …"
    )
    assert await named(Some(*groups, *pods), "serve-2") == groups[2].metadata.name
    assert await named(Some(*groups, *pods), "serve-1-3") == groups[1].metadata.name
    assert await named(Some(groups[1]), "serve") == groups[1].metadata.name
    assert (await refusal(Some(*pods), "serve-2")).message == '"serve-2" is a pod of serve, which has no PodGroup'


@pytest.mark.parametrize(
    ("annotations", "admitted", "owner", "refused"),
    [
        ({}, True, "", True),
        ({"queuectl.io/preemptible": "true"}, True, "", False),
        ({}, False, "", False),
        ({}, True, "train", False),
    ],
    ids=["holds places", "accepts it", "waits", "has an owner"],
)
def test_pods_that_nobody_makes_again(annotations: dict[str, str], admitted: bool, owner: str, refused: bool) -> None:
    """Asking would change nothing, so it is said at once; a back-off can be ended all the same."""
    one = group("band", JOBS if owner else None, owner)
    one.metadata.annotations = annotations
    one.status = {"admission": {"round": 1}} if admitted else {}
    assert irrevocable(one) is refused


async def test_nothing_of_that_name() -> None:
    """Said as every other verb says it."""
    assert await refusal(Some(group("job-train-a", JOBS, "train")), "trian") == Told(
        'gang "trian" not found in namespace "ml"', "nearest: train"
    )
    assert await refusal(Some(), "trian") == Told('gang "trian" not found in namespace "ml"', "")


def test_what_to_do() -> None:
    assert "the role queuectl-edit allows it" in words(Refused("forbidden", 403), "ml")[1]
    assert "queuectl crds" in words(NotFound("no such resource", 404), "ml")[1]
    assert words(Unreachable("connection refused", 0), "ml") == (
        "the API server does not answer: connection refused",
        "Check --kubeconfig and --context.",
    )
