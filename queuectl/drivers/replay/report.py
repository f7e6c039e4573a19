"""A trace replayed, and what came of it in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct

from queuectl.drivers.replay.agenda import Turn
from queuectl.drivers.replay.life import Life
from queuectl.drivers.replay.simulator import Arrange, Simulator
from queuectl.drivers.replay.traces import Arrival, Trace
from queuectl.model.changes import QueueSeen
from queuectl.model.queues import Queue
from queuectl.model.resources import GPU
from queuectl.model.topology import Node

Progress = Callable[[int, int, int], None]
"""Gangs that ended, gangs in all, and the virtual time (ms)."""


class Report(Struct, frozen=True, kw_only=True):
    """Times in milliseconds of virtual time, from the first arrival on. ``waits`` and ``jcts`` are of those that ended.

    A wait ends when all pods of the gang run; a completion time (JCT) is wait and run together. ``busy`` are GPU·ms used.
    """

    format: str
    gangs: int
    dropped: int
    waiting: int
    gpus: int
    makespan: int
    waits: tuple[int, ...]
    jcts: tuple[int, ...]
    busy: int
    plan_hash: str

    @property
    def finished(self) -> int:
        """Gangs that ran to their end."""
        return len(self.waits)

    @property
    def utilisation(self) -> float:
        """GPU time used of all there was, from the first arrival to the last end."""
        return self.busy / (self.gpus * self.makespan) if self.makespan and self.gpus else 0.0

    def as_json(self) -> dict[str, Any]:
        """Seconds, rounded to milliseconds."""
        waits = sorted(self.waits)
        return {
            "format": self.format,
            "gangs": self.gangs,
            "finished": self.finished,
            "waiting": self.waiting,
            "dropped": self.dropped,
            "gpus": self.gpus,
            "makespanSeconds": self.makespan / 1000,
            "waitSeconds": {
                "avg": _mean(waits),
                "p50": percentile(waits, 50) / 1000,
                "p95": percentile(waits, 95) / 1000,
                "p99": percentile(waits, 99) / 1000,
            },
            "jctSeconds": {"avg": _mean(self.jcts)},
            "utilisation": round(self.utilisation, 6),
            "planHash": self.plan_hash,
        }


def _mean(values: Iterable[int]) -> float:
    listed = list(values)
    return round(sum(listed) / len(listed) / 1000, 3) if listed else 0.0


def percentile(ordered: list[int], percent: int) -> int:
    """The smallest value that at least ``percent`` % do not exceed (nearest rank); 0 of none. ``ordered`` is sorted."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1] if ordered else 0


def replay(
    trace: Trace, nodes: Iterable[Node], *, progress: Progress | None = None, arrange: Arrange | None = None
) -> Report:
    """Play a trace to its end: the last gang has ended, or nothing more can start. O(its decisions)."""
    simulator = Simulator(forget=True, arrange=arrange)
    ended: list[tuple[int, int, int, int]] = []  # arrival, start, end, pods
    total = len(trace.arrivals)

    def end(life: Life) -> None:
        start = life.started_at if life.started_at is not None else simulator.now
        ended.append((life.gang.created, start, simulator.now, life.submission.size))
        if progress is not None:
            progress(len(ended), total, simulator.now)

    simulator.cluster.ended = end
    gpus = 0
    for node in nodes:
        gpus += dict(node.allocatable)[GPU] // 1000
        simulator.cluster.see_node(node)
    for queue in trace.queues:
        simulator.tell(QueueSeen(Queue(name=queue, uid=f"queue-{queue}")))
    for one in trace.arrivals:
        simulator.agenda.at(one.at, Turn.ARRIVAL, partial(_arrive, simulator, one))
    simulator.run()
    first = trace.arrivals[0].at if trace.arrivals else 0
    return Report(
        format=trace.format,
        gangs=total,
        dropped=trace.dropped,
        waiting=len(simulator.cluster.gangs),
        gpus=gpus,
        makespan=max((end for _, _, end, _ in ended), default=first) - first,
        waits=tuple(start - arrival for arrival, start, _, _ in ended),
        jcts=tuple(end - arrival for arrival, _, end, _ in ended),
        busy=sum((end - start) * size for _, start, end, size in ended),
        plan_hash=simulator.plans.hexdigest,
    )


def _arrive(simulator: Simulator, arrival: Arrival) -> None:
    simulator.cluster.create(arrival.submission)
