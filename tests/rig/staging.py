"""The JobSet and LeaderWorkerSet controllers on a real control plane: what ``staged`` says, again and again.

Each look lists everything and works off what follows; whoever loses a race looks again. Nothing is installed but for the
LeaderWorkerSet's webhook, for which an admission policy stands in: it reads the number that StatefulSets put on their pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp

from tests.rig import crds, staged
from tests.rig.client import MERGE, Api, ApiError, eventually
from tests.rig.objects import Object, paths

LOOK_SECONDS = 0.1  # between two looks: some ten requests a second
RACES = {404, 409}  # gone or changed meanwhile
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
WEBHOOK = "lws-webhook-stand-in"


@asynccontextmanager
async def job_sets(api: Api, namespace: str) -> AsyncIterator[str]:
    """The JobSet kind and its controller for one namespace, as long as the block. Yields the path of the JobSets."""
    path, (jobs, _) = crds.collection(crds.JOB_SETS, namespace), paths(namespace)

    async def look() -> None:
        known = {job["metadata"]["name"]: job for job in await api.list(jobs)}
        for owner in await api.list(path):
            work = staged.job_set(owner, known)
            for body in work.create:
                await api.create(jobs, body)
            for name, patch in work.patch.items():
                await api.patch(f"{jobs}/{name}", patch, MERGE)
            if work.status != owner.get("status"):
                await api.patch(f"{path}/{owner['metadata']['name']}/status", {"status": work.status}, MERGE)

    async with crds.installed(api, crds.JOB_SETS), _looking(look):
        yield path


@asynccontextmanager
async def worker_sets(api: Api, namespace: str) -> AsyncIterator[str]:
    """The same for LeaderWorkerSets."""
    path, (_, pods) = crds.collection(crds.LEADER_WORKER_SETS, namespace), paths(namespace)
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"

    async def look() -> None:
        known = {one["metadata"]["name"]: one for one in await api.list(sets)}
        living = await api.list(pods)
        for owner in await api.list(path):
            work = staged.worker_set(owner, known, living)
            for body in work.create:
                await api.create(sets, body)
            for name, patch in work.patch.items():
                await api.patch(f"{sets}/{name}", patch, MERGE)
            for pod in work.delete:
                whole = {"preconditions": {"uid": pod["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
                await api.delete(f"{pods}/{pod['metadata']['name']}", whole)

    async with crds.installed(api, crds.LEADER_WORKER_SETS), _webhook(api, namespace), _looking(look):
        yield path


@asynccontextmanager
async def _looking(look: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """``look`` again and again until the block is left; what it fails of is raised there."""

    async def forever() -> None:
        while True:
            try:
                await look()
            except ApiError as error:
                if error.status not in RACES:
                    raise
            except (aiohttp.ClientError, TimeoutError):
                pass  # the API server is busy or cut off, as a controller would see it too
            await asyncio.sleep(LOOK_SECONDS)

    task = asyncio.create_task(forever(), name="staging")
    try:
        yield
    finally:
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]


@asynccontextmanager
async def _webhook(api: Api, namespace: str) -> AsyncIterator[None]:
    """Numbers on pods: of its group on a leader, in its group on a worker. In force before the block begins."""
    labels = "object.metadata.labels"
    number, group = f"{labels}['apps.kubernetes.io/pod-index']", f"'{staged.GROUP_INDEX}' in {labels}"
    added = f"{group} ? {{'{staged.WORKER_INDEX}': {number}}} : {{'{staged.GROUP_INDEX}': {number}}}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    conditions = f"has({labels}) && '{staged.SET_NAME}' in {labels} && 'apps.kubernetes.io/pod-index' in {labels}"
    policy = {
        "metadata": {"name": WEBHOOK},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
            "matchConditions": [{"name": "of-a-set", "expression": conditions}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": f"Object{{metadata: Object.metadata{{labels: {added}}}}}"},
                }
            ],
        },
    }
    await api.create(POLICIES, policy)
    binding = {"metadata": {"name": WEBHOOK}, "spec": {"policyName": WEBHOOK}}
    bindings = POLICIES.replace("policies", "policybindings")
    await api.create(bindings, binding)
    try:
        await _in_force(api, namespace)
        yield
    finally:
        await api.delete(f"{bindings}/{WEBHOOK}")
        await api.delete(f"{POLICIES}/{WEBHOOK}")


async def _in_force(api: Api, namespace: str) -> None:
    labels = {staged.SET_NAME: "probe", "apps.kubernetes.io/pod-index": "0"}
    container = {"name": "main", "image": "example.com/none"}
    probe: Object = {"metadata": {"name": "probe", "labels": labels}, "spec": {"containers": [container]}}

    async def look() -> bool:
        made = await api.create(paths(namespace)[1], probe, dryRun="All")
        return staged.GROUP_INDEX in made["metadata"]["labels"]

    await eventually(look, what="the stand-in for the LeaderWorkerSet's webhook")
