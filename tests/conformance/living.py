"""What happens in a cluster, case by case, as in ``cases.py``: the Job controller, the scheduler, kubelets, garbage."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from queuectl.contract.foreign import JOBS, NODES, PODS
from queuectl.contract.names import COMPLETION_INDEX
from tests.conformance.cases import Case, Facts, on, release, required
from tests.conformance.tiers import Json, Tier
from tests.rig.nodes import EXIT_CODE, RUN_SECONDS, STOP_SECONDS
from tests.rig.objects import GATE, gated_pod, indexed_job

CASES: dict[str, Case] = {}
DEADLINE = 40.0  # seconds: more than the Job controller's first back-off


def case(function: Case) -> Case:
    """Enter a case into the table."""
    CASES[function.__name__] = function
    return function


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Look until it gives something, and return that. By the loop's clock, which may be virtual."""
    end = asyncio.get_running_loop().time() + DEADLINE
    while not (found := await look()):
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.1)
    return found


async def pods(tier: Tier, namespace: str, count: int, phase: str = "", *, gated: bool | None = None) -> list[Json]:
    """Wait until so many pods, none of them going, have come so far; by name."""

    async def look() -> list[Json] | bool:
        found = [
            one
            for one in await tier.list(PODS, namespace)
            if "deletionTimestamp" not in one["metadata"]
            and phase in ("", one["status"]["phase"])
            and gated in (None, bool(one["spec"].get("schedulingGates")))
        ]
        return len(found) == count and (found or True)

    found = await until(look, f"{count} pods {phase}")
    return [] if found is True else list(found)


async def settled(tier: Tier, namespace: str, look: Callable[[Json], object]) -> Json:
    """Wait until the status of the Job "train" is so, and return it."""

    async def seen() -> Json | None:
        status: Json = (await tier.get(JOBS, namespace, "train")).body["status"]
        return status if look(status) else None

    found: Json = await until(seen, "the Job's status")
    return found


def has(kind: str) -> Callable[[Json], bool]:
    """Whether a status has this condition."""
    return lambda status: any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())


def shown(status: Json) -> Json:
    """A Job's status without its times."""
    plain = {name: value for name, value in status.items() if not name.endswith("Time") and name != "conditions"}
    said = [[c["type"], c["status"], c["reason"], c["message"]] for c in status.get("conditions") or ()]
    return {**plain, "conditions": said, "times": sorted(name for name in status if name.endswith("Time"))}


async def start(tier: Tier, namespace: str, *names: str, **notes: str) -> None:
    """Release pods to the test's node, with annotations."""
    for name in names:
        if notes:
            await tier.patch(PODS, namespace, name, {"metadata": {"annotations": notes}})
        await tier.patch(PODS, namespace, name, release(on(f"{namespace}-0")))


async def gated_job(tier: Tier, namespace: str, count: int, **more: Any) -> list[str]:
    """A Job whose pods come gated, on a cluster with a node; names of its pods."""
    await tier.nodes(f"{namespace}-0", gpus=4)
    await tier.create(JOBS, namespace, indexed_job("train", count, gates=(GATE,), **more))
    found = await pods(tier, namespace, count, gated=True)
    return [one["metadata"]["name"] for one in found]


async def running_job(tier: Tier, namespace: str, count: int, **more: Any) -> list[str]:
    """The same, when all its pods run."""
    names = await gated_job(tier, namespace, count, **more)
    await start(tier, namespace, *names)
    await pods(tier, namespace, count, "Running")
    await settled(tier, namespace, lambda status: status.get("ready") == count)
    return names


@case
async def a_new_job(tier: Tier, namespace: str) -> Facts:
    """Its defaults, its labels, and its pods."""
    made = await tier.create(JOBS, namespace, indexed_job("train", 2, gates=(GATE,), annotations={"a": "b"}))
    uid, spec = made.body["metadata"]["uid"], made.body["spec"]
    pod = (await pods(tier, namespace, 2, gated=True))[1]
    meta = pod["metadata"]
    await settled(tier, namespace, lambda status: status.get("active") == 2)
    alone = await tier.create(JOBS, namespace, {"metadata": {"name": "alone"}, "spec": {
        "suspend": True, "template": {"metadata": {"labels": {"app": "x"}}, "spec": spec["template"]["spec"]}}})  # fmt: skip
    await tier.delete(JOBS, namespace, "alone")
    defaults = ("parallelism", "completions", "completionMode", "backoffLimit", "suspend", "podReplacementPolicy")

    def named(labels: Json) -> Json:
        return {key: "UID" if value in (uid, alone.body["metadata"]["uid"]) else value for key, value in labels.items()}

    return {
        "defaults": {name: alone.body["spec"].get(name) for name in defaults},
        "its labels": named(alone.body["metadata"].get("labels") or {}),
        "selector": named(spec["selector"]["matchLabels"]),
        "template": named(spec["template"]["metadata"]["labels"]),
        "labels": named(meta["labels"]),
        "annotations": meta["annotations"],
        "owners": [{**one, "uid": "UID" if one["uid"] == uid else "another"} for one in meta["ownerReferences"]],
        "name": re.fullmatch(r"train-1-[bcdfghjklmnpqrstvwxz2-9]{5}", meta["name"]) is not None,
        "generateName": meta["generateName"],
        "hostname": pod["spec"]["hostname"],
        "env": pod["spec"]["containers"][0]["env"][0]["name"],
        "created": made.body["status"],
    }


