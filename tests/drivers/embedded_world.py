"""What the tests of the in-memory cluster share: virtual time, nodes, queues and Jobs, and the judge of a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from queuectl.contract import names
from queuectl.contract.foreign import JOBS, PODS
from queuectl.contract.v1alpha1 import parse_slots
from queuectl.drivers.embedded.clock import VirtualClock, VirtualLoop
from queuectl.drivers.embedded.kubelet import EXIT_CODE, RUN_SECONDS
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Store, Stored

Json = dict[str, Any]
START = 1_796_000_000_000  # milliseconds: where virtual time begins
GPU = "nvidia.com/gpu"
RACK = "example.com/rack"
NAMESPACE = "team"


def clock() -> VirtualClock:
    """Of the running VirtualLoop."""
    return VirtualClock(START)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run in virtual time, as fast as the work allows."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def until(look: Callable[[], object], seconds: float = 600.0) -> None:
    """Wait until it is so. Looks whenever virtual time has passed."""
    async with asyncio.timeout(seconds):
        while not look():  # noqa: ASYNC110 - of a history there is no event to wait for, and virtual time is free
            await asyncio.sleep(0.25)


def node(name: str, gpus: int = 8, rack: str = "", **allocatable: str) -> Json:
    """A node as somebody registers it."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus), **allocatable}
    labels = {"kubernetes.io/hostname": name, **({RACK: rack} if rack else {})}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": amounts, "allocatable": amounts}}


def container(gpus: int = 0) -> Json:
    """One container."""
    asks = {"cpu": "100m", **({GPU: str(gpus)} if gpus else {})}
    return {"name": "main", "image": "example.com/none", "resources": {"requests": asks, "limits": asks}}


def job(
    name: str,
    pods: int,
    gpus: int = 1,
    *,
    queue: str = "",
    gang: str = "all",
    seconds: float | None = None,
    code: int = 0,
    level: str = "",
    **spec: Any,
) -> Json:
    """A Job of so many pods at once: Indexed, of no queue, and running until it is deleted unless said otherwise."""
    notes = {**({RUN_SECONDS: str(seconds)} if seconds is not None else {}), **({EXIT_CODE: str(code)} if code else {})}
    asks = {names.MIN_MEMBER: gang, **({names.TOPOLOGY_REQUIRED: level} if level else {})} if queue else {}
    return {
        "metadata": {
            "name": name,
            "labels": {names.QUEUE_LABEL: queue} if queue else {},
            "annotations": asks,
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            **spec,
            "template": {
                "metadata": {"annotations": notes},
                "spec": {"restartPolicy": "Never", "containers": [container(gpus)]},
            },
        },
    }


def pod(name: str, gpus: int = 0, **spec: Any) -> Json:
    """A pod of its own."""
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container(gpus)], **spec}}


def pods_of(store: Store, job_name: str, namespace: str = NAMESPACE) -> list[Json]:
    """The pods of a Job that exist, by name."""
    found = store.list(PODS, namespace)
    return [one for one in found if one["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job_name]


def phases(store: Store, job_name: str) -> list[str]:
    """Phases of a Job's pods, those that are going as "Going"."""
    return [
        "Going" if "deletionTimestamp" in one["metadata"] else one["status"]["phase"]
        for one in pods_of(store, job_name)
    ]


def status_of(store: Store, job_name: str) -> Json:
    """A Job's status."""
    found: Json = store.get(JOBS, NAMESPACE, job_name)["status"]
    return found


def true(status: Json) -> list[str]:
    """Types of the conditions that are True, in their order."""
    return [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]


def releases_before_record(history: list[Stored]) -> tuple[int, list[str]]:
    """How many of our gates went, and those that went although no admission in force had the place (P1)."""
    owners: dict[str, str] = {}
    places: dict[str, set[tuple[int, str]]] = {}
    gated: dict[str, bool] = {}
    removed, early = 0, []
    for stored in history:
        body, meta = stored.object, stored.object["metadata"]
        if stored.kind.plural == "podgroups":
            owner = (meta.get("ownerReferences") or [{"uid": meta["uid"]}])[0]["uid"]
            owners[meta["uid"]] = owner
            assignments = ((body.get("status") or {}).get("admission") or {}).get("assignments") or ()
            places[owner] = {(slot, one["node"]) for one in assignments for slot in parse_slots(one["slots"])}
        if stored.kind.plural != "pods":
            continue
        before, now = gated.get(meta["uid"], False), names.GATE in gates(body)
        gated[meta["uid"]] = now
        if before and not now:
            removed += 1
            owner = meta["ownerReferences"][0]["uid"]
            rank = int((meta.get("annotations") or {}).get(names.COMPLETION_INDEX) or meta["labels"][names.POD_INDEX])
            terms = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            pinned = terms["nodeSelectorTerms"][0]["matchFields"][-1]["values"][0]
            if (rank, pinned) not in places.get(owner, set()):
                early.append(meta["name"])
    return removed, early


def most_over(history: list[Stored]) -> int:
    """GPUs that live pods took of a node beyond what it has, at the worst moment (P2)."""
    size: dict[str, int] = {}
    used: dict[str, int] = {}
    held: dict[str, tuple[str, int]] = {}
    worst = 0
    for stored in history:
        body, meta = stored.object, stored.object["metadata"]
        if stored.kind.plural == "nodes":
            size[meta["name"]] = int(body["status"]["allocatable"].get(GPU, 0))
        if stored.kind.plural != "pods":
            continue
        name, amount = held.pop(meta["uid"], ("", 0))
        used[name] = used.get(name, 0) - amount
        over = body["status"].get("phase") in ("Succeeded", "Failed") or stored.verb == "DELETED"
        if (on := body["spec"].get("nodeName")) and not over:
            taken = sum(int(c["resources"]["requests"].get(GPU, 0)) for c in body["spec"]["containers"])
            held[meta["uid"]] = (on, taken)
            used[on] = used.get(on, 0) + taken
            worst = max(worst, used[on] - size.get(on, 0))
    return worst
