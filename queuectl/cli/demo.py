"""``queuectl demo``: the controller at work on a cluster in memory, faster than time."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import shutil
import signal
import sys
import time
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from queuectl.cli import render
from queuectl.cli.picture import picture
from queuectl.cli.problems import Problem, Usage
from queuectl.cli.run import address
from queuectl.cli.served import served
from queuectl.cli.theatre import Screen
from queuectl.contract.config import Configuration
from queuectl.control.loop import Controller
from queuectl.drivers.embedded import day
from queuectl.drivers.embedded.clock import VirtualClock, VirtualLoop
from queuectl.drivers.embedded.play import Play
from queuectl.drivers.embedded.tally import Report
from queuectl.drivers.embedded.whole import World, embedded
from queuectl.drivers.replay import traces
from queuectl.drivers.replay.reading import BadFileError
from queuectl.serve.words import HOST, PORT

START = 1_893_456_000_000  # milliseconds: 2030-01-01 00:00 UTC; nothing depends on it
MORNING = 8 * 3600.0  # seconds into the day at which the live demo begins
AFTER = 7 * day.DAY  # virtual seconds after the last submission; what then still waits is reported as waiting
SPEED = 300.0
FRAME = 0.25  # seconds between two pictures
MOST_GPUS = 100_000

CONFIGURATION = Configuration.model_validate(
    # Time is cheap here and writes are not: what only refreshes what others read is done seldom.
    {"leaseDuration": "10m", "fenceGrace": "0s", "queueStatusInterval": "5m", "blockerInterval": "5m"}
)


class Result(Report, kw_only=True):
    """A report, with real seconds: of the whole run, and until the first gang ran."""

    seconds: float
    first_running_s: float


@click.command("demo")
@click.option("--nodes", "fleet", default="64x8", metavar="NxG", help="Nodes x GPUs in each.  [default: 64x8]")
@click.option("--speed", default=SPEED, type=click.FloatRange(1, 5000), help=f"Times real time.  [default: {SPEED:g}]")
@click.option(
    "--load",
    default=0.9,
    type=click.FloatRange(0.05, 2.0),
    help="Work that comes in a day, as a part of what the GPUs can do.  [default: 0.9]",
)
@click.option("--seed", default=1, type=int, help="Another number, other days.  [default: 1]")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play a job trace instead (formats: `queuectl replay`); a job of n GPUs is n pods of one GPU each.",
)
@click.option("--listen", default=f"{HOST}:{PORT}", metavar="HOST:PORT", help=f"[default: {HOST}:{PORT}]")
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Open the dashboard.  [default: where there is a desktop to open it on]",
)
@click.option("--once", is_flag=True, help="One day (or the trace), as fast as it goes, until all has ended.")
@click.option("--json", "as_json", is_flag=True, help="With --once: the result as one line of JSON.")
def command(
    fleet: str,
    speed: float,
    load: float,
    seed: int,
    trace: Path | None,
    listen: str,
    *,
    browser: bool | None,
    once: bool,
    as_json: bool,
) -> None:
    r"""Watch gangs flow through queues, without a cluster.

    The controller itself works on a Kubernetes API in memory: the tenants of four queues submit Jobs, which wait, are
    placed on racks of nodes, run and end. It serves the dashboard and the JSON API, so that every other verb works in a
    second terminal. Nothing outside this process is touched.

    \b
    queuectl demo
    queuectl demo --once --json
    queuectl demo --trace tiresias_60_job.csv --nodes 2x8 --once
    """
    if as_json and not once:
        raise Usage("--json goes with --once: a demo without an end has no result")
    host, port = address(listen)
    workload = _workload(fleet, load, seed, trace, once=once)
    logging.disable(logging.ERROR)  # the screen is for the picture; `queuectl run` is for logs
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(None if once else speed)) as runner:
        if once:
            result = runner.run(_once(workload))
            render.out(msgspec.json.encode(result).decode() if as_json else _sentences(result))
        else:
            runner.run(_live(workload, host, port, browser=_desktop() if browser is None else browser))


class Workload(msgspec.Struct, frozen=True):
    """What happens: nodes, queues, submissions, and how many of these there are (None: no end)."""

    nodes: list[day.Json]
    queues: list[day.Json]
    submissions: Iterable[day.Submission]
    count: int | None
    window: float | None
    opening: float


def size(text: str) -> tuple[int, int]:
    """``64x8`` (or ``64×8``): 64 nodes of 8 GPUs. Raises Usage."""
    try:
        count, gpus = traces.fleet(text)
    except BadFileError as problem:
        raise Usage(str(problem)) from None
    if count * gpus > MOST_GPUS:
        raise Usage(f"--nodes {text}: at most {MOST_GPUS:,} GPUs in all")
    return count, gpus


def _workload(fleet: str, load: float, seed: int, trace: Path | None, *, once: bool) -> Workload:
    count, gpus = size(fleet)
    nodes = day.nodes(count, gpus)
    if trace is not None:
        arrivals = _trace(trace)
        names = sorted({one.namespace for one in arrivals})
        queues: list[day.Json] = [{"metadata": {"name": name}, "spec": {}} for name in names]
        return Workload(nodes, queues, arrivals, len(arrivals), None, 0.0)
    days = day.submissions(count * gpus, load, seed)
    queues = day.queues(count * gpus)
    if not once:
        return Workload(nodes, queues, days, None, None, MORNING)
    found = list(itertools.takewhile(lambda one: one.at < day.DAY, days))
    return Workload(nodes, queues, found, len(found), day.DAY, 0.0)


def _trace(path: Path) -> list[day.Submission]:
    """The jobs of a trace, n GPUs as n pods of one. Raises Usage."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            found = traces.detect(file.readline())
        if found is None:
            raise Usage(f"--trace {path}: no known format; they are {', '.join(traces.FORMATS)}")
        trace = traces.load(path, found)
    except (OSError, BadFileError) as problem:
        raise Usage(f"--trace {path}: {problem}") from None
    submissions = []
    for arrival in trace.arrivals:
        one = arrival.submission
        pods = one.parts[0].size
        seconds = (one.run or 0) // 1000
        body = day.job(one.name, one.queue, pods, 1, seconds)
        submissions.append(day.Submission(arrival.at / 1000, seconds, pods, one.queue, body))
    return submissions


