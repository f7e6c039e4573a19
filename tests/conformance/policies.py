"""What a cluster with our policies and definitions answers, as in ``cases.py``: the gate, its guards, the fence, watches."""

from __future__ import annotations

from queuectl.contract import names
from queuectl.contract.foreign import (
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    LEASES,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    STATEFUL_SETS,
    Kind,
    ReplicaSet,
)
from queuectl.contract.home import LEASE, NAMESPACE
from tests.conformance.cases import FOREIGN, NOBODY, Case, Facts, gates, on, release
from tests.conformance.living import pods
from tests.conformance.tiers import OURS, TENANT, Answer, Json, Tier
from tests.rig import crds
from tests.rig.client import eventually
from tests.rig.objects import gated_pod, pod_spec

CASES: dict[str, Case] = {}
QUEUED = {names.QUEUE_LABEL: "vision"}
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", ReplicaSet)  # we read none; its fields are a ReplicaSet's
LATER = 1_000_000  # a fence that no Lease reaches


def case(function: Case) -> Case:
    """Enter a case into the table."""
    CASES[function.__name__] = function
    return function


def fenced(fence: int, body: Json) -> Json:
    """The same patch with a fence."""
    return {"metadata": {"annotations": {names.FENCE: str(fence)}}, **body}


async def queued(tier: Tier, namespace: str, *gated: str, name: str = "a") -> Json:
    """A tenant's pod of a queue."""
    answer = await tier.as_(TENANT).create(PODS, namespace, gated_pod(name, gates=gated, labels=QUEUED, **NOBODY))
    return {"status": answer.status, "gates": sorted(gates(answer))}


def train(labels: Json, template: Json) -> Json:
    """A suspended Job."""
    spec = {"suspend": True, "template": {"metadata": {"labels": template}, "spec": pod_spec()}}
    return {"metadata": {"name": "train", "labels": labels}, "spec": spec}


@case
async def a_queue_label_brings_the_gate(tier: Tier, namespace: str) -> Facts:
    """Whatever gates are there stay."""
    plain = await tier.as_(TENANT).create(PODS, namespace, gated_pod("c", gates=(), **NOBODY))
    return {
        "bare": await queued(tier, namespace),
        "foreign": await queued(tier, namespace, FOREIGN, name="b"),
        "unqueued": gates(plain),
    }


@case
async def a_pod_of_a_queue_names_no_node(tier: Tier, namespace: str) -> Facts:
    """It would run beside all accounts."""
    pod = gated_pod("a", gates=(), labels=QUEUED, nodeName="n")
    opted = gated_pod("b", gates=(), labels={**QUEUED, names.UNMANAGED_LABEL: "true"}, nodeName="n")
    named, out = (
        await tier.as_(TENANT).create(PODS, namespace, pod),
        await tier.as_(TENANT).create(PODS, namespace, opted),
    )
    await tier.delete(PODS, namespace, "b", grace=0)
    return {"named": named.status, "unmanaged": out.status}


@case
async def a_jobs_queue_is_its_templates(tier: Tier, namespace: str) -> Facts:
    """Copied where it is missing, refused where it contradicts."""
    tenant = tier.as_(TENANT)
    other = await tenant.create(JOBS, namespace, train(QUEUED, {names.QUEUE_LABEL: "other"}))
    copied = await tenant.create(JOBS, namespace, train(QUEUED, {"app": "x"}))
    moved = await tenant.patch(JOBS, namespace, "train", {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}})
    labels = copied.body["spec"]["template"]["metadata"]["labels"]
    await tier.delete(JOBS, namespace, "train")
    return {
        "other": other.status,
        "copied": labels.get(names.QUEUE_LABEL),
        "kept": labels["app"],
        "moved": moved.status,
    }


@case
async def who_takes_the_gate(tier: Tier, namespace: str) -> Facts:
    """The controller, and whoever may release; not who may edit."""
    await queued(tier, namespace)
    tenant = await tier.as_(TENANT).patch(PODS, namespace, "a", release(on("n")))
    ours = await tier.as_(OURS).patch(PODS, namespace, "a", fenced(LATER, release(on("n"))))
    await queued(tier, namespace, name="b")
    admin = await tier.patch(PODS, namespace, "b", release(on("n")))
    return {
        "tenant": tenant.status, "said": "only who may 'release'" in tenant.body["message"],
        "ours": ours.status, "admin": admin.status,
    }  # fmt: skip


