"""JobSets and LeaderWorkerSets that start in stages, on the real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queuectl.contract.v1alpha1 import parse_slots
from tests.control.troupe import Scene, scene
from tests.proofs.stage import QUEUE_LABEL, Stage, gated
from tests.rig import staging
from tests.rig.client import eventually
from tests.rig.nodes import RUN_SECONDS, START_SECONDS, STOP_SECONDS
from tests.rig.objects import Object, pod_spec

pytestmark = [pytest.mark.rig, pytest.mark.asyncio(loop_scope="session")]
BACKGROUND = {"propagationPolicy": "Background"}


@asynccontextmanager
async def job_sets(stage: Stage, nodes: int = 2) -> AsyncIterator[tuple[Scene, str]]:
    """A scene with the JobSet kind and its controller, and the path of its JobSets, which are gone before it ends."""
    async with scene_with(stage, nodes, "job_sets") as found:
        yield found


@asynccontextmanager
async def worker_sets(stage: Stage, nodes: int = 2) -> AsyncIterator[tuple[Scene, str]]:
    """The same with LeaderWorkerSets."""
    async with scene_with(stage, nodes, "worker_sets") as found:
        yield found


@asynccontextmanager
async def scene_with(stage: Stage, nodes: int, kind: str) -> AsyncIterator[tuple[Scene, str]]:
    """The kind is installed when the controller has begun already: it learns of it by what is made."""
    async with scene(stage, nodes) as play, getattr(staging, kind)(stage.admin, play.namespace) as path:
        try:
            yield play, path
        finally:
            # Not left to the garbage collector, which learns of new kinds every half minute.
            for owners in (path, f"/apis/apps/v1/namespaces/{play.namespace}/statefulsets", play.jobs, play.pods):
                await play.admin.delete(owners, BACKGROUND)
            await play.run(0, deadline=90)


def part(name: str, jobs: int, pods: int, queue: str, *, after: str = "", **annotations: str) -> Object:
    """``jobs`` Jobs of so many pods of one GPU, ``after`` those of another part are ready."""
    pod = {"metadata": {"annotations": annotations}, "spec": pod_spec(1, terminationGracePeriodSeconds=1)}
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": pod}
    depends = {"dependsOn": [{"name": after, "status": "Ready"}]} if after else {}
    template = {"metadata": {"labels": {QUEUE_LABEL: queue}}, "spec": spec}
    return {"name": name, "replicas": jobs, **depends, "template": template}


def job_set(name: str, *parts: Object, **spec: object) -> Object:
    """A JobSet."""
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
    return {**head, "spec": {"replicatedJobs": list(parts), **spec}}


def worker_set(name: str, queue: str, groups: int, size: int, *, leader: Object | None = None) -> Object:
    """A LeaderWorkerSet whose workers come when their leader is ready; ``leader`` are annotations of it alone."""
    meta = {"labels": {QUEUE_LABEL: queue}, "annotations": {STOP_SECONDS: "1"}}
    spec = pod_spec(1, restartPolicy="Always", terminationGracePeriodSeconds=2)
    template: Object = {"size": size, "workerTemplate": {"metadata": meta, "spec": spec}}
    if leader is not None:
        notes = {**meta["annotations"], **leader}
        template["leaderTemplate"] = {"metadata": {**meta, "annotations": notes}, "spec": spec}
    head = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": name}}
    return {**head, "spec": {"replicas": groups, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}}


def places(status: Object) -> list[str]:
    """The nodes of a record, slot by slot."""
    found: dict[int, str] = {}
    for one in status["admission"]["assignments"]:
        found |= dict.fromkeys(parse_slots(one["slots"]), one["node"])
    return [found[slot] for slot in sorted(found)]


async def uids(play: Scene) -> set[str]:
    """UIDs of all pods that are there."""
    return {pod["metadata"]["uid"] for pod in await play.admin.list(play.pods)}


async def greedy(play: Scene) -> None:
    """A Job that asks for more than is left, younger than all that is there: creation times are whole seconds."""
    await asyncio.sleep(1.1)
    await play.job("greedy", 2)
    await play.waits_for("greedy", "NoCapacity")


async def requeue(play: Scene, name: str) -> None:
    """What ``queuectl requeue gang`` writes."""
    meta = (await play.group(name))["metadata"]
    asked = {"metadata": {"annotations": {"queuectl.io/requeue": "2026-11-30T12:00:00Z"}}}
    await play.tenant.patch(f"{play.groups}/{meta['name']}", asked)


async def test_a_jobset_in_stages(stage: Stage) -> None:
    """Recorded, charged and bound as a whole though its workers come later; suspended, resumed, and it runs again to its end."""
    async with job_sets(stage) as (play, path):
        slow = {START_SECONDS: "5"}
        driver = part("driver", 1, 1, play.namespace, **slow)
        workers = part("worker", 2, 3, play.namespace, after="driver")
        await play.admin.create(path, job_set("train", driver, workers))
        first = await play.status("train", lambda s: s.get("admission"))
        assert len(places(first)) == 7
        assert len(await play.admin.list(play.pods)) == 1
        await greedy(play)  # one GPU is left: what the workers need is theirs
        await play.run(7, "train")
        await play.settled(7)
        assert sorted((await play.on_nodes("train")).values()) == sorted(places(first))
        await play.status("train", lambda s: s.get("startedAt"))
        before = await uids(play)
        await requeue(play, "train")
        await play.status("train", lambda s: s["round"] == 2 and s.get("startedAt"), 60)
        await play.run(7, "train")
        assert not before & {p["metadata"]["uid"] for p in await play.admin.list(play.pods) if not gated(p)}
        for name in ("train-driver-0", "train-worker-0", "train-worker-1"):
            job = await play.admin.get(f"{play.jobs}/{name}")
            assert not job["status"].get("failed")
            assert not job["spec"].get("suspend")
        for pod in await play.on_nodes("train"):
            await play.admin.patch(f"{play.pods}/{pod}", {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        ended = await play.status("train", lambda s: any(c["type"] == "Finished" for c in s["conditions"]), 60)
        assert next(c["reason"] for c in ended["conditions"] if c["type"] == "Finished") == "Completed"
        await play.run(2, "greedy")


async def test_a_suspended_jobset_waits_without_pods_and_survives_a_killed_leader(stage: Stage) -> None:
    """It is resumed when it is admitted; its user's own suspend takes it away, and is never undone."""
    async with job_sets(stage, 1) as (play, path):
        await play.job("first", 4)
        await play.run(4, "first")
        parts = part("a", 1, 2, play.namespace), part("b", 1, 2, play.namespace)
        await play.admin.create(path, job_set("later", *parts, suspend=True))
        await play.waits_for("later", "NoCapacity")
        assert len(await play.admin.list(play.pods)) == 4
        await stage.end(play.tenant, play.namespace, "first")
        await play.status("later", lambda s: s.get("admission"), 60)
        await play.restart()
        await play.run(4, "later")
        await play.status("later", lambda s: s.get("startedAt"))
        assert (await play.admin.get(f"{path}/later"))["spec"]["suspend"] is False
        await play.admin.patch(f"{path}/later", {"spec": {"suspend": True}})
        await play.waits_for("later", "Suspended", 60)
        await play.settled(0)
        assert (await play.admin.get(f"{path}/later"))["spec"]["suspend"] is True
        await play.admin.patch(f"{path}/later", {"spec": {"suspend": False}})
        await play.run(4, "later")


