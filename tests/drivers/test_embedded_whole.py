"""The real controller on the whole in-memory cluster, in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queuectl.contract import names
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import JOBS, NODES, POD_GROUPS, PODS, QUEUES, TOPOLOGIES
from queuectl.control.loop import Controller
from queuectl.drivers.embedded.store import Stored
from queuectl.drivers.embedded.whole import World, embedded
from tests.drivers.embedded_world import (
    GPU,
    NAMESPACE,
    RACK,
    Json,
    clock,
    job,
    most_over,
    node,
    phases,
    pods_of,
    releases_before_record,
    run,
    status_of,
    true,
    until,
)

TENANT = "tenant"
QUICK = Configuration.model_validate({"blockerInterval": "1s"})


@asynccontextmanager
async def controlled(nodes: list[Json], configuration: Configuration = QUICK) -> AsyncIterator[World]:
    """A cluster with racks, a queue "team" and a controller that leads; at the end nothing may have gone wrong."""
    random.seed(1)  # the jitter of leases and retries
    time = clock()
    async with embedded(nodes, clock=time, history=None) as world:
        levels = [{"name": "rack", "keys": [RACK]}, {"name": "node", "keys": ["kubernetes.io/hostname"]}]
        world.store.create(TOPOLOGIES, "", {"metadata": {"name": "default"}, "spec": {"levels": levels}}, "admin")
        resources = [{"name": GPU, "limit": 10_000}]
        world.store.create(QUEUES, "", {"metadata": {"name": "team"}, "spec": {"resources": resources}}, "admin")
        controller = Controller(world.cluster(), time, configuration, "controller-1")
        running = asyncio.create_task(controller.run())
        try:
            await until(lambda: controller.leading)
            yield world
            assert not running.done(), running
            assert releases_before_record(list(world.store.log))[1] == []
            assert most_over(list(world.store.log)) == 0
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def submit(world: World, body: Json) -> None:
    """A tenant's Job."""
    world.store.create(JOBS, NAMESPACE, body, TENANT)


def racks(count: int, nodes: int, gpus: int) -> list[Json]:
    """Racks of equal nodes."""
    return [node(f"n{r}-{i}", gpus, f"rack-{r}") for r in range(count) for i in range(nodes)]


def ended(world: World, name: str) -> bool:
    """Whether a Job is complete."""
    return "Complete" in true(status_of(world.store, name))


def group_of(world: World, name: str) -> Json:
    """The PodGroup of a Job."""
    found = [g for g in world.store.list(POD_GROUPS) if g["metadata"]["ownerReferences"][0]["name"] == name]
    return found[0] if found else {}


async def _three_gangs() -> None:
    async with controlled(racks(2, 2, 4)) as world:
        for number in range(3):
            submit(world, job(f"g{number}", 8, queue="team", seconds=60, level="rack"))
        await until(lambda: phases(world.store, "g0") == ["Running"] * 8 == phases(world.store, "g1"))
        waiting = pods_of(world.store, "g2")
        assert [names.GATE in json.dumps(one["spec"].get("schedulingGates")) for one in waiting] == [True] * 8
        for gang in ("g0", "g1"):
            used = {one["spec"]["nodeName"].split("-")[0] for one in pods_of(world.store, gang)}
            assert len(used) == 1, used
        await until(lambda: all(ended(world, f"g{number}") for number in range(3)))
        done = status_of(world.store, "g2")
        assert done["succeeded"] == 8
        assert done["completedIndexes"] == "0-7"
        assert "failed" not in done
        assert releases_before_record(list(world.store.log))[0] == 24


def test_three_gangs_on_two_racks() -> None:
    """Two run at once, each within a rack; the third waits behind its gates and follows. No gate before its record."""
    run(_three_gangs())


async def _suspended() -> None:
    async with controlled(racks(1, 2, 4)) as world:
        submit(world, job("first", 8, queue="team", seconds=60))
        await until(lambda: phases(world.store, "first") == ["Running"] * 8)
        submit(world, job("later", 8, queue="team", seconds=60, suspend=True))
        await asyncio.sleep(20)
        assert phases(world.store, "first") == ["Running"] * 8
        assert pods_of(world.store, "later") == []
        assert true(status_of(world.store, "later")) == ["Suspended"]
        await until(lambda: ended(world, "later"))
        status = status_of(world.store, "later")
        assert [(c["type"], c["status"]) for c in status["conditions"]] == [
            ("Suspended", "False"),
            ("SuccessCriteriaMet", "True"),
            ("Complete", "True"),
        ]
        resumed = [s for s in world.store.log if s.kind is JOBS and s.object["metadata"]["name"] == "later"]
        users = [after.user for one, after in itertools.pairwise(resumed) if _suspends(one) > _suspends(after)]
        assert users == ["queuectl"]


def _suspends(stored: Stored) -> bool:
    return bool(stored.object["spec"]["suspend"])


def test_a_suspended_job_is_resumed_when_there_is_room() -> None:
    """It makes no pods before; the controller resumes it, and nobody else."""
    run(_suspended())


