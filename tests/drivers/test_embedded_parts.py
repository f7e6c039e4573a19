"""The stand-ins one by one, where the conformance suite does not ask: limits, orders, taints, owners."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queuectl.contract.foreign import JOBS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES
from queuectl.control.ports import Refused
from queuectl.drivers.embedded import kubelet
from queuectl.drivers.embedded.binder import named, requests, selected, tolerates
from queuectl.drivers.embedded.jobs import intervals
from queuectl.drivers.embedded.kubelet import EXIT_CODE, NEVER_START, REJECT, RUN_SECONDS, STOP_SECONDS
from queuectl.drivers.embedded.whole import World, embedded
from queuectl.drivers.embedded.workqueue import WorkQueue
from tests.drivers.embedded_world import (
    GPU,
    NAMESPACE,
    Json,
    clock,
    job,
    node,
    phases,
    pod,
    pods_of,
    run,
    status_of,
    true,
    until,
)
from tests.rig import nodes as rig

ME = "me"


@asynccontextmanager
async def world_of(*nodes: Json) -> AsyncIterator[World]:
    """A cluster without a controller of ours."""
    async with embedded(nodes, clock=clock(), history=None) as world:
        yield world


def make(world: World, body: Json) -> str:
    """Create a pod; its UID."""
    uid: str = world.store.create(PODS, NAMESPACE, body, ME)["metadata"]["uid"]
    return uid


def seen(world: World, name: str) -> Json:
    """A pod."""
    return world.store.get(PODS, NAMESPACE, name)


# ---- the queue of work


def test_a_key_is_looked_at_once() -> None:
    """However often it is added; the earlier of two delays counts; forgotten is forgotten; closed does nothing."""
    looked: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        queue = WorkQueue(lambda key: looked.append((key, loop.time())), lambda problem: None)
        for key in ("a", "b", "a"):
            queue.add(key)
        queue.after("c", 5)
        queue.after("c", 2)
        queue.after("c", 9)
        queue.after("d", 3)
        queue.forget("d")
        queue.after("e", 4)
        queue.add("e")
        await asyncio.sleep(10)
        queue.after("f", 1)
        queue.close()
        queue.add("g")
        await asyncio.sleep(10)

    run(main())
    assert looked == [("a", 0.0), ("b", 0.0), ("e", 0.0), ("c", 2.0)]


def test_nobody_is_looked_at_before_its_time() -> None:
    """A timer of asyncio that is due a moment later than another fires with it; who asks again then must not stop time."""
    looked: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        due = math.nextafter(loop.time() + 1, math.inf)

        def work(key: str) -> None:
            looked.append(loop.time() >= due)
            if loop.time() < due:
                queue.at(key, due)

        queue = WorkQueue(work, lambda problem: None)
        queue.at("a", due)
        await asyncio.sleep(1)
        await asyncio.sleep(1)

    run(main())
    assert looked == [True]


# ---- Jobs


def test_completed_indexes_as_upstream_writes_them() -> None:
    """Runs of three and more with a dash, pairs with a comma."""
    assert [intervals(found) for found in ([], [3], [0, 1], [4, 2, 3, 0], [0, 1, 2, 7, 8, 10])] == [
        "", "3", "0,1", "0,2-4", "0-2,7,8,10",
    ]  # fmt: skip


def test_back_off_doubles_until_the_limit() -> None:
    """Four failures: after 10, 20 and 40 s another pod; with the fourth the Job is over."""
    made: list[float] = []

    async def main() -> None:
        async with world_of(node("n")) as world:
            started = world.store.clock.now()
            world.store.listen(
                lambda s: (
                    made.append((world.store.clock.now() - started) / 1000)
                    if s.kind is PODS and s.verb == "ADDED"
                    else None
                )
            )
            world.store.create(JOBS, NAMESPACE, job("train", 1, seconds=0, code=1, backoffLimit=3), ME)
            await until(lambda: "Failed" in true(status_of(world.store, "train")))
            status = status_of(world.store, "train")
            assert status["failed"] == 4
            assert [c["reason"] for c in status["conditions"]] == ["BackoffLimitExceeded"] * 2

    run(main())
    waits = [later - earlier for earlier, later in itertools.pairwise(made)]
    assert [round(wait / 10) * 10 for wait in waits] == [10, 20, 40]
    assert all(wait <= expected + 2 for wait, expected in zip(waits, (10, 20, 40), strict=True)), waits


def test_a_job_that_the_api_refuses_pods_goes_on_later() -> None:
    """An unknown priority class: nothing until it exists."""

    async def main() -> None:
        async with world_of(node("n")) as world:
            body = job("train", 2)
            body["spec"]["template"]["spec"]["priorityClassName"] = "high"
            world.store.create(JOBS, NAMESPACE, body, ME)
            await asyncio.sleep(20)
            assert phases(world.store, "train") == []
            world.store.create(PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 7}, ME)
            await until(lambda: phases(world.store, "train") == ["Running"] * 2, 120)
            assert [one["spec"]["priority"] for one in pods_of(world.store, "train")] == [7, 7]

    run(main())


def test_what_is_not_there_is_refused() -> None:
    """A policy that nobody would carry out."""

    async def main() -> None:
        async with world_of() as world:
            with pytest.raises(Refused, match=r"spec\.podFailurePolicy: .* in-memory"):
                world.store.create(JOBS, NAMESPACE, job("train", 2, podFailurePolicy={"rules": []}), ME)

    run(main())


# ---- the scheduler


def test_what_a_pod_takes() -> None:
    """Containers add up, init containers come before them, sidecars stay, a pod's own request stands for all."""
    small, large = {"requests": {"cpu": "1"}}, {"requests": {"cpu": "3", GPU: "1"}}
    both = [{"resources": small}, {"resources": small}]
    sidecar = {"resources": small, "restartPolicy": "Always"}
    assert requests({"containers": both}) == {"cpu": 2000, "pods": 1}
    assert requests({"containers": both, "initContainers": [{"resources": large}]}) == {
        "cpu": 3000, GPU: 1000, "pods": 1,
    }  # fmt: skip
    assert requests({"containers": both, "initContainers": [sidecar, {"resources": large}]})["cpu"] == 4000
    assert requests({"containers": both, "initContainers": [sidecar]})["cpu"] == 3000
    assert requests({"containers": both, "resources": large, "overhead": {"cpu": "500m"}}) == {
        "cpu": 3500, GPU: 1000, "pods": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "size", "operator": "In", "values": ["4", "8"]}, True),
        ({"key": "size", "operator": "NotIn", "values": ["8"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, True),
        ({"key": "zone", "operator": "Exists"}, False),
        ({"key": "zone", "operator": "DoesNotExist"}, True),
        ({"key": "size", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["7"]}, False),
    ],
)
def test_expressions(expression: Json, expected: bool) -> None:
    """Each operator; a label that is not there is in no list."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    assert selected(spec, {"metadata": {"name": "n", "labels": {"size": "8"}}}) is expected


def test_names_that_affinity_requires() -> None:
    """Of each term; a term without a name means any."""

    def spec(*terms: Json) -> Json:
        required = {"nodeSelectorTerms": list(terms)}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}

    def on(*names: str) -> Json:
        return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}

    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    assert named({}) is None
    assert named(spec(on("a"), on("b"))) == ("a", "b")
    assert named(spec(on("a"), zone)) is None
    assert named(spec(on("a", "b"))) == ()
    assert named(spec({}, on("a"))) == ("a",)
    assert named(spec({**zone, **on("a")})) == ("a",)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "j", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Json, expected: bool) -> None:
    """Key, value and effect, each where given."""
    assert tolerates(toleration, {"key": "k", "value": "v", "effect": "NoSchedule"}) is expected


def test_the_scheduler_takes_the_first_node_with_room_and_the_highest_priority_first() -> None:
    """Two of three find room; the one of low priority waits until there is some."""

    async def main() -> None:
        async with world_of(node("a", 2), node("b", 2)) as world:
            world.store.create(PRIORITY_CLASSES, "", {"metadata": {"name": "low"}, "value": -5}, ME)
            make(world, pod("low", 2, priorityClassName="low"))
            make(world, pod("one", 2))
            make(world, pod("two", 2))
            await until(lambda: seen(world, "two")["status"]["phase"] == "Running")
            where = {name: seen(world, name)["spec"].get("nodeName") for name in ("low", "one", "two")}
            assert where == {"low": None, "one": "a", "two": "b"}
            said = seen(world, "low")["status"]["conditions"][0]
            assert (said["reason"], said["message"]) == (
                "Unschedulable", f"0/2 nodes are available: 2 Insufficient {GPU}.",
            )  # fmt: skip
            world.store.delete(PODS, NAMESPACE, "one", ME)
            await until(lambda: seen(world, "low")["spec"].get("nodeName") == "a")

    run(main())


def test_a_node_that_comes_later_and_one_that_is_full_of_pods() -> None:
    """Taints, cordons and the number of pods keep pods away; each is bound when that ends."""

    async def main() -> None:
        tainted = node("a")
        tainted["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
        async with world_of(tainted) as world:
            make(world, pod("p"))
            await until(lambda: seen(world, "p")["status"].get("conditions"))
            message = seen(world, "p")["status"]["conditions"][0]["message"]
            assert message == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
            world.store.create(NODES, "", node("b", pods="1"), ME)
            await until(lambda: seen(world, "p")["spec"].get("nodeName") == "b")
            make(world, pod("q"))
            await until(lambda: seen(world, "q")["status"].get("conditions"))
            message = seen(world, "q")["status"]["conditions"][0]["message"]
            assert message == "0/2 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s)."
            world.store.patch(NODES, "", "a", {"spec": {"taints": None}}, ME)
            await until(lambda: seen(world, "q")["spec"].get("nodeName") == "a")

    run(main())


# ---- kubelets


def test_the_words_are_those_of_the_rig() -> None:
    """One workload runs on both."""
    words = [name for name in dir(rig) if name.isupper() and str(getattr(rig, name)).startswith(rig.PREFIX)]
    assert len(words) >= 7
    assert {name: getattr(kubelet, name) for name in words} == {name: getattr(rig, name) for name in words}


def test_what_annotations_make_of_a_pod() -> None:
    """It ends well or not, never starts, is refused; nonsense is no instruction."""

    async def main() -> None:
        async with world_of(node("n")) as world:
            for name, notes in {
                "well": {RUN_SECONDS: "10"},
                "badly": {RUN_SECONDS: "10", EXIT_CODE: "3"},
                "never": {NEVER_START: "true"},
                "refused": {REJECT: "true"},
                "nonsense": {RUN_SECONDS: "soon", EXIT_CODE: "x", STOP_SECONDS: "inf"},
            }.items():
                body = pod(name)
                body["metadata"]["annotations"] = notes
                make(world, body)
            await asyncio.sleep(9)
            found = {one["metadata"]["name"]: one["status"]["phase"] for one in world.store.list(PODS)}
            assert found == {
                "well": "Running", "badly": "Running", "never": "Pending", "refused": "Failed", "nonsense": "Running",
            }  # fmt: skip
            await asyncio.sleep(3)
            ends = seen(world, "badly")["status"]
            assert (ends["phase"], ends["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Failed", 3)
            assert seen(world, "well")["status"]["phase"] == "Succeeded"

    run(main())


def test_a_pod_takes_its_time_to_stop() -> None:
    """As long as it says, and never longer than its grace."""

    async def main() -> None:
        async with world_of(node("n")) as world:
            for name, seconds in (("brief", "5"), ("stubborn", "500")):
                body = pod(name, terminationGracePeriodSeconds=20)
                body["metadata"]["annotations"] = {STOP_SECONDS: seconds}
                make(world, body)
            await asyncio.sleep(2)
            for name in ("brief", "stubborn"):
                world.store.delete(PODS, NAMESPACE, name, ME)
            left = []
            for _ in range(3):
                left.append([one["metadata"]["name"] for one in world.store.list(PODS)])
                await asyncio.sleep(8)
            assert left == [["brief", "stubborn"], ["stubborn"], ["stubborn"]]
            await asyncio.sleep(1)
            assert world.store.list(PODS) == []

    run(main())


def test_pods_of_a_node_that_is_deleted_are_collected() -> None:
    """After 40 s, as failed, with the reason said."""

    async def main() -> None:
        async with world_of(node("n")) as world:
            make(world, pod("p"))
            await until(lambda: seen(world, "p")["status"]["phase"] == "Running")
            world.store.delete(NODES, "", "n", ME)
            await asyncio.sleep(39)
            assert seen(world, "p")["status"]["phase"] == "Running"
            await asyncio.sleep(2)
            assert world.store.list(PODS) == []
            last = [one.object["status"] for one in world.store.log if one.kind is PODS][-1]
            assert last["phase"] == "Failed"
            assert [c["reason"] for c in last["conditions"] if c["type"] == "DisruptionTarget"] == ["DeletionByPodGC"]

    run(main())


def test_pods_leave_a_tainted_node_when_they_must() -> None:
    """At once, after a while, or never: as each tolerates."""

    async def main() -> None:
        async with world_of(node("n")) as world:
            make(world, pod("intolerant"))
            make(world, pod("patient", tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 60}]))
            make(world, pod("loyal", tolerations=[{"operator": "Exists"}]))
            await until(lambda: all(one["status"]["phase"] == "Running" for one in world.store.list(PODS)))
            world.store.patch(NODES, "", "n", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, ME)
            left = []
            for _ in range(3):
                await asyncio.sleep(31)
                left.append([one["metadata"]["name"] for one in world.store.list(PODS)])
            assert left == [["loyal", "patient"], ["loyal"], ["loyal"]]

    run(main())


# ---- garbage


def test_dependents_go_with_the_last_of_their_owners() -> None:
    """A pod of two groups stays with one; one whose owner was never here is let be, one whose owner is gone is not."""

    async def main() -> None:
        async with world_of() as world:
            wanted = {"queue": "q", "minMember": 1}
            groups = [
                world.store.create(POD_GROUPS, NAMESPACE, {"metadata": {"name": name}, "spec": wanted}, ME)["metadata"]
                for name in ("one", "two")
            ]
            api = POD_GROUPS.api_version
            both = [{"apiVersion": api, "kind": "PodGroup", "name": g["name"], "uid": g["uid"]} for g in groups]
            strange = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
            for name, owners in (("both", both), ("strange", [strange]), ("late", [{**both[0], "uid": "gone"}])):
                make(world, {**pod(name), "metadata": {"name": name, "ownerReferences": owners}})
            await asyncio.sleep(1)
            assert [one["metadata"]["name"] for one in world.store.list(PODS)] == ["both", "strange"]
            world.store.delete(POD_GROUPS, NAMESPACE, "one", ME)
            await asyncio.sleep(1)
            assert seen(world, "both")["metadata"]["ownerReferences"] == [both[1]]
            world.store.delete(POD_GROUPS, NAMESPACE, "two", ME)
            await asyncio.sleep(1)
            assert [one["metadata"]["name"] for one in world.store.list(PODS)] == ["strange"]

    run(main())


# ---- how fast


def test_thousands_of_writes_a_second() -> None:
    """500 Jobs of 8 on 500 nodes, from creation to completion. A quiet machine does 10,000 a second of its CPU."""

    async def main() -> int:
        async with world_of(*(node(f"n{number}", 8) for number in range(500))) as world:
            for number in range(500):
                body = job(f"j{number}", 8, 1, seconds=30 + number % 7)
                terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]}]
                required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
                body["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
                world.store.create(JOBS, NAMESPACE, body, ME)
            await until(lambda: all(true(one["status"]) for one in world.store.list(JOBS)))
            assert all(one["status"]["succeeded"] == 8 for one in world.store.list(JOBS))
            return world.store.version

    started = time.process_time()
    writes = run(main())
    assert writes >= 500 * 8 * 4
    assert writes / (time.process_time() - started) > 3_000
