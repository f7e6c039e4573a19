"""An API server of a few lines, for what a real one cannot be made to say: a script of answers, and the requests it got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from queuectl.drivers.kube.session import Timing

# Short enough for a test to wait for, long enough for a busy machine to answer within.
QUICK = Timing(connect=5, request=5, page=5, opening=2, watch=(1, 1), silence=2, dead_peer=2)

Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


class FakeServer:
    """Each request takes the next handler of the script; the last one stays."""

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    def then(self, handler: Handler) -> None:
        """Append to the script."""
        self.script.append(handler)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """What aiohttp calls."""
        self.requests.append(request)
        self.bodies.append(await request.read())
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)

    def kubeconfig(self, folder: Path, user: dict[str, Any] | None = None) -> Path:
        """A kubeconfig that leads here, with the given user entry (a token by default)."""
        path = folder / "config"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
                }
            )
        )
        return path


def answer(status: int, body: object = None, **headers: str) -> Handler:
    """A whole answer: a dict as JSON, text as it is."""

    async def handler(_: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return handler


def stream(*chunks: bytes | float, cut: bool = False) -> Handler:
    """A watch: bytes are sent as one piece, a number is a pause in seconds; ``cut`` ends it in the middle of the body."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, bytes):
                await response.write(chunk)
            else:
                await asyncio.sleep(chunk)
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return handler


@asynccontextmanager
async def serving() -> AsyncIterator[FakeServer]:
    """The server on a free port of loopback."""
    server = FakeServer()
    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