@case
async def a_job_that_may_not_be(tier: Tier, namespace: str) -> Facts:
    """Refused at the door, or when it is changed."""
    facts = {}
    wrong: dict[str, Json] = {
        "negative": {"parallelism": -1},
        "endless": {"completions": None},
        "mode": {"completionMode": "Other"},
    }
    for name, more in wrong.items():
        body = indexed_job(name, 2, suspend=True, **more)
        body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
        facts[name] = (await tier.create(JOBS, namespace, body)).status
    always = indexed_job("always", 2)
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    facts["always"] = (await tier.create(JOBS, namespace, always)).status
    await tier.create(JOBS, namespace, indexed_job("train", 2, gates=(GATE,)))
    await settled(tier, namespace, lambda status: status.get("active") == 2)
    for name, spec in {
        "completions": {"completions": 3},
        "elastic": {"completions": 3, "parallelism": 3},
        "wider": {"parallelism": 4},
        "completion mode": {"completionMode": "NonIndexed"},
        "template": {"template": {"spec": {"nodeSelector": {"a": "b"}}}},
        "backoff": {"backoffLimit": 2},
    }.items():
        facts[name] = (await tier.patch(JOBS, namespace, "train", {"spec": spec})).status
    await tier.patch(JOBS, namespace, "train", {"spec": {"suspend": True}})
    await settled(tier, namespace, lambda status: has("Suspended")(status) and not status.get("active"))
    directed = {"template": {"spec": {"nodeSelector": {"a": "b"}}}}
    facts["template, suspended"] = (await tier.patch(JOBS, namespace, "train", {"spec": directed})).status
    image = {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}}
    facts["image, suspended"] = (await tier.patch(JOBS, namespace, "train", {"spec": image})).status
    return facts


@case
async def a_running_job_is_suspended_and_resumed(tier: Tier, namespace: str) -> Facts:
    """Its pods go and no failure is counted; resumed, it starts anew, and its pods come gated again."""
    before = await running_job(tier, namespace, 2)
    ran = await settled(tier, namespace, lambda status: status.get("startTime"))
    await tier.patch(JOBS, namespace, "train", {"spec": {"suspend": True}})
    await pods(tier, namespace, 0)
    suspended = await settled(
        tier, namespace, lambda status: has("Suspended")(status) and not status.get("terminating")
    )
    await asyncio.sleep(1.5)  # start times are whole seconds
    await tier.patch(JOBS, namespace, "train", {"spec": {"suspend": False}})
    after = await pods(tier, namespace, 2, gated=True)
    resumed = await settled(tier, namespace, lambda status: status.get("active") == 2)
    return {
        "ran": shown(ran),
        "suspended": shown(suspended),
        "resumed": shown(resumed),
        "later": resumed["startTime"] > ran["startTime"],
        "others": not {one["metadata"]["name"] for one in after} & set(before),
        "gates": [[gate["name"] for gate in one["spec"]["schedulingGates"]] for one in after],
    }


@case
async def a_job_created_suspended(tier: Tier, namespace: str) -> Facts:
    """No pods and no start time, until it is resumed."""
    await tier.create(JOBS, namespace, indexed_job("train", 2, gates=(GATE,), suspend=True))
    status = await settled(tier, namespace, has("Suspended"))
    found = await tier.list(PODS, namespace)
    await tier.patch(JOBS, namespace, "train", {"spec": {"suspend": False}})
    await pods(tier, namespace, 2, gated=True)
    resumed = await settled(tier, namespace, lambda seen: seen.get("active") == 2)
    return {"pods": len(found), "status": shown(status), "resumed": shown(resumed)}


