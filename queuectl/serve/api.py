"""Routes of the JSON API. Read-only: whatever changes something is written to the cluster with the user's own rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import hdrs, web

from queuectl.serve import objects
from queuectl.serve.ask import Ask
from queuectl.serve.choice import SORTS, Choice
from queuectl.serve.slices import Making, Steps, finished, whole
from queuectl.serve.words import PHASES, PREFIX
from queuectl.serve.world import World

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    500: "InternalError",
    503: "ServiceUnavailable",
}
MOST = 10_000  # gangs that may be asked for with a limit; without one, all come

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reply(obj: msgspec.Struct | bytes, status: int = 200) -> web.Response:
    """An object, encoded or still to be, as an answer."""
    body = obj if isinstance(obj, bytes) else objects.encoded(obj)
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

    def __init__(self, world: World, ask: Ask) -> None:
        self._world, self._ask = world, ask

    def routes(self) -> list[tuple[str, Handler]]:
        """Paths and their handlers."""
        gang = "/namespaces/{namespace}/gangs/{name}"
        return [
            (f"{PREFIX}/queues", self.queues),
            (f"{PREFIX}/queues/{{name}}", self.queue),
            (f"{PREFIX}/gangs", self.gangs),
            (f"{PREFIX}{gang}", self.gang),
            (f"{PREFIX}/nodes", self.nodes),
            (f"{PREFIX}/nodes/{{name}}", self.node),
            (f"{PREFIX}/pools", self.pools),
            (f"{PREFIX}/pools/{{name}}", self.pool),
            (f"{PREFIX}/explain{gang}", self.explain),
            (f"{PREFIX}/occupancy", self.occupancy),
            (f"{PREFIX}/controller", self.controller),
        ]

    async def _read(self) -> None:
        """See to it that there is a view of this moment, or nearly so, read in slices where there is much to read."""

        def begin() -> Making[bool] | None:
            self._world.ready()
            return self._world.reading()

        if (making := await self._ask(begin)) is not None:
            await finished(self._ask, making)

    async def _answer(
        self, request: web.Request, make: Callable[[], Steps[objects.Object]], *about: object
    ) -> web.StreamResponse:
        """What ``make`` gives, made once for all who ask ``about`` it while the view stands; in slices where it has steps.

        Nothing is answered before everything was read: half a list looks like a whole one. Whoever has the answer already
        (If-None-Match) is told so: 304. Whoever goes away leaves the rest of the work to others who wait, or undone.
        """
        await self._read()
        found = await finished(self._ask, await self._ask(lambda: self._world.answer(make, *about)))
        if request.headers.get(hdrs.IF_NONE_MATCH) == found.tag:
            return web.Response(status=304, headers={hdrs.ETAG: found.tag})
        response = reply(found.body)
        response.headers[hdrs.ETAG] = found.tag
        return response

    async def _one(
        self, request: web.Request, make: Callable[[], objects.Object], *about: object
    ) -> web.StreamResponse:
        """An answer about few things."""
        return await self._answer(request, lambda: whole(make()), *about)

    async def queues(self, request: web.Request) -> web.StreamResponse:
        """All queues, each after its parent."""
        _query(request)
        return await self._one(request, lambda: self._world.listing("QueueList", self._world.queues()), "queues")

    async def queue(self, request: web.Request) -> web.StreamResponse:
        """One queue."""
        _query(request)
        name = request.match_info["name"]
        return await self._one(request, lambda: self._world.alone(self._world.queue(name)), "queue", name)

    async def gangs(self, request: web.Request) -> web.StreamResponse:
        """Gangs by namespace, queue (with all below it), phases and a search; sorted, and the first few of many."""
        asked = choice(_query(request, "namespace", "queue", "phase", "search", "sort", "limit"))
        return await self._answer(request, lambda: self._world.gang_listing(asked), "gangs", asked)

    async def gang(self, request: web.Request) -> web.StreamResponse:
        """One gang, by the name of its PodGroup, its owner, or a pod."""
        _query(request)
        space, name = request.match_info["namespace"], request.match_info["name"]

        def make() -> objects.Gang:
            return self._world.alone(self._world.describe(self._world.gang(space, name), pods=True))

        return await self._one(request, make, "gang", space, name)

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Why it waits, or where it runs."""
        _query(request)
        space, name = request.match_info["namespace"], request.match_info["name"]
        return await self._one(
            request, lambda: self._world.explain(self._world.gang(space, name)), "explain", space, name
        )

    async def nodes(self, request: web.Request) -> web.StreamResponse:
        """All nodes."""
        _query(request)
        return await self._answer(request, self._world.node_listing, "nodes")

    async def node(self, request: web.Request) -> web.StreamResponse:
        """One node."""
        _query(request)
        name = request.match_info["name"]
        return await self._one(request, lambda: self._world.alone(self._world.node(name)), "node", name)

    async def pools(self, request: web.Request) -> web.StreamResponse:
        """All pools."""
        _query(request)
        return await self._one(request, lambda: self._world.listing("PoolList", self._world.pools()), "pools")

    async def pool(self, request: web.Request) -> web.StreamResponse:
        """One pool."""
        _query(request)
        name = request.match_info["name"]
        return await self._one(request, lambda: self._world.alone(self._world.pool(name)), "pool", name)

    async def occupancy(self, request: web.Request) -> web.StreamResponse:
        """Who holds how much of a resource where: of the commonest device, unless another resource is named."""
        resource = _query(request, "resource").get("resource", "")

        def make() -> Steps[objects.Object]:
            try:
                return self._world.occupancy(resource)
            except LookupError as problem:
                raise BadRequest(str(problem)) from None

        return await self._answer(request, make, "occupancy", resource)

    async def controller(self, request: web.Request) -> web.StreamResponse:
        """The controller itself; also before it has read the cluster."""
        _query(request)
        return reply(await self._ask(self._world.state))


def choice(query: dict[str, str]) -> Choice:
    """The query of a list of gangs. Raises BadRequest."""
    phases = [one for one in query.get("phase", "").split(",") if one]
    for phase in phases:
        if phase not in PHASES:
            raise BadRequest(f'phase "{phase}" is none of {", ".join(PHASES)}')
    sort = query.get("sort", "name")
    if sort.removeprefix("-") not in SORTS:
        raise BadRequest(f'sort "{sort}" is none of {", ".join(SORTS)}, or one of these after a "-"')
    limit = query.get("limit", "0")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 6 and int(limit) <= MOST):
        raise BadRequest(f'limit "{limit}" is no number up to {MOST}')
    return Choice(
        namespace=query.get("namespace", ""),
        queue=query.get("queue", ""),
        phases=frozenset(phases),
        search=query.get("search", ""),
        sort=sort,
        limit=int(limit),
    )


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