async def _requeued() -> None:
    async with controlled(racks(1, 2, 4)) as world:
        submit(world, job("train", 8, queue="team"))
        await until(lambda: phases(world.store, "train") == ["Running"] * 8)
        first = {one["metadata"]["uid"] for one in pods_of(world.store, "train")}
        started = status_of(world.store, "train")["startTime"]
        name = group_of(world, "train")["metadata"]["name"]
        asked = {"metadata": {"annotations": {names.REQUEUE: "2026-11-30T00:00:00Z"}}}
        world.store.patch(POD_GROUPS, NAMESPACE, name, asked, TENANT)
        await until(lambda: (group_of(world, "train")["status"].get("round"), phases(world.store, "train"))
                    == (2, ["Running"] * 8))  # fmt: skip
        second = {one["metadata"]["uid"] for one in pods_of(world.store, "train")}
        status = status_of(world.store, "train")
        assert not first & second
        assert "failed" not in status
        assert status["startTime"] > started
        assert status["active"] == 8


def test_a_running_gang_is_given_back_and_runs_again() -> None:
    """Suspended, emptied, resumed: other pods, a later start, and no failure counted."""
    run(_requeued())


async def _failing() -> None:
    async with controlled(racks(1, 2, 4)) as world:
        world.kubelet.reject(lambda one: one["metadata"]["name"].startswith("train-3-"))
        submit(world, job("train", 8, queue="team", seconds=120))
        await until(lambda: status_of(world.store, "train").get("failed") == 1)
        failed_at = world.store.clock.now()
        await until(lambda: phases(world.store, "train").count("Running") == 8)
        assert world.store.clock.now() - failed_at >= 9_000  # upstream waits 10 s before it replaces a failed pod
        await until(lambda: ended(world, "train"))
        assert status_of(world.store, "train")["failed"] == 1
        again = [one for one in pods_of(world.store, "train") if one["metadata"]["name"].startswith("train-3-")]
        assert sorted(one["status"]["phase"] for one in again) == ["Failed", "Succeeded"]
        assert group_of(world, "train")["status"]["round"] == 1


def test_a_failed_pod_is_replaced_on_the_place_of_its_gang() -> None:
    """The kubelet refuses one; its successor is released alone, in the same round."""
    run(_failing())


async def _many(count: int) -> list[tuple[int, str, str, str, str, str]]:
    async with controlled(racks(4, 4, 8)) as world:
        for number in range(count):
            size = (1, 2, 4, 8)[number % 4]
            level = "rack" if number % 3 == 0 else ""
            submit(world, job(f"g{number}", size, 1 + number % 2, queue="team", seconds=30 + number % 50, level=level))
        await until(lambda: all(ended(world, f"g{number}") for number in range(count)), 3600)
        pods = sum((1, 2, 4, 8)[number % 4] for number in range(count))
        assert releases_before_record(list(world.store.log)) == (pods, [])
        return history(world)


def history(world: World) -> list[tuple[int, str, str, str, str, str]]:
    """What was committed, by whom, to the last byte."""
    return [
        (one.version, one.verb, one.kind.plural, one.object["metadata"]["name"], one.user, json.dumps(one.object))
        for one in world.store.log
    ]


def test_two_hundred_gangs_and_the_same_again() -> None:
    """All complete; a second run commits exactly the same."""
    first, second = run(_many(200)), run(_many(200))
    assert len(first) > 5_000
    assert first == second


def digest(count: int) -> str:
    """Of a run's history."""
    return hashlib.sha256(json.dumps(run(_many(count))).encode()).hexdigest()


def test_the_same_whatever_the_order_of_sets() -> None:
    """Two processes that hash differently commit the same."""
    code = "from tests.drivers.test_embedded_whole import digest; print(digest(40))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "2")
    ]
    found = [one.communicate(timeout=120)[0].strip() for one in running]
    assert len(found[0]) == 64
    assert found[0] == found[1]


async def _lost() -> None:
    async with controlled(racks(1, 3, 4)) as world:
        submit(world, job("train", 8, queue="team", seconds=2000))
        await until(lambda: phases(world.store, "train") == ["Running"] * 8)
        lost = pods_of(world.store, "train")[0]["spec"]["nodeName"]
        world.kubelet.silence(lost)

        def ready() -> str:
            conditions = world.store.get(NODES, "", lost)["status"]["conditions"]
            return str(next(one["status"] for one in conditions if one["type"] == "Ready"))

        await until(lambda: ready() == "Unknown")
        await until(lambda: "Going" in phases(world.store, "train"), 900)
        world.kubelet.revive(lost)
        await until(lambda: ready() == "True")
        assert world.store.get(NODES, "", lost)["spec"].get("taints") is None
        await until(lambda: ended(world, "train"), 10_000)


def test_a_node_that_is_lost_and_comes_back() -> None:
    """Unreachable after 40 s, its pods told to go after 300 s; they go when it is back, and the Job ends."""
    run(_lost())


def test_a_stand_in_that_fails_ends_the_block() -> None:
    """Its exception comes out, instead of silence."""

    async def main() -> None:
        async with embedded([node("n")], clock=clock()) as world:
            world.kubelet.reject(lambda one: one["no such thing"])
            world.store.create(PODS, "ns", {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "m"}]}}, "me")
            await asyncio.sleep(60)

    with pytest.raises(KeyError, match="no such thing"):
        run(main())
