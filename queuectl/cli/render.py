"""Tables, blocks and machine formats, as kubectl prints them. Everything that people read goes through ``plain``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from queuectl.cli.text import HOSTILE, json_safe, plain

GAP = 3  # spaces between columns, as kubectl
NONE = "<none>"
BAD, WARN, GOOD = "red", "yellow", "green"
COLOURS = {
    "Pending": WARN, "Evicting": WARN, "Deactivated": BAD, "Running": GOOD, "Ready": GOOD, "NotReady": BAD,
    "Cordoned": WARN, "Held": WARN, "Inactive": BAD,
}  # fmt: skip


def coloured() -> bool:
    """Whether to use colour: only on a terminal, and never when NO_COLOR is set to anything (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cell(value: object) -> str:
    """One value of a table: absent is ``<none>``."""
    if value is None or value == "":
        return NONE
    return plain(str(value))


class Table:
    """Columns as wide as what was printed so far needs. ``lines`` may be called again with more rows (``-w``)."""

    def __init__(self, headers: Sequence[str]) -> None:
        self.headers = [header.upper() for header in headers]
        self._widths = [len(header) for header in self.headers]
        self._begun = False

    def lines(self, rows: Iterable[Sequence[object]]) -> list[str]:
        """The rows, below the headers if these were not printed yet. Nothing for no rows."""
        cells = [[cell(value) for value in row] for row in rows]
        if not cells:
            return []
        for row in cells:
            self._widths = [max(width, len(value)) for width, value in zip(self._widths, row, strict=True)]
        found = [] if self._begun else [self._line(self.headers)]
        self._begun = True
        return found + [self._line(row) for row in cells]

    def _line(self, row: Sequence[str]) -> str:
        padded = [value.ljust(width + GAP) for value, width in zip(row, self._widths, strict=True)]
        if coloured():
            padded = [
                click.style(value.rstrip(), fg=COLOURS[value.rstrip()]) + " " * (len(value) - len(value.rstrip()))
                if value.rstrip() in COLOURS
                else value
                for value in padded
            ]
        return "".join(padded).rstrip()


def block(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """``Name:   value`` lines with the values aligned, as in ``kubectl describe``."""
    listed = [(f"{name}:", cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in listed), default=0) + 2
    return [f"{name.ljust(width)}{value}" for name, value in listed]


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """The lines, further right."""
    return [" " * by + line for line in lines]


def as_json(obj: Any) -> str:
    """Indented JSON without characters that a terminal would obey."""
    import json  # noqa: PLC0415 - tables do not need it

    return json_safe(json.dumps(obj, indent=2, ensure_ascii=False))


def as_yaml(obj: Any) -> str:
    """YAML without characters that a terminal would obey; parses to the same object."""
    import yaml  # noqa: PLC0415 - 30 ms that tables do not need

    text = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True, width=4096)
    if HOSTILE.search(text.replace("\n", "")):
        text = yaml.safe_dump(obj, sort_keys=False, allow_unicode=False, width=4096)
    return text.rstrip("\n")


def out(lines: str | Iterable[str]) -> None:
    """To stdout: data and nothing else."""
    for line in [lines] if isinstance(lines, str) else lines:
        click.echo(line)


def say(message: str) -> None:
    """To stderr: what people want to know and programs do not."""
    click.echo(plain(message), err=True)
