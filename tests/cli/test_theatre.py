"""The demo's picture: what stands on it, in terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from queuectl.cli.theatre import Picture, QueueLine, Screen, WaitingLine

QUEUES = (
    QueueLine("research", 0, 40, 5, 300, 320, None, 40),
    QueueLine("vision", 1, 20, 5, 160, 128, 256, 40),
)
WAITS = WaitingLine(
    "train-ana-00001", "vision", 1, "8 pods", 62 * 60_000, "8 pods must fit into one rack: the best, r1, has room for 6"
)
UNREADY = WaitingLine("\x1b[31mevil\u202e", "vision", 0, "1 pod", 1000, "held: spec.hold is true")


def drawn(width: int, pending: tuple[WaitingLine, ...]) -> list[str]:
    """The lines of a picture."""
    screen = Screen(["dashboard: http://127.0.0.1:8080/"])
    screen.show(
        Picture(
            now=1_893_484_800_000,
            speed=300,
            part=None,
            gangs=100,
            finished=60,
            waiting=len(pending),
            running_gpus=500,
            gpus=512,
            wait_p50=30.4,
            wait_p95=4000.0,
            queues=QUEUES,
            pending=pending,
        )
    )
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen._draw())
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_picture_tells_all_of_it() -> None:
    """Hostile names are written out; what has no place in a queue has none."""
    assert [" ".join(line.split()) for line in drawn(150, (WAITS, UNREADY))] == [
        "day 1 08:00 300 × real time 500/512 GPUs busy (98%)",
        "60 of 100 gangs finished, 2 waiting half wait at most 30s, 95 % at most 66m",
        "QUEUE GPUS USED QUOTA LIMIT WANTED RUNNING WAITING",
        "research ███████████████████░░ 300 320 - 40 40 5",
        "vision ████████▓▓░░ 160 128 256 40 20 5",
        "GPUS: █ used, ▓ of these borrowed, ░ wanted",
        "WAITING QUEUE POSITION NEED AGE WHY",
        "train-ana-00001 vision 1 8 pods 62m 8 pods must fit into one rack: the best, r1, has room for 6",
        "\\x1b[31mevil\\u202e vision - 1 pod 1s held: spec.hold is true",
        "dashboard: http://127.0.0.1:8080/",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(width, (WAITS,) * 20)
    assert max(map(len, lines)) <= width
    assert any("12 more" in line for line in lines)
