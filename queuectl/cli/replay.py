"""``queuectl replay``: a scenario file or a job trace on the engine, in virtual time, without a cluster."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import click

from queuectl.cli import render
from queuectl.cli.problems import Problem, Usage
from queuectl.cli.text import ago
from queuectl.drivers.replay import reading, report, traces
from queuectl.drivers.replay.play import Outcome, play
from queuectl.drivers.replay.simulator import RestlessError
from queuectl.drivers.replay.snapshot import as_json, duration
from queuectl.drivers.replay.stage import EngineTier

SCENARIO = "scenario"
INTERVAL = 2.0  # seconds of real time between two words of progress


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--format",
    "format_",
    type=click.Choice([SCENARIO, *traces.FORMATS]),
    help="What FILE is.  [default: told by its first line]",
)
@click.option("--nodes", metavar="NxG", help="Of a trace: N nodes with G GPUs each, as in 128x8.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Of a trace: only the first N gangs.")
@click.option("--one-queue", is_flag=True, help="Of a trace: all gangs in one queue, whoever they belong to.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form.  [default: table]")
def command(
    file: Path, format_: str | None, nodes: str | None, limit: int | None, one_queue: bool, output: str
) -> None:
    r"""Play a scenario or a job trace on the engine, in virtual time.

    \b
    queuectl replay rack-needs-eight-has-four.yaml
    queuectl replay trace_job.csv --nodes 128x8

    A job of n GPUs in a trace is a gang of n pods with one GPU each. A scenario ends with exit code 1 when something is
    not as it expects, with one line each on standard error.
    """
    chosen = _format(file, format_)
    try:
        if chosen is None:
            if nodes or limit or one_queue:
                raise Usage("--nodes, --limit and --one-queue are for traces; a scenario says it all itself")
            _scenario(file, output)
        else:
            if nodes is None:
                raise Usage("a trace needs --nodes, as in --nodes 128x8")
            _trace(traces.load(file, chosen, limit=limit, one_queue=one_queue), nodes, output)
    except reading.BadFileError as problem:
        first, _, rest = str(problem).partition("\n")
        raise Usage(first, rest) from None
    except RestlessError as problem:
        raise Problem(str(problem), "this is a bug of queuectl: please report it together with the file") from None


def _format(file: Path, named: str | None) -> traces.Format | None:
    if named is not None:
        return traces.FORMATS.get(named)
    with file.open(encoding="utf-8", errors="replace") as opened:
        found = traces.detect(opened.readline(10_000).rstrip("\n"))
    if found is None and file.suffix.lower() == ".csv":
        known = ", ".join(traces.FORMATS)
        raise Usage(f"{file}: its first line is of no trace that is known: {known} (docs/replay.md)")
    return found


# ---- scenarios


def _scenario(file: Path, output: str) -> None:
    tier = EngineTier()
    outcome = asyncio.run(play(reading.load(file), tier))
    plans = tier.simulator.plans.hexdigest
    if output == "json":
        render.out(render.as_json(scenario_json(outcome, plans)))
    else:
        render.out(_moments(outcome, plans))
    for line in outcome.failed:
        render.say(line)
    if outcome.failed:
        raise click.exceptions.Exit(1)


def scenario_json(outcome: Outcome, plans: str) -> dict[str, Any]:
    """What ``-o json`` prints: a moment for each ``at`` of expect, and the end."""
    return {"moments": [as_json(one) for one in outcome.moments], "planHash": plans, "failed": outcome.failed}


def _moments(outcome: Outcome, plans: str) -> list[str]:
    lines: list[str] = []
    for number, one in enumerate(outcome.moments):
        last = " (the end)" if number == len(outcome.moments) - 1 else ""
        lines += [f"{duration(one.at)}{last}"]
        rows: list[list[object]] = []
        for state in ("running", "admitted", "leaving", "finished"):
            for gang in getattr(one, state):
                nodes = ",".join(f"{node}:{pods}" for node, pods in one.nodes_of.get(gang, {}).items())
                rows.append([gang, state.capitalize(), nodes, ",".join(one.notes.get(gang, ()))])
        rows += [[gang, "Waiting", "", ",".join(reasons)] for gang, reasons in one.waiting.items()]
        lines += render.indented(render.Table(["gang", "state", "nodes", "reasons"]).lines(rows)) or ["  no gangs"]
    for gang, _, rule in outcome.moments[-1].given_back:
        lines.append(f"given back: {gang} ({rule})")
    return [*lines, f"plan hash: {plans}"]


# ---- traces


class _Progress:
    """Words on stderr now and then; nothing for what is over at once."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, ended: int, total: int, at: int) -> None:
        """So far."""
        if (now := time.monotonic()) - self._last >= INTERVAL:
            self._last = now
            line = f"{ended} of {total} gangs ended, virtual time {ago(at)}"
            click.echo(f"\r{line:<70}" if sys.stderr.isatty() else line, err=True, nl=not sys.stderr.isatty())

    def end(self) -> None:
        """Take the line away again."""
        if sys.stderr.isatty():
            click.echo(f"\r{'':<70}\r", err=True, nl=False)


def _trace(trace: traces.Trace, nodes: str, output: str) -> None:
    progress = _Progress()
    found = report.replay(trace, traces.nodes(nodes), progress=progress)
    progress.end()
    body = found.as_json()
    if output == "json":
        render.out(render.as_json(body))
        return
    wait = body["waitSeconds"]
    render.out(
        render.block(
            [
                ("Format", found.format),
                ("Gangs", found.gangs),
                ("Finished", found.finished),
                ("Still waiting", found.waiting),
                ("Dropped (no GPU)", found.dropped),
                ("GPUs", found.gpus),
                ("Makespan", f"{body['makespanSeconds']:.0f} s ({ago(found.makespan)})"),
                ("Wait", ", ".join(f"{name} {wait[name]:.0f} s" for name in ("avg", "p50", "p95", "p99"))),
                ("Completion time", f"avg {body['jctSeconds']['avg']:.0f} s"),
                ("Utilisation", f"{found.utilisation:.2%}"),
                ("Plan hash", found.plan_hash),
            ]
        )
    )
