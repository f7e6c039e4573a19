"""The API server of an exploration: the in-memory store with its rules and policies, to be saved and set back at will.

Versions and UIDs are made so that what commutes leads to equal states: versions count by object instead of over all, and a
UID follows from kind, name and how many of that name came before. All that anybody may do with versions is to compare
those of one object, so nobody can tell; an object made anew begins above the last version of its namesake.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import json

from queuectl.contract.foreign import Kind
from queuectl.drivers.embedded.admission import Admission
from queuectl.drivers.embedded.rules import pod_rules
from queuectl.drivers.embedded.store import Json, Store, Stored

NS = "ns"
START = 1_796_000_000_000  # wall-clock milliseconds at the beginning of every exploration
_LIFETIME = 1000  # versions left to one object before its namesake's begin; no object is written so often here

Objects = dict[str, dict[tuple[str, str], Json]]


class Time:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return self.at

    def monotonic(self) -> float:
        """Not asked for."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Nobody waits here."""
        raise AssertionError(f"waited {seconds} s")


class Snapshot(NamedTuple):
    """All that a cluster is at one moment. Never changed: stores copy what they change.

    ``born`` counts the objects of each name so far. ``notes`` is history that no object shows any more
    (``promises.Notes``), by subject.
    """

    objects: Objects
    born: dict[str, int]
    notes: dict[str, Any]
    now: int

    def all(self, plural: str) -> Iterable[Json]:
        """Objects of a kind by name."""
        found = self.objects.get(plural, {})
        return [found[key] for key in sorted(found)]

    def get(self, plural: str, name: str, namespace: str = NS) -> Json | None:
        """One object."""
        return self.objects.get(plural, {}).get((namespace, name))

    def digest(self) -> bytes:
        """Equal for equal states, and for no others. Some 20 µs."""
        bodies = [list(self.all(plural)) for plural in sorted(self.objects)]
        text = json.encode((bodies, self.born, self.notes, self.now), order="deterministic")
        return blake2b(text, digest_size=16).digest()


EMPTY = Snapshot({}, {}, {}, START)


class Server(Store):
    """One store for all states of an exploration: ``load`` one, write, take what was ``committed``, ``save`` the next."""

    def __init__(self) -> None:
        self.stopped = Time()
        admission = Admission()
        super().__init__(self.stopped, (admission, pod_rules))
        admission.store = self
        self.born: dict[str, int] = {}
        self.notes: dict[str, Any] = {}
        self._next = 0

    def load(self, snapshot: Snapshot) -> None:
        """Be in this state, with an empty log."""
        self._objects = {plural: dict(found) for plural, found in snapshot.objects.items()}
        self.born, self.notes = dict(snapshot.born), dict(snapshot.notes)
        self.stopped.at = snapshot.now
        self.log.clear()

    def save(self) -> Snapshot:
        """The present state; call ``load`` before writing again."""
        objects = {plural: found for plural, found in self._objects.items() if found}
        return Snapshot(objects, self.born, self.notes, self.stopped.at)

    @property
    def committed(self) -> tuple[Stored, ...]:
        """What was written since ``load``."""
        return tuple(self.log)

    def create(self, kind: Kind, namespace: str, body: Json, user: str, *, dry_run: bool = False) -> Json:
        """See the store."""
        name = f"{kind.plural}/{body['metadata']['name']}"
        number = self.born.get(name, 0) + 1
        self._next = number * _LIFETIME
        self._serials = iter([zlib.crc32(f"{name}/{number}".encode())])  # type: ignore[assignment]  # any iterator serves
        made = super().create(kind, namespace, body, user, dry_run=dry_run)
        if not dry_run:
            self.born[name] = number
        return made

    def _commit(self, kind: Kind, verb: str, new: Json, user: str) -> Json:
        """The next version of this object, not of the store: the base class adds one to what is left here."""
        self.version = int(new["metadata"].get("resourceVersion") or self._next)
        return super()._commit(kind, verb, new, user)