@case
async def a_pod_of_a_job_is_evicted(tier: Tier, namespace: str) -> Facts:
    """It counts as a failure at once, and another takes its index after the back-off."""
    names = await running_job(tier, namespace, 2, annotations={STOP_SECONDS: "2"})
    uid = (await tier.get(PODS, namespace, names[0])).body["metadata"]["uid"]
    evicted = await tier.evict(namespace, names[0], uid)
    going = (await tier.get(PODS, namespace, names[0])).body
    failed = await settled(tier, namespace, lambda status: status.get("failed"))
    since = asyncio.get_running_loop().time()
    after = await pods(tier, namespace, 1, gated=True)
    waited = asyncio.get_running_loop().time() - since
    return {
        "evicted": evicted.status,
        "going": {k: v for k, v in condition(going, "DisruptionTarget").items() if k in ("status", "reason")},
        "grace": going["metadata"]["deletionGracePeriodSeconds"],
        "failed": failed["failed"],
        "conditions": failed.get("conditions", []),
        "index": after[0]["metadata"]["annotations"][COMPLETION_INDEX],
        "backed off": 5 < waited < 15,
    }


@case
async def a_job_completes(tier: Tier, namespace: str) -> Facts:
    """Conditions in their order; nothing is left but what succeeded."""
    names = await gated_job(tier, namespace, 3, annotations={RUN_SECONDS: "0.2"})
    await start(tier, namespace, names[0], names[1])
    part = await settled(tier, namespace, lambda status: status.get("succeeded") == 2)
    await start(tier, namespace, names[2])
    done = await settled(tier, namespace, has("Complete"))
    return {"part": shown(part), "done": shown(done), "pods": len(await tier.list(PODS, namespace))}


@case
async def a_job_fails(tier: Tier, namespace: str) -> Facts:
    """Past its limit, all its pods are deleted and count as failed."""
    names = await gated_job(tier, namespace, 3, backoffLimit=0)
    await start(tier, namespace, names[1])
    await pods(tier, namespace, 1, "Running")
    await start(tier, namespace, names[0], **{RUN_SECONDS: "0.2", EXIT_CODE: "1"})
    failed = await settled(tier, namespace, has("Failed"))
    left = await tier.list(PODS, namespace)
    return {"failed": shown(failed), "left": [one["status"]["phase"] for one in left]}


@case
async def a_job_runs_out_of_time(tier: Tier, namespace: str) -> Facts:
    """Its deadline counts from its start."""
    await gated_job(tier, namespace, 2, activeDeadlineSeconds=2)
    return {"failed": shown(await settled(tier, namespace, has("Failed")))}


@case
async def more_completions_than_places(tier: Tier, namespace: str) -> Facts:
    """Pods without an index follow each other; scaled down, the Job deletes those that ran least, and counts none."""
    body = {"completionMode": "NonIndexed", "completions": 3, "parallelism": 2}
    names = await gated_job(tier, namespace, 2, annotations={RUN_SECONDS: "0.2"}, **body)
    first = [one["metadata"] for one in await tier.list(PODS, namespace)]
    await start(tier, namespace, names[0])
    await settled(tier, namespace, lambda status: status.get("succeeded") == 1)
    await pods(tier, namespace, 2, gated=True)
    await tier.patch(JOBS, namespace, "train", {"spec": {"parallelism": 1}})
    left = await pods(tier, namespace, 1, gated=True)
    scaled = await settled(tier, namespace, lambda status: status.get("active") == 1 and not status.get("terminating"))
    await start(tier, namespace, left[0]["metadata"]["name"])
    await settled(tier, namespace, lambda status: status.get("succeeded") == 2)
    last = await pods(tier, namespace, 1, gated=True)
    await start(tier, namespace, last[0]["metadata"]["name"])
    return {
        "names": all(re.fullmatch(r"train-[a-z0-9]{5}", meta["name"]) for meta in first),
        "annotations": [sorted(meta["annotations"]) for meta in first],
        "scaled": shown(scaled),
        "done": shown(await settled(tier, namespace, has("Complete"))),
    }


@case
async def a_job_is_deleted(tier: Tier, namespace: str) -> Facts:
    """Its pods go with it."""
    await running_job(tier, namespace, 2)
    deleted = await tier.delete(JOBS, namespace, "train")
    await pods(tier, namespace, 0)

    async def empty() -> bool:
        return not await tier.list(PODS, namespace)

    await until(empty, "no pods")
    return {"deleted": deleted.status, "job": (await tier.get(JOBS, namespace, "train")).status}


