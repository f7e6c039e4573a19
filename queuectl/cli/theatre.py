"""The demo in a terminal: queues as bars, what waits and why, the day so far. rich is used here and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from queuectl.cli.text import ago, plain

BAR = 32  # characters for all GPUs
WAITING = 8  # gangs shown
LEGEND = "GPUS: █ used, ▓ of these borrowed, ░ wanted"


class QueueLine(Struct, frozen=True):
    """One queue: its place in the tree, gangs, and GPUs."""

    name: str
    depth: int
    running: int
    pending: int
    used: int
    quota: int | None
    limit: int | None
    wanted: int


class WaitingLine(Struct, frozen=True):
    """One gang that waits: its place, need, age in milliseconds, and why."""

    name: str
    queue: str
    position: int
    need: str
    age: int
    why: str


class Picture(Struct, frozen=True):
    """What is shown at one moment. ``part`` of the workload is over, None when it has no end."""

    now: int
    speed: float
    part: float | None
    gangs: int
    finished: int
    waiting: int
    running_gpus: int
    gpus: int
    wait_p50: float
    wait_p95: float
    queues: Sequence[QueueLine]
    pending: Sequence[WaitingLine]


class Screen:
    """Draws a picture four times a second, in a thread of its own, until left; where there is no terminal only the links."""

    def __init__(self, links: Sequence[str]) -> None:
        """``links``: lines below the picture, on what else can be tried."""
        self._links = links
        self._picture: Picture | None = None
        console = Console(stderr=True)
        self._live = (
            Live(get_renderable=self._draw, console=console, refresh_per_second=4) if console.is_terminal else None
        )

    def show(self, picture: Picture) -> None:
        """Draw this from now on."""
        self._picture = picture

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            sys.stderr.writelines(f"{link}\n" for link in self._links)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _draw(self) -> Group:
        picture = self._picture
        if picture is None:
            return Group(Text("starting"))
        links = [Text(link, style="dim", no_wrap=True) for link in self._links]
        return Group(_head(picture), _queues(picture), Text(LEGEND, style="dim"), _waiting(picture), *links)


def _head(picture: Picture) -> Group:
    clock = datetime.fromtimestamp(picture.now / 1000, UTC).strftime("day %-j  %H:%M")
    speed = f"{picture.speed:g} × real time" if picture.speed else "as fast as it goes"
    share = picture.running_gpus / max(picture.gpus, 1)
    gangs = f"{picture.finished} of {picture.gangs} gangs finished, {picture.waiting} waiting"
    half, most = (ago(round(seconds * 1000)) for seconds in (picture.wait_p50, picture.wait_p95))
    lines: list[Text | ProgressBar] = [
        Text.assemble((clock, "bold"), f"   {speed}   {picture.running_gpus}/{picture.gpus} GPUs busy ({share:.0%})"),
        Text(f"{gangs}   half wait at most {half}, 95 % at most {most}"),
    ]
    if picture.part is not None:
        lines.append(ProgressBar(total=1.0, completed=picture.part, width=BAR))
    return Group(*lines)


def _queues(picture: Picture) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("QUEUE", "GPUS", "USED", "QUOTA", "LIMIT", "WANTED", "RUNNING", "WAITING"):
        table.add_column(name, justify="left" if name in ("QUEUE", "GPUS") else "right")
    for line in picture.queues:
        quota, limit = ("-" if number is None else str(number) for number in (line.quota, line.limit))
        numbers = (str(line.used), quota, limit, str(line.wanted), str(line.running), str(line.pending))
        table.add_row("  " * line.depth + plain(line.name), _bar(line, picture.gpus), *numbers)
    return table


def _bar(line: QueueLine, gpus: int) -> Text:
    """Own use solid, borrowed hatched, wanted faint."""
    own = min(line.used, line.quota) if line.quota is not None else line.used
    scale = BAR / max(gpus, 1)
    cells = [round(own * scale), round(line.used * scale), round((line.used + line.wanted) * scale)]
    wide = min(cells[2], BAR)
    text = Text("█" * cells[0], style="green")
    text.append("▓" * (cells[1] - cells[0]), style="yellow")
    text.append("░" * max(wide - cells[1], 0), style="dim")
    return text


def _waiting(picture: Picture) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name, width in (("WAITING", 22), ("QUEUE", 10), ("POSITION", 8), ("NEED", 8), ("AGE", 6)):
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=width)
    table.add_column("WHY", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in picture.pending[:WAITING]:
        table.add_row(
            plain(line.name),
            plain(line.queue),
            str(line.position or "-"),
            line.need,
            ago(line.age),
            plain(line.why),
        )
    if len(picture.pending) > WAITING:
        table.add_row(f"… {len(picture.pending) - WAITING} more")
    return table
