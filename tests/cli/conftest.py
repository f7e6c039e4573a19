"""The command line against a served controller: the server runs in a thread, the command in the test's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Self

import pytest
from click.testing import CliRunner
from msgspec import Struct

from queuectl.cli.main import cli
from queuectl.serve import world
from queuectl.serve.app import serving
from tests.serve.standin import Standin, story


class Done(Struct):
    """What a command left behind."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]


class Served:
    """A controller that answers under ``url``. ``do`` changes it between two answers."""

    def __init__(self, here: Standin) -> None:
        self.here = here
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def do(self, change: Callable[[Standin], None]) -> None:
        """Let ``change`` happen on the server's loop, and a second pass; the next answer shows it."""
        done = threading.Event()

        def act() -> None:
            change(self.here)
            self.here.later(1)
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        async with serving(self.here.controller, port=0) as self.url:
            self._up.set()
            await self._end.wait()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The story of tests/serve/standin.py, read anew for every answer."""
    monkeypatch.setattr(world, "MAX_AGE", 0.0)
    monkeypatch.setattr(world, "RESTRAINT", 0)
    with Served(story()) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody's kubeconfig, server or proxy. Rig tests keep their home: the control plane is cached there."""
    for name in ("KUBECONFIG", "QUEUECTL_SERVER", "NO_COLOR", "http_proxy", "HTTP_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if request.node.get_closest_marker("rig") is None:
        monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def invoke(*arguments: str) -> Done:
    """Run the command line; a bug in it is raised here."""
    done = CliRunner().invoke(cli, list(arguments), prog_name="queuectl")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def call(served: Served) -> Call:
    """``call("get", "queues")``: run a verb that reads, against the served story."""
    return lambda *arguments: invoke(*arguments, "--server", served.url)
