"""Reader of the API server's audit log: the ground truth of who changed what, in which order.

One JSON line per request, written when the reply is complete (a watch writes two: when it starts and when it ends).
Lines are in the order of completion, which is not quite the order of the store: sort by the resourceVersion of the
reply where order matters (:func:`in_order`). A large reply may reach its client a moment before its line reaches the
file, so wait for what you expect (:meth:`AuditLog.wait`) rather than read once.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.rig.client import WAIT_SECONDS, eventually

GATE = "queuectl.io/admission"
_NONE = msgspec.Raw(b"null")


class User(msgspec.Struct):
    """Who sent the request."""

    username: str = ""
    groups: list[str] = []


class ObjectRef(msgspec.Struct, rename="camel"):
    """What it was about, from its URL (a create has no name here)."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct):
    """How it ended."""

    code: int = 0
    reason: str = ""
    message: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Gate(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] = []


class _Reply(msgspec.Struct):
    """The part of a reply that the helpers read."""

    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Event(msgspec.Struct, rename="camel", dict=True):
    """One line. Bodies are there for writes of pods, Jobs, leases and our own resources only.

    They are kept as text and decoded at each access: thousands of decoded pods would fill the memory.
    """

    stage: str
    verb: str
    user: User
    stage_timestamp: dt.datetime
    request_received_timestamp: dt.datetime
    request_uri: str = msgspec.field(name="requestURI")
    audit_id: str = msgspec.field(name="auditID", default="")
    user_agent: str = ""
    object_ref: ObjectRef = msgspec.field(default_factory=ObjectRef)
    response_status: ResponseStatus = msgspec.field(default_factory=ResponseStatus)
    request_raw: msgspec.Raw = msgspec.field(name="requestObject", default=_NONE)
    response_raw: msgspec.Raw = msgspec.field(name="responseObject", default=_NONE)
    annotations: dict[str, str] = {}

    @property
    def request_object(self) -> Any:
        """The body that was sent (of a patch: the patch), None when it was not kept."""
        return msgspec.json.decode(self.request_raw)

    @property
    def response_object(self) -> Any:
        """The reply's body: the object as stored, or a Status; None when it was not kept."""
        return msgspec.json.decode(self.response_raw)

    @property
    def what(self) -> str:
        """Resource and subresource, as in ``pods/binding``."""
        ref = self.object_ref
        return f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource

    @property
    def name(self) -> str:
        """Name of the object, also of one that was just created."""
        return self.object_ref.name or self._reply.metadata.name

    @property
    def uid(self) -> str:
        """UID of the object in the reply, empty when the reply holds none."""
        return self._reply.metadata.uid

    @property
    def version(self) -> int:
        """resourceVersion of the object in the reply, 0 when the reply holds none (a refusal, an eviction)."""
        text = self._reply.metadata.resource_version
        return int(text) if text.isdigit() else 0

    @property
    def kind(self) -> str:
        """Kind of the object in the reply, empty when the reply holds none."""
        return self._reply.kind

    @property
    def dry_run(self) -> bool:
        """Whether nothing was to be stored."""
        return "dryRun=" in self.request_uri

    @property
    def stored(self) -> bool:
        """Whether this is a write that the API server accepted and stored."""
        return (
            self.stage == "ResponseComplete"
            and self.verb in {"create", "update", "patch", "delete"}
            and 200 <= self.response_status.code < 300
            and not self.dry_run
        )

    @property
    def gates(self) -> list[str]:
        """Names of the scheduling gates of the pod in the reply."""
        return [gate.name for gate in self._reply.spec.scheduling_gates]

    @functools.cached_property
    def _reply(self) -> _Reply:
        reply = msgspec.json.decode(self.response_raw, type=_Reply | None)
        return _Reply() if reply is None or reply.kind == "Status" else reply


class GateRemoval(NamedTuple):
    """A write after which our gate is gone from a pod that had it: the event, and who sent it."""

    event: Event
    namespace: str
    name: str
    uid: str
    user: str
    version: int


class Binding(NamedTuple):
    """A pod was bound to a node."""

    event: Event
    namespace: str
    name: str
    node: str
    user: str


