"""Apply manifests (our CRDs, policies, roles) to the control plane, in the order given, and wait until they hold."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import yaml

from tests.rig.client import APPLY
from tests.rig.controlplane import ControlPlane
from tests.rig.process import RigError

ESTABLISH_SECONDS = 20.0  # a new resource is served within about 1 s
POLL_SECONDS = 0.05


def product_crds() -> list[dict[str, Any]]:
    """What ``queuectl crds`` prints. Raises RigError with its message when it does not work (yet)."""
    argv = [sys.executable, "-m", "queuectl.cli.main", "crds"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise RigError(f"queuectl crds: {last[0]}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def apply(control_plane: ControlPlane, documents: Iterable[dict[str, Any]], namespace: str = "default") -> list[str]:
    """Server-side apply each document (a List is unrolled), creating or changing it; the URL paths.

    ``namespace`` is for namespaced objects that name none. Waits until every CRD is established and its resource is
    served. Raises RigError with the API server's words.
    """
    paths: list[str] = []
    served = functools.cache(lambda group_version: _resources(control_plane, group_version))
    for document in _unrolled(documents):
        group_version, kind, meta = document["apiVersion"], document["kind"], document["metadata"]
        found = served(group_version).get(kind)
        if found is None:
            raise RigError(f"{group_version} {kind}: not served by this control plane")
        plural, namespaced = found
        where = f"/namespaces/{meta.get('namespace', namespace)}" if namespaced else ""
        path = f"{_root(group_version)}{where}/{plural}/{meta['name']}"
        status, reply = control_plane.request(
            "PATCH", f"{path}?fieldManager=rig&force=true", document, content_type=APPLY
        )
        if status not in {200, 201}:
            raise RigError(f"apply {path}: {status} {json.dumps(reply)[:2000]}")
        paths.append(path)
        if kind == "CustomResourceDefinition":
            _established(control_plane, path, document)
            served.cache_clear()
    return paths


def _unrolled(documents: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for document in documents:
        if document.get("kind") == "List":
            yield from document["items"]
        else:
            yield document


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


def _resources(control_plane: ControlPlane, group_version: str) -> dict[str, tuple[str, bool]]:
    status, reply = control_plane.request("GET", _root(group_version))
    if status != 200:
        return {}
    return {r["kind"]: (r["name"], r["namespaced"]) for r in reply["resources"] if "/" not in r["name"]}


def _established(control_plane: ControlPlane, path: str, document: dict[str, Any]) -> None:
    """Wait for the condition, then for the collection itself: it is served a moment after."""
    spec = document["spec"]
    version = next(v["name"] for v in spec["versions"] if v["served"])
    collection = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
    end = time.monotonic() + ESTABLISH_SECONDS
    conditions: list[dict[str, Any]] = []
    while time.monotonic() < end:
        # A moment after its creation, the status is there but its conditions are null.
        conditions = control_plane.request("GET", path)[1].get("status", {}).get("conditions") or []
        established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
        if established and control_plane.request("GET", f"{collection}?limit=1")[0] == 200:
            return
        time.sleep(POLL_SECONDS)
    raise RigError(f"{path}: not served within {ESTABLISH_SECONDS:g} s: {json.dumps(conditions)}")
