"""From the engine's view to the picture that the demo's terminal shows."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.cli.theatre import Picture, QueueLine, WaitingLine
from queuectl.control.loop import Controller
from queuectl.control.source import Source
from queuectl.drivers.embedded.play import Play
from queuectl.engine.view import GangView, QueueView
from queuectl.model.pools import ALL_POOLS
from queuectl.model.reasons import by_dominance, sentence
from queuectl.model.resources import GPU

ONE = 1000  # the engine's amount of one GPU


def picture(controller: Controller, play: Play, speed: float, count: int | None) -> Picture:
    """What is shown of this moment. O(gangs + queues)."""
    view, now = controller.view(), controller.clock.now()
    waiting = sorted(
        (gang for gang in view.gangs if gang.phase == "Pending"), key=lambda gang: (gang.queued_at, gang.uid)
    )
    report = play.report()
    return Picture(
        now=now,
        speed=speed,
        part=None if count is None else play.ended / max(count, 1),
        gangs=report.gangs,
        finished=report.finished,
        waiting=len(waiting),
        running_gpus=play.tally.running_gpus,
        gpus=play.tally.gpus,
        wait_p50=report.wait_p50_s,
        wait_p95=report.wait_p95_s,
        queues=list(_queues(view.queues)),
        pending=[_waiting(gang, controller.source, now) for gang in waiting],
    )


def _queues(queues: tuple[QueueView, ...]) -> Iterator[QueueLine]:
    """Each after its parent, siblings by name."""
    below: dict[str | None, list[QueueView]] = {}
    for queue in queues:
        below.setdefault(queue.parent, []).append(queue)
    stack = [(queue, 0) for queue in reversed(below.get(None, []))]
    while stack:
        queue, depth = stack.pop()
        entry = next((one for one in queue.entries if one.resource == GPU and one.pool == ALL_POOLS), None)
        quota, limit = (entry.quota, entry.limit) if entry is not None else (None, None)
        yield QueueLine(
            name=queue.name,
            depth=depth,
            running=queue.gangs_running,
            pending=queue.gangs_pending,
            used=dict(queue.usage).get(GPU, 0) // ONE,
            quota=None if quota is None else quota // ONE,
            limit=None if limit is None else limit // ONE,
            wanted=dict(queue.pending).get(GPU, 0) // ONE,
        )
        stack.extend((one, depth + 1) for one in reversed(below.get(queue.name, [])))


def _waiting(gang: GangView, source: Source, now: int) -> WaitingLine:
    misfits = by_dominance(gang.misfits)
    job = source.owner(source.groups[gang.uid]) if gang.uid in source.groups else None
    return WaitingLine(
        name=job.metadata.name if job is not None else gang.name,
        queue=gang.queue,
        position=gang.position,
        need=f"{gang.minimum} pod{'' if gang.minimum == 1 else 's'}",
        age=now - gang.queued_at,
        why=sentence(misfits[0]).partition(";")[0] if misfits else "not looked at yet",  # the rest: `explain`
    )
