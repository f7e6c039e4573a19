"""What a cluster answers, case by case: each returns the facts that both tiers must agree on.

The rows are those of the API that the design rests on: gates, affinity, preconditions, dry runs, eviction, watch order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from queuectl.contract.foreign import PODS
from tests.conformance.tiers import Answer, Json, Tier
from tests.rig.objects import GATE, gated_pod, pod_spec

Facts = dict[str, Any]
Case = Callable[[Tier, str], Awaitable[Facts]]
CASES: dict[str, Case] = {}
FOREIGN = "example.com/mine"
NOBODY: dict[str, Any] = {"schedulerName": "nobody"}  # no scheduler takes it, so no one else writes to the pod


def case(function: Case) -> Case:
    """Enter a case into the table."""
    CASES[function.__name__] = function
    return function


def required(*terms: Json) -> Json:
    """A required node affinity."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def zone(name: str) -> Json:
    """A term of the user's."""
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}


def on(node: str) -> Json:
    """A pin."""
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def release(*terms: Json) -> Json:
    """Pin and take our gate, as a strategic merge patch."""
    return {"spec": {"affinity": required(*terms), "schedulingGates": [{"$patch": "delete", "name": GATE}]}}


def gates(answer: Answer) -> list[str]:
    """Gates of the pod in an answer."""
    return [gate["name"] for gate in answer.body["spec"].get("schedulingGates") or ()]


async def gated(tier: Tier, namespace: str, *names: str, **spec: Any) -> Answer:
    """A pod behind our gate, or these."""
    return await tier.create(PODS, namespace, gated_pod("a", gates=names or (GATE,), **NOBODY, **spec))


@case
async def one_patch_pins_and_releases(tier: Tier, namespace: str) -> Facts:
    """The release itself."""
    await gated(tier, namespace)
    answer = await tier.patch(PODS, namespace, "a", release(on("n")))
    return {"status": answer.status, "gates": gates(answer), "affinity": answer.body["spec"]["affinity"]}


@case
async def a_pin_goes_into_every_term(tier: Tier, namespace: str) -> Facts:
    """Terms may be tightened, none added."""
    await gated(tier, namespace, affinity=required(zone("x"), zone("y")))
    third = await tier.patch(PODS, namespace, "a", release(zone("x"), zone("y"), on("n")))
    fewer = await tier.patch(PODS, namespace, "a", release({**zone("x"), **on("n")}))
    other = await tier.patch(PODS, namespace, "a", release({**zone("z"), **on("n")}, {**zone("y"), **on("n")}))
    both = await tier.patch(PODS, namespace, "a", release({**zone("x"), **on("n")}, {**zone("y"), **on("n")}))
    return {"third": third.status, "fewer": fewer.status, "other": other.status, "both": both.status}


@case
async def the_uid_of_another_pod(tier: Tier, namespace: str) -> Facts:
    """Not a conflict: invalid."""
    await gated(tier, namespace)
    body = {"metadata": {"uid": "00000000-0000-4000-8000-000000000001"}, **release(on("n"))}
    answer = await tier.patch(PODS, namespace, "a", body)
    return {"status": answer.status, "immutable": "field is immutable" in answer.body["message"]}


@case
async def an_older_version_loses(tier: Tier, namespace: str) -> Facts:
    """The fence that stops a paused writer."""
    seen = (await gated(tier, namespace)).body["metadata"]["resourceVersion"]
    bumped = await tier.patch(PODS, namespace, "a", {"metadata": {"annotations": {"example.com/x": "2"}}})
    late = await tier.patch(PODS, namespace, "a", {"metadata": {"resourceVersion": seen}, **release(on("n"))})
    return {"bumped": bumped.status, "late": late.status}


@case
async def a_gate_cannot_come_back(tier: Tier, namespace: str) -> Facts:
    """Nor can one be added."""
    await gated(tier, namespace)
    more = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": [{"name": FOREIGN}]}})
    await tier.patch(PODS, namespace, "a", release(on("n")))
    back = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": [{"name": GATE}]}})
    return {"more": more.status, "back": back.status}


@case
async def gates_that_are_gone_already(tier: Tier, namespace: str) -> Facts:
    """Taking them again is no error and no change."""
    await gated(tier, namespace)
    first = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": None}}, merge=True)
    again = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": None}}, merge=True)
    ours = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}})
    versions = {answer.body["metadata"]["resourceVersion"] for answer in (first, again, ours)}
    return {"statuses": [first.status, again.status, ours.status], "versions": len(versions)}


@case
async def a_foreign_gate(tier: Tier, namespace: str) -> Facts:
    """A strategic merge keeps it, a JSON merge patch does not."""
    await gated(tier, namespace, FOREIGN, GATE)
    kept = await tier.patch(PODS, namespace, "a", release(on("n")), dry=True)
    lost = await tier.patch(PODS, namespace, "a", {"spec": {"schedulingGates": None}}, merge=True)
    return {"strategic": gates(kept), "merge": gates(lost)}


