"""Jobs of every kind, on nodes that go and in queues that change, on the real control plane."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.control.troupe import Scene, gone, quiet, scene
from tests.proofs.stage import QUEUES, Stage, gated, job, jobs, pods
from tests.rig.client import STRATEGIC, eventually
from tests.rig.nodes import gpu_nodes
from tests.rig.objects import GATE, Object

pytestmark = [pytest.mark.rig, pytest.mark.asyncio(loop_scope="session")]
FOREIGN = "example.com/quota"


async def test_pods_that_follow_each_other(stage: Stage) -> None:
    """10 completions through 4 places, numbered or not; a pod that the kubelet refuses; one that an outsider deletes."""
    async with scene(stage, 3) as play:
        refused = play.kubelet.reject(lambda pod: pod.metadata.name.startswith("refused-1"))
        await play.job("refused", 4)
        await play.job("robbed", 4)
        victim = min(await play.run(4, "robbed"))
        await eventually(lambda: refused.hits, 20, "a refused pod")
        await gone(play.tenant, f"{play.pods}/{victim}")
        plain = job("plain", play.namespace, 4, completions=6, seconds=0.5)
        plain["spec"]["completionMode"] = "NonIndexed"
        await play.job("rolling", 4, completions=10, seconds=0.5)
        await play.tenant.create(play.jobs, plain)
        for name in ("rolling", "plain"):
            done = await stage.complete(play.namespace, name)
            assert not done["status"].get("failed")
            await play.status(name, lambda s: any(c["type"] == "Finished" for c in s["conditions"]))
        await play.run(4, "refused")  # the Job controller waits 10 s before it replaces a failed pod
        assert victim not in await play.run(4, "robbed")
        await play.settled(8)
        assert [(await play.group(name))["status"]["round"] for name in ("refused", "robbed")] == [1, 1]


async def parallelism(play: Scene, name: str, count: int) -> None:
    """The tenant scales a Job."""
    await play.tenant.patch(f"{play.jobs}/{name}", {"spec": {"parallelism": count}})


async def test_elastic_jobs(stage: Stage) -> None:
    """Up and down, running and waiting, whole and with extras; room and the queue's limit stand in an extra's way."""
    async with scene(stage, 3) as play:
        limit = {"spec": {"resources": [{"name": "nvidia.com/gpu", "limit": "10"}]}}
        await stage.admin.patch(f"{QUEUES}/{play.namespace}", limit)
        await play.job("whole", 4, completions=8)
        await play.run(4, "whole")
        await play.job("extra", 8, gang="4")
        await play.run(6, "extra")  # its gang, and two more within the limit
        await parallelism(play, "whole", 3)
        await play.run(7, "extra")
        await play.settled(10)
        await parallelism(play, "extra", 4)
        await play.run(4, "extra")
        await parallelism(play, "whole", 6)
        await play.run(6, "whole")
        await play.settled(10)
        waits = job("waits", play.namespace, 5)
        waits["spec"]["completionMode"] = "NonIndexed"  # scaled down it rolls: its pods' ranks would be no slots
        await play.tenant.create(play.jobs, waits)
        await play.waits_for("waits", "OverLimit")
        await parallelism(play, "extra", 1)  # below its gang's size: that is the owner's to decide
        await play.run(1, "extra")
        await parallelism(play, "waits", 3)
        await play.run(3, "waits")
        await play.restart()
        await play.settled(10)


async def test_nodes_that_go_between_record_and_bind(stage: Stage) -> None:
    """Cordoned, deleted, silent: given back by suspend, whole on another node, and no pod has failed."""
    scheduler = stage.control_plane.process("kube-scheduler")
    async with scene(stage, 3, bindTimeout="3s") as play:
        for how in ("cordon", "delete", "silence"):
            scheduler.signal(signal.SIGSTOP)
            try:
                await play.job(how, 4)

                async def released(how: str = how) -> bool:
                    found = await stage.job_pods(play.namespace, how)
                    return len(found) == 4 and not any(map(gated, found))

                await eventually(released, 20, "4 pods released")
                node = node_of(await play.status(how, lambda s: s.get("admission")))
                if how == "cordon":
                    await play.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
                elif how == "delete":
                    await play.admin.delete(f"/api/v1/nodes/{node}")
                else:
                    play.kubelet.silence(node)
                await play.status(how, elsewhere(node))
            finally:
                scheduler.signal(signal.SIGCONT)
            await play.run(4, how)
            assert not (await play.admin.get(f"{play.jobs}/{how}"))["status"].get("failed")
            await play.settled(4)
            await play.delete(f"{play.jobs}/{how}")
            await play.run(0)
            if how == "cordon":
                await play.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
            elif how == "silence":
                await play.kubelet.revive(node)


def elsewhere(node: str) -> Callable[[Object], bool]:
    """Whether an admission after the first uses another node."""
    return lambda status: status["round"] > 1 and node_of(status) not in ("", node)


def node_of(status: Object) -> str:
    """The node of an admission that uses one, empty when there is none."""
    return str(((status.get("admission") or {}).get("assignments") or [{"node": ""}])[0]["node"])


async def test_queues_gates_and_bad_words(stage: Stage) -> None:
    """Held and opened, deleted under running gangs and made again, made late; gates of others; text that is no number."""
    async with scene(stage, 2) as play:
        queue, late = f"{QUEUES}/{play.namespace}", f"{play.namespace}-late"
        await play.admin.patch(queue, {"spec": {"state": "Held"}})
        await play.job("one", 2)
        await play.waits_for("one", "QueueHeld")
        await play.admin.patch(queue, {"spec": {"state": "Open"}})
        await play.run(2, "one")
        await play.admin.delete(queue)
        await play.job("two", 2)
        await play.waits_for("two", "QueueMissing")
        await play.job("three", 2, queue=late, suspend=True)
        await play.waits_for("three", "QueueMissing")
        await quiet(stage)
        await stage.queue(play.namespace, {"resources": [{"name": "nvidia.com/gpu", "limit": "3"}]})
        await play.waits_for("two", "OverLimit")
        await play.settled(2)
        await stage.queue(late, {})
        await play.run(2, "three")
        await play.delete(f"{play.jobs}/one")
        await play.run(2, "two")
        await play.delete(f"{play.jobs}/three")
        await play.admin.delete(f"{QUEUES}/{late}")

        for text in ("٣", "1" * 100_000, "all ", "😀"):
            name = f"bad-{len(text.encode())}"
            await play.job(name, 1, gang=text)
            assert len(await play.waits_for(name, "InvalidRequest")) < 1000
            await play.delete(f"{play.jobs}/{name}")
        await play.admin.patch(queue, {"spec": {"resources": []}})
        wide = job("j" * 61, play.namespace, 2, gates=[FOREIGN])
        wide["metadata"]["annotations"]["example.com/note"] = "\u202e" + "é" * 100_000
        await play.tenant.create(play.jobs, wide)
        await play.pod("solo", gates=[GATE, FOREIGN])
        await play.waits_for("j" * 61, "ForeignGate")
        assert len(await play.on_nodes()) == 2
        open_ = {"spec": {"schedulingGates": [{"$patch": "delete", "name": FOREIGN}]}}
        for pod in ("solo", *(p["metadata"]["name"] for p in await stage.job_pods(play.namespace, "j" * 61))):
            await play.tenant.patch(f"{play.pods}/{pod}", open_, STRATEGIC)
        await play.run(5)
        await play.settled(5)


async def test_deleted_in_the_middle_of_a_release(stage: Stage) -> None:
    """A Job, then a whole namespace: nothing stays charged, and the next gang has all the room."""
    nodes = gpu_nodes("middle", 4)
    async with scene(stage, nodes) as play:
        await play.job("first", 16)
        await play.status("first", lambda s: s.get("admission"))
        await play.delete(f"{play.jobs}/first")
        await play.run(0)
        await play.settled(0)
        other = stage.control_plane.namespace(f"{play.namespace}-other")
        await play.admin.create(jobs(other), job("second", play.namespace, 16))

        async def begun() -> bool:
            return any(not gated(pod) for pod in await play.admin.list(pods(other)))

        await eventually(begun, 20, "a release begun")
        await play.admin.delete(f"/api/v1/namespaces/{other}")
        await play.job("third", 16)
        await play.run(16, "third", 60)
        await play.settled(16)
