"""Gauges of what a controller knows, computed when they are scraped; nothing is counted twice or kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuectl.engine.view import QueueView
from queuectl.model.pools import ALL_POOLS
from queuectl.model.resources import unit
from queuectl.serve.forms import public_phase
from queuectl.serve.words import PHASES
from queuectl.serve.world import World


class Gauges(Collector):
    """The controller's own counters and what its view shows. Amounts are in base units: cores, bytes, devices."""

    def __init__(self, world: World) -> None:
        self._world = world

    def collect(self) -> Iterator[Metric]:
        """One scrape. O(gangs + queues × resources)."""
        controller = self._world.controller
        yield from controller.metrics.registry.collect()
        yield from self._queues()
        yield from self._pools()
        yield self._gangs()
        yield GaugeMetricFamily("queuectl_leading", "1 while this process decides", value=int(controller.leading))
        yield GaugeMetricFamily(
            "queuectl_synced", "1 once the first state of every kind was read", value=int(controller.synced)
        )
        yield GaugeMetricFamily(
            "queuectl_behind_seconds", "How long some kind's events have been cut off", value=controller.behind
        )
        written = CounterMetricFamily("queuectl_writes", "Committed writes by step of the protocol", labels=["step"])
        for step, count in sorted(controller.actuator.written.items()):
            written.add_metric([step.lower()], count)
        yield written
        refused = CounterMetricFamily(
            "queuectl_writes_refused", "Writes that were not committed, by answer", labels=["kind"]
        )
        for kind, count in sorted(controller.actuator.refused.items()):
            refused.add_metric([kind], count)
        yield refused
        yield GaugeMetricFamily(
            "queuectl_in_flight", "Writes queued or on their way", value=controller.actuator.outstanding.total()
        )
        yield GaugeMetricFamily(
            "queuectl_object_problems", "Objects that cannot be used", value=len(controller.source.problems)
        )

    def _queues(self) -> Iterator[Metric]:
        labels = ["queue", "resource"]
        usage = GaugeMetricFamily(
            "queuectl_queue_usage", "Charged to admitted gangs, those below included", labels=labels
        )
        quota = GaugeMetricFamily("queuectl_queue_quota", "Listed quota", labels=labels)
        limit = GaugeMetricFamily("queuectl_queue_limit", "Listed limit", labels=labels)
        pending = GaugeMetricFamily("queuectl_queue_pending", "Asked for by waiting gangs", labels=labels)
        for queue in self._world.view().queues:
            for name, amount in _with_zeros(queue):
                usage.add_metric([queue.name, name], amount / unit(name))
            for name, amount in queue.pending:
                pending.add_metric([queue.name, name], amount / unit(name))
            for entry in queue.entries:
                if entry.pool != ALL_POOLS:
                    continue
                if entry.quota is not None:
                    quota.add_metric([queue.name, entry.resource], entry.quota / unit(entry.resource))
                if entry.limit is not None:
                    limit.add_metric([queue.name, entry.resource], entry.limit / unit(entry.resource))
        yield from (usage, quota, limit, pending)

    def _pools(self) -> Iterator[Metric]:
        """Of declared pools: what they have, and what queues use, list and may not exceed there."""
        labels = ["pool", "queue", "resource"]
        usage = GaugeMetricFamily("queuectl_pool_usage", "As queuectl_queue_usage, on a pool's nodes", labels=labels)
        quota = GaugeMetricFamily("queuectl_pool_quota", "Listed quota in a pool", labels=labels)
        limit = GaugeMetricFamily("queuectl_pool_limit", "Listed limit in a pool", labels=labels)
        has = GaugeMetricFamily("queuectl_pool_allocatable", "What its nodes have", labels=["pool", "resource"])
        view = self._world.view()
        declared = {pool.name for pool in view.pools if pool.declared}
        for one in view.pools if declared else ():
            for name, amount in one.allocatable:
                has.add_metric([one.name, name], amount / unit(name))
        for queue in view.queues:
            used = {(pool, name): amount for pool, vector in queue.pools for name, amount in vector}
            listed = [entry for entry in queue.entries if entry.pool in declared]
            for (pool, name), amount in sorted({**{(e.pool, e.resource): 0 for e in listed}, **used}.items()):
                if pool in declared:
                    usage.add_metric([pool, queue.name, name], amount / unit(name))
            for entry in listed:
                if entry.quota is not None:
                    quota.add_metric([entry.pool, queue.name, entry.resource], entry.quota / unit(entry.resource))
                if entry.limit is not None:
                    limit.add_metric([entry.pool, queue.name, entry.resource], entry.limit / unit(entry.resource))
        yield from (usage, quota, limit, has)

    def _gangs(self) -> Metric:
        """Gangs by their own queue; a queue with any gang shows every phase, so that a series falls to 0 and stays."""
        view = self._world.view()
        found = Counter((gang.queue, public_phase(gang)) for gang in view.gangs)
        queues = {queue for queue, _ in found} | {queue.name for queue in view.queues if queue.leaf}
        family = GaugeMetricFamily("queuectl_gangs", "Gangs by queue and phase", labels=["queue", "phase"])
        for queue in sorted(queues):
            for phase in PHASES:
                family.add_metric([queue, phase], found[queue, phase])
        return family


def _with_zeros(queue: QueueView) -> list[tuple[str, int]]:
    """Usage, with 0 for what is listed and not used: a missing series is not an idle queue."""
    listed = {entry.resource: 0 for entry in queue.entries if entry.pool == ALL_POOLS}
    return sorted({**listed, **dict(queue.usage)}.items())
