"""Bytes of the API into the structs of ``contract.foreign``; one bad object never takes its neighbours with it.

The common case is one typed pass in C over a whole page or event (about 10 µs a pod). Only when that fails are the objects
taken apart and looked at one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from queuectl.contract.foreign import Meta
from queuectl.control.ports import Bookmark, Deleted, Event, Malformed, Unreachable, Upserted
from queuectl.drivers.kube.session import Status, refusal

T = TypeVar("T")

INITIAL_END = "k8s.io/initial-events-end"
RETRY_SECONDS = 1.0  # when a 429 names no time

# What msgspec raises: no JSON, JSON of another shape, JSON nested deeper than the interpreter's recursion limit.
BAD = (msgspec.DecodeError, RecursionError)


class _PageMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Struct, Generic[T]):
    """One page of a list. ``items`` is null for an empty list of some resources."""

    metadata: _PageMeta
    items: list[T] | None = None


class _Line(Struct, Generic[T]):
    type: str
    object: T


class _Mark(Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Marked(Struct):
    metadata: _Mark


class _Named(Struct):
    """Whatever may be left of an object's metadata."""

    name: Any = ""
    namespace: Any = ""
    uid: Any = ""


class _Object(Struct):
    metadata: _Named


class _Headed(Struct):
    metadata: Meta


_raw_line = msgspec.json.Decoder(_Line[Raw])
_raw_page = msgspec.json.Decoder(Page[Raw])
_marked = msgspec.json.Decoder(_Marked)
_status = msgspec.json.Decoder(Status)
_object = msgspec.json.Decoder(_Object)
_headed = msgspec.json.Decoder(_Headed)


class Decoders:
    """The typed decoders of one struct. Get them from ``decoders``: building them costs more than using them."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self.one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(type_)
        self._line: msgspec.json.Decoder[_Line[Any]] = msgspec.json.Decoder(_Line[type_])
        self._page: msgspec.json.Decoder[Page[Any]] = msgspec.json.Decoder(Page[type_])

    def page(self, body: bytes) -> tuple[Iterator[Event], _PageMeta]:
        """The objects of a page as Upserted (or Malformed), and where the list goes on.

        Raises Unreachable when the page as a whole is not one.
        """
        try:
            page: Page[Any] = self._page.decode(body)
        except BAD:
            try:
                raw = _raw_page.decode(body)
            except BAD as error:
                raise Unreachable(f"not a list: {error}") from error
            return (self._upserted(item) for item in raw.items or ()), raw.metadata
        return map(Upserted, page.items or ()), page.metadata

    def line(self, line: bytes) -> Event:
        """One event of a watch.

        Raises what an ERROR event stands for (Expired, Throttled, Unreachable), and Unreachable when the line is no event.
        """
        try:
            event: _Line[Any] = self._line.decode(line)
        except BAD as error:
            return self._slow_line(line, error)
        match event.type:
            case "ADDED" | "MODIFIED":
                return Upserted(event.object)
            case "DELETED":
                return Deleted(event.object)
            case _:
                return self._slow_line(line, None)

    def _slow_line(self, line: bytes, error: Exception | None) -> Event:
        """Bookmarks and errors, whose objects are none of the kind's, and objects that cannot be decoded."""
        try:
            event = _raw_line.decode(line)
        except RecursionError as deep:
            return malformed(line, deep)
        except msgspec.DecodeError as nonsense:
            raise Unreachable(f"not a watch event: {line[:200].decode(errors='replace')}") from nonsense
        match event.type:
            case "BOOKMARK":
                mark = _decode(_marked, event.object).metadata
                return Bookmark(mark.resource_version, (mark.annotations or {}).get(INITIAL_END) == "true")
            case "ERROR":
                status: Status = _decode(_status, event.object)
                seconds = status.details.retry_after_seconds if status.details else None
                wrong = refusal(status.code or 500, status.message or "error in the stream", seconds or RETRY_SECONDS)
                if status.code in {410, 429}:
                    raise wrong
                raise Unreachable(wrong.message, wrong.status)
            case "DELETED":
                try:
                    # Gone is gone, whatever it looked like: everything but the metadata has a default.
                    return Deleted(self.type(metadata=_headed.decode(event.object).metadata))
                except BAD:
                    return malformed(bytes(event.object), error)
            case "ADDED" | "MODIFIED":
                return malformed(bytes(event.object), error)
            case other:
                raise Unreachable(f"not a watch event: type {other[:50]!r}")

    def _upserted(self, item: Raw) -> Event:
        try:
            return Upserted(self.one.decode(item))
        except BAD as error:
            return malformed(bytes(item), error)


@functools.cache
def decoders(type_: type[Struct]) -> Decoders:
    """The decoders of a kind's ``type``."""
    return Decoders(type_)


def malformed(item: bytes, error: Exception | None) -> Malformed:
    """What can still be said of an object that cannot be decoded."""
    try:
        named = _object.decode(item).metadata
        name, namespace, uid = named.name, named.namespace, named.uid
    except BAD:
        name, namespace, uid = (_scrape(item, key) for key in ("name", "namespace", "uid"))
    return Malformed(_text(namespace), _text(name), _text(uid), str(error or "unreadable"))


def _scrape(item: bytes, key: str) -> str:
    """The first string under ``key`` after ``"metadata"``, for objects that are not even JSON to us."""
    at = item.find(b'"metadata"')
    found = (
        re.compile(rb'"%s"\s*:\s*"([^"\\]*)"' % key.encode()).search(item, max(at, 0), at + 65536) if at >= 0 else None
    )
    return found.group(1).decode(errors="replace") if found else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _decode(decoder: msgspec.json.Decoder[T], raw: Raw) -> T:
    try:
        return decoder.decode(raw)
    except BAD as error:
        raise Unreachable(f"not a watch event: {error}") from error
