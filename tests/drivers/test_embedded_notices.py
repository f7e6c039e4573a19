"""Why something waits, as its own object says it: the real controller on the in-memory cluster, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from queuectl.contract import names
from queuectl.contract.foreign import JOBS, NODES, POD_GROUPS, PODS
from queuectl.drivers.embedded.admission import USER
from tests.drivers.embedded_world import NAMESPACE, Json, job, node, pod, run, until
from tests.drivers.test_embedded_services import Stage, stage


def alone(name: str, gpus: int) -> Json:
    """A pod of the queue, of nobody's making."""
    body = pod(name, gpus)
    return {**body, "metadata": {"name": name, "labels": {names.QUEUE_LABEL: "team"}}}


def phase(here: Stage, name: str) -> str:
    """Of a pod."""
    return str(here.world.store.get(PODS, NAMESPACE, name)["status"]["phase"])


def waiting(here: Stage, name: str) -> Json:
    """Our condition of a pod without its time, empty where it has none."""
    conditions = here.world.store.get(PODS, NAMESPACE, name)["status"].get("conditions") or ()
    found: Json = next((one for one in conditions if one["type"] == names.WAITING), {})
    return {key: value for key, value in found.items() if key != "lastTransitionTime"}


def others(here: Stage, name: str) -> list[str]:
    """Types of a pod's other conditions."""
    conditions = here.world.store.get(PODS, NAMESPACE, name)["status"].get("conditions") or ()
    return [one["type"] for one in conditions if one["type"] != names.WAITING]


def ours(here: Stage, name: str) -> int:
    """Writes of the controller to a pod."""
    log = here.world.store.log
    return sum(one.user == USER and one.kind is PODS and one.object["metadata"]["name"] == name for one in log)


SAID = {
    "type": names.WAITING,
    "status": "True",
    "reason": "NoCapacity",
    "message": "1 pod must fit into the cluster, which has room for 0; short of nvidia.com/gpu: 1 a pod, 0 free there; "
    "it can start when 1 more such pod fits into the cluster",
}
TAKEN_BACK = {"type": names.WAITING, "status": "False", "reason": "Admitted"}


async def _a_pod_says_why_it_waits() -> None:
    async with stage(gpus=4, nodes=1, ranked=False) as here:
        here.submit(PODS, alone("first", 4))
        await until(lambda: phase(here, "first") == "Running")
        here.submit(PODS, alone("late", 1))
        await until(lambda: waiting(here, "late"))
        assert waiting(here, "late") == SAID
        await asyncio.sleep(600)  # it is said once
        assert (ours(here, "first"), ours(here, "late")) == (1, 1)
        here.world.store.delete(PODS, NAMESPACE, "first", "tenant")
        await until(lambda: waiting(here, "late")["status"] == "False")
        assert waiting(here, "late") == TAKEN_BACK
        await until(lambda: phase(here, "late") == "Running")
        assert "PodScheduled" in others(here, "late")
        await asyncio.sleep(600)
        assert ours(here, "late") == 3  # said, released, taken back


def test_a_pod_says_why_it_waits() -> None:
    """One that starts at once costs one write; one that had to wait says so until it is released, and no longer."""
    run(_a_pod_says_why_it_waits())


async def _what_changes_is_said_again() -> None:
    async with stage(gpus=4, nodes=1, ranked=False) as here:
        here.submit(PODS, alone("first", 4))
        await until(lambda: phase(here, "first") == "Running")
        here.submit(PODS, alone("late", 5))
        await until(lambda: waiting(here, "late"))
        assert waiting(here, "late")["reason"] == "NeverFits"
        here.world.store.create(NODES, "", node("larger", 8), "admin")
        await until(lambda: phase(here, "late") == "Running")
        await until(lambda: waiting(here, "late") == TAKEN_BACK)


def test_another_reason_is_another_word() -> None:
    """What can never fit is not told to wait for others."""
    run(_what_changes_is_said_again())