@case
async def what_a_tenant_may_not_write(tier: Tier, namespace: str) -> Facts:
    """Our labels and our annotations; all else is theirs."""
    await queued(tier, namespace)
    tenant, facts = tier.as_(TENANT), {}
    for name, meta in {
        "queue": {"labels": {names.QUEUE_LABEL: "other"}},
        "role": {"labels": {names.ROLE_LABEL: "leader"}},
        "fence": {"annotations": {names.FENCE: "9"}},
        "record": {"annotations": {names.RECORD: "{}"}},
        "own": {"labels": {"app": "x"}, "annotations": {"example.com/x": "y"}},
    }.items():
        facts[name] = (await tenant.patch(PODS, namespace, "a", {"metadata": meta})).status
    return facts


@case
async def a_stale_fence(tier: Tier, namespace: str) -> Facts:
    """Once another leader has begun, the earlier one's writes are refused."""
    lease = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a", "leaseTransitions": 4}}
    await tier.create(LEASES, NAMESPACE, lease)
    try:
        await queued(tier, namespace)

        async def refused() -> bool:
            answer = await tier.as_(OURS).patch(PODS, namespace, "a", fenced(3, release(on("n"))), dry=True)
            return answer.status != 200

        await eventually(refused, 10, "the policy to know the Lease")
        late = await tier.as_(OURS).patch(PODS, namespace, "a", fenced(3, release(on("n"))))
        now = await tier.as_(OURS).patch(PODS, namespace, "a", fenced(4, release(on("n"))))
    finally:
        await tier.delete(LEASES, NAMESPACE, LEASE)
    return {"late": late.status, "stale": "stale fence" in late.body["message"], "now": now.status}


@case
async def a_jobs_pods_come_gated(tier: Tier, namespace: str) -> Facts:
    """Whoever makes the pods: the label comes from the Job, the gate with the label."""
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": pod_spec()}}
    await tier.as_(TENANT).create(JOBS, namespace, {"metadata": {"name": "train", "labels": QUEUED}, "spec": spec})
    found = await pods(tier, namespace, 2)
    await tier.delete(JOBS, namespace, "train")
    return {
        "gates": [[gate["name"] for gate in one["spec"]["schedulingGates"]] for one in found],
        "queues": [one["metadata"]["labels"].get(names.QUEUE_LABEL) for one in found],
        "indexes": [one["metadata"]["annotations"][names.COMPLETION_INDEX] for one in found],
    }


@case
async def a_version_that_is_gone(tier: Tier, namespace: str) -> Facts:
    """A watch from before the definition was there is refused; from a moment ago it goes on."""
    group = {"metadata": {"name": "a"}, "spec": {"queue": "vision", "minMember": 1}}
    since = (await tier.create(POD_GROUPS, namespace, group)).body["metadata"]["resourceVersion"]
    await tier.patch(POD_GROUPS, namespace, "a", {"metadata": {"labels": {"x": "y"}}}, merge=True)
    return {
        "old": await tier.opened(POD_GROUPS, namespace, "1"),
        "fresh": await tier.opened(POD_GROUPS, namespace, since),
    }


@case
async def our_own_resources(tier: Tier, namespace: str) -> Facts:
    """Completed and pruned, refused where they break a rule; a status is written by itself."""
    resources = [{"name": "nvidia.com/gpu", "quota": 4, "colour": "red"}]
    name, other = f"{namespace}-q", f"{namespace}-r"
    queue = await tier.create(
        QUEUES, "", {"metadata": {"name": name}, "spec": {"resources": resources}, "status": {"fence": 3}}
    )
    bare = await tier.create(QUEUES, "", {"metadata": {"name": other}})
    wrong = await tier.create(QUEUES, "", {"metadata": {"name": f"{namespace}-w"}, "spec": {"weight": -1}})
    parent = await tier.patch(QUEUES, "", name, {"spec": {"parent": name}}, merge=True)
    fields = {"queue": "vision", "minMember": 1}
    group = await tier.create(POD_GROUPS, namespace, {"metadata": {"name": "a"}, "spec": fields})
    both = {**fields, "roles": [{"name": "x", "minMember": 1}]}
    roles = await tier.create(POD_GROUPS, namespace, {"metadata": {"name": "b"}, "spec": both})
    said = {
        "type": "Placed",
        "status": "True",
        "reason": "Admitted",
        "message": "",
        "lastTransitionTime": "2026-11-30T00:00:00Z",
    }
    status = {"fence": 1, "conditions": [said]}
    body = {"status": status, "spec": {"queue": "other"}}
    placed = await tier.patch(POD_GROUPS, namespace, "a", body, merge=True, status=True)
    moved = await tier.patch(POD_GROUPS, namespace, "a", {"spec": {"queue": "other"}}, merge=True)
    held = await tier.patch(POD_GROUPS, namespace, "a", {"spec": {"hold": True}, "status": {"fence": 9}}, merge=True)
    for made in (name, other):
        await tier.delete(QUEUES, "", made)
    return {
        "queue": {"spec": queue.body["spec"], "status": queue.body.get("status")},
        "bare": bare.body.get("spec"),
        "wrong": wrong.status,
        "parent": parent.status,
        "group": group.body["spec"],
        "roles": roles.status,
        "placed": [placed.body["spec"]["queue"], placed.body["status"]["fence"], placed.body["metadata"]["generation"]],
        "moved": moved.status,
        "held": [held.body["spec"]["hold"], held.body["status"]["fence"], held.body["metadata"]["generation"]],
    }


