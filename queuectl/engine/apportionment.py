"""Whole devices out of fair shares, for display only: no test of the engine compares rounded numbers.

The largest remainder method among siblings: everybody gets the whole part, and the devices that then remain of the whole part
of the sum go to the largest lost fractions; of equal ones to the older queue, then to the smaller UID.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Part(Struct, frozen=True):
    """A sibling's share. ``most``: demand or limit, whichever is less, which a rounded share never exceeds; None: neither."""

    share: int
    created: int
    uid: str
    most: int | None = None


def whole_parts(parts: Sequence[Part], unit: int) -> list[int]:
    """Shares in whole units, in the order given; ``unit`` is how much of ``share`` makes one. O(n log n)."""
    crumb = unit >> 20  # three thirds of a sum are the sum, although each was rounded down
    given = [(part.share + crumb) // unit for part in parts]
    left = (sum(part.share for part in parts) + crumb) // unit - sum(given)
    order = sorted(range(len(parts)), key=lambda i: (-(parts[i].share % unit), parts[i].created, parts[i].uid))
    for i in order:
        most = parts[i].most
        if left and (most is None or (given[i] + 1) * unit <= most) and parts[i].share % unit:
            given[i] += 1
            left -= 1
    return given