async def _one_that_ends_says_nothing() -> None:
    async with stage(gpus=4, nodes=1, ranked=False) as here:
        here.submit(PODS, alone("first", 4))
        await until(lambda: phase(here, "first") == "Running")
        here.submit(PODS, alone("late", 1))
        await until(lambda: waiting(here, "late"))
        here.world.store.delete(PODS, NAMESPACE, "late", "tenant")
        await asyncio.sleep(600)
        assert here.world.store.find(PODS, NAMESPACE, "late") is None


def test_a_waiting_pod_may_be_deleted() -> None:
    run(_one_that_ends_says_nothing())


def blocker(here: Stage, name: str) -> Any:
    """Why the gang of a Job waits, or is not well, as its status says it."""
    return here.group(name)["status"].get("blocker")


def said_by_another(here: Stage, name: str, reason: str) -> None:
    """The last write of a process that is gone."""
    group = here.group(name)["metadata"]["name"]
    status = {"fence": here.controller.leadership.fence, "blocker": {"reason": reason, "message": "told before"}}
    here.world.store.patch(POD_GROUPS, NAMESPACE, group, {"status": status}, USER, subresource="status")


async def _a_restart_takes_back_what_is_over() -> None:
    async with stage(gpus=4, nodes=1, ranked=False) as here:
        here.submit(JOBS, job("runs", 2, queue="team"))
        here.submit(PODS, alone("single", 1))
        await until(lambda: here.group("runs")["status"].get("startedAt") and phase(here, "single") == "Running")
        here.submit(JOBS, job("waits", 2, queue="team"))
        await until(lambda: blocker(here, "waits"))
        message = blocker(here, "waits")["message"]
        here.crash()
        said_by_another(here, "runs", "NotBinding")
        said_by_another(here, "waits", "OverLimit")
        status = {"conditions": [{**SAID, "lastTransitionTime": "2026-11-30T00:00:00Z"}]}
        here.world.store.patch(PODS, NAMESPACE, "single", {"status": status}, USER, subresource="status")
        await here.lead()
        await until(lambda: blocker(here, "runs") is None)
        await until(lambda: blocker(here, "waits") == {"reason": "NoCapacity", "message": message})
        await until(lambda: waiting(here, "single") == TAKEN_BACK)
        before = here.world.store.version
        await asyncio.sleep(600)
        quiet = [one for one in here.world.store.log if one.version > before and one.user == USER]
        assert {one.kind.plural for one in quiet} <= {"leases"}


def test_a_restart_takes_back_what_is_true_no_more() -> None:
    """Of a gang that runs, and of a pod; what waits says the reason of now. Then nothing more is written."""
    run(_a_restart_takes_back_what_is_over())


async def _torn() -> None:
    async with stage(gpus=4, nodes=2) as here:
        here.submit(JOBS, job("train", 2, 4, queue="team"))
        await until(lambda: here.group("train")["status"].get("startedAt"))
        assert blocker(here, "train") is None
        here.world.store.delete(NODES, "", "n1", "admin")
        await until(lambda: blocker(here, "train"))
        found = blocker(here, "train")
        assert found["reason"] == "Torn"
        assert found["message"].startswith("not all of the gang could be placed: no place now for train-1-")
        assert found["message"].endswith(
            "; make room for these pods; else the gang is given back, if its owner can take it back"
        )
        uid = here.group("train")["metadata"]["uid"]
        assert [one.reason for one in here.controller.explain(uid)] == ["Torn"]
        here.world.store.create(NODES, "", node("n1", 4), "admin")
        await until(lambda: blocker(here, "train") is None)
        assert here.controller.explain(uid) == ()
        assert here.group("train")["status"]["round"] == 1


def test_a_torn_gang_says_so_until_it_is_whole() -> None:
    """In its status as in what explains it: it is not left to its users to find half of it gone."""
    run(_torn())
