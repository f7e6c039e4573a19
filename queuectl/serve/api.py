"""Routes of the JSON API. Read-only: whatever changes something is written to the cluster with the user's own rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec
from aiohttp import web

from queuectl.serve import objects
from queuectl.serve.words import PHASES, PREFIX
from queuectl.serve.world import World

_encoder = msgspec.json.Encoder()
_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    500: "InternalError",
    503: "ServiceUnavailable",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def encoded(obj: msgspec.Struct) -> bytes:
    """An object as JSON, with a line break for those who read it in a terminal."""
    return _encoder.encode(obj) + b"\n"


def reply(obj: msgspec.Struct | bytes, status: int = 200) -> web.Response:
    """An object, encoded or still to be, as an answer."""
    body = obj if isinstance(obj, bytes) else encoded(obj)
    return web.Response(body=body, status=status, content_type="application/json")


def failure(code: int, message: str, nearest: list[str] | None = None) -> web.Response:
    """An error as JSON, in the form of the Kubernetes API."""
    reason = _REASONS.get(code, "Failure")
    details = objects.Details(nearest=nearest) if nearest is not None else msgspec.UNSET
    return reply(objects.Status(code=code, reason=reason, message=message, details=details), code)


class BadRequest(ValueError):
    """The query cannot be answered; the message says what is wrong with it."""


class Api:
    """The handlers. Each answers from the view in a single step, so that no two parts of an answer disagree."""

    def __init__(self, world: World) -> None:
        self._world = world

    def routes(self) -> list[tuple[str, Handler]]:
        """Paths and their handlers."""
        gang = "/namespaces/{namespace}/gangs/{name}"
        routes: list[tuple[str, Handler]] = [
            (f"{PREFIX}/queues", self.queues),
            (f"{PREFIX}/queues/{{name}}", self.queue),
            (f"{PREFIX}/gangs", self.gangs),
            (f"{PREFIX}{gang}", self.gang),
            (f"{PREFIX}/nodes", self.nodes),
            (f"{PREFIX}/nodes/{{name}}", self.node),
            (f"{PREFIX}/explain{gang}", self.explain),
        ]
        return [(path, self._synced(handler)) for path, handler in routes]

    def _synced(self, handler: Handler) -> Handler:
        """The handler, once everything was read: half a list looks like a whole one."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._world.ready()
            return await handler(request)

        return answer

    def _list(self, kind: str, items: Callable[..., Iterable[msgspec.Struct]], **query: str) -> web.Response:
        """A list, made once for all who ask for it while the view stands."""

        def made() -> bytes:
            found = list(items(**query))  # reads the view, whose time the list then tells
            return encoded(self._world.listing(kind, found))

        return reply(self._world.kept(made, kind, *sorted(query.items())))

    async def queues(self, request: web.Request) -> web.Response:
        """All queues, each after its parent."""
        _query(request)
        return self._list("QueueList", self._world.queues)

    async def queue(self, request: web.Request) -> web.Response:
        """One queue."""
        _query(request)
        return reply(self._world.alone(self._world.queue(request.match_info["name"])))

    async def gangs(self, request: web.Request) -> web.Response:
        """Gangs by namespace, queue (with all below it) and phase."""
        query = _query(request, "namespace", "queue", "phase")
        if (phase := query.get("phase", "")) and phase not in PHASES:
            raise BadRequest(f'phase "{phase}" is none of {", ".join(PHASES)}')
        return self._list("GangList", self._world.gangs, **query)

    async def gang(self, request: web.Request) -> web.Response:
        """One gang, by the name of its PodGroup, its owner, or a pod."""
        _query(request)
        found = self._world.gang(request.match_info["namespace"], request.match_info["name"])
        return reply(self._world.alone(self._world.describe(found, pods=True)))

    async def explain(self, request: web.Request) -> web.Response:
        """Why it waits, or where it runs."""
        _query(request)
        found = self._world.gang(request.match_info["namespace"], request.match_info["name"])
        return reply(self._world.explain(found))

    async def nodes(self, request: web.Request) -> web.Response:
        """All nodes."""
        _query(request)
        return self._list("NodeList", self._world.nodes)

    async def node(self, request: web.Request) -> web.Response:
        """One node."""
        _query(request)
        return reply(self._world.alone(self._world.node(request.match_info["name"])))


def _query(request: web.Request, *known: str) -> dict[str, str]:
    """The query's values. Raises BadRequest for any that would be ignored: a misspelt filter must not show everything."""
    found: dict[str, str] = {}
    for key, value in request.query.items():
        if key not in known:
            raise BadRequest(f'parameter "{key}" is unknown' + (f"; known are {', '.join(known)}" if known else ""))
        if key in found:
            raise BadRequest(f'parameter "{key}" is given twice')
        found[key] = value
    return found
