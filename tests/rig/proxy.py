"""A proxy in front of the API server that breaks things at the test's word.

It ends TLS with a certificate of the rig's CA and goes on as ONE identity, that of the kubeconfig it was made with;
whoever connects acts as that user. Its own :attr:`Proxy.kubeconfig` is the same but for the server's address. Every
client connection has one connection to the API server behind it, so a cut on one side is a cut on the other.

Replies are relayed piece by piece as they come: a watch streams as it would without the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from tests.rig import http1
from tests.rig.client import tls_of
from tests.rig.http1 import CutError, Head
from tests.rig.pki import Pki

REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}

Action = Literal["answer", "delay", "cut-before", "cut-after-commit", "cut-after-bytes", "stall", "stall-reply"]


@dataclass(eq=False)
class Rule:
    """What happens to requests whose method, ``path?query`` (decoded) and body match (as regular expressions, searched),
    ``times`` times (None: until lifted). ``requests`` are those that it was applied to. The first rule that matches decides.
    """

    method: re.Pattern[str]
    target: re.Pattern[str]
    body: re.Pattern[bytes]
    action: Action
    times: int | None
    answer: bytes = b""
    seconds: float = 0.0
    bytes_: int = 0
    requests: list[Request] = field(default_factory=list)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def hits(self) -> int:
        """How often it was applied."""
        return len(self.requests)


@dataclass
class Request:
    """A request that came: when (the loop's clock, seconds), what, and the status relayed (0: none, or not yet)."""

    at: float
    method: str
    path: str
    query: str
    status: int = 0


@dataclass(eq=False)
class _Stream:
    """A client's connection and what it is doing now."""

    writer: asyncio.StreamWriter
    upstream: asyncio.StreamWriter | None = None
    method: str = ""
    target: str = ""
    replying: bool = False  # the head of a chunked reply was relayed, its end was not
    whole: bool = True  # the last relayed byte ended a line: a place where an event may be put
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """``async with Proxy(pki, kubeconfig) as proxy``. All rules and commands take effect at once."""

    def __init__(self, pki: Pki, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        self._upstream, self._client_tls = tls_of(config)
        self._config = config
        self._source = kubeconfig
        self._server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server_tls.load_cert_chain(pki.serving.certificate, pki.serving.key)
        self._server: asyncio.Server | None = None
        self._rules: list[Rule] = []
        self._streams: set[_Stream] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._frozen: list[tuple[re.Pattern[str], asyncio.Event]] = []
        self._down = False
        self.requests: list[Request] = []
        self.connections = 0
        self.kubeconfig = kubeconfig

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on a random port of loopback and write the kubeconfig that points there."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._server_tls, limit=http1.LIMIT)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self._source.with_name(f"{self._source.stem}-proxy-{self.port}.kubeconfig")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self._config))

    async def stop(self) -> None:
        """Close everything, stalled connections too."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def answer(
        self,
        status: int,
        method: str = "",
        target: str = "",
        *,
        times: int | None = 1,
        retry_after: int | None = None,
        message: str = "by order of the test",
    ) -> Rule:
        """Answer with this status (429 and 503 with Retry-After in seconds when given); nothing reaches the server."""
        fields = {} if retry_after is None else {"Retry-After": str(retry_after)}
        content = http1.answer(status, REASONS.get(status, "Unknown"), message, fields)
        return self._add("answer", method, target, times, answer=content)

    def delay(
        self, seconds: float, method: str = "", target: str = "", *, body: str = "", times: int | None = None
    ) -> Rule:
        """Hold a request back for some seconds, then pass it on."""
        return self._add("delay", method, target, times, body=body, seconds=seconds)

    def cut_before(self, method: str = "", target: str = "", *, times: int | None = 1) -> Rule:
        """Close both sides when such a request comes: it never reaches the server."""
        return self._add("cut-before", method, target, times)

    def cut_after_commit(self, method: str = "", target: str = "", *, times: int | None = 1) -> Rule:
        """Pass the request on, wait for the server's reply, and close without relaying a byte of it."""
        return self._add("cut-after-commit", method, target, times)

    def cut_after_bytes(self, count: int, method: str = "", target: str = "", *, times: int | None = 1) -> Rule:
        """Close both sides after ``count`` bytes of the reply's body were relayed (in the middle of an event, say)."""
        return self._add("cut-after-bytes", method, target, times, bytes_=count)

    def stall(self, method: str = "", target: str = "", *, times: int | None = None) -> Rule:
        """Take the request, keep the connection, send nothing to either side until the rule is lifted."""
        return self._add("stall", method, target, times)

    def stall_reply(self, method: str = "", target: str = "", *, body: str = "", times: int | None = None) -> Rule:
        """Pass the request on and let the server commit it, but hold the reply back until the rule is lifted."""
        return self._add("stall-reply", method, target, times, body=body)

    def lift(self, rule: Rule) -> None:
        """End a rule; requests that it holds go on."""
        if rule in self._rules:
            self._rules.remove(rule)
        rule.lifted.set()

    def _add(
        self,
        action: Action,
        method: str,
        target: str,
        times: int | None,
        *,
        body: str = "",
        answer: bytes = b"",
        seconds: float = 0.0,
        bytes_: int = 0,
    ) -> Rule:
        patterns = re.compile(method, re.IGNORECASE), re.compile(target), re.compile(body.encode())
        rule = Rule(*patterns, action, times, answer, seconds, bytes_)
        self._rules.append(rule)
        return rule

    # -- commands on what is established ---------------------------------------------------------------------------------

    def cut(self, target: str = "") -> int:
        """Close, at once and on both sides, all connections whose present (or last) request matches. How many."""
        found = self._matching(target)
        for stream in found:
            self._close(stream, abort=True)
        return len(found)

    def freeze(self, target: str = "") -> asyncio.Event:
        """Half-open: relay nothing more of matching replies, and of new ones, while connections stay up.

        Set the returned event (:meth:`thaw`) to let them go on; what the server sent meanwhile is delivered then.
        """
        event = asyncio.Event()
        self._frozen.append((re.compile(target), event))
        return event

    def thaw(self, event: asyncio.Event) -> None:
        """End a freeze."""
        self._frozen = [entry for entry in self._frozen if entry[1] is not event]
        event.set()

    def down(self) -> None:
        """As if the API server were gone: connections are cut, new ones are closed as soon as they come."""
        self._down = True
        self.cut()

    def up(self) -> None:
        """End of :meth:`down`."""
        self._down = False

    def expire(self, target: str = "") -> int:
        """Send an in-stream ERROR event with code 410 to matching watches and end them, as the server does when a
        watch falls too far behind. Returns how many; a watch in the middle of a piece is left alone.
        """
        error = http1.status_object(410, "Expired", "too old resource version: by order of the test")
        event = b'{"type":"ERROR","object":' + error + b"}\n"
        count = 0
        for stream in self._matching(target):
            if stream.replying and stream.whole and "watch=" in stream.target:
                stream.writer.write(http1.chunk(event) + b"0\r\n\r\n")
                self._close(stream)
                count += 1
        return count

    def watches(self, target: str = "") -> int:
        """How many watches that match are open now."""
        return sum(1 for s in self._matching(target) if s.replying and "watch=" in s.target)

    def counts(self) -> Counter[tuple[str, str, str]]:
        """Requests by (method, path, query), all that came."""
        return Counter((r.method, r.path, r.query) for r in self.requests)

    def _matching(self, target: str) -> list[_Stream]:
        pattern = re.compile(target)
        return [s for s in self._streams if not s.closed.is_set() and pattern.search(s.target)]

    # -- the relay -------------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        stream = _Stream(writer)
        self._streams.add(stream)
        try:
            if not self._down:
                await self._serve(reader, stream)
        except (CutError, ConnectionError, ssl.SSLError, asyncio.CancelledError):
            pass  # the connection's end is the outcome, whoever made it
        finally:
            self._streams.discard(stream)
            self._close(stream)

    def _close(self, stream: _Stream, *, abort: bool = False) -> None:
        """Close both sides; ``abort`` drops what was not sent yet."""
        stream.closed.set()
        stream.replying = False
        for writer in (stream.writer, stream.upstream):
            if writer is not None and abort:
                writer.transport.abort()
            elif writer is not None:
                with contextlib.suppress(OSError, RuntimeError):  # the transport may be broken already
                    writer.close()

    async def _serve(self, reader: asyncio.StreamReader, stream: _Stream) -> None:
        parts = urlsplit(self._upstream)
        server, upstream = await asyncio.open_connection(
            parts.hostname, parts.port, ssl=self._client_tls, limit=http1.LIMIT
        )
        stream.upstream = upstream

        def ended(reading: asyncio.Task[Head | None]) -> None:
            if not reading.cancelled() and (reading.exception() is not None or reading.result() is None):
                self._close(stream)

        # The next head is awaited while a reply is relayed: so the end of a client with an idle watch is noticed.
        coming = asyncio.create_task(http1.read_head(reader))
        try:
            while head := await coming:
                method, target, _ = head.first.split(" ", 2)
                stream.method, stream.target = method, unquote(target)
                path, _, query = stream.target.partition("?")
                request = Request(asyncio.get_running_loop().time(), method, path, query)
                self.requests.append(request)
                body = [piece.wire async for piece in http1.pieces(reader, head, reply=False)]
                coming = asyncio.create_task(http1.read_head(reader))
                coming.add_done_callback(ended)
                if not await self._exchange(stream, server, head, body, request) or head.closes:
                    return
        finally:
            coming.cancel()

    async def _exchange(
        self, stream: _Stream, server: asyncio.StreamReader, head: Head, body: list[bytes], request: Request
    ) -> bool:
        """One request and its reply; whether the connection stays open for the next."""
        assert stream.upstream is not None
        rule = self._match(stream, request, b"".join(body))
        action = rule.action if rule else None
        if rule is None:
            pass
        elif action == "answer":
            stream.writer.write(rule.answer)
            await stream.writer.drain()
            request.status = int(rule.answer.split(b" ")[1])
            return True
        elif action == "cut-before":
            return False
        elif action == "delay":
            await asyncio.sleep(rule.seconds)
        elif action == "stall":
            await self._held(stream, rule.lifted)
        await self._thawed(stream)
        stream.upstream.write(head.raw + b"".join(body))
        await stream.upstream.drain()
        reply = await http1.read_head(server)
        if reply is None or action == "cut-after-commit":
            return False
        if rule is not None and action == "stall-reply":
            await self._held(stream, rule.lifted)
        await self._thawed(stream)
        request.status = int(reply.first.split(" ")[1])
        stream.writer.write(reply.raw)
        await stream.writer.drain()
        stream.replying, stream.whole = reply.chunked, True
        left = rule.bytes_ if rule is not None and action == "cut-after-bytes" else None
        async for piece in http1.pieces(server, reply, reply=True):
            await self._thawed(stream)
            if stream.closed.is_set():
                return False
            if left is not None and len(piece.content) >= left:
                # The chunk announces more than comes: the client sees a cut, not an end.
                stream.writer.write(piece.before + piece.content[:left])
                await stream.writer.drain()
                return False
            if left is not None:
                left -= len(piece.content)
            stream.writer.write(piece.wire)
            stream.whole = piece.content.endswith(b"\n")
            await stream.writer.drain()
        stream.replying = False
        return not reply.closes and (reply.chunked or reply.length is not None or request.status == 204)

    def _match(self, stream: _Stream, request: Request, body: bytes) -> Rule | None:
        for rule in self._rules:
            if rule.times is not None and rule.hits >= rule.times:
                continue
            if rule.method.search(stream.method) and rule.target.search(stream.target) and rule.body.search(body):
                rule.requests.append(request)
                return rule
        return None

    async def _held(self, stream: _Stream, event: asyncio.Event) -> None:
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(stream.closed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if stream.closed.is_set():
            raise CutError("cut while it was held")

    async def _thawed(self, stream: _Stream) -> None:
        while True:
            frozen = next((event for pattern, event in self._frozen if pattern.search(stream.target)), None)
            if frozen is None:
                return
            await self._held(stream, frozen)
