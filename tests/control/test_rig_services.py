"""Deployments and StatefulSets with the real controllers, budgets and Eviction API."""

from __future__ import annotations

import pytest

from tests.control.troupe import Scene, scene
from tests.proofs.stage import QUEUE_LABEL, Stage, sets
from tests.rig.audit import evictions
from tests.rig.client import eventually
from tests.rig.objects import Object, pod_spec

pytestmark = [pytest.mark.rig, pytest.mark.asyncio(loop_scope="session")]


def service(kind: str, name: str, queue: str, count: int, *, gang: str, **spec: object) -> Object:
    """A set of so many pods of one GPU."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {QUEUE_LABEL: queue},
            "annotations": {"queuectl.io/min-member": gang},
        },
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            **spec,
            "template": {
                "metadata": {"labels": labels},
                "spec": pod_spec(1, restartPolicy="Always", terminationGracePeriodSeconds=1),
            },
        },
    }


async def requeue(play: Scene, name: str) -> None:
    """What ``queuectl requeue gang`` writes."""
    meta = (await play.group(name))["metadata"]
    asked = {"metadata": {"annotations": {"queuectl.io/requeue": "2026-11-30T12:00:00Z"}}}
    await play.tenant.patch(f"{play.groups}/{meta['name']}", asked)


async def uids(play: Scene, prefix: str) -> set[str]:
    """UIDs of pods by the beginning of their name."""
    found = await play.admin.list(play.pods)
    return {p["metadata"]["uid"] for p in found if p["metadata"]["name"].startswith(prefix)}


async def test_a_gang_goes_by_eviction_when_its_budget_lets_it_and_a_killed_leader_changes_nothing(
    stage: Stage,
) -> None:
    """All four or none: a budget holds all of them; without it each is evicted once, and the next round runs."""
    async with scene(stage, 2) as play:
        webs = sets(play.namespace, "statefulsets")
        budgets = f"/apis/policy/v1/namespaces/{play.namespace}/poddisruptionbudgets"
        body = service("StatefulSet", "web", play.namespace, 4, gang="all", podManagementPolicy="Parallel")
        await play.tenant.create(webs, body)
        await play.run(4, "web")
        await play.status("web", lambda s: s.get("startedAt"))
        first = await uids(play, "web")
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await play.tenant.create(budgets, {"metadata": {"name": "web"}, "spec": spec})
        await play.admin.wait(f"{budgets}/web", lambda b: (b.get("status") or {}).get("disruptionsAllowed") == 1)
        await requeue(play, "web")
        assert "PodDisruptionBudget web lets 1 of 4 pods go now" in await play.waits_for("web", "VictimProtected")
        assert await uids(play, "web") == first
        await play.tenant.delete(f"{budgets}/web")
        await play.status(
            "web", lambda s: any(c["type"] == "Evicted" and c["status"] == "True" for c in s["conditions"]), 60
        )
        await play.restart()
        await play.status("web", lambda s: s["round"] == 2 and s.get("startedAt"), 60)
        await play.run(4, "web")
        second = await uids(play, "web")
        assert not first & second
        await play.settled(4)
        gone = [e.object_ref.name for e in evictions(play.events()) if e.object_ref.namespace == play.namespace]
        assert gone
        assert len(gone) == len(set(gone)), gone  # to some the killed leader may have had no answer


async def test_pods_in_order_and_a_deployment_one_by_one(stage: Stage) -> None:
    """An ordered StatefulSet's places are all kept from the first pod on; a Deployment's new revision is a new gang."""
    async with scene(stage, 2) as play:
        await play.tenant.create(
            sets(play.namespace, "statefulsets"), service("StatefulSet", "db", play.namespace, 5, gang="all")
        )
        kept = (await play.status("db", lambda s: s.get("admission")))["admission"]["assignments"]
        await play.run(5, "db")
        await play.settled(5)
        assert (await play.group("db"))["status"]["admission"]["assignments"] == kept
        deployments = sets(play.namespace, "deployments")
        await play.tenant.create(deployments, service("Deployment", "api", play.namespace, 2, gang="1"))
        before = set(await play.run(2, "api"))
        await play.settled(7)
        template = {"spec": {"template": {"metadata": {"annotations": {"example.com/revision": "2"}}}}}
        await play.tenant.patch(f"{deployments}/api", template)

        async def rolled() -> bool:
            now = set(await play.on_nodes("api"))
            assert len(now) == 2
            assert not now & before
            return True

        await eventually(rolled, 60, "the new revision")
        await play.settled(7)
        await play.tenant.patch(f"{sets(play.namespace, 'statefulsets')}/db", {"spec": {"replicas": 0}})
        await play.settled(2, 60)
        await play.status("db", lambda s: s.get("admission") is None)
