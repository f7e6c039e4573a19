"""The queue tree as it was declared: weights, priorities, quotas and limits."""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.pools import ALL_POOLS
from queuectl.model.reasons import Misfit


class QueueState(enum.StrEnum):
    """What a queue admits: Open everything that fits, Held nothing (running gangs stay)."""

    OPEN = "Open"
    HELD = "Held"


class Entry(Struct, frozen=True):
    """Quota and limit of one resource in one pool, in the resource's integer unit. None means unset, which is not 0."""

    resource: str
    pool: str = ALL_POOLS
    quota: int | None = None
    limit: int | None = None


class Queue(Struct, frozen=True, kw_only=True):
    """One queue. ``parent`` None is a child of the root. ``blocked`` says why the object itself cannot be used."""

    name: str
    uid: str
    parent: str | None = None
    weight: int = 1
    priority: int = 0
    entries: tuple[Entry, ...] = ()
    state: QueueState = QueueState.OPEN
    created: int = 0
    deleting: bool = False
    blocked: tuple[Misfit, ...] = ()