@case
async def no_pin_without_a_gate(tier: Tier, namespace: str) -> Facts:
    """Affinity and selector stand once the last gate is gone."""
    await tier.create(PODS, namespace, gated_pod("a", gates=(), **NOBODY))
    pin = await tier.patch(PODS, namespace, "a", {"spec": {"affinity": required(on("n"))}})
    selector = await tier.patch(PODS, namespace, "a", {"spec": {"nodeSelector": {"a": "b"}}})
    image = await tier.patch(
        PODS, namespace, "a", {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}
    )
    return {"pin": pin.status, "selector": selector.status, "image": image.status}


@case
async def a_gated_pod_has_no_node(tier: Tier, namespace: str) -> Facts:
    """Neither at creation nor by binding."""
    born = await tier.create(PODS, namespace, gated_pod("b", nodeName="n"))
    await gated(tier, namespace)
    early = await tier.bind(namespace, "a", "n")
    await tier.patch(PODS, namespace, "a", release(on("n")))
    bound = await tier.bind(namespace, "a", "n")
    twice = await tier.bind(namespace, "a", "m")
    seen = await tier.get(PODS, namespace, "a")
    await tier.delete(PODS, namespace, "a", grace=0)
    return {
        "born": born.status, "early": early.status, "bound": bound.status, "twice": twice.status,
        "node": seen.body["spec"]["nodeName"], "phase": seen.body["status"]["phase"],
    }  # fmt: skip


@case
async def gpus_are_whole_and_not_overcommitted(tier: Tier, namespace: str) -> Facts:
    """Refused at the door."""
    facts = {}
    for name, resources in {
        "fraction": {"limits": {"nvidia.com/gpu": "200m"}},
        "request only": {"requests": {"nvidia.com/gpu": "1"}},
        "unequal": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}},
        "limit only": {"limits": {"nvidia.com/gpu": "2"}},
    }.items():
        spec = {**pod_spec(0, (GATE,)), **NOBODY}
        spec["containers"] = [{"name": "main", "image": "example.com/none", "resources": resources}]
        answer = await tier.create(PODS, namespace, {"metadata": {"name": name.replace(" ", "-")}, "spec": spec})
        facts[name] = answer.status
    stored = await tier.get(PODS, namespace, "limit-only")
    facts["defaulted"] = stored.body["spec"]["containers"][0]["resources"]["requests"]
    return facts


@case
async def a_dry_run_stores_nothing(tier: Tier, namespace: str) -> Facts:
    """It answers as if."""
    before = await gated(tier, namespace)
    answer = await tier.patch(PODS, namespace, "a", release(on("n")), dry=True)
    wrong = await tier.patch(PODS, namespace, "a", {"spec": {"nodeName": "n"}}, dry=True)
    after = await tier.get(PODS, namespace, "a")
    same = before.body["metadata"]["resourceVersion"] == after.body["metadata"]["resourceVersion"]
    return {
        "status": answer.status,
        "shown": gates(answer),
        "wrong": wrong.status,
        "stored": gates(after),
        "same": same,
    }


@case
async def names_and_preconditions(tier: Tier, namespace: str) -> Facts:
    """What is there, what is not, and what is not the one that was meant."""
    first = await gated(tier, namespace)
    twice = await gated(tier, namespace)
    missing = await tier.patch(PODS, namespace, "b", {"metadata": {"labels": {"x": "y"}}})
    wrong = await tier.delete(PODS, namespace, "a", uid="00000000-0000-4000-8000-000000000001")
    gone = await tier.delete(PODS, namespace, "a", uid=first.body["metadata"]["uid"])
    after = await tier.get(PODS, namespace, "a")
    return {
        "first": first.status, "twice": twice.status, "missing": missing.status, "wrong": wrong.status,
        "gone": gone.status, "after": after.status,
    }  # fmt: skip


@case
async def evictions(tier: Tier, namespace: str) -> Facts:
    """A budget protects what runs, and only that; the UID is a precondition."""
    await tier.protect(namespace, "all", {"app": "x"})
    for name in ("pending", "running"):
        await tier.create(PODS, namespace, gated_pod(name, gates=(), labels={"app": "x"}, **NOBODY))
    await tier.bind(namespace, "running", "n")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await tier.patch(PODS, namespace, "running", status, status=True)
    uid = {name: (await tier.get(PODS, namespace, name)).body["metadata"]["uid"] for name in ("pending", "running")}
    facts = {
        "another": (await tier.evict(namespace, "pending", uid["running"])).status,
        "pending": (await tier.evict(namespace, "pending", uid["pending"])).status,
        "running": (await tier.evict(namespace, "running", uid["running"])).status,
        "missing": (await tier.evict(namespace, "nobody", uid["running"])).status,
    }
    await tier.delete(PODS, namespace, "running", grace=0)
    return facts


