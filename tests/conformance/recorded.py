"""What the real cluster answered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded.json"


def known() -> dict[str, Any]:
    """All recorded facts, by case."""
    found: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return found


def expected(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The recorded facts of a case; with RECORD=1 these are recorded first."""
    if os.environ.get("RECORD") == "1":
        RECORDED.write_text(json.dumps({**known(), name: facts}, indent=1, sort_keys=True) + "\n")
    found: dict[str, Any] = known()[name]
    return found
