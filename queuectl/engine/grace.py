"""Capacity that shares are computed from: it forgets a node only when the node has been away for a while.

Placement looks at what is there now. If entitlements did too, a node that blinks would lower them for a moment, and somebody
would lose a running gang for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from queuectl.model.resources import Amounts

GRACE = 600_000
"""Milliseconds (10 min): longer than a reboot, shorter than a repair."""


class Sighting(Struct, frozen=True):
    """What a node is expected to offer, its devices included, and when (ms) it was last seen to offer it."""

    node: str
    expected: Amounts
    last: int


def entitling(
    sightings: Iterable[Sighting], unmanaged: Iterable[Amounts], now: int, grace: int = GRACE
) -> tuple[dict[str, int], int | None]:
    """Capacity for entitlements, and when it next shrinks if no node is seen again (None: never).

    The sum over nodes seen less than ``grace`` ago, less what pods that nobody manages ask for, never below 0. O(nodes).
    """
    capacity: dict[str, int] = {}
    until: int | None = None
    for sighting in sightings:
        ends = sighting.last + grace
        if ends <= now:
            continue
        if sighting.last < now:
            until = ends if until is None else min(until, ends)
        for resource, amount in sighting.expected:
            capacity[resource] = capacity.get(resource, 0) + amount
    for requests in unmanaged:
        for resource, amount in requests:
            if resource in capacity:
                capacity[resource] = max(0, capacity[resource] - amount)
    return capacity, until
