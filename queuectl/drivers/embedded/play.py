"""Lets a workload happen in an in-memory cluster: nodes, queues, and Jobs that come, end, and are cleaned away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from queuectl.contract import names
from queuectl.contract.foreign import JOBS, NODES, PODS, QUEUES, TOPOLOGIES
from queuectl.drivers.embedded import day
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.tally import Report, Tally
from queuectl.model.resources import GPU

ADMIN, TENANT = "demo-admin", "demo-tenant"
_ENDED = ("Complete", "Failed")


class Play:
    """A cluster of ``nodes``, its ``queues``, and a stream of ``submissions`` (in order of time).

    ``opening`` seconds are taken for passed at the start, so that a demo may begin in the morning. ``window``: seconds
    over which the GPUs' use is measured (None: all the time), for what runs on after the last submission says nothing.
    """

    def __init__(
        self,
        store: Store,
        nodes: Sequence[Json],
        queues: Sequence[Json],
        submissions: Iterable[day.Submission],
        *,
        opening: float = 0.0,
        window: float | None = None,
    ) -> None:
        self.submitted = 0
        self.ended = 0
        self.through = False  # everything was submitted
        self.done = asyncio.Event()  # … and has ended
        self.tally = Tally(sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in nodes))
        self._opening, self._window = opening, window
        self._store = store
        self._nodes, self._queues = nodes, queues
        self._submissions: Iterator[day.Submission] = iter(submissions)
        self._over: set[str] = set()
        self._began = 0  # wall-clock milliseconds
        self._used: float | None = None

    def prepare(self) -> None:
        """The topology, the queues, and nodes with a pod each that is none of ours."""
        self._store.listen(self._seen)
        self._began = self._store.clock.now()
        self._store.create(TOPOLOGIES, "", day.topology(), ADMIN)
        for queue in self._queues:
            self._store.create(QUEUES, "", queue, ADMIN)
        for node in self._nodes:
            self._store.create(NODES, "", node, ADMIN)
            self._store.create(PODS, "kube-system", _exporter(node["metadata"]["name"]), ADMIN)
        if self._window is not None:
            asyncio.get_running_loop().call_later(self._window, self._measure)

    def now(self) -> float:
        """Seconds since the beginning of the first day."""
        return (self._store.clock.now() - self._began) / 1000 + self._opening

    async def run(self) -> None:
        """Submit everything at its time; for ever when the submissions never end."""
        for one in self._submissions:
            if (wait := one.at - self.now()) > 0:
                await asyncio.sleep(wait)
            self._store.create(JOBS, one.namespace, one.body, TENANT)
            self.submitted += 1
        self.through = True
        self._look()

    def report(self) -> Report:
        """What it has come to so far."""
        report = self.tally.report(self._store.clock.now(), self._began)
        if self._used is not None:
            report.gpu_utilisation = self._used
        return report

    def _measure(self) -> None:
        self._used = self.tally.report(self._store.clock.now(), self._began).gpu_utilisation

    def _look(self) -> None:
        if self.through and self.ended == self.submitted:
            self.done.set()

    def _seen(self, stored: Stored) -> None:
        self.tally(stored, self._store.clock.now())
        if stored.kind is not JOBS:
            return
        uid = stored.object["metadata"]["uid"]
        if stored.verb == "DELETED":
            if uid not in self._over:
                self.ended += 1  # by somebody who looks on
                self._look()
            self._over.discard(uid)
            return
        conditions = (stored.object.get("status") or {}).get("conditions") or ()
        if uid not in self._over and any(c["type"] in _ENDED and c["status"] == "True" for c in conditions):
            self._over.add(uid)
            self.ended += 1
            self._look()


def _exporter(node: str) -> Json:
    """A pod that every node has and that is none of a queue's business."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-exporter", "uid": "daemon", "controller": True}
    container = {"name": "main", "image": "node-exporter:1", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {
            "name": f"node-exporter-{node}",
            "labels": {"app": "node-exporter", names.UNMANAGED_LABEL: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, "containers": [container]},
    }