@case
async def a_job_whose_time_is_over_is_cleaned_away(tier: Tier, namespace: str) -> Facts:
    """With its pods, after ttlSecondsAfterFinished."""
    names = await gated_job(tier, namespace, 1, annotations={RUN_SECONDS: "0.1"}, ttlSecondsAfterFinished=1)
    await start(tier, namespace, *names)

    async def empty() -> bool:
        gone = (await tier.get(JOBS, namespace, "train")).status == 404
        return gone and not await tier.list(PODS, namespace)

    await until(empty, "nothing left")
    return {}


def scheduled(pod: Json) -> Json:
    """What the scheduler says of a pod, without numbers of nodes and what preemption could do."""
    said = condition(pod, "PodScheduled")
    message = str(said.get("message", "")).partition(" preemption:")[0].partition("available: ")[2]
    reasons = sorted(re.sub(r"^\d+ ", "", one) for one in message.rstrip(".").split(", ") if one)
    return {"status": said.get("status", ""), "reason": said.get("reason", ""), "reasons": reasons}


async def unschedulable(tier: Tier, namespace: str, name: str) -> Json:
    """Wait until the scheduler has said so."""

    async def look() -> Json | None:
        seen = (await tier.get(PODS, namespace, name)).body
        return seen if scheduled(seen)["reason"] == "Unschedulable" else None

    return scheduled(await until(look, f"{name} is unschedulable"))


@case
async def what_the_scheduler_says(tier: Tier, namespace: str) -> Facts:
    """A full node, a cordoned one, one that does not exist; it binds when there is room again."""
    one, other = f"{namespace}-0", f"{namespace}-1"
    await tier.nodes(one, other, gpus=4)
    await tier.create(PODS, namespace, gated_pod("first", 3, gates=(), affinity=required(on(one))))
    await pods(tier, namespace, 1, "Running")
    await tier.create(PODS, namespace, gated_pod("full", 2, gates=(), affinity=required(on(one))))
    await tier.create(PODS, namespace, gated_pod("missing", 1, gates=(), affinity=required(on("no-such-node"))))
    await tier.patch(NODES, "", other, {"spec": {"unschedulable": True}})
    await asyncio.sleep(1)  # until the scheduler knows
    await tier.create(PODS, namespace, gated_pod("cordoned", 1, gates=(), affinity=required(on(other))))
    await tier.create(PODS, namespace, gated_pod("gated", 1, affinity=required(on(one))))
    facts: Facts = {name: await unschedulable(tier, namespace, name) for name in ("full", "missing", "cordoned")}
    facts["gated"] = scheduled((await tier.get(PODS, namespace, "gated")).body)
    await tier.delete(PODS, namespace, "first")
    await tier.patch(NODES, "", other, {"spec": {"unschedulable": False}})
    bound = {}
    for name, found in {p["metadata"]["name"]: p for p in await pods(tier, namespace, 2, "Running")}.items():
        bound[name] = [found["spec"]["nodeName"].removeprefix(namespace), scheduled(found)["status"]]
    facts["bound"] = bound
    return facts


@case
async def a_pod_in_its_life(tier: Tier, namespace: str) -> Facts:
    """From its creation to its end, as a watch sees it."""
    await tier.nodes(f"{namespace}-0", gpus=4)
    body = gated_pod("a", 1, annotations={RUN_SECONDS: "0.2"})
    since = (await tier.create(PODS, namespace, body)).body["metadata"]["resourceVersion"]
    await start(tier, namespace, "a")
    events = await tier.events(PODS, namespace, since, 4)
    await tier.delete(PODS, namespace, "a")
    return {
        "events": [
            [verb, seen["status"]["phase"], gates_of(seen), bool(seen["spec"].get("nodeName")), ready(seen)]
            for verb, seen in events
        ],
        "gone": (await tier.get(PODS, namespace, "a")).status,
        "scheduled": {k: v for k, v in condition(events[1][1], "PodScheduled").items() if k in ("status", "reason")},
    }


def gates_of(pod: Json) -> int:
    """How many gates it has."""
    return len(pod["spec"].get("schedulingGates") or ())


def condition(pod: Json, kind: str) -> Json:
    """A condition of a pod, empty when it has none of that type."""
    found: Json = next((c for c in pod["status"].get("conditions") or () if c["type"] == kind), {})
    return found


def ready(pod: Json) -> str:
    """Its Ready condition."""
    return str(condition(pod, "Ready").get("status", ""))
