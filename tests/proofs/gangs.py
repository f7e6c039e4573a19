"""Claims about whole gangs: all or nothing, suspended owners, missed deadlines, requeue by hand."""

from __future__ import annotations

from tests.proofs.judge import judge
from tests.proofs.refusals import refusals
from tests.proofs.stage import USER, Running, Stage, gated, groups, job, jobs, parsed, pods, queuectl
from tests.proofs.table import Proof
from tests.rig.client import STRATEGIC, ApiError, eventually
from tests.rig.nodes import gpu_nodes
from tests.rig.objects import GATE, gated_pod
from tests.rig.proxy import Proxy

TOPOLOGY = {
    "apiVersion": "queuectl.io/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "default"},
    "spec": {
        "levels": [
            {"name": "rack", "keys": ["example.com/rack"]},
            {"name": "node", "keys": ["kubernetes.io/hostname"]},
        ]
    },
}


async def three_jobs(proof: Proof, stage: Stage, controller: Running, *, mutant: bool = False) -> None:
    """2 racks × 2 nodes × 4 GPUs, three Jobs of 8 that each need a whole rack."""
    nodes = gpu_nodes("three", 4, 4, 2)
    async with stage.scenario(nodes) as namespace, stage.tenant(namespace) as tenant:
        for name in ("one", "two", "three"):
            await tenant.create(jobs(namespace), job(name, namespace, 8, required="rack"))

        async def two_run() -> list[str]:
            running = []
            for name in ("one", "two", "three"):
                found = await stage.job_pods(namespace, name)
                bound = [p for p in found if not gated(p) and p["spec"].get("nodeName")]
                if len(bound) == 8:
                    running.append(name)
                elif len(found) < 8:
                    return []
            return running if len(running) == 2 else []

        running = await eventually(two_run, 30, "two gangs bound")
        waiting = next(name for name in ("one", "two", "three") if name not in running)
        found = await stage.all_gated(namespace, waiting, 8)
        racks = {name: {p["spec"]["nodeName"] for p in await stage.job_pods(namespace, name)} for name in running}
        whole = all(nodes_of in ({"three-0", "three-1"}, {"three-2", "three-3"}) for nodes_of in racks.values())
        proof.row(
            "three gangs of 8, each needs one rack of 8 GPUs: exactly two bound, the third all gated",
            f"{len(running)} bound, each in one rack: {whole}; {sum(map(gated, found))} of 8 gated",
            "2 bound, 8 of 8 gated",
            len(running) == 2 and whole and all(map(gated, found)),
        )
        if not mutant:
            await _explain(proof, controller.url, namespace, waiting)
            await _tenant_refused(proof, stage, namespace, waiting)
        await stage.end(tenant, namespace, running[0])
        await stage.bound(namespace, waiting, 8)
        proof.row("the third starts when one ends", "8 of 8 bound", "8 of 8", True)
        verdict = judge(stage.audit.events(), namespace, USER, {n.name: n.gpus for n in nodes})
        proof.row(
            "audit log: every gate removed by us after its record, every binding by kube-scheduler, no node over",
            verdict.text(),
            "0 offences, 24 removals",
            verdict.clean and verdict.removals == 24,
        )


async def _explain(proof: Proof, url: str, namespace: str, name: str) -> None:
    code, out, err = await queuectl("explain", "gang", name, "-n", namespace, "--server", url, "-o", "json")
    if code != 0:
        raise AssertionError(f"explain: {err}")
    blockers = parsed(out)["blockers"]
    levels = [b for b in blockers if b["where"]["type"] in ("domain", "cluster")]
    _, text, _ = await queuectl("explain", "gang", name, "-n", namespace, "--server", url)
    numbers = all(b["need"] == "8" and b["have"] is not None and b["sentence"] in text for b in levels)
    proof.row(
        "explain names every topology level with need and have",
        "; ".join(f"{b['where'].get('level') or 'cluster'}: need {b['need']}, have {b['have']}" for b in levels)
        or "no level",
        "rack and cluster, need 8",
        {b["where"].get("level", "") for b in levels} >= {"rack", ""} and numbers,
    )


async def _tenant_refused(proof: Proof, stage: Stage, namespace: str, name: str) -> None:
    """A tenant with the built-in role edit tries to remove our gate."""
    victim = (await stage.job_pods(namespace, name))[0]["metadata"]["name"]
    async with stage.tenant(namespace) as tenant:
        patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
        try:
            await tenant.patch(f"{pods(namespace)}/{victim}", patch, STRATEGIC)
            answer, refused = "200, accepted", False
        except ApiError as error:
            answer, refused = f"{error.status}", error.status in (403, 422)
    proof.row("a tenant with edit cannot remove the gate", answer, "403 or 422", refused)


