"""A whole cluster in memory: objects, the API's rules, our policies, and stand-ins for everything that acts on objects.

    async with embedded(nodes, clock=clock) as world:
        controller = Controller(world.cluster(), clock, Configuration(), "me")

Nothing in it polls, draws lots or looks at a clock of its own: on a ``VirtualLoop`` the same writes give the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from queuectl.contract.foreign import NODES
from queuectl.control.ports import Clock
from queuectl.drivers.embedded.admission import USER, Admission
from queuectl.drivers.embedded.binder import Binder
from queuectl.drivers.embedded.cluster import EmbeddedCluster
from queuectl.drivers.embedded.custom_rules import custom_rules
from queuectl.drivers.embedded.garbage import Garbage
from queuectl.drivers.embedded.job_rules import job_rules
from queuectl.drivers.embedded.jobs import JobController
from queuectl.drivers.embedded.kubelet import Kubelet
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.nodes import NodeController
from queuectl.drivers.embedded.plugins import Plugins
from queuectl.drivers.embedded.rules import pod_rules
from queuectl.drivers.embedded.store import HISTORY, Store

ADMIN = "admin"  # who makes the nodes that ``embedded`` is given


def managed(
    clock: Clock,
    namespaces: dict[str, dict[str, str]] | None = None,
    releasers: frozenset[str] = frozenset(),
    history: int | None = HISTORY,
) -> Store:
    """An empty store with the API's own rules and our policies in force, in which nothing happens by itself.

    ``namespaces``: their labels. ``releasers``: users beside the controller who may take gates away.
    """
    plugins, admission = Plugins(), Admission(namespaces, releasers)
    store = Store(clock, (plugins, admission, job_rules, pod_rules, custom_rules), history=history)
    plugins.store = admission.store = store
    return store


class World:
    """A store and its stand-ins. Made and ended by ``embedded``."""

    def __init__(self, store: Store) -> None:
        """Needs a running event loop."""
        self.store = store
        self.problem: Exception | None = None  # what a stand-in failed of: a bug
        self._body = asyncio.current_task()
        self.jobs = JobController(store, self._failed)
        self.binder = Binder(store, self._failed)
        self.nodes = NodeController(store, self._failed)
        self.kubelet = Kubelet(store, self._failed, self.nodes)
        self.garbage = Garbage(store, self._failed)

    def cluster(self, user: str = USER) -> EmbeddedCluster:
        """The cluster as one of its users sees it; by default the controller."""
        return EmbeddedCluster(self.store, user)

    def close(self) -> None:
        """End all stand-ins and all watches."""
        for one in (self.jobs, self.binder, self.nodes, self.kubelet, self.garbage):
            one.close()
        self.store.disconnect()

    def _failed(self, problem: Exception) -> None:
        if self.problem is None:
            self.problem = problem
            if self._body is not None:
                self._body.cancel()


@asynccontextmanager
async def embedded(
    nodes: Iterable[Json] = (),
    *,
    clock: Clock,
    namespaces: dict[str, dict[str, str]] | None = None,
    releasers: frozenset[str] = frozenset(),
    history: int | None = HISTORY,
) -> AsyncIterator[World]:
    """A cluster that lives as long as the block; see ``managed``. ``nodes`` are bodies of Nodes; more may come later.

    When a stand-in fails, the block is cancelled and what it failed of is raised.
    """
    world = World(managed(clock, namespaces, releasers, history))
    try:
        for body in nodes:
            world.store.create(NODES, "", body, ADMIN)
        yield world
    except asyncio.CancelledError:
        if world.problem is None:
            raise
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        raise world.problem from None
    finally:
        world.close()