async def test_a_leader_and_its_workers(stage: Stage) -> None:
    """The group is recorded and charged from its size when only the leader is there; evicted whole, and it runs again."""
    async with worker_sets(stage) as (play, path):
        body = worker_set("serve", play.namespace, 1, 7, leader={START_SECONDS: "5"})
        await play.admin.create(path, body)
        first = await play.status("serve", lambda s: s.get("admission"))
        assert len(places(first)) == 7
        assert [p["metadata"]["name"] for p in await play.admin.list(play.pods)] == ["serve-0"]
        await greedy(play)
        nodes = await play.run(7, "serve")
        await play.settled(7)
        by_number = [nodes["serve-0"], *(nodes[f"serve-0-{number}"] for number in range(1, 7))]
        assert by_number == places(first)
        await play.status("serve", lambda s: s.get("startedAt"))
        before = await uids(play)
        await requeue(play, "serve")
        await play.status(
            "serve", lambda s: any(c["type"] == "Evicted" and c["status"] == "True" for c in s["conditions"])
        )
        await play.restart()
        await play.status("serve", lambda s: s["round"] == 2 and s.get("startedAt"), 90)
        await play.run(7, "serve")
        assert not before & {p["metadata"]["uid"] for p in await play.admin.list(play.pods) if not gated(p)}
        await play.settled(7)
        kinds = [g["metadata"]["ownerReferences"][0]["kind"] for g in await play.admin.list(play.groups)]
        assert sorted(kinds) == ["Job", "LeaderWorkerSet"]


async def test_groups_one_by_one(stage: Stage) -> None:
    """Two of three fit and the third holds nothing; a pod that is lost brings its group anew in its places; scaled away."""
    async with worker_sets(stage) as (play, path):
        await play.admin.create(path, worker_set("serve", play.namespace, 3, 3))
        nodes = await play.run(6, "serve")

        async def waiting() -> str:
            for group in await play.admin.list(play.groups):
                if ((group.get("status") or {}).get("blocker") or {}).get("reason") == "NoCapacity":
                    return str(group["status"]["blocker"]["message"])
            return ""

        assert "3 pods must fit" in await eventually(waiting, 30, "a group that waits")
        await play.settled(6)
        group = next(name for name in nodes if name.count("-") == 1)
        before = await uids(play)
        await play.admin.delete(f"{play.pods}/{group}-2")

        async def anew() -> bool:
            there = await play.on_nodes(group)
            assert len(there) == 3
            pods = [p for p in await play.admin.list(play.pods) if p["metadata"]["name"] in there]
            return not before & {p["metadata"]["uid"] for p in pods}

        await eventually(anew, 60, "the group made anew")
        assert await play.on_nodes(group) == {name: where for name, where in nodes.items() if name.startswith(group)}
        await play.settled(6)
        await play.admin.patch(f"{path}/serve", {"spec": {"replicas": 0}})
        await play.settled(0, 60)

        async def free() -> bool:
            groups = await play.admin.list(play.groups)
            return len(groups) == 3 and all((g.get("status") or {}).get("admission") is None for g in groups)

        await eventually(free, 60, "all groups back")
