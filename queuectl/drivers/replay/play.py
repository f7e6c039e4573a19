"""How a scenario is played, whatever plays it: the engine alone, the cluster in memory, or a real control plane.

A ``Tier`` makes the scenario's things, lets time pass, does its steps and tells how things stand. ``play`` is the same for
all, so the same file means the same everywhere.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from queuectl.drivers.replay import format as wire
from queuectl.drivers.replay.reading import Scenario
from queuectl.drivers.replay.snapshot import Snapshot, differences, duration

Named = tuple[str, str]
"""A kind (gang, node, queue, pod) and a name."""


class Tier(Protocol):
    """Something that a scenario can be played on."""

    async def begin(self, scenario: Scenario, absent: frozenset[Named]) -> None:
        """Make topology, nodes, queues and unmanaged pods, and the gangs when they are due; not what is ``absent``."""
        ...

    async def until(self, at: int) -> None:
        """Let time pass up to just before ``at`` (ms)."""
        ...

    async def do(self, step: wire.Step, what: Named) -> None:
        """A step happens, at its time. What cannot be done is noted in ``refused``. ``what`` is ("", "") for restart."""
        ...

    async def look(self, at: int, expected: wire.Expectation | None) -> Snapshot:
        """How things stand after everything that happens at ``at``.

        Without ``expected``: once nothing more happens by itself. Where things take their time, a tier may wait until what
        is expected holds.
        """
        ...

    @property
    def refused(self) -> list[str]:
        """Steps that could not be done, one line each: ``at 10s: finish g: it does not run``."""
        ...


class Outcome(Struct):
    """What came of it: the moments looked at and the end, and one line for everything that is not as expected."""

    moments: list[Snapshot] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def absent(scenario: Scenario) -> frozenset[Named]:
    """What is not there at the beginning, because the first thing that happens to it is to be created."""
    first: dict[Named, str] = {}
    for step in sorted(scenario.file.steps, key=lambda step: step.at):
        if step.target:
            first.setdefault(scenario.kind_of(step.target), step.do)
    return frozenset(named for named, verb in first.items() if verb == "create")


async def play(scenario: Scenario, tier: Tier) -> Outcome:
    """Play a scenario from beginning to end and compare."""
    outcome = Outcome()
    await tier.begin(scenario, absent(scenario))
    file = scenario.file
    last = 0
    for at in sorted({step.at for step in file.steps} | {one.at for one in file.expect}):
        await tier.until(at)
        for step in file.steps:
            if step.at == at:
                await tier.do(step, scenario.kind_of(step.target) if step.target else ("", ""))
        for number, expected in enumerate(file.expect):
            if expected.at == at:
                found = await tier.look(at, expected)
                outcome.moments.append(found)
                where = f"expect[{number}] at {duration(at)}"
                outcome.failed += [f"{where}: {line}" for line in differences(expected, found)]
        last = at
    outcome.moments.append(await tier.look(last, None))
    outcome.failed += [f"steps {line}" for line in tier.refused]
    return outcome
