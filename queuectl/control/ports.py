"""What the control plane asks of the world: a Cluster and a Clock. ``drivers/`` implement them.

The exceptions are the whole vocabulary of what a cluster may answer; everything above this port speaks of these and never
of HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from queuectl.contract.foreign import Kind


class ClusterError(Exception):
    """Something the cluster answered, or did not."""

    def __init__(self, message: str, status: int = 0) -> None:
        """``message`` is the cluster's own wording where there is one; ``status`` its HTTP status, 0 when none."""
        super().__init__(message)
        self.message = message
        self.status = status


class NotFound(ClusterError):
    """404: the object, or its kind, does not exist."""


class Conflict(ClusterError):
    """409: a precondition (resourceVersion, existence) did not hold. Nothing was written."""


class Expired(ClusterError):
    """410: the version asked for is gone; start again from the current state."""


class Refused(ClusterError):
    """Any other 4xx: will not heal by trying again. Nothing was written."""


class Throttled(ClusterError):
    """429: nothing was written; try again after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        """``retry_after`` in seconds, from the Retry-After header (1 when absent)."""
        super().__init__(message, 429)
        self.retry_after = retry_after


class Unreachable(ClusterError):
    """5xx, a time-out or a broken connection: **whether a write was committed is unknown**."""


class Upserted(Struct, frozen=True):
    """An object exists in this state. ``object`` is of the kind's ``type``."""

    object: Any


class Deleted(Struct, frozen=True):
    """An object is gone; ``object`` is its last state."""

    object: Any


class Malformed(Struct, frozen=True):
    """An object could not be decoded; the stream goes on. ``uid`` and ``name`` are empty when not even they could."""

    namespace: str
    name: str
    uid: str
    message: str


class Bookmark(Struct, frozen=True):
    """The stream has come as far as ``version``. ``synced`` is true once: the initial state is complete."""

    version: str
    synced: bool = False


Event = Upserted | Deleted | Malformed | Bookmark


class Cluster(Protocol):
    """Objects with versions. Every call may raise ClusterError; a cancelled call may have been committed."""

    def watch(self, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
        """Events of one kind in all namespaces.

        ``since`` None: first the current state as Upserted (no particular order), then ``Bookmark(synced=True)``, then
        what happens from there. Otherwise ``Bookmark(since)`` once the stream is open, then what happened after
        it. Ends normally when the server recycles the stream (resume from the last version seen: every object's own, or a
        bookmark's). Raises Expired when ``since`` is too old, Throttled or Unreachable otherwise; never hangs on a dead
        connection longer than its time-out.
        """
        ...

    async def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        """Current objects, decoded; those that cannot be decoded are left out."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        """One object, decoded. Raises NotFound."""
        ...

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Any:
        """Create and return the stored object. Raises Conflict when the name is taken."""
        ...

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        """Merge ``body`` into the object (strategic merge where the kind has it) and return the result.

        ``metadata.resourceVersion`` in the body is a precondition (Conflict), ``metadata.uid`` too (Refused). With
        ``dry_run`` nothing is stored.
        """
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete if the UID still matches (Conflict otherwise)."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask the Eviction API, with the UID as precondition. Raises Throttled when a disruption budget forbids it."""
        ...


class Clock(Protocol):
    """Time as the controller sees it; virtual in replays and tests."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
