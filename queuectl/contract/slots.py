"""Slot numbers as text: ``0-3,7``, as they stand in an admission's assignments."""

from __future__ import annotations

import re
from typing import Final

MAX_MEMBERS: Final = 100_000  # slots of one gang; ten times the largest runs that are known in public
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse_slots(text: str) -> tuple[int, ...]:
    """``"0-3,7"`` → (0, 1, 2, 3, 7), in the order given. Raises ValueError on bad text and on more than MAX_MEMBERS."""
    slots: list[int] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise ValueError(f"slots {text[:80]!r}: {piece[:20]!r} is neither a number nor a range like 0-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first + len(slots) >= MAX_MEMBERS:
            raise ValueError(f"slots {text[:80]!r}: {piece} is no range of at most {MAX_MEMBERS} slots")
        slots.extend(range(first, last + 1))
    return tuple(slots)


def format_slots(slots: tuple[int, ...] | list[int]) -> str:
    """Shortest text of a set of slots, sorted: (0, 1, 2, 3, 7) → ``"0-3,7"``. Raises ValueError when there is none."""
    if not slots:
        raise ValueError("no slots")
    pieces: list[list[int]] = []
    for slot in sorted(set(slots)):
        if pieces and slot == pieces[-1][1] + 1:
            pieces[-1][1] = slot
        else:
            pieces.append([slot, slot])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pieces)
