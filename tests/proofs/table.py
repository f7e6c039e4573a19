"""Rows of a proof, printed as they are measured and written to docs/proofs/."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "proofs"


class Row(Struct, frozen=True):
    """One claim, the figure measured for it, the bound it is held to, and whether it holds."""

    claim: str
    figure: str
    bound: str
    ok: bool

    def text(self) -> str:
        """As printed."""
        return f"{self.claim} | {self.figure} | {self.bound} | {'ok' if self.ok else 'FAILS'}"


class Proof:
    """Collects rows. ``sample`` is true for the short fixed selection that CI runs."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self.name = name
        self._quiet = quiet
        self.sample = os.environ.get("SAMPLE") == "1"
        self.rows: list[Row] = []
        self._started = time.monotonic()

    def row(self, claim: str, figure: object, bound: str, ok: bool) -> None:
        """Record one measured claim."""
        self.rows.append(Row(claim, str(figure), bound, ok))
        if not self._quiet:
            print(self.rows[-1].text(), flush=True)

    async def part(self, claims: str, measure: Callable[[], Awaitable[None]]) -> None:
        """Run one part; if it breaks, its claims are rows that fail, with why."""
        started = time.monotonic()
        try:
            await measure()
        except Exception as problem:  # noqa: BLE001 - whatever breaks is a failed claim, and the other parts go on
            if not self._quiet:
                traceback.print_exc(file=sys.stderr)
            self.row(claims, f"{type(problem).__name__}: {str(problem)[:200]}".replace("\n", " "), "measured", False)
        print(f"# {claims}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)

    def end(self) -> int:
        """Print the sum, write the document (not for a sample), and return the exit code."""
        failed = sum(not row.ok for row in self.rows)
        seconds = time.monotonic() - self._started
        kind = "sample" if self.sample else "full"
        print(f"proof-{self.name} ({kind}): {len(self.rows) - failed} ok, {failed} FAILS, {seconds:.0f} s", flush=True)
        if not self.sample:
            self._write(seconds)
        return 1 if failed or not self.rows else 0

    def _write(self, seconds: float) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        when = dt.datetime.now(dt.UTC)
        cells = "\n".join(
            "| " + " | ".join(_cell(part) for part in row.text().split(" | ", 3)) + " |" for row in self.rows
        )
        machine = (
            f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, CPython {platform.python_version()}"
        )
        (FOLDER / f"{self.name}.md").write_text(
            f"# Proof: {self.name}\n\n"
            f"Measured by `make proof-{self.name}` on {when:%Y-%m-%d %H:%M} UTC in {seconds:.0f} s ({machine}, shared).\n\n"
            f"| claim | figure | bound | ok |\n|---|---|---|---|\n{cells}\n"
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
