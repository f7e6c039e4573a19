"""Claims about bad input: a clear reason on that object, and nobody else is lost or delayed."""

from __future__ import annotations

import contextlib
import time

from tests.proofs.stage import QUEUES, Stage, groups, job, jobs, pods
from tests.proofs.table import Proof
from tests.rig.client import Api, ApiError, eventually
from tests.rig.nodes import gpu_nodes
from tests.rig.objects import Object, gated_pod

ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}
LONG = "1" * 1000


async def refusals(proof: Proof, stage: Stage) -> None:
    """All bad objects are there first; then a good Job comes. Reasons must be written within seconds of each other."""
    async with stage.scenario(gpu_nodes("bad", 2, 4)) as namespace, stage.tenant(namespace) as tenant:
        loop_a, loop_b, gone = (f"{namespace}-{name}" for name in ("loop-a", "loop-b", "gone"))
        await stage.queue(loop_a, {"parent": loop_b})
        await stage.queue(loop_b, {"parent": loop_a})
        await stage.queue(gone, {"state": "Held"})  # or its Job might be admitted before the deletion is seen
        foreign = job("foreign-gate", namespace, 2, gates=["example.com/quota"])
        affine = job("affine", namespace, 2, affinity=ANTI_AFFINITY)
        malformed = job("malformed", namespace, 2)
        malformed["metadata"]["annotations"]["queuectl.io/min-member"] = "1e400"
        huge = job("huge", namespace, 100, suspend=True)
        wanted = {
            "foreign-gate": "ForeignGate",
            "in-deleted-queue": "QueueMissing",
            "huge": "NeverFits",
            "in-cycle": "QueueInactive",
            "affine": "Unmodelled",
            "malformed": "InvalidRequest",
        }
        await tenant.create(jobs(namespace), job("in-deleted-queue", gone, 2, suspend=True))
        await stage.admin.delete(f"{QUEUES}/{gone}")
        for body in (foreign, affine, malformed, huge, job("in-cycle", loop_a, 2)):
            await tenant.create(jobs(namespace), body)
        started = time.monotonic()
        await tenant.create(jobs(namespace), job("good", namespace, 8, seconds=1))
        await stage.complete(namespace, "good", 30)
        seconds = time.monotonic() - started
        found: dict[str, str] = {}

        async def all_said() -> bool:
            for name in wanted:
                group = await stage.group_of(namespace, name)
                found[name] = str(((group.get("status") or {}).get("blocker") or {}).get("reason"))
            return found == wanted

        with contextlib.suppress(AssertionError):
            await eventually(all_said, 20, "every reason")
        proof.row(
            "a foreign gate, a deleted queue, a gang that never fits, a queue cycle, a pod affinity, a malformed number: reasons",
            ", ".join(f"{name}: {reason}" for name, reason in found.items()),
            ", ".join(wanted.values()),
            found == wanted,
        )
        inactive = [await _inactive(stage, name) for name in (loop_a, loop_b)]
        proof.row("the queues of the cycle say so themselves", "; ".join(inactive), "2 × Active=False", all(inactive))
        proof.row(
            "none stops the others: a good gang of 8 that came last runs and completes",
            f"{seconds:.1f} s",
            "≤ 15 s",
            seconds <= 15,
        )
        await _refused_at_the_door(proof, stage, tenant, namespace)
        for name in (loop_a, loop_b):
            await stage.admin.delete(f"{QUEUES}/{name}")


async def _inactive(stage: Stage, name: str) -> str:
    async def look() -> str:
        status = (await stage.admin.get(f"{QUEUES}/{name}")).get("status") or {}
        return next(
            (
                f"{c['reason']}: {c['message']}"
                for c in status.get("conditions") or ()
                if c["type"] == "Active" and c["status"] == "False"
            ),
            "",
        )

    return await eventually(look, 20, f"queue {name} to say that it is inactive")


async def _refused_at_the_door(proof: Proof, stage: Stage, tenant: Api, namespace: str) -> None:
    """Quantities that the API server itself must refuse, with a message that names the field."""

    def queue(quantity: str) -> tuple[Api, str, Object]:
        spec = {"resources": [{"name": "nvidia.com/gpu", "limit": quantity}]}
        body = {
            "apiVersion": "queuectl.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": f"{namespace}-q"},
            "spec": spec,
        }
        return stage.admin, QUEUES, body

    group = {
        "apiVersion": "queuectl.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "bad"},
        "spec": {"queue": namespace, "minMember": 9, "maxMember": 2},
    }
    half = gated_pod("half", labels={"queuectl.io/queue": namespace})
    half["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0.5"}}
    cases: list[tuple[str, tuple[Api, str, Object]]] = [
        *((f"limit {text[:8]}", queue(text)) for text in ("1e400", "0.5", "-1", "NaN", LONG)),
        ("0.5 GPUs in a pod", (tenant, pods(namespace), half)),
        ("minMember > maxMember", (tenant, groups(namespace), group)),
    ]
    refused = []
    for name, (api, path, body) in cases:
        try:
            await api.create(path, body)
        except ApiError as error:
            if error.status == 422 and len(str(error)) < 2000:
                refused.append(name)
    proof.row(
        "bad quantities and sizes are refused at the door with 422",
        f"{len(refused)} of {len(cases)}",
        f"{len(cases)}",
        len(refused) == len(cases),
    )
