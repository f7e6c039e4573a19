"""The controller's web server: health, metrics, the JSON API and the dashboard; read-only, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from queuectl.control.loop import Controller
from queuectl.serve import pages
from queuectl.serve.api import Api, BadRequest, Handler, failure, reply
from queuectl.serve.ask import Ask, Silent, across, directly
from queuectl.serve.gauges import Gauges
from queuectl.serve.live import Live
from queuectl.serve.readiness import readiness
from queuectl.serve.slices import finished
from queuectl.serve.words import HOST, PORT, PREFIX
from queuectl.serve.world import Absent, Unready, World

log = logging.getLogger(__name__)

_LOCAL_SUFFIXES = (".svc", ".svc.cluster.local")  # no public name ends so
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


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
    """GET only, for us only; every error is a Status."""
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
    except (Unready, Silent) as problem:
        response = failure(503, str(problem))
    except BadRequest as problem:
        response = failure(400, str(problem))
    except web.HTTPException as problem:
        response = failure(problem.status, f"{problem.reason}: {request.path}")
    except Exception:  # one broken answer is no reason to end the controller
        log.exception("answering %s failed", request.path)
        response = failure(500, "this answer failed; the controller's log says why")
    return response


async def _restrain(_: web.Request, response: web.StreamResponse) -> None:
    """Headers that keep browsers from doing more with an answer, streams included; a page may have its own."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def application(world: World, ask: Ask = directly) -> web.Application:
    """The routes of one controller, which is read by ``ask`` alone."""
    gauges = Gauges(world)
    live = Live(ask, world.state)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = await ask(lambda: readiness(world.controller))
        return reply(found, 200 if found.ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        if (making := await ask(world.reading)) is not None:
            await finished(ask, making)
        text = await ask(lambda: generate_latest(gauges))
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    async def ending(_: web.Application) -> None:
        await live.close()

    app = web.Application(middlewares=[_guard])
    app.on_response_prepare.append(_restrain)
    app.on_shutdown.append(ending)
    own = [("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics), (f"{PREFIX}/events", live.events)]
    routes = [*own, *Api(world, ask).routes(), *pages.routes()]
    app.add_routes([web.get(path, handler, allow_head=False) for path, handler in routes])
    return app


@asynccontextmanager
async def serving(
    controller: Controller, host: str = HOST, port: int = PORT, *, loop: asyncio.AbstractEventLoop | None = None
) -> AsyncIterator[str]:
    """Serve until left; gives the URL (with ``port`` 0 the system picks one). Raises OSError when the port is taken.

    ``loop``: the controller's own, where that runs in another thread than this server; its time may be virtual.
    """
    ask = directly if loop is None else across(loop)
    runner = web.AppRunner(
        application(World(controller), ask),
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,  # a stream is given up when its reader goes, not at the next heartbeat
        shutdown_timeout=1.0,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        address = runner.addresses[0]
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield f"http://{name}:{address[1]}"
    finally:
        await runner.cleanup()
