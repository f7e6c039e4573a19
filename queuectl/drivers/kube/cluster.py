"""The Cluster port over the Kubernetes API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from queuectl.contract.foreign import LEASES, PODS, Kind
from queuectl.control.ports import Cluster, Event, Expired, Refused, Unreachable, Upserted
from queuectl.drivers.kube.decode import BAD, decoders
from queuectl.drivers.kube.session import Session, Timing
from queuectl.drivers.kube.watch import PAGE, RESTARTS, watch

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

# Our name in managedFields, and an unknown field is an error: a field that an older CRD would drop silently may be the
# admission record.
WRITE = {"fieldManager": "queuectl", "fieldValidation": "Strict"}

# The API answers this with 500, though no retry will help (pkg/registry/core/pod/storage/eviction.go).
_TWO_BUDGETS = "more than one PodDisruptionBudget"


class KubeCluster(Cluster):
    """A real cluster. Use ``async with KubeCluster.connect(...)``; it belongs to the event loop that opened it.

    Every call is one request (``list``: one per 500 objects), without retries, and may raise the port's exceptions.
    Names that are empty raise ValueError: the request would mean the whole collection.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        timing: Timing | None = None,
        watch_list: bool = True,
    ) -> AsyncIterator[Self]:
        """Connect by a kubeconfig (default: $KUBECONFIG, ~/.kube/config, then the pod's own account).

        ``watch_list`` False forces paged lists. Raises ConfigurationProblem; no request is made yet.
        """
        async with Session.connect(kubeconfig, context, timing) as session:
            session.watch_list = watch_list
            yield cls(session)

    def watch(self, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
        """See the port. Being a generator, it should be closed (``contextlib.aclosing``) to end the connection."""
        return watch(self.session, kind, since)

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        """See the port. Raises Expired when the list changed under our hands several times."""
        path, decode = _path(kind, namespace), decoders(kind.type).page
        for attempt in range(RESTARTS):
            found: list[Any] = []
            token = ""
            try:
                while True:
                    query = {"limit": PAGE, **({"continue": token} if token else {})}
                    events, page = decode(await self._request("GET", kind, path, query))
                    found.extend(event.object for event in events if isinstance(event, Upserted))
                    token = page.continue_
                    if not token:
                        return found
            except Expired:
                if attempt + 1 == RESTARTS:
                    raise
        raise AssertionError("unreachable: the loop returns or raises")

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        """See the port. Raises Refused when the object cannot be decoded."""
        body = await self._request("GET", kind, _path(kind, namespace, name))
        try:
            return decoders(kind.type).one.decode(body)
        except BAD as error:
            raise Refused(f"{kind.kind} {namespace}/{name} cannot be decoded: {error}") from error

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Any:
        """See the port. ``apiVersion`` and ``kind`` are added when absent."""
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        if kind.namespaced and not namespace:
            raise ValueError(f"a {kind.kind} is created in a namespace")
        return _stored(kind, await self._request("POST", kind, _path(kind, namespace), WRITE, whole))

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
        query = {**WRITE, "dryRun": "All"} if dry_run else WRITE
        path = _path(kind, namespace, name, subresource)
        content_type = STRATEGIC if kind.strategic else MERGE
        return _stored(kind, await self._request("PATCH", kind, path, query, dict(body), content_type))

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """See the port. Dependents go too, in the background (batch/v1 would orphan a Job's pods)."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        await self._request("DELETE", kind, _path(kind, namespace, name), None, options)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """See the port. Raises Refused when the pod is under two budgets: no retry would help."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._request("POST", PODS, _path(PODS, namespace, name, "eviction"), None, eviction)
        except Unreachable as error:
            if _TWO_BUDGETS in error.message:
                raise Refused(error.message, error.status) from error
            raise

    async def _request(
        self,
        method: str,
        kind: Kind,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        urgent = kind.group == LEASES.group and kind.plural == LEASES.plural
        return await self.session.request(method, path, query, body, content_type, urgent=urgent)


def _path(kind: Kind, namespace: str, name: str | None = None, subresource: str = "") -> str:
    """URL path of a collection, or with ``name`` of an object; never of a collection by an empty name."""
    if name is not None and (not name or (kind.namespaced and not namespace)):
        raise ValueError(f"a {kind.kind} is named by {'a namespace and ' if kind.namespaced else ''}a name")
    return kind.path(quote(namespace, safe=""), quote(name or "", safe=""), subresource)


def _stored(kind: Kind, body: bytes) -> Any:
    """The object that a write returned."""
    try:
        return decoders(kind.type).one.decode(body)
    except BAD as error:
        raise Unreachable(f"the {kind.kind} that was written cannot be decoded: {error}") from error
