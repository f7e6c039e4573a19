"""As much HTTP/1.1 as the fault proxy needs: read a head, relay a body piece by piece, write an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

LIMIT = 1 << 20  # of one read; bodies are relayed in pieces of at most this size


class CutError(Exception):
    """The other side closed the connection in the middle of a message."""


class Head(NamedTuple):
    """First line and header fields (lower-case names, in order) of a request or reply, and the bytes as they came."""

    first: str
    fields: list[tuple[str, str]]
    raw: bytes

    def field(self, name: str) -> str:
        """Value of a header field, empty when absent."""
        return next((value for key, value in self.fields if key == name), "")

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.field("transfer-encoding").lower()

    @property
    def length(self) -> int | None:
        """Length of the body in bytes, None when it is not announced."""
        text = self.field("content-length")
        return int(text) if text else None

    @property
    def closes(self) -> bool:
        """Whether the sender closes the connection after this message."""
        return self.field("connection").lower() == "close"


class Piece(NamedTuple):
    """A part of a body, with the framing of its chunk around it. The last piece of a chunked body has no content."""

    content: bytes
    before: bytes = b""
    after: bytes = b""

    @property
    def wire(self) -> bytes:
        """The bytes to relay."""
        return self.before + self.content + self.after


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next message's head; None when the connection ended before its first byte. CutError inside of it."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise CutError("closed inside a head") from None
        return None
    except ConnectionError:
        return None
    first, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest)]
    return Head(first, fields, raw)


async def pieces(reader: asyncio.StreamReader, head: Head, *, reply: bool) -> AsyncIterator[Piece]:
    """The body that belongs to ``head``, piece by piece as it arrives. CutError when it ends early.

    A chunk is one piece (the API server sends whole watch events, so a piece ends where an event ends).
    """
    try:
        if head.chunked:
            while True:
                line = await reader.readuntil(b"\r\n")
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    trailer = line
                    while (part := await reader.readuntil(b"\r\n")) != b"\r\n":
                        trailer += part
                    yield Piece(b"", trailer + part)
                    return
                content = await reader.readexactly(size)
                yield Piece(content, line, await reader.readexactly(2))
        elif head.length is not None:
            left = head.length
            while left:
                content = await reader.read(min(left, LIMIT))
                if not content:
                    raise CutError("closed inside a body")
                left -= len(content)
                yield Piece(content)
        elif reply and not _bodiless(head):
            while content := await reader.read(LIMIT):
                yield Piece(content)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise CutError(str(error)) from error


def _bodiless(head: Head) -> bool:
    status = head.first.split(" ")[1]
    return status.startswith("1") or status in {"204", "304"}


def chunk(content: bytes) -> bytes:
    """``content`` as one chunk."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def status_object(code: int, reason: str, message: str) -> bytes:
    """A Kubernetes Status that says why, as JSON."""
    return json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
    ).encode()


def answer(code: int, reason: str, message: str, fields: dict[str, str]) -> bytes:
    """A whole reply with a Status as its body."""
    body = status_object(code, reason, message)
    head = {"Content-Type": "application/json", "Content-Length": str(len(body)), **fields}
    lines = [f"HTTP/1.1 {code} {reason}", *(f"{name}: {value}" for name, value in head.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
