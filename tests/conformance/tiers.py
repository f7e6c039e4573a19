"""The two clusters that must answer alike: a real API server, and the one in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

from msgspec import Struct

from queuectl.contract.foreign import BUDGETS, NODES, PODS, Kind
from queuectl.control.ports import ClusterError
from queuectl.drivers.embedded.admission import USER
from queuectl.drivers.embedded.cluster import EmbeddedCluster
from queuectl.drivers.embedded.store import Store
from queuectl.drivers.embedded.whole import World
from tests.drivers.embedded_world import node
from tests.rig import crds
from tests.rig.client import MERGE, STRATEGIC, Api
from tests.rig.kubelet import MakeNodes
from tests.rig.nodes import NodeSpec

Json = dict[str, Any]
ADMIN, TENANT, OURS = "admin", "tenant", USER


class Answer(Struct, frozen=True):
    """HTTP status, and the object or Status."""

    status: int
    body: Json


class Tier(Protocol):
    """A cluster as one of its users sees it: the administrator, unless another is asked for."""

    def as_(self, user: str) -> Tier:
        """The same for ``OURS`` (the controller's account) or ``TENANT`` (who may edit the namespace)."""
        ...

    async def create(self, kind: Kind, namespace: str, body: Json) -> Answer:
        """POST."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        """GET."""
        ...

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        *,
        merge: bool = False,
        status: bool = False,
        dry: bool = False,
    ) -> Answer:
        """PATCH: strategic, or with ``merge`` a JSON merge patch; of the status; as a dry run."""
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str = "", grace: int | None = None) -> Answer:
        """DELETE."""
        ...

    async def bind(self, namespace: str, name: str, node: str) -> Answer:
        """POST a Binding."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> Answer:
        """POST an Eviction."""
        ...

    async def protect(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        """A disruption budget in force that lets none of these pods go."""
        ...

    async def events(self, kind: Kind, namespace: str, since: str, count: int) -> list[tuple[str, Json]]:
        """The first so many events of a namespace after a version."""
        ...

    async def opened(self, kind: Kind, namespace: str, since: str) -> int:
        """What the answer to a watch from a version begins with: an event (200), or a refusal."""
        ...

    async def list(self, kind: Kind, namespace: str) -> list[Json]:
        """All objects of a namespace."""
        ...

    async def nodes(self, *names: str, gpus: int) -> None:
        """Nodes with kubelets."""
        ...

    def defined(self, definition: Json) -> AbstractAsyncContextManager[None]:
        """A custom resource is served as long as the block."""
        ...


class Real:
    """Through HTTP."""

    def __init__(self, api: Api, others: dict[str, Api] | None = None, fake_nodes: MakeNodes | None = None) -> None:
        self.api = api
        self.others = others or {}
        self.fake_nodes = fake_nodes

    def as_(self, user: str) -> Real:
        return Real(self.others[user], self.others)

    async def _ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> Answer:
        status, _, content = await self.api.raw(method, path, body, content_type=kind, **query)
        return Answer(status, json.loads(content))

    async def create(self, kind: Kind, namespace: str, body: Json) -> Answer:
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._ask("POST", kind.path(namespace), whole)

    async def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        return await self._ask("GET", kind.path(namespace, name))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        *,
        merge: bool = False,
        status: bool = False,
        dry: bool = False,
    ) -> Answer:
        path = kind.path(namespace, name, "status" if status else "")
        query = {"dryRun": "All"} if dry else {}
        return await self._ask("PATCH", path, body, MERGE if merge else STRATEGIC, **query)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str = "", grace: int | None = None) -> Answer:
        options: Json = {"preconditions": {"uid": uid}} if uid else {}
        options["propagationPolicy"] = "Background"  # as kubectl has it; batch/v1 by itself would orphan a Job's pods
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._ask("DELETE", kind.path(namespace, name), options)

    async def bind(self, namespace: str, name: str, node: str) -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        return await self._ask("POST", PODS.path(namespace, name, "binding"), body)

    async def evict(self, namespace: str, name: str, uid: str) -> Answer:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        return await self._ask("POST", PODS.path(namespace, name, "eviction"), body)

    async def protect(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
        }
        await self.api.create(BUDGETS.path(namespace), body)
        await self.api.wait(
            BUDGETS.path(namespace, name), lambda seen: (seen.get("status") or {}).get("observedGeneration")
        )

    async def events(self, kind: Kind, namespace: str, since: str, count: int) -> list[tuple[str, Json]]:
        found: list[tuple[str, Json]] = []
        async for event in self.api.watch(kind.path(namespace), resourceVersion=since):
            found.append((event["type"], event["object"]))
            if len(found) == count:
                break
        return found

    async def opened(self, kind: Kind, namespace: str, since: str) -> int:
        async for event in self.api.watch(kind.path(namespace), resourceVersion=since):
            return int(event["object"]["code"]) if event["type"] == "ERROR" else 200
        return 0

    async def list(self, kind: Kind, namespace: str) -> list[Json]:
        return list(await self.api.list(kind.path(namespace)))

    async def nodes(self, *names: str, gpus: int) -> None:
        assert self.fake_nodes is not None
        await self.fake_nodes([NodeSpec(name=name, gpus=gpus) for name in names])

    def defined(self, definition: Json) -> AbstractAsyncContextManager[None]:
        return crds.installed(self.api, definition)


