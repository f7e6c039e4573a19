"""The demo's web servers, in a thread of their own: the controller's time is virtual, a browser's is not."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from queuectl.control.loop import Controller
from queuectl.drivers.embedded.rest import fronting
from queuectl.drivers.embedded.store import Store
from queuectl.serve.app import serving
from queuectl.serve.ask import across


class Served(Struct):
    """Where the demo answers: the controller's URL, and a kubeconfig for its cluster."""

    url: str
    kubeconfig: Path


@contextmanager
def served(controller: Controller, store: Store, host: str, port: int, namespace: str) -> Iterator[Served]:
    """Serve until left. Called on the controller's loop. Raises OSError when the port is taken."""
    with tempfile.TemporaryDirectory(prefix="queuectl-demo-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        thread = _Thread(controller, store, asyncio.get_running_loop(), host, port, kubeconfig, namespace)
        thread.start()
        thread.ready.wait()
        if thread.problem is not None:
            raise thread.problem
        try:
            yield Served(thread.url, kubeconfig)
        finally:
            thread.loop.call_soon_threadsafe(thread.stop.set)
            # Not joined: a handler that waits for the controller's loop, which is this one, would wait for ever.


class _Thread(threading.Thread):
    url: str
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event

    def __init__(
        self,
        controller: Controller,
        store: Store,
        home: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        kubeconfig: Path,
        namespace: str,
    ) -> None:
        super().__init__(name="web servers", daemon=True)
        self.ready = threading.Event()
        self.problem: OSError | None = None
        self._controller, self._store, self._home = controller, store, home
        self._address = host, port
        self._front = kubeconfig, namespace

    def run(self) -> None:
        """Serve on a loop of our own."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with (
                serving(self._controller, *self._address, loop=self._home) as url,
                fronting(self._store, across(self._home), *self._front),
            ):
                self.url = url
                self.ready.set()
                await self.stop.wait()
        except OSError as problem:
            self.problem = problem
            self.ready.set()
