"""Definitions of the job kinds that a cluster may have besides Kubernetes' own: of their schemas only what is defaulted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.rig.client import Api, ApiError, eventually
from tests.rig.objects import Object, condition

ROOT = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _definition(group: str, version: str, plural: str, kind: str, properties: Object) -> Object:
    spec = {**ANY, "properties": properties}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": ANY}}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's stand-in"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{**served, "schema": schema}],
        },
    }


def _count(default: int) -> Object:
    return {"type": "integer", "format": "int32", "default": default}


JOB_SETS = _definition(
    "jobset.x-k8s.io",
    "v1alpha2",
    "jobsets",
    "JobSet",
    {
        "suspend": {"type": "boolean"},
        "replicatedJobs": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {**ANY, "required": ["name"], "properties": {"name": {"type": "string"}, "replicas": _count(1)}},
        },
    },
)
LEADER_WORKER_SETS = _definition(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    {
        "replicas": _count(1),
        "startupPolicy": {"type": "string", "default": "LeaderCreated", "enum": ["LeaderCreated", "LeaderReady"]},
        "leaderWorkerTemplate": {**ANY, "properties": {"size": _count(1)}},
    },
)


def collection(definition: Object, namespace: str) -> str:
    """URL path of the objects of a definition in a namespace."""
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/namespaces/{namespace}/{spec['names']['plural']}"


def _editor(definition: Object) -> Object:
    """Who may edit a namespace may edit these objects, as their projects' own roles have it."""
    spec, labels = definition["spec"], {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    rule = {"apiGroups": [spec["group"]], "resources": [spec["names"]["plural"]], "verbs": ["*"]}
    return {"metadata": {"name": f"{spec['names']['plural']}-editor", "labels": labels}, "rules": [rule]}


@asynccontextmanager
async def installed(admin: Api, definition: Object) -> AsyncIterator[None]:
    """The kind is served as long as the block; afterwards it is gone with all its objects."""
    path, served = f"{ROOT}/{definition['metadata']['name']}", collection(definition, "default")
    editor = _editor(definition)
    await admin.create(ROOT, definition)
    await admin.create(ROLES, editor)
    try:
        await admin.wait(path, lambda made: condition(made, "Established") == "True")

        async def look() -> Any:
            try:
                return await admin.get(served)
            except ApiError as error:
                if error.status not in (404, 429):
                    raise
                return None  # established a moment before it is served, and then before its storage is

        await eventually(look, what=served)
        yield
    finally:
        await admin.delete(f"{ROLES}/{editor['metadata']['name']}")
        await admin.delete(path)
        await admin.wait_gone(path, 60)
