"""Groups written by hand, groups of one, and what users do to Jobs and PodGroups, on the real control plane."""

from __future__ import annotations

import json

import pytest

from tests.control.troupe import RECORD, Scene, gone, quiet, scene
from tests.proofs.stage import USER, Stage, job
from tests.rig.client import ApiError, eventually
from tests.rig.nodes import NEVER_START
from tests.rig.objects import Object

pytestmark = [pytest.mark.rig, pytest.mark.asyncio(loop_scope="session")]
WAITING = "queuectl.io/Waiting"
LONG = ".".join("abcd") + "." + ".".join(letter * 60 for letter in "wxyz")  # 251 characters: a legal name


async def own_record(play: Scene, pod: str) -> dict[str, object]:
    """The admission that a pod carries itself."""
    found = await play.admin.get(f"{play.pods}/{pod}")
    return dict(json.loads(found["metadata"]["annotations"][RECORD]))


async def waiting(play: Scene, pod: str, status: str) -> Object:
    """Wait until a pod's own condition says so, and return it."""

    async def look() -> Object:
        conditions = (await play.admin.get(f"{play.pods}/{pod}"))["status"].get("conditions") or ()
        return next((one for one in conditions if (one["type"], one["status"]) == (WAITING, status)), {})

    return dict(await eventually(look, 30, f"{pod} to say {WAITING}={status}"))


async def test_hand_written_groups(stage: Stage) -> None:
    """4 of 4 at once, extras one by one, a lost pod's successor in its slot; roles; a PodGroup deleted and written again."""
    async with scene(stage, 3) as play:
        await play.pod_group("band", minMember=4, maxMember=6)
        for i in range(3):
            await play.pod(f"band-{i}", group="band")
        assert "4" in await play.waits_for("band", "WaitingForMembers")
        assert await play.on_nodes() == {}
        await play.pod("band-3", group="band")
        await play.run(4)
        for i in (4, 5):
            await play.pod(f"band-{i}", group="band")
            await play.run(i + 1)
            assert (await own_record(play, f"band-{i}"))["slot"] == i
        status = await play.status("band", lambda s: s.get("startedAt"))
        node = (await play.on_nodes())["band-1"]
        await gone(play.tenant, f"{play.pods}/band-1")
        await play.pod("successor", group="band")
        assert (await play.run(6))["successor"] == node
        record = await own_record(play, "successor")
        assert (record["node"], record["slot"] in range(4)) == (node, True)
        assert (await play.group("band"))["status"]["admission"] == status["admission"]

        roles = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2, "maxMember": 3}]
        await play.pod_group("team", roles=roles)
        for i in range(2):
            await play.pod(f"team-worker-{i}", group="team", labels={"queuectl.io/role": "worker"})
        await play.waits_for("team", "WaitingForMembers")
        assert await play.on_nodes("team") == {}
        await play.pod("team-leader", 3, group="team", labels={"queuectl.io/role": "leader"})
        await play.run(3, "team")
        await gone(play.tenant, f"{play.pods}/team-leader")
        await play.run(2, "team")
        await play.pod("team-leader-2", 3, group="team", labels={"queuectl.io/role": "leader"})
        await play.run(3, "team")

        await play.tenant.delete(f"{play.groups}/band")
        await play.pod("band-6", group="band")  # gated: nobody knows its group
        await play.settled(6 + 5)
        await play.pod_group("band", minMember=4, maxMember=7)
        await play.restart()
        await play.settled(7 + 5)


async def test_groups_of_one(stage: Stage) -> None:
    """One write each, charged once after a restart, room again at once; names and annotations as long as they may be.

    What waits says why, and takes it back.
    """
    async with scene(stage, 1) as play:
        hostile = {"example.com/big": "ü" * 100_000, "queuectl.io/topology-preferred": "\u202eros\u0301" * 1000}
        await play.pod("solo-0", 2, annotations=hostile)
        await play.pod(LONG, 2)
        await play.run(2)
        forged = {"round": 3, "fence": 9, "slot": 0, "node": f"{play.namespace}-0"}
        with pytest.raises(ApiError, match="the controller's own"):
            await play.pod("forged", 2, annotations={RECORD: json.dumps(forged)})
        await play.pod("solo-1", 2)
        assert (await waiting(play, "solo-1", "True"))["reason"] == "NoCapacity"
        await quiet(stage)
        assert len(await play.on_nodes()) == 2
        for name, node in (await play.on_nodes()).items():
            assert (await own_record(play, name))["node"] == node
        await play.restart()
        await play.settled(4)
        await gone(play.tenant, f"{play.pods}/{LONG}")
        assert set(await play.run(2)) == {"solo-0", "solo-1"}
        await play.settled(4)
        assert (await waiting(play, "solo-1", "False"))["reason"] == "Admitted"
        ours = [e for e in play.events() if e.stored and e.user.username == USER]
        assert [e.what for e in ours if e.object_ref.namespace == play.namespace] == [
            *("pods", "pods"),
            *("pods/status", "pods", "pods/status"),  # why it waits; its release; that it waits no more
        ]


