"""Words of the JSON API that its readers speak too, in a module that loads nothing."""

from __future__ import annotations

from typing import Final

HOST: Final = "127.0.0.1"  # loopback: there is no login
PORT: Final = 8080
PREFIX: Final = "/api/v1"
PHASES: Final = ("Pending", "Admitted", "Running", "Evicting", "Finished", "Deactivated")