async def suspended(proof: Proof, stage: Stage) -> None:
    """A Job created suspended has no pods; it is admitted from its template, whole."""
    async with stage.scenario(gpu_nodes("susp", 2, 4)) as namespace, stage.tenant(namespace) as tenant:
        await tenant.create(jobs(namespace), job("first", namespace, 8))
        await stage.bound(namespace, "first", 8)
        await tenant.create(jobs(namespace), job("second", namespace, 8, suspend=True, seconds=1))
        group = await stage.group_of(namespace, "second")

        async def said() -> bool:
            found = await stage.admin.get(f"{groups(namespace)}/{group['metadata']['name']}")
            return bool((found.get("status") or {}).get("blocker"))

        await eventually(said, 10, "the suspended gang's blocker")
        before = len(await stage.job_pods(namespace, "second"))
        await stage.end(tenant, namespace, "first")
        done = await stage.complete(namespace, "second")
        verdict = judge(stage.audit.events(), namespace, USER, {"susp-0": 4, "susp-1": 4})
        proof.row(
            "a suspended Job of 8 waits without pods and is admitted as a whole gang",
            f"{before} pods while waiting; succeeded {done['status'].get('succeeded')}; {len(verdict.before_record)} early",
            "0 pods; 8 succeeded; 0 early",
            before == 0 and done["status"].get("succeeded") == 8 and verdict.clean,
        )


async def deadline(proof: Proof, stage: Stage) -> None:
    """A stranger takes a place between record and release: the gang is given back by suspend, and completes later."""
    async with (
        Proxy(stage.control_plane.pki, stage.control_plane.kubeconfig(USER)) as proxy,
        stage.leader(kubeconfig=proxy.kubeconfig, bindTimeout="3s"),
        stage.scenario(gpu_nodes("late", 4, 4)) as namespace,
        stage.tenant(namespace) as tenant,
    ):
        held = proxy.stall("PATCH", r"/pods/(?!.*dryRun)")
        await tenant.create(jobs(namespace), job("train", namespace, 16))
        await eventually(lambda: held.hits == 16, 30, "16 releases on their way")
        first = await stage.job_pods(namespace, "train")
        stranger = gated_pod("stranger", 4, gates=(), nodeSelector={"kubernetes.io/hostname": "late-0"})
        await stage.admin.create(pods(namespace), stranger)
        await stage.admin.wait(f"{pods(namespace)}/stranger", lambda pod: bool(pod["spec"].get("nodeName")))
        proxy.lift(held)
        group = await stage.group_of(namespace, "train")

        async def given_back() -> bool:
            found = await stage.admin.get(f"{groups(namespace)}/{group['metadata']['name']}")
            return bool(((found.get("status") or {}).get("requeue") or {}).get("count"))

        await eventually(given_back, 30, "the gang given back")
        await stage.admin.delete(f"{pods(namespace)}/stranger", {"gracePeriodSeconds": 0})
        await stage.bound(namespace, "train", 16, after=first)
        done = await stage.finish(namespace, "train")
        failed = done["status"].get("failed", 0)
        found = await stage.admin.get(f"{groups(namespace)}/{group['metadata']['name']}")
        cause = found["status"]["requeue"]["reason"]
        proof.row(
            "a missed bind deadline (16 pods, default backoffLimit): given back by suspend, the Job completes",
            f"cause {cause or 'BindDeadline'}, failed {failed}, succeeded {done['status'].get('succeeded')}",
            "failed 0, succeeded 16",
            failed == 0 and done["status"].get("succeeded") == 16,
        )


async def requeue(proof: Proof, stage: Stage) -> None:
    """``queuectl requeue`` of a running 16-pod Job by its tenant."""
    async with stage.scenario(gpu_nodes("again", 4, 4)) as namespace, stage.tenant(namespace) as tenant:
        await tenant.create(jobs(namespace), job("train", namespace, 16))
        first = await stage.bound(namespace, "train", 16)
        kubeconfig = stage.control_plane.kubeconfig(f"tenant-{namespace}")
        code, _, err = await queuectl("requeue", "gang", "train", "-n", namespace, "--kubeconfig", str(kubeconfig))
        if code != 0:
            raise AssertionError(f"requeue: {err}")
        again = await stage.bound(namespace, "train", 16, after=first)
        done = await stage.finish(namespace, "train")
        failed = done["status"].get("failed", 0)
        proof.row(
            "requeue of a running 16-pod Job (default backoffLimit): its pods are replaced and it completes",
            f"{len(again)} new pods, failed {failed}, succeeded {done['status'].get('succeeded')}",
            "16 new, failed 0, succeeded 16",
            len(again) == 16 and failed == 0 and done["status"].get("succeeded") == 16,
        )


async def all_gangs(proof: Proof, stage: Stage) -> None:
    """Every claim of this file, and of bad input, under one controller; the missed deadline under one of its own."""
    await stage.admin.create("/apis/queuectl.io/v1alpha1/topologies", TOPOLOGY)
    async with stage.leader(blockerInterval="1s") as controller:
        await proof.part("three gangs", lambda: three_jobs(proof, stage, controller))
        await proof.part("suspended Job", lambda: suspended(proof, stage))
        await proof.part("requeue", lambda: requeue(proof, stage))
        await proof.part("refusals", lambda: refusals(proof, stage))
    await proof.part("bind deadline", lambda: deadline(proof, stage))