@case
async def what_nobody_else_writes_down(tier: Tier, namespace: str) -> Facts:
    """The controller's records, at creation and later, on pods, Jobs and their templates."""
    tenant, facts = tier.as_(TENANT), {}
    for name, notes in {"fence": {names.FENCE: "1"}, "record": {names.RECORD: "{}"}}.items():
        pod = gated_pod(f"pod-{name}", labels=QUEUED, annotations=notes, **NOBODY)
        facts[f"pod with {name}"] = (await tenant.create(PODS, namespace, pod)).status
        inner = train(QUEUED, {})
        inner["metadata"]["name"] = f"job-{name}"
        inner["spec"]["template"]["metadata"]["annotations"] = notes
        facts[f"template with {name}"] = (await tenant.create(JOBS, namespace, inner)).status
    suspended = train(QUEUED, {})
    suspended["metadata"]["annotations"] = {names.SUSPENSION: "x:1:suspended"}
    facts["job with suspension"] = (await tenant.create(JOBS, namespace, suspended)).status
    await tenant.create(JOBS, namespace, train(QUEUED, {}))
    changes: dict[str, Json] = {
        "suspension": {"metadata": {"annotations": {names.SUSPENSION: "x:1:suspended"}}},
        "template's queue": {"spec": {"template": {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}}}},
        "template's record": {"spec": {"template": {"metadata": {"annotations": {names.RECORD: "{}"}}}}},
        "template's own": {"spec": {"template": {"metadata": {"annotations": {"example.com/x": "y"}}}}},
    }
    for name, body in changes.items():
        facts[name] = (await tenant.patch(JOBS, namespace, "train", body)).status
    await tier.delete(JOBS, namespace, "train")
    return facts


@case
async def what_our_own_account_may_not_write(tier: Tier, namespace: str) -> Facts:
    """It pins, releases, suspends and resumes; it changes nothing else of what is others'."""
    await queued(tier, namespace, FOREIGN)
    await tier.as_(TENANT).create(JOBS, namespace, train(QUEUED, {}))
    ours, facts = tier.as_(OURS), {}
    to_pod: dict[str, Json] = {
        "label": {"metadata": {"labels": {"app": "x"}}},
        "annotation": {"metadata": {"annotations": {"example.com/x": "y"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/keep"]}},
        "image": {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}},
        "selector": {"spec": {"nodeSelector": {"a": "b"}}},
        "foreign gate": {"spec": {"schedulingGates": [{"$patch": "delete", "name": FOREIGN}]}},
        "no fence, no Lease": {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}},
    }
    to_job: dict[str, Json] = {
        "parallelism": {"spec": {"parallelism": 3}},
        "label": {"metadata": {"labels": {"app": "x"}}},
        "resume": {"spec": {"suspend": False}},
    }
    for name, body in to_pod.items():
        patch = body if name == "no fence, no Lease" else merged(fenced(LATER, {}), body)
        facts[f"pod: {name}"] = (await ours.patch(PODS, namespace, "a", patch, dry=True)).status
    for name, body in to_job.items():
        facts[f"job: {name}"] = (
            await ours.patch(JOBS, namespace, "train", merged(fenced(LATER, {}), body), dry=True)
        ).status
    await tier.delete(JOBS, namespace, "train")
    return facts


@case
async def our_word_on_a_pod(tier: Tier, namespace: str) -> Facts:
    """Of a pod's status our account writes one condition, on the version that it saw."""
    await queued(tier, namespace)
    ours, facts = tier.as_(OURS), {}

    def said(kind: str, **rest: str) -> Json:
        return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "NoCapacity", **rest}]}}

    bodies: dict[str, Json] = {
        "waiting": said(names.WAITING),
        "another": said("Ready"),
        "changed": said("PodScheduled"),
        "gone": {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}},
        "phase": {"status": {"phase": "Failed"}},
        "label": {"metadata": {"labels": {"app": "x"}}},
        "of an old version": {"metadata": {"resourceVersion": "1"}, **said(names.WAITING, message="more")},
    }
    for name, body in bodies.items():
        facts[name] = (await ours.patch(PODS, namespace, "a", body, status=True)).status
    found = (await tier.get(PODS, namespace, "a")).body["status"]["conditions"]
    return {**facts, "conditions": sorted(f"{one['type']}={one['status']}" for one in found)}


