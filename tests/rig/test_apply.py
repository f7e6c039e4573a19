"""Applying manifests to the real control plane."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.apply import apply
from tests.rig.client import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.process import RigError

pytestmark = pytest.mark.rig


def definition(plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": plural.title()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def test_a_definition_is_usable_at_once(control_plane: ControlPlane, namespace: str, admin: Api) -> None:
    thing = {"apiVersion": "example.com/v1", "kind": "Things", "metadata": {"name": "a"}, "spec": {"x": 1}}
    documents: list[dict[str, Any]] = [{"kind": "List", "items": [definition("things")]}, thing]
    paths = apply(control_plane, documents, namespace)
    assert (await admin.get(paths[-1]))["spec"] == {"x": 1}
    apply(control_plane, [{**thing, "spec": {"x": 2}}], namespace)
    assert (await admin.get(f"/apis/example.com/v1/namespaces/{namespace}/things/a"))["spec"] == {"x": 2}


def test_a_kind_that_is_not_served(control_plane: ControlPlane) -> None:
    with pytest.raises(RigError, match="not served"):
        apply(control_plane, [{"apiVersion": "example.org/v1", "kind": "Nothing", "metadata": {"name": "a"}}])


def test_the_servers_refusal_is_shown(control_plane: ControlPlane) -> None:
    bad = definition("others")
    bad["metadata"]["name"] = "wrong"
    with pytest.raises(RigError, match=r"must be spec\.names\.plural"):
        apply(control_plane, [bad])
