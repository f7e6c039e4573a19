"""What the operator may set of the engine's behaviour. Times in milliseconds; defaults as documented in docs/configuration.md."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True):
    """Deadlines and back-off.

    ``bind_timeout``: no progress for this long, with a member of the admission still gated or unbound, gives the gang back.
    ``start_timeout``: from all bound to all started, and for members to be created. ``backoff`` doubles with every
    give-back up to ``backoff_limit``; after ``max_requeues`` the gang is deactivated.
    """

    bind_timeout: int = 60_000
    start_timeout: int = 900_000
    backoff: int = 30_000
    backoff_limit: int = 3_600_000
    max_requeues: int = 5
