"""Prometheus view of a controller. Names follow the field's practice: base units, ``_total`` for counters."""

from __future__ import annotations

from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Histogram

from queuectl.model.plan import Action

# Seconds. A decision with nothing to do takes microseconds, one over a full backlog must stay below 50 ms.
_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Counters of one controller, in a registry of its own so that tests and replays do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._changes = Counter("queuectl_changes", "Changes told to the engine", registry=self.registry)
        self._decide = Histogram(
            "queuectl_decide_seconds", "Time of one decision pass", buckets=_BUCKETS, registry=self.registry
        )
        self._actions = Counter("queuectl_actions", "Actions decided", ["action"], registry=self.registry)

    def observed(self, count: int) -> None:
        """So many changes were told to the engine."""
        self._changes.inc(count)

    def deciding(self) -> AbstractContextManager[object]:
        """Time one decision."""
        return self._decide.time()

    def decided(self, action: Action) -> None:
        """The engine wants this."""
        self._actions.labels(type(action).__name__).inc()
