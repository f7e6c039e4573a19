"""One tuned HTTP session to the API server: requests in, bytes or the port's exceptions out.

Two pools of connections: one for all traffic, and a small one for leases, so that a renewal never waits behind a burst
of patches. HTTP/1.1 on purpose (aiohttp speaks nothing else; 64 connections outrun any API server).
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from queuectl import __version__
from queuectl.control.ports import ClusterError, Conflict, Expired, NotFound, Refused, Throttled, Unreachable
from queuectl.drivers.kube.credentials import Credentials

CONNECTIONS = 64  # more is slower: 256 connections carried 5,000 patches/s where 64 carried 8,000
LEASE_CONNECTIONS = 2  # one renewal at a time, and one more beside a connection that hangs
KEEP_ALIVE = 60.0  # below the API server's own idle limit, and short enough to follow a replaced replica
READ_BUFFER = 2**21  # bytes; an object may have 1.5 MiB, etcd's limit
MESSAGE = 500  # characters kept of an answer that is not a Status (a proxy's HTML page)


class Timing(Struct, frozen=True, kw_only=True):
    """All waiting of the driver, in seconds. Tests shorten it; the defaults are for real clusters."""

    connect: float = 10.0  # TCP and TLS
    request: float = 30.0  # one read or write, the wait for a free connection included
    page: float = 60.0  # one page of a list: the API server's own limit for a request
    opening: float = 60.0  # a watch's headers, and each gap before its initial state is complete
    watch: tuple[int, int] = (240, 480)  # drawn per watch, so that streams do not end together
    silence: float = 30.0  # beyond the watch's own time: then the connection is taken for dead
    dead_peer: float = 30.0  # unacknowledged data or keep-alive probes: the peer's machine is gone

    def draw(self) -> int:
        """``timeoutSeconds`` of one watch."""
        return random.randint(*self.watch)  # noqa: S311  spreading load, not keeping secrets


class _Details(Struct, rename="camel"):
    retry_after_seconds: int | None = None


class Status(Struct, rename="camel"):
    """The API's answer when it is not an object."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


def refusal(code: int, message: str, retry_after: float) -> ClusterError:
    """The port's exception for an HTTP status (or the code of a Status inside a stream)."""
    match code:
        case 404:
            return NotFound(message, code)
        case 409:
            return Conflict(message, code)
        case 410:
            return Expired(message, code)
        case 429:
            return Throttled(message, retry_after)
        case 401 | 408:
            return Unreachable(message, code)  # credentials that are being rotated, a request that took too long
        case _ if 300 <= code < 500:
            return Refused(message, code)
        case _:
            return Unreachable(message, code)


