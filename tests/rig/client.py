"""A small asyncio client of the Kubernetes API for tests and for the fake kubelet: URL paths in, decoded JSON out.

It shares nothing with the product's own driver, on purpose: a test that reads back through the code it tests proves
little. No retries, no caches: every request is one request, and every status of 400 or more raises :class:`ApiError`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar, overload
from urllib.parse import urlencode

import aiohttp
import msgspec

T = TypeVar("T")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

REQUEST_SECONDS = 30.0  # for one reply; watches have none
POLL_SECONDS = 0.05  # between two looks of a wait; each look costs the API server about 1 ms
WAIT_SECONDS = 30.0  # default deadline of a wait: far above what any single step takes on an idle machine


class ApiError(Exception):
    """The API server refused: ``status`` is the HTTP code, ``body`` the Status (or text), ``reason`` its word."""

    def __init__(self, status: int, body: Any, request: str, headers: dict[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.reason: str = body.get("reason", "") if isinstance(body, dict) else ""
        self.message: str = str(body.get("message", "")) if isinstance(body, dict) else str(body)
        super().__init__(f"{request}: {status} {self.reason}: {self.message}")


class DeadlineError(AssertionError):
    """A condition did not come true before its deadline; the message shows what was seen last."""


@overload
async def eventually(
    look: Callable[[], Awaitable[T]], deadline: float = WAIT_SECONDS, what: str = "condition"
) -> T: ...
@overload
async def eventually(look: Callable[[], T], deadline: float = WAIT_SECONDS, what: str = "condition") -> T: ...
async def eventually(look: Callable[[], Any], deadline: float = WAIT_SECONDS, what: str = "condition") -> Any:
    """Call ``look`` until it returns something true, and return that; DeadlineError after ``deadline`` seconds.

    An AssertionError inside ``look`` counts as "not yet", so asserts can be waited for.
    """
    end = time.monotonic() + deadline
    while True:
        last: object
        try:
            value = look()
            result = await value if isinstance(value, Awaitable) else value
            if result:
                return result
            last = result
        except DeadlineError:
            raise
        except AssertionError as error:
            last = error
        if time.monotonic() >= end:
            raise DeadlineError(f"{what}: not within {deadline:g} s; last seen: {str(last)[:2000]}")
        await asyncio.sleep(POLL_SECONDS)


def tls_of(config: dict[str, Any]) -> tuple[str, ssl.SSLContext]:
    """Server URL and TLS context of a kubeconfig that holds its certificates as data (as the rig writes them)."""
    cluster = config["clusters"][0]["cluster"]
    user = config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as both:  # the ssl module reads certificates from files only
            both.write(base64.b64decode(user["client-certificate-data"]))
            both.write(base64.b64decode(user["client-key-data"]))
            both.flush()
            context.load_cert_chain(both.name)
    return cluster["server"], context


async def lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of a stream, of any length (aiohttp's own readline refuses lines above 64 KiB), without the newline."""
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


class Api:
    """A session of one user. Open it with ``async with``; it belongs to the event loop that opened it."""

    def __init__(self, kubeconfig: Path, *, connections: int = 50) -> None:
        self.kubeconfig = kubeconfig
        self.server, self._tls = tls_of(json.loads(kubeconfig.read_text()))
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=self._connections),
            headers={"Accept": "application/json", "User-Agent": "rig"},
        )
        self._session._retry_connection = False  # else aiohttp repeats a GET whose kept-alive connection was cut
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running requests end with an error."""
        if self._session is not None:
            await self._session.close()

    async def raw(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", **query: Any
    ) -> tuple[int, dict[str, str], bytes]:
        """One request; (status, headers, undecoded body) whatever the status. aiohttp.ClientError when cut off."""
        async with self._open(method, path, body, content_type, query) as reply:
            return reply.status, dict(reply.headers), await reply.read()

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", **query: Any
    ) -> tuple[int, Any]:
        """One request; (status, decoded body), or ApiError for a status of 400 or more."""
        status, headers, content = await self.raw(method, path, body, content_type=content_type, **query)
        decoded = _decode(content)
        if status >= 400:
            raise ApiError(status, decoded, f"{method} {path}", headers)
        return status, decoded

    async def get(self, path: str, **query: Any) -> Any:
        """The object at ``path``."""
        return (await self.request("GET", path, **query))[1]

    async def list(self, path: str, **query: Any) -> list[Any]:
        """The items of the collection at ``path``."""
        items: list[Any] = (await self.get(path, **query))["items"]
        return items

    async def create(self, path: str, body: object, **query: Any) -> Any:
        """POST ``body`` to the collection (or subresource) at ``path``; the stored object."""
        return (await self.request("POST", path, body, **query))[1]

    async def update(self, path: str, body: object, **query: Any) -> Any:
        """PUT ``body``; the stored object."""
        return (await self.request("PUT", path, body, **query))[1]

    async def patch(self, path: str, body: object, content_type: str = MERGE, **query: Any) -> Any:
        """PATCH with one of the content types above; the stored object."""
        return (await self.request("PATCH", path, body, content_type=content_type, **query))[1]

    async def delete(self, path: str, options: object = None, **query: Any) -> Any:
        """DELETE with optional DeleteOptions (preconditions, gracePeriodSeconds)."""
        return (await self.request("DELETE", path, options, **query))[1]

    async def watch_lines(self, path: str, **query: Any) -> AsyncIterator[bytes]:
        """The undecoded events of a watch until the server ends it. ApiError when refused at the door."""
        async with self._open("GET", path, None, "", {"watch": "true", **query}, stream=True) as reply:
            if reply.status >= 400:
                raise ApiError(reply.status, _decode(await reply.read()), f"WATCH {path}", dict(reply.headers))
            async for line in lines(reply.content):
                yield line

    async def watch(self, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch: ``{"type": ..., "object": ...}``, an in-stream ERROR included."""
        async for line in self.watch_lines(path, **query):
            yield msgspec.json.decode(line)

    async def wait(
        self, path: str, predicate: Callable[[Any], object], deadline: float = WAIT_SECONDS, what: str = ""
    ) -> Any:
        """The object (or list) at ``path`` once ``predicate`` holds for it; DeadlineError shows its last state."""
        seen: Any = None

        async def look() -> Any:
            nonlocal seen
            seen = await self.get(path)
            return predicate(seen)

        try:
            await eventually(look, deadline, what or f"GET {path}")
        except DeadlineError as error:
            state = seen.get("status", seen) if isinstance(seen, dict) and "items" not in seen else seen
            raise DeadlineError(f"{error}; object: {json.dumps(state)[:3000]}") from None
        return seen

    async def wait_gone(self, path: str, deadline: float = WAIT_SECONDS) -> None:
        """Wait until ``path`` answers 404."""

        async def look() -> bool:
            try:
                await self.get(path)
            except ApiError as error:
                if error.status == 404:
                    return True
                raise
            return False

        await eventually(look, deadline, f"{path} gone")

    def _open(
        self, method: str, path: str, body: object, content_type: str, query: dict[str, object], *, stream: bool = False
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            raise RuntimeError("open the Api with `async with` first")
        url = self.server + path
        if query:
            url += ("&" if "?" in path else "?") + urlencode({k: _plain(v) for k, v in query.items()})
        return self._session.request(
            method,
            url,
            data=None if body is None else msgspec.json.encode(body),
            headers={"Content-Type": content_type} if body is not None else None,
            timeout=aiohttp.ClientTimeout(total=None if stream else REQUEST_SECONDS),
        )


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decode(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content.decode(errors="replace")