def merged(one: Json, other: Json) -> Json:
    """Both bodies in one."""
    found = {**one, **other}
    for part in one.keys() & other.keys():
        found[part] = merged(one[part], other[part])
    return found


@case
async def an_operators_hold(tier: Tier, namespace: str) -> Facts:
    """A tenant neither sets nor lifts it, nor deletes what carries it."""
    group = {"metadata": {"name": "a"}, "spec": {"queue": "vision", "minMember": 1}}
    tenant, note = tier.as_(TENANT), {"metadata": {"annotations": {names.OPERATOR_HOLD: "x"}}}
    made = await tenant.create(POD_GROUPS, namespace, group)
    tenants = await tenant.patch(POD_GROUPS, namespace, "a", note, merge=True)
    admins = await tier.patch(POD_GROUPS, namespace, "a", note, merge=True)
    lifted = await tenant.patch(POD_GROUPS, namespace, "a", {"metadata": {"annotations": None}}, merge=True)
    deleted = await tenant.delete(POD_GROUPS, namespace, "a")
    gone = await tier.delete(POD_GROUPS, namespace, "a")
    return {
        "made": made.status, "tenant": tenants.status, "admin": admins.status, "lifted": lifted.status,
        "deleted": deleted.status, "gone": gone.status,
    }  # fmt: skip


def web(labels: Json, template: Json) -> Json:
    """A Deployment, StatefulSet or ReplicaSet without pods."""
    inner = {"metadata": {"labels": {"app": "x", **template}}, "spec": pod_spec(restartPolicy="Always")}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": inner}
    return {"metadata": {"name": "web", "labels": labels}, "spec": spec}


def inside(labels: Json) -> Json:
    """A patch of the template's labels."""
    return {"spec": {"template": {"metadata": {"labels": labels}}}}


def queue_inside(answer: Answer) -> Json:
    """What an answer says of the queue in the template."""
    labels = answer.body["spec"]["template"]["metadata"]["labels"] if answer.status < 300 else {}
    return {"status": answer.status, "queue": labels.get(names.QUEUE_LABEL)}


@case
async def a_services_queue_is_its_templates(tier: Tier, namespace: str) -> Facts:
    """Copied where it is missing, whenever it is written; refused where it contradicts. Only a Deployment may change it."""
    tenant = tier.as_(TENANT)
    facts: Facts = {}
    other = {names.QUEUE_LABEL: "other"}
    for kind in (DEPLOYMENTS, STATEFUL_SETS):
        for name, body in {
            "contradicts": web(QUEUED, other),
            "unmanaged": web({names.UNMANAGED_LABEL: "true", **QUEUED}, {}),
            "template unmanaged": web(QUEUED, {names.UNMANAGED_LABEL: "true"}),
            "template alone": web({}, QUEUED),
            "bare": web({}, {}),
        }.items():
            facts[f"{kind.kind}: {name}"] = queue_inside(await tenant.create(kind, namespace, body))
            if name != "bare":
                await tier.delete(kind, namespace, "web")
        steps: dict[str, Json] = {
            "is given one": {"metadata": {"labels": QUEUED}},
            "loses it inside": inside({names.QUEUE_LABEL: None}),
            "another inside": inside(other),
            "another outside": {"metadata": {"labels": other}},
            "another group": inside({names.POD_GROUP_LABEL: "x"}),
            "both": {"metadata": {"labels": other}, **inside(other)},
        }
        for name, body in steps.items():
            facts[f"{kind.kind}: {name}"] = queue_inside(await tenant.patch(kind, namespace, "web", body))
        await tier.delete(kind, namespace, "web")
    made = await tenant.create(REPLICA_SETS, namespace, web(QUEUED, {}))
    facts["ReplicaSet: made"] = queue_inside(made)
    await tier.delete(REPLICA_SETS, namespace, "web")
    await tenant.create(REPLICA_SETS, namespace, web({}, QUEUED))
    facts["ReplicaSet: another inside"] = (await tenant.patch(REPLICA_SETS, namespace, "web", inside(other))).status
    facts["ReplicaSet: by an admin"] = (await tier.patch(REPLICA_SETS, namespace, "web", inside(other))).status
    await tier.delete(REPLICA_SETS, namespace, "web")
    return facts