@case
async def a_running_pod_goes_in_two_steps(tier: Tier, namespace: str) -> Facts:
    """First it is marked, with its grace; without grace it is gone."""
    await tier.create(PODS, namespace, gated_pod("a", gates=(), **NOBODY))
    await tier.bind(namespace, "a", "n")
    marked = await tier.delete(PODS, namespace, "a")
    seen = await tier.get(PODS, namespace, "a")
    forced = await tier.delete(PODS, namespace, "a", grace=0)
    after = await tier.get(PODS, namespace, "a")
    return {
        "marked": marked.status, "grace": seen.body["metadata"]["deletionGracePeriodSeconds"],
        "going": "deletionTimestamp" in seen.body["metadata"], "forced": forced.status, "after": after.status,
    }  # fmt: skip


@case
async def a_finalizer_keeps(tier: Tier, namespace: str) -> Facts:
    """Until it is taken away."""
    pod = gated_pod("a", **NOBODY)
    pod["metadata"]["finalizers"] = ["example.com/keep"]
    await tier.create(PODS, namespace, pod)
    await tier.delete(PODS, namespace, "a")
    kept = await tier.get(PODS, namespace, "a")
    freed = await tier.patch(PODS, namespace, "a", {"metadata": {"finalizers": None}}, merge=True)
    after = await tier.get(PODS, namespace, "a")
    return {"going": "deletionTimestamp" in kept.body["metadata"], "freed": freed.status, "after": after.status}


@case
async def a_watch_tells_in_order(tier: Tier, namespace: str) -> Facts:
    """Created, changed, gone; versions rise; a change of nothing is none."""
    since = (await tier.create(PODS, namespace, gated_pod("first", **NOBODY))).body["metadata"]["resourceVersion"]
    await gated(tier, namespace)
    for _ in range(2):
        await tier.patch(PODS, namespace, "a", {"metadata": {"labels": {"x": "y"}}})
    await tier.patch(PODS, namespace, "a", {"status": {"message": "not here"}})
    await tier.patch(PODS, namespace, "a", {"status": {"message": "here"}}, status=True)
    await tier.delete(PODS, namespace, "a")
    events = await tier.events(PODS, namespace, since, 5)
    versions = [int(seen["metadata"]["resourceVersion"]) for _, seen in events]
    return {
        "events": [f"{verb} {seen['metadata']['name']}" for verb, seen in events],
        "rising": versions == sorted(set(versions)),
        "messages": [seen["status"].get("message", "") for _, seen in events],
        "going": [seen["metadata"].get("deletionGracePeriodSeconds") for _, seen in events],
    }


@case
async def generations(tier: Tier, namespace: str) -> Facts:
    """They count changes of the spec, and the deletion; nothing else."""
    pod = gated_pod("a", **NOBODY)
    pod["metadata"]["finalizers"] = ["example.com/keep"]
    found = [await tier.create(PODS, namespace, pod)]
    found.append(await tier.patch(PODS, namespace, "a", {"metadata": {"labels": {"x": "y"}}}))
    found.append(await tier.patch(PODS, namespace, "a", {"status": {"message": "here"}}, status=True))
    found.append(await tier.patch(PODS, namespace, "a", release(on("n"))))
    await tier.delete(PODS, namespace, "a")
    found.append(await tier.get(PODS, namespace, "a"))
    await tier.patch(PODS, namespace, "a", {"metadata": {"finalizers": None}}, merge=True)
    return {"generations": [answer.body["metadata"]["generation"] for answer in found]}


@case
async def what_a_new_pod_is_given(tier: Tier, namespace: str) -> Facts:
    """Tolerations, a priority, a condition."""
    body = (await gated(tier, namespace)).body
    tolerations = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    own = (await tier.create(PODS, namespace, gated_pod("b", gates=(), tolerations=tolerations, **NOBODY))).body
    high = await tier.create(PODS, namespace, gated_pod("c", priorityClassName="system-node-critical", **NOBODY))
    none = await tier.create(PODS, namespace, gated_pod("d", priorityClassName="no-such-class", **NOBODY))
    spec, status = body["spec"], body["status"]
    return {
        "tolerations": spec["tolerations"],
        "own": own["spec"]["tolerations"],
        "priority": spec["priority"],
        "preemption": spec["preemptionPolicy"],
        "grace": spec["terminationGracePeriodSeconds"],
        "phase": status["phase"],
        "conditions": [[c["type"], c["status"], c["reason"]] for c in status["conditions"]],
        "ungated": [c["type"] for c in own["status"].get("conditions") or ()],
        "high": high.body["spec"]["priority"],
        "none": none.status,
    }