class Session:
    """Open with ``async with Session.connect(...)``. Belongs to the event loop that opened it."""

    def __init__(self, credentials: Credentials, timing: Timing) -> None:
        self.credentials = credentials
        self.timing = timing
        self.watch_list = True  # until the server refuses it (off by default in Kubernetes 1.33 and before 1.32)
        self._pools: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None
        self._certificates: tuple[object, ...] = ()
        self._stack = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, kubeconfig: str | Path | None = None, context: str | None = None, timing: Timing | None = None
    ) -> AsyncIterator[Self]:
        """Read credentials and keep two pools of connections until left. No request is made yet.

        Raises ConfigurationProblem.
        """
        session = cls(await Credentials.load(kubeconfig, context), timing or Timing())
        async with session._stack:
            session._connect()
            yield session

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        content_type: str = "application/json",
        *,
        seconds: float | None = None,
        urgent: bool = False,
    ) -> bytes:
        """One request; the body of a 2xx answer.

        ``body`` is encoded as JSON. ``seconds`` limits the whole request (default ``timing.request``); ``urgent`` takes
        the connections kept for leases. Raises the port's exceptions and no others.
        """
        limit = aiohttp.ClientTimeout(total=seconds or self.timing.request, sock_connect=self.timing.connect)
        async with self.open(method, path, query, body, content_type, limit=limit, urgent=urgent) as response:
            return await response.read()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        content_type: str = "application/json",
        *,
        limit: aiohttp.ClientTimeout | None = None,
        urgent: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A 2xx response whose body is still to be read; what fails while it is read becomes Unreachable as well.

        Without ``limit`` the headers must come within ``timing.opening`` and the body may take for ever.
        """
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(None if limit else self.timing.opening):
                response = await self._send(method, path, query, body, content_type, limit, urgent=urgent)
            try:
                yield response
            finally:
                response.release()  # an unread body closes the connection
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise Unreachable(f"{what}: {_cause(error)}") from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: object,
        content_type: str,
        limit: aiohttp.ClientTimeout | None,
        *,
        urgent: bool,
    ) -> aiohttp.ClientResponse:
        credentials = self.credentials
        # Already encoded: the path by its author, the query here. yarl would decode and re-encode continue tokens.
        url = URL(f"{credentials.server}{path}{'?' + urlencode(query) if query else ''}", encoded=True)
        data = None if body is None else msgspec.json.encode(body)
        options: dict[str, Any] = {"proxy": credentials.proxy, "allow_redirects": False}
        if credentials.server_name:
            options["server_hostname"] = credentials.server_name
        options["timeout"] = limit or aiohttp.ClientTimeout(total=None, sock_connect=self.timing.connect)
        second = False
        while True:
            authorization = await credentials.authorization()
            headers = {"Authorization": authorization} if authorization else {}
            if data is not None:
                headers["Content-Type"] = content_type
            response = await self._pool(urgent=urgent).request(method, url, data=data, headers=headers, **options)
            if 200 <= response.status < 300:
                return response
            error = await _refusal(response)
            if response.status == 401 and not second and await credentials.renew(authorization):
                second = True  # nothing was done, so any method may be sent again
                continue
            raise error

    def _pool(self, *, urgent: bool) -> aiohttp.ClientSession:
        """The connections to use. Old ones still bear the old certificate: after a rotation they are used up, not used."""
        pools = self._pools
        if pools is None or self._certificates != self.credentials.certificates:
            pools = self._connect()
        return pools[urgent]

    def _connect(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        self._certificates = self.credentials.certificates
        self._pools = self._connections(CONNECTIONS), self._connections(LEASE_CONNECTIONS)
        for pool in self._pools:
            self._stack.push_async_callback(pool.close)
        return self._pools

    def _connections(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit,
            keepalive_timeout=KEEP_ALIVE,
            ssl=self.credentials.tls or True,
            socket_factory=self._socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,  # proxies come from the kubeconfig; looking them up costs half the request rate
            read_bufsize=READ_BUFFER,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # inside a cluster, gzip costs both sides more than the wire does
                "User-Agent": f"queuectl/{__version__}",
            },
        )

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A TCP socket on which a peer that vanished is noticed by the kernel within about ``timing.dead_peer``."""
        made = socket.socket(*address[:3])
        seconds = max(1, round(self.timing.dead_peer))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; it also ends the probes
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 2))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 6))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)
        return made


async def _refusal(response: aiohttp.ClientResponse) -> ClusterError:
    """Read the body of an answer that is no success and name it."""
    try:
        body = await response.read()
    except (aiohttp.ClientError, OSError):
        body = b""  # the status alone says enough
    message, seconds = f"{response.status} {response.reason or ''}".rstrip(), None
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, RecursionError):
        text = body.decode(errors="replace").strip()[:MESSAGE]
        message = f"{message}: {text}" if text else message
    else:
        message = status.message or message
        seconds = status.details.retry_after_seconds if status.details else None
    if 300 <= response.status < 400:
        message = f"{message}: redirected to {response.headers.get('Location', '?')}; check the server's URL"
    return refusal(response.status, message, _retry_after(response.headers.get("Retry-After"), seconds))


def _retry_after(header: str | None, seconds: int | None) -> float:
    """Seconds to wait: the header's (dates are not used by API servers), the Status', or 1."""
    if header and header.strip().isdecimal():
        return float(header)
    return float(seconds or 1)


def _cause(error: Exception) -> str:
    text = str(error)
    if not text:
        return "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    return text