@case
async def what_is_written_on_jobsets(tier: Tier, namespace: str) -> Facts:
    """The controller's notes are its own; it suspends and resumes, and changes nothing else."""
    tenant, ours, facts = tier.as_(TENANT), tier.as_(OURS), {}
    async with tier.defined(crds.JOB_SETS):

        async def allowed() -> bool:
            return (await tenant.get(JOB_SETS, namespace, "absent")).status == 404

        await eventually(allowed, what="the tenant's right to JobSets")
        for name, notes in {"fence": {names.FENCE: "1"}, "suspension": {names.SUSPENSION: "x:1:resumed"}}.items():
            body = {"metadata": {"name": name, "annotations": notes}, "spec": {"replicatedJobs": []}}
            facts[f"new with {name}"] = (await tenant.create(JOB_SETS, namespace, body)).status
        plain = {"metadata": {"name": "train", "labels": QUEUED}, "spec": {"suspend": True, "replicatedJobs": []}}
        facts["plain"] = (await tenant.create(JOB_SETS, namespace, plain)).status
        theirs: dict[str, Json] = {
            "suspension": {"metadata": {"annotations": {names.SUSPENSION: "x:1:resumed"}}},
            "own": {"metadata": {"annotations": {"example.com/x": "y"}, "labels": {names.QUEUE_LABEL: "other"}}},
        }
        for name, body in theirs.items():
            facts[f"tenant: {name}"] = (await tenant.patch(JOB_SETS, namespace, "train", body, merge=True)).status
        changes: dict[str, Json] = {
            "resume": {"spec": {"suspend": False}},
            "jobs": {"spec": {"replicatedJobs": [{"name": "a"}]}},
            "label": {"metadata": {"labels": {"app": "x"}}},
            "finalizer": {"metadata": {"finalizers": ["example.com/keep"]}},
        }
        for name, body in changes.items():
            patch = merged(fenced(LATER, {}), body)
            facts[f"ours: {name}"] = (
                await ours.patch(JOB_SETS, namespace, "train", patch, merge=True, dry=True)
            ).status
        await tier.delete(JOB_SETS, namespace, "train")
    return facts


@case
async def a_queue_label_stands_on_every_template(tier: Tier, namespace: str) -> Facts:
    """Of what makes pods by several; on the object alone it would mean nothing."""
    ours, other = {"metadata": {"labels": QUEUED}}, {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}}
    job_templates: dict[str, list[Json]] = {
        "all": [ours, ours], "one": [ours, {}], "none": [{}], "another": [other, ours], "empty": [],
    }  # fmt: skip
    bodies: dict[Kind, dict[str, Json]] = {
        JOB_SETS: {
            name: {"replicatedJobs": [{"name": str(i), "template": one} for i, one in enumerate(found)]}
            for name, found in job_templates.items()
        },
        LEADER_WORKER_SETS: {
            name: {"leaderWorkerTemplate": template}
            for name, template in {
                "worker": {"workerTemplate": ours}, "none": {"workerTemplate": {}},
                "both": {"workerTemplate": ours, "leaderTemplate": ours},
                "one": {"workerTemplate": ours, "leaderTemplate": {}},
                "another": {"workerTemplate": ours, "leaderTemplate": other},
            }.items()
        },
    }  # fmt: skip
    facts = {}
    for kind, definition in ((JOB_SETS, crds.JOB_SETS), (LEADER_WORKER_SETS, crds.LEADER_WORKER_SETS)):
        async with tier.defined(definition):
            for name, spec in bodies[kind].items():
                body = {"metadata": {"name": name, "labels": QUEUED}, "spec": spec}
                facts[f"{kind.kind}: {name}"] = (await tier.create(kind, namespace, body)).status
            bare = {"metadata": {"name": "bare"}, "spec": bodies[kind]["none"]}
            facts[f"{kind.kind}: without a queue"] = (await tier.create(kind, namespace, bare)).status
    return facts
