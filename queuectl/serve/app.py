"""The controller's web server: health, metrics and the JSON API, read-only, on loopback unless told otherwise."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from queuectl.contract.home import GROUP
from queuectl.control.loop import Controller
from queuectl.serve.api import Api, BadRequest, Handler, failure, reply
from queuectl.serve.gauges import Gauges
from queuectl.serve.words import HOST, PORT
from queuectl.serve.world import Absent, Unready, World

log = logging.getLogger(__name__)

_LOCAL_SUFFIXES = (".svc", ".svc.cluster.local")  # no public name ends so
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class Readiness(Struct, kw_only=True):
    """Whether the process does its part, which part that is, and what is missing."""

    kind: str = "Readiness"
    ready: bool
    role: str
    leader: str
    missing: list[str]


def readiness(controller: Controller) -> Readiness:
    """Ready is: everything was read and is current, and we lead with a proven fence, or somebody else leads."""
    leadership = controller.leadership
    missing = []
    for informer in controller.informers:
        if not informer.synced.is_set():
            advice = ""
            if informer.kind.group == GROUP:
                advice = " (are the definitions installed? `queuectl crds | kubectl apply --server-side -f -`)"
            missing.append(f"{informer.kind.plural} not synced{advice}")
    behind = controller.behind
    if not missing and behind * 1000 > controller.configuration.stale_after:
        missing.append(f"events have been cut off for {behind:.0f} s; nothing is decided on a view so old")
    holder, ours = leadership.holder, leadership.identity
    if controller.leading:
        role = "leading"
    elif holder and holder != ours:
        role = "standing by"
    elif leadership.fresh():
        role = "taking over"
        missing.append("fence not enforced: install the admission policies")
    else:
        role = "starting"
        if not missing:
            missing.append(f"the lease is not held yet: {leadership.trouble or 'nobody leads'}")
    return Readiness(ready=not missing, role=role, leader=holder, missing=missing)


def local(host: str | None) -> bool:
    """Whether a Host header can be meant for us: an address, localhost, or a Service's name.

    Any other name is a page somewhere that lets its own name point here, to read us with its visitor's browser.
    """
    try:
        name = urlsplit(f"//{host or ''}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(_LOCAL_SUFFIXES):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """GET only, for us only; every error is a Status; headers that keep browsers from doing more with it."""
    try:
        if request.method != hdrs.METH_GET:
            response: web.StreamResponse = failure(405, f"{request.method} is not allowed: this API only reads")
            response.headers[hdrs.ALLOW] = hdrs.METH_GET
        elif not local(request.headers.get(hdrs.HOST)):
            response = failure(403, "the Host header names neither an address nor localhost nor a Service")
        else:
            response = await handler(request)
    except Absent as problem:
        response = failure(404, str(problem), problem.nearest)
    except Unready as problem:
        response = failure(503, str(problem))
    except BadRequest as problem:
        response = failure(400, str(problem))
    except web.HTTPException as problem:
        response = failure(problem.status, f"{problem.reason}: {request.path}")
    except Exception:  # one broken answer is no reason to end the controller
        log.exception("answering %s failed", request.path)
        response = failure(500, "this answer failed; the controller's log says why")
    response.headers.update(_HEADERS)
    return response


def application(controller: Controller) -> web.Application:
    """The routes of one controller."""
    world = World(controller)
    gauges = Gauges(world)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = readiness(controller)
        return reply(found, 200 if found.ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(gauges), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[_guard])
    routes = [("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics), *Api(world).routes()]
    app.add_routes([web.get(path, handler, allow_head=False) for path, handler in routes])
    return app


@asynccontextmanager
async def serving(controller: Controller, host: str = HOST, port: int = PORT) -> AsyncIterator[str]:
    """Serve until left; gives the URL (with ``port`` 0 the system picks one). Raises OSError when the port is taken."""
    runner = web.AppRunner(application(controller), access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        address = runner.addresses[0]
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield f"http://{name}:{address[1]}"
    finally:
        await runner.cleanup()