class AuditLog:
    """Reads a growing log incrementally. One reader keeps all events it has read, for the helpers below."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """``from_end`` leaves out what is there already (another test's doings)."""
        self.path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._decoder = msgspec.json.Decoder(Event)
        self._seen: list[Event] = []

    def events(self) -> list[Event]:
        """All complete events so far, in file order. Raises msgspec.ValidationError for a line that is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return list(self._seen)
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be half written
        self._offset += len(whole)
        self._seen.extend(self._decoder.decode(line) for line in whole.splitlines() if line)
        return list(self._seen)

    async def wait(
        self, predicate: Callable[[list[Event]], object], deadline: float = WAIT_SECONDS, what: str = "audit events"
    ) -> list[Event]:
        """All events as soon as ``predicate`` holds for them."""
        await eventually(lambda: bool(predicate(self.events())), deadline, what)
        return self._seen

    async def gate_removals(self, count: int, namespace: str, deadline: float = WAIT_SECONDS) -> list[GateRemoval]:
        """Wait for at least ``count`` removals in a namespace and return all of them, in the order of the store."""

        def found() -> list[GateRemoval]:
            return [r for r in gate_removals(self.events()) if r.namespace == namespace]

        return await eventually(lambda: r if len(r := found()) >= count else [], deadline, "gate removals")

    async def bindings(self, count: int, namespace: str, deadline: float = WAIT_SECONDS) -> list[Binding]:
        """Wait for at least ``count`` bindings in a namespace and return all of them."""

        def found() -> list[Binding]:
            return [b for b in bindings(self.events()) if b.namespace == namespace]

        return await eventually(lambda: b if len(b := found()) >= count else [], deadline, "bindings")


def in_order(events: Iterable[Event]) -> list[Event]:
    """Stored writes with an object in the reply, in the order in which the store took them.

    A write that changed nothing answers with the version it found: it comes after the one that made it.
    """
    stored = [event for event in events if event.stored and event.version]
    return sorted(stored, key=lambda event: (event.version, event.request_received_timestamp))


def gate_removals(events: Iterable[Event], gate: str = GATE) -> list[GateRemoval]:
    """Pod writes after which ``gate`` is gone while the pod's preceding version had it, in the order of the store.

    A pod whose creation is not among the events counts as gated before its first write when that write's request
    names schedulingGates; so a reader that starts in the middle of a run still sees removals.
    """
    gated: dict[str, bool] = {}
    removals = []
    for event in in_order(events):
        if event.kind != "Pod":
            continue
        now = gate in event.gates
        before = gated.get(event.uid, event.verb != "create" and b"schedulingGates" in bytes(event.request_raw))
        gated[event.uid] = now
        if before and not now and event.verb in {"patch", "update"}:
            removals.append(
                GateRemoval(
                    event, event.object_ref.namespace, event.name, event.uid, event.user.username, event.version
                )
            )
    return removals


def bindings(events: Iterable[Event]) -> list[Binding]:
    """Accepted bindings, in file order (the reply to a binding carries no resourceVersion)."""
    return [
        Binding(
            event,
            event.object_ref.namespace,
            event.object_ref.name,
            str(event.request_object["target"]["name"]),
            event.user.username,
        )
        for event in events
        if event.stored and event.verb == "create" and event.what == "pods/binding"
    ]


def evictions(events: Iterable[Event]) -> list[Event]:
    """Accepted evictions by the Eviction API, in file order."""
    return [e for e in events if e.stored and e.verb == "create" and e.what == "pods/eviction"]


def reads(
    events: Iterable[Event], user: str, *, since: dt.datetime | None = None, verbs: Iterable[str] = ("list", "watch")
) -> Iterator[Event]:
    """Reads of a user since a time, each once: a watch when it starts, the others when they end."""
    wanted = set(verbs)
    for event in events:
        if event.user.username != user or event.verb not in wanted:
            continue
        if since is not None and event.request_received_timestamp < since:
            continue
        refused_watch = event.verb == "watch" and event.response_status.code >= 400
        if event.stage == ("ResponseComplete" if event.verb != "watch" or refused_watch else "ResponseStarted"):
            yield event
