"""RFC 3339 on the wire, integer milliseconds since the epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=65536)
def from_wire(text: str) -> int:
    """Milliseconds of an RFC 3339 time; 0 for empty text. Raises ValueError when it is not one."""
    if not text:
        return 0
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def to_wire(at: int) -> str:
    """``2026-11-30T10:00:00.000Z``: what Kubernetes accepts as date-time."""
    when = datetime.fromtimestamp(at // 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"
