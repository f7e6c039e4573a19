"""The in-memory cluster over HTTP, as far as our own commands need it: objects by their Kubernetes paths.

``queuectl requeue`` and its like write to an API server with the user's kubeconfig; against the demo they write here. There
is no discovery and no watch, so kubectl cannot use it, and no login: it listens on loopback only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from queuectl.contract.foreign import JOBS, NODES, POD_GROUPS, PODS, POOLS, QUEUES, TOPOLOGIES, Kind
from queuectl.control.ports import ClusterError
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Store

HOST = "127.0.0.1"
KINDS = (PODS, NODES, JOBS, POD_GROUPS, QUEUES, POOLS, TOPOLOGIES)
TENANT = "demo-user"
STRATEGIC = "application/strategic-merge-patch+json"

Ask = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function where the store lives (another thread's event loop) and gives its result."""


class Front:
    """One store's handlers. Every answer is an object, a list, or a Status."""

    def __init__(self, store: Store, ask: Ask) -> None:
        self._store, self._ask = store, ask

    def application(self) -> web.Application:
        """The routes of all kinds."""
        app = web.Application(client_max_size=4 * 2**20)
        for kind in KINDS:
            base = f"/api/{kind.version}" if not kind.group else f"/apis/{kind.group}/{kind.version}"
            inner = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
            one = f"{inner}/{{name}}"
            app.router.add_get(f"{base}/{kind.plural}", self._handler(kind, self._list))
            if kind.namespaced:
                app.router.add_get(inner, self._handler(kind, self._list))
            app.router.add_post(inner, self._handler(kind, self._create))
            app.router.add_get(one, self._handler(kind, self._get))
            app.router.add_patch(one, self._handler(kind, self._patch))
            app.router.add_delete(one, self._handler(kind, self._delete))
        return app

    def _handler(
        self, kind: Kind, work: Callable[[Kind, web.Request, Json], Json]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            try:
                body = json.loads(text) if (text := await request.text()) else {}
            except ValueError:
                return _status(400, "the body is not JSON")
            if not isinstance(body, dict):
                return _status(400, "the body must be an object")
            try:
                return web.json_response(await self._ask(lambda: work(kind, request, body)))
            except ClusterError as problem:
                return _status(problem.status or 500, problem.message)
            except (LookupError, TypeError, AttributeError, ValueError) as problem:
                # The rules in memory read fields that a real API server's schema would have asked for first.
                return _status(422, f"the body is no valid {kind.kind}: {type(problem).__name__}: {problem}")

        return answer

    def _list(self, kind: Kind, request: web.Request, _: Json) -> Json:
        items = self._store.list(kind, request.match_info.get("namespace", ""))
        meta = {"resourceVersion": str(self._store.version)}
        return {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": meta, "items": items}

    def _get(self, kind: Kind, request: web.Request, _: Json) -> Json:
        return self._store.get(kind, request.match_info.get("namespace", ""), request.match_info["name"])

    def _create(self, kind: Kind, request: web.Request, body: Json) -> Json:
        return self._store.create(kind, request.match_info.get("namespace", ""), body, TENANT)

    def _patch(self, kind: Kind, request: web.Request, body: Json) -> Json:
        space, name = request.match_info.get("namespace", ""), request.match_info["name"]
        return self._store.patch(kind, space, name, body, TENANT, strategic=request.content_type == STRATEGIC)

    def _delete(self, kind: Kind, request: web.Request, body: Json) -> Json:
        space, name = request.match_info.get("namespace", ""), request.match_info["name"]
        uid = (body.get("preconditions") or {}).get("uid", "")
        self._store.delete(kind, space, name, TENANT, uid=uid)
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}


def _status(code: int, message: str) -> web.Response:
    body = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code)


@asynccontextmanager
async def fronting(store: Store, ask: Ask, kubeconfig: Path, namespace: str) -> AsyncIterator[None]:
    """Serve until left. Writes ``kubeconfig``, whose default namespace is ``namespace``."""
    runner = web.AppRunner(Front(store, ask).application(), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        _write(kubeconfig, f"http://{HOST}:{runner.addresses[0][1]}", namespace)
        yield
    finally:
        await runner.cleanup()


def _write(path: Path, server: str, namespace: str) -> None:
    """A kubeconfig without a login."""
    context = {"cluster": "demo", "user": "demo", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": server}}],
        "users": [{"name": "demo", "user": {}}],
        "contexts": [{"name": "demo", "context": context}],
        "current-context": "demo",
    }
    path.write_text(yaml.safe_dump(config))
