"""``queuectl run``: the controller, until it is told to end or another process leads."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import click

from queuectl import __version__
from queuectl.cli import logs, options
from queuectl.cli.problems import Problem, Usage
from queuectl.contract.config import Configuration, InvalidConfiguration, load
from queuectl.control.clock import RealClock
from queuectl.control.lease import LeadershipLost
from queuectl.control.loop import Controller
from queuectl.control.ports import ClusterError
from queuectl.control.steps import Fenced
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.credentials import ConfigurationProblem
from queuectl.serve.app import serving
from queuectl.serve.words import HOST, PORT

log = logging.getLogger(__name__)


@click.command("run")
@options.cluster
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings (docs/configuration.md).")
@click.option(
    "--listen",
    default=f"{HOST}:{PORT}",
    metavar="HOST:PORT",
    help=f"Dashboard, JSON API, metrics and health; they have no login.  [default: {HOST}:{PORT}]",
)
@click.option("--identity", metavar="NAME", help="Must be new for every process.  [default: host name and a UUID]")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", help="Of stderr.  [default: json]")
def command(
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
    listen: str,
    identity: str | None,
    log_format: str,
) -> None:
    """Run the controller.

    It mirrors the cluster, waits for the lease, and then decides. Several may run: one leads, the others stand by.
    SIGTERM and Ctrl-C end it cleanly: the lease is given back and the exit code is 0. A second signal ends it at once.
    Exit code 1: it lost the lease, or could not start; let a supervisor start it again.
    """
    host, port = address(listen)
    try:
        configuration = load(config)
    except InvalidConfiguration as problem:
        raise Usage(str(problem)) from None
    logs.start(log_format)
    name = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
    gc.set_threshold(50_000, 20, 50)  # a mirror of many objects that live long: young garbage is rare
    try:
        asyncio.run(_run(kubeconfig, context, configuration, host, port, name))
    except _ENDINGS as problem:
        message, advice = ending(problem)
        log.error("%s", message, extra={"advice": advice} if advice else None)  # noqa: TRY400 - a sentence, no traceback
        raise click.exceptions.Exit(1) from None


_ENDINGS = (ConfigurationProblem, LeadershipLost, Fenced, ClusterError, Problem)


def ending(problem: Exception) -> tuple[str, str]:
    """Why the controller ended, as a sentence, and what to do about it."""
    match problem:
        case ConfigurationProblem() | Problem():
            return problem.message, problem.advice
        case LeadershipLost():
            return f"the lease is lost: {problem}", "start it again to stand by"
        case Fenced():
            return f"another process leads: {problem}", "start it again to stand by"
        case ClusterError():
            return f"the API server refuses what the controller needs: {problem.message}", ""
        case _:
            return str(problem), ""


def address(listen: str) -> tuple[str, int]:
    """``127.0.0.1:8080``, ``[::]:8080``, ``:8080`` (all addresses) → host and port; port 0 lets the system choose.

    Raises Usage.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise Usage(f"--listen {listen}: must be HOST:PORT, as {HOST}:{PORT}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)  # noqa: S104 - asked for by ":8080"


async def _run(
    kubeconfig: str | None, context: str | None, configuration: Configuration, host: str, port: int, identity: str
) -> None:
    loop = asyncio.get_running_loop()
    async with KubeCluster.connect(kubeconfig, context) as cluster, AsyncExitStack() as stack:
        controller = Controller(cluster, RealClock(), configuration, identity)
        try:
            url = await stack.enter_async_context(serving(controller, host, port))
        except OSError as problem:
            raise Problem(f"cannot listen on {host}:{port}: {_words(problem)}", "choose another: --listen") from None
        log.info("serving", extra={"url": url, "version": __version__, "identity": identity, "pid": os.getpid()})
        running = asyncio.create_task(controller.run(), name="controller")
        told = False

        def stop(number: int) -> None:
            nonlocal told
            told = True
            log.info("ending", extra={"signal": signal.Signals(number).name})
            for one in (signal.SIGINT, signal.SIGTERM):  # the second one ends us at once
                loop.remove_signal_handler(one)
                signal.signal(one, signal.SIG_DFL)
            running.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            await running
        except asyncio.CancelledError:
            if not told:
                raise
    log.info("ended")


def _words(problem: OSError) -> str:
    """What the system says, without asyncio's own wording of it."""
    return os.strerror(problem.errno) if problem.errno else str(problem)
