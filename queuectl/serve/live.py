"""Server-sent events: tell pages that something changed, so that they ask for what they show, and for nothing else.

An event carries the controller's own state (``objects.Controller``), not the lists. Pages differ in what they show, a list
of 5,000 gangs has megabytes, and most viewers look at a few hundred rows: a number is sent to all of them, and the lists are
made once for all who ask (``World.kept``), or not at all where the answer is the one that the page has (304).

Nothing runs while nobody listens. While somebody does, one task looks at the state's number every ``INTERVAL`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec
from aiohttp import ClientConnectionResetError, hdrs, web

from queuectl.serve import objects
from queuectl.serve.api import failure
from queuectl.serve.ask import Ask, Silent

log = logging.getLogger(__name__)

INTERVAL = 0.4  # seconds between two looks: at most 2.5 events a second, which people still see as "at once"
HEARTBEAT = 15.0  # seconds after which a comment is sent, so that proxies and dead connections are found out
RETRY = 2000  # milliseconds after which a browser connects again
CLIENTS = 64  # open streams; each is a socket and a few kilobytes
STUCK = 30.0  # seconds for which a client may leave its socket full


class Mailbox:
    """One client's latest unread state: a slow client skips states, and never piles them up."""

    def __init__(self) -> None:
        self.closed = False
        self._state: objects.Controller | None = None
        self._filled = asyncio.Event()

    def put(self, state: objects.Controller) -> None:
        """Replace what was not read yet."""
        self._state = state
        self._filled.set()

    def close(self) -> None:
        """No more is coming."""
        self.closed = True
        self._filled.set()

    async def take(self, seconds: float) -> objects.Controller | None:
        """The latest state once there is one that was not taken yet; None when there is none in this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._filled.wait()
        state, self._state = self._state, None
        if not self.closed:
            self._filled.clear()
        return state


class Live:
    """All clients of one server, and the task that looks for them."""

    def __init__(self, ask: Ask, state: Callable[[], objects.Controller]) -> None:
        """``state`` is called where the controller lives."""
        self._ask, self._state = ask, state
        self._mailboxes: set[Mailbox] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def clients(self) -> int:
        """Open streams."""
        return len(self._mailboxes)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """One client, until it goes or the server ends: the state at once, and again whenever it has changed."""
        if self.clients >= CLIENTS:
            refused = failure(503, f"{CLIENTS} event streams are open, and no more are served; ask /controller instead")
            refused.headers[hdrs.RETRY_AFTER] = "10"
            return refused
        mailbox = Mailbox()
        self._mailboxes.add(mailbox)
        try:
            state = await self._ask(self._state)
            mailbox.put(state)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look(_told(state)), name="events")
            response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"})
            with contextlib.suppress(ClientConnectionResetError):
                await response.prepare(request)
                await response.write(f"retry: {RETRY}\n\n".encode())
                try:
                    await self._serve(response, mailbox)
                except TimeoutError:
                    if request.transport is not None:
                        request.transport.abort()
            return response
        finally:
            self._mailboxes.discard(mailbox)
            if not self._mailboxes and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _serve(self, response: web.StreamResponse, mailbox: Mailbox) -> None:
        while not mailbox.closed:
            state = await mailbox.take(HEARTBEAT)
            if mailbox.closed:
                return
            text = ": nothing new\n\n" if state is None else event(state)
            async with asyncio.timeout(STUCK):
                await response.write(text.encode())

    async def _look(self, before: tuple[object, ...]) -> None:
        """Put the state into every mailbox when it tells something else than before."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                state = await self._ask(self._state)
            except Silent:
                pass  # its readers find that out themselves, and say so
            except Exception:  # as with requests: the next look may go well
                log.exception("looking for changes failed")
            else:
                if _told(state) != before:
                    before = _told(state)
                    for mailbox in self._mailboxes:
                        mailbox.put(state)

    async def close(self) -> None:
        """End all streams."""
        for mailbox in self._mailboxes:
            mailbox.close()


def _told(state: objects.Controller) -> tuple[object, ...]:
    """What of a state is worth an event: all but the time."""
    return state.revision, state.leading, state.role, state.leader, state.ready, state.missing


def event(state: objects.Controller) -> str:
    """The state as an event; its ``id`` is the state's number."""
    return f"id: {state.revision}\nevent: state\ndata: {msgspec.json.encode(state).decode()}\n\n"