async def test_a_users_own_suspend(stage: Stage) -> None:
    """It is never undone, not even after a requeue; the place goes to another; resumed, the Job waits its turn and runs."""
    async with scene(stage, 1) as play:
        await play.job("one", 4)
        await play.run(4, "one")
        await play.job("two", 4)
        await play.waits_for("two", "NoCapacity")
        await play.suspend("two")  # before it was admitted: it waits without pods
        await play.suspend("one")
        await play.run(4, "two")
        await play.waits_for("one", "Suspended")
        await play.settled(4)
        await play.suspend("one", suspend=False)
        await play.waits_for("one", "NoCapacity")
        await play.delete(f"{play.jobs}/two")
        await play.run(4, "one")
        name = (await play.group("one"))["metadata"]["name"]
        await play.tenant.patch(f"{play.groups}/{name}", {"metadata": {"annotations": {"queuectl.io/requeue": "now"}}})
        await play.status("one", lambda s: s["round"] == 3 and s.get("startedAt"))
        await play.suspend("one")
        await play.waits_for("one", "Suspended")
        await play.settled(0)
        found = await play.admin.get(f"{play.jobs}/one")
        assert (found["spec"]["suspend"], found["status"].get("failed", 0)) == (True, 0)


async def test_pod_groups_of_jobs(stage: Stage) -> None:
    """A derived PodGroup that somebody deletes comes back, charged once; Jobs may share one that was written by hand."""
    async with scene(stage, 2) as play:
        await play.job("one", 4)
        await play.run(4, "one")
        await play.job("wide", 8)
        await play.waits_for("wide", "NoCapacity")
        for name in ("one", "wide"):
            group = (await play.group(name))["metadata"]
            await play.tenant.delete(f"{play.groups}/{group['name']}")

            async def another(name: str = name, uid: str = group["uid"]) -> bool:
                return bool((await play.group(name)).get("metadata", {}).get("uid", uid) != uid)

            await eventually(another, 20, f"another PodGroup for {name}")
        await play.waits_for("wide", "NoCapacity")
        await play.settled(4)
        await play.delete(f"{play.jobs}/one")
        await play.run(8, "wide")
        await play.delete(f"{play.jobs}/wide")
        await play.settled(
            0
        )  # so that the four share a node: the ranks of two Jobs are not their slots, as the judge has it
        await play.pod_group("pair", minMember=4)
        for name in ("left", "right"):
            body = job(name, play.namespace, 2)
            body["spec"]["template"]["metadata"]["labels"] = {"queuectl.io/pod-group": "pair"}
            await play.tenant.create(play.jobs, body)
        await play.run(4)
        await play.settled(4)


async def test_pods_that_nobody_makes_again(stage: Stage) -> None:
    """Given back only where that is accepted: by eviction, whole; and a pod on its own that never starts frees its place."""
    async with scene(stage, 1, startTimeout="4s") as play:
        await play.pod_group("band", minMember=2)
        for i in range(2):
            await play.pod(f"band-{i}", group="band", terminationGracePeriodSeconds=1)
        await play.run(2, "band")
        await play.status("band", lambda s: s.get("startedAt"))
        asked = {"queuectl.io/requeue": "2026-11-30T12:00:00Z"}
        await play.tenant.patch(f"{play.groups}/band", {"metadata": {"annotations": asked}})
        assert "queuectl.io/preemptible" in await play.waits_for("band", "NotRequeueable")
        await play.run(2, "band")
        accepted = {"queuectl.io/preemptible": "true", "queuectl.io/requeue": "2026-11-30T12:01:00Z"}
        await play.tenant.patch(f"{play.groups}/band", {"metadata": {"annotations": accepted}})
        await play.waits_for("band", "WaitingForMembers")
        await play.settled(0)
        for i in range(2):
            await play.pod(f"band-{i}", group="band")
        await play.run(2, "band")
        await play.status("band", lambda s: s["round"] == 2 and s.get("startedAt"))

        stuck = {NEVER_START: "true", "queuectl.io/preemptible": "true"}
        await play.pod("stuck", 2, annotations=stuck, terminationGracePeriodSeconds=1)
        await play.run(3)
        await play.tenant.wait_gone(f"{play.pods}/stuck")
        await play.settled(2)