# ---- once


async def _once(workload: Workload) -> Result:
    """All of it, in virtual time without a pause."""
    started = time.monotonic()
    clock = VirtualClock(START)
    async with embedded(clock=clock) as world:
        play = _play(world, workload)
        async with asyncio.TaskGroup() as group:
            controller = Controller(world.cluster(), clock, CONFIGURATION, "demo")
            running = group.create_task(controller.run(), name="controller")
            submitting = group.create_task(play.run(), name="submissions")
            watching = group.create_task(_progress(play, workload.count or 0), name="progress")
            await submitting
            try:
                async with asyncio.timeout(AFTER):
                    await play.done.wait()
            except TimeoutError:
                pass  # the report says what still waits
            watching.cancel()
            running.cancel()
        report = msgspec.structs.asdict(play.report())
        first = play.tally.first_running
        return Result(
            **report,
            seconds=round(time.monotonic() - started, 1),
            first_running_s=round(first - started, 1) if first is not None else -1.0,
        )


def _play(world: World, workload: Workload) -> Play:
    play = Play(
        world.store,
        workload.nodes,
        workload.queues,
        workload.submissions,
        opening=workload.opening,
        window=workload.window,
    )
    play.prepare()
    return play


async def _progress(play: Play, count: int) -> None:
    """A bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return
    with click.progressbar(length=count, label="gangs ended", file=sys.stderr) as bar:
        shown = 0
        while True:
            await asyncio.sleep(600)
            bar.update(play.ended - shown)
            shown = play.ended


def _sentences(result: Result) -> str:
    broken = f"{result.partial_releases}, double charges {result.double_charges}, broken promises {result.violations}"
    lines = [
        f"{result.finished} of {result.gangs} gangs finished, {result.failed} failed, {result.waiting} still wait",
        f"GPUs in use: {result.gpu_utilisation:.1%}",
        f"wait: half of them at most {result.wait_p50_s:g} s, 95 % at most {result.wait_p95_s:g} s",
        f"partial releases {broken}",
        f"took {result.seconds:g} s; the first gang ran after {result.first_running_s:g} s",
    ]
    return "\n".join(lines)


# ---- live


def _desktop() -> bool:
    """Whether a person sits at a screen that can show a browser; a text browser would take the terminal away."""
    screen = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return screen and sys.stderr.isatty()


async def _live(workload: Workload, host: str, port: int, *, browser: bool) -> None:
    """Until Ctrl-C."""
    clock = VirtualClock(START + round(workload.opening * 1000))
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with embedded(clock=clock) as world:
            play = _play(world, workload)
            controller = Controller(world.cluster(), clock, CONFIGURATION, "demo")
            with ExitStack() as stack:
                try:
                    where = stack.enter_context(served(controller, world.store, host, port, _home(workload)))
                except OSError as problem:
                    raise Problem(
                        f"cannot listen on {host}:{port}: {problem.strerror or problem}", "choose another: --listen"
                    ) from None
                if browser:
                    webbrowser.open(where.url)
                screen = stack.enter_context(Screen(list(_links(where.url, str(where.kubeconfig), host, port))))
                async with asyncio.TaskGroup() as group:
                    group.create_task(controller.run(), name="controller")
                    group.create_task(play.run(), name="submissions")
                    group.create_task(_draw(screen, controller, play, workload), name="picture")
    except asyncio.CancelledError:
        if not stopped:
            raise


def _home(workload: Workload) -> str:
    """The namespace of the first leaf queue: what the second terminal's commands mean without ``-n``."""
    inner = {queue["spec"].get("parent") for queue in workload.queues}
    return next(str(q["metadata"]["name"]) for q in workload.queues if q["metadata"]["name"] not in inner)


def _program() -> str:
    """How this program is called where it was called: by its name where the shell finds it, else by its path."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "queuectl" and shutil.which("queuectl") is None else "queuectl"


async def _draw(screen: Screen, controller: Controller, play: Play, workload: Workload) -> None:
    loop = asyncio.get_running_loop()
    speed = loop.speed if isinstance(loop, VirtualLoop) and loop.speed else SPEED
    while True:
        screen.show(picture(controller, play, speed, workload.count))
        await asyncio.sleep(FRAME * speed)


def _links(url: str, kubeconfig: str, host: str, port: int) -> Iterator[str]:
    server = "" if (host, port) == (HOST, PORT) else f"export QUEUECTL_SERVER={url}; "
    me = _program()
    yield f"dashboard: {url}/"
    yield f"in a second terminal: {server}{me} get gangs -A --phase Pending; {me} explain gang NAME -n NAMESPACE"
    yield f"what changes something: export KUBECONFIG={kubeconfig}; {me} requeue gang NAME -n NAMESPACE"
    yield "Ctrl-C ends it"