class InMemory:
    """On a Store."""

    def __init__(self, store: Store, user: str = ADMIN) -> None:
        self.store = store
        self.user = user
        self.cluster = EmbeddedCluster(store, user)

    @classmethod
    def on(cls, world: World) -> InMemory:
        """A cluster that has a past, as a real one has."""
        world.store.version += 1_000
        return cls(world.store)

    def as_(self, user: str) -> InMemory:
        return InMemory(self.store, user)

    def _ask(self, act: Callable[[], Any], status: int = 200) -> Answer:
        try:
            return Answer(status, act() or {})
        except ClusterError as refusal:
            return Answer(refusal.status, {"message": refusal.message})

    async def create(self, kind: Kind, namespace: str, body: Json) -> Answer:
        return self._ask(lambda: self.store.create(kind, namespace, body, self.user), 201)

    async def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        return self._ask(lambda: self.store.get(kind, namespace, name))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        *,
        merge: bool = False,
        status: bool = False,
        dry: bool = False,
    ) -> Answer:
        sub = "status" if status else ""
        return self._ask(
            lambda: self.store.patch(
                kind, namespace, name, body, self.user, subresource=sub, dry_run=dry, strategic=not merge
            )
        )

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str = "", grace: int | None = None) -> Answer:
        return self._ask(lambda: self.store.delete(kind, namespace, name, self.user, uid=uid, grace=grace))

    async def bind(self, namespace: str, name: str, node: str) -> Answer:
        return self._ask(lambda: self.store.bind(PODS, namespace, name, node, self.user), 201)

    async def evict(self, namespace: str, name: str, uid: str) -> Answer:
        try:
            await self.cluster.evict(namespace, name, uid)
        except ClusterError as refusal:
            return Answer(refusal.status, {"message": refusal.message})
        return Answer(201, {})

    async def protect(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        body = {"metadata": {"name": name}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}}}
        self.store.create(BUDGETS, namespace, body, self.user)

    async def events(self, kind: Kind, namespace: str, since: str, count: int) -> list[tuple[str, Json]]:
        found: list[tuple[str, Json]] = []
        async for event in self.store.watch(kind, int(since)):
            if event.object["metadata"].get("namespace", "") == namespace:
                found.append((event.verb, event.object))
            if len(found) == count:
                break
        return found

    async def opened(self, kind: Kind, namespace: str, since: str) -> int:
        try:
            async for _ in self.store.watch(kind, int(since)):
                return 200
        except ClusterError as refusal:
            return refusal.status
        return 0

    async def list(self, kind: Kind, namespace: str) -> list[Json]:
        return self.store.list(kind, namespace)

    async def nodes(self, *names: str, gpus: int) -> None:
        for name in names:
            self.store.create(NODES, "", node(name, gpus), self.user)

    def defined(self, definition: Json) -> AbstractAsyncContextManager[None]:
        return nullcontext()
