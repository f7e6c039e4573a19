"""``Cluster`` on a ``Store``: what the controller sees of a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from queuectl.contract.foreign import BUDGETS, PODS, Kind
from queuectl.control.ports import (
    Bookmark,
    Cluster,
    ClusterError,
    Deleted,
    Event,
    Malformed,
    Refused,
    Throttled,
    Upserted,
)
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Store

USER = "queuectl"
API_SERVER = "system:apiserver"  # what it writes by itself is no user's


class EmbeddedCluster(Cluster):
    """One user's access to a store."""

    def __init__(self, store: Store, user: str = USER) -> None:
        self.store = store
        self.user = user

    async def watch(self, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
        """See the port."""
        store = self.store
        version = store.version if since is None else int(since)
        if since is None:
            for body in store.list(kind):
                yield _shown(kind, body)
            yield Bookmark(str(version), synced=True)
        async with aclosing(store.watch(kind, version)) as events:
            if since is not None:
                yield Bookmark(since)
            async for stored in events:
                seen = _shown(kind, stored.object)
                yield Deleted(seen.object) if stored.verb == "DELETED" and isinstance(seen, Upserted) else seen

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        """See the port."""
        shown = [_shown(kind, body) for body in self.store.list(kind, namespace)]
        return [event.object for event in shown if isinstance(event, Upserted)]

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        """See the port."""
        return _read(kind, self.store.get(kind, namespace, name))

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Any:
        """See the port."""
        return _read(kind, self.store.create(kind, namespace, dict(body), self.user))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        """See the port."""
        done = self.store.patch(kind, namespace, name, dict(body), self.user, subresource=subresource, dry_run=dry_run)
        return _read(kind, done)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """See the port."""
        self.store.delete(kind, namespace, name, self.user, uid=uid)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """See the port."""
        pod = self.store.get(PODS, namespace, name)
        held = None if _unprotected(pod) else self._budget(namespace, pod)
        if held is not None:
            raise held
        if pod["metadata"]["uid"] == uid:
            said = {
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastTransitionTime": self.store.time(),
            }  # fmt: skip
            patch = {"status": {"conditions": [said]}}
            self.store.patch(PODS, namespace, name, patch, API_SERVER, subresource="status")
        self.store.delete(PODS, namespace, name, self.user, uid=uid)

    def _budget(self, namespace: str, pod: Json) -> ClusterError | None:
        """Why disruption budgets do not let this pod go, None when they do."""
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            budget
            for budget in self.store.list(BUDGETS, namespace)
            if (budget["spec"].get("selector") or {}).get("matchLabels", {}).items() <= labels.items()
        ]
        if len(budgets) > 1:
            return Refused(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", 500
            )
        if budgets and int((budgets[0].get("status") or {}).get("disruptionsAllowed", 0)) < 1:
            return Throttled("Cannot evict pod as it would violate the pod's disruption budget.", 10)
        return None


def _unprotected(pod: Json) -> bool:
    """Budgets protect what runs: a pod that is still pending, has ended or is going is deleted whatever they say."""
    return pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]


def _read(kind: Kind, body: Json) -> Any:
    shown = _shown(kind, body)
    if isinstance(shown, Malformed):
        raise Refused(f"{kind.kind} {shown.namespace}/{shown.name} cannot be decoded: {shown.message}")
    return shown.object


def _shown(kind: Kind, body: Json) -> Upserted | Malformed:
    """An object as its kind's struct: by way of bytes, as on the wire, so that nothing is shared and all is checked alike."""
    try:
        return Upserted(msgspec.json.decode(msgspec.json.encode(body), type=kind.type))
    except msgspec.ValidationError as problem:
        meta = body["metadata"]
        return Malformed(meta.get("namespace", ""), meta["name"], meta["uid"], str(problem))
