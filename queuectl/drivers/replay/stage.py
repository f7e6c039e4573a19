"""A scenario on the engine alone, in virtual time: the first of the tiers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pydantic import ValidationError

from queuectl.contract.schema import describe
from queuectl.drivers.replay import compile as compiled
from queuectl.drivers.replay import format as wire
from queuectl.drivers.replay.agenda import Turn
from queuectl.drivers.replay.life import Delays, Life
from queuectl.drivers.replay.play import Named
from queuectl.drivers.replay.reading import Scenario
from queuectl.drivers.replay.simulator import Arrange, Simulator
from queuectl.drivers.replay.snapshot import Snapshot, duration, look
from queuectl.drivers.replay.submission import HELD
from queuectl.model.changes import LevelsSeen, PoolGone, PoolSeen, QueueGone, QueueSeen
from queuectl.model.quantity import QuantityError
from queuectl.model.reasons import Reason

# Fields of a gang that its owner may still edit; all else is part of the pods, which are what they are.
EDITABLE = ("queue", "size", "min", "topology", "gates", "bestEffort")


class EngineTier:
    """Plays on a ``Simulator``. ``plans`` of the simulator has the hash of everything decided."""

    def __init__(self, *, arrange: Arrange | None = None) -> None:
        self.simulator = Simulator()
        self._arrange = arrange
        self._refused: list[str] = []

    @property
    def refused(self) -> list[str]:
        """Steps that could not be done."""
        return self._refused

    async def begin(self, scenario: Scenario, absent: frozenset[Named]) -> None:
        """Enter everything; nothing happens yet."""
        file = scenario.file
        delays = Delays(**file.delays.model_dump())
        self.simulator = Simulator(compiled.settings(file.settings), delays, arrange=self._arrange)
        self._scenario = scenario
        self._specs = dict(_written(scenario))
        self._edits: dict[Named, dict[str, Any]] = {}  # fields that steps have changed
        agenda = self.simulator.agenda
        self.simulator.tell(LevelsSeen(compiled.levels(file.topology)))
        for topology in file.topologies:
            self.simulator.tell(LevelsSeen(compiled.levels(topology), topology.name))
        for named in self._specs:
            if named not in absent:
                at = self._specs[named][0].created if named[0] in ("gang", "pod") else 0
                turn = Turn.ARRIVAL if named[0] == "gang" else Turn.NODE
                agenda.at(at, turn, partial(self._create, named))

    async def until(self, at: int) -> None:
        """All that happens before."""
        self.simulator.run(at - 1)

    async def do(self, step: wire.Step, what: Named) -> None:
        """Enter the step at its time, behind what ends then by itself."""
        turn = Turn.ARRIVAL
        if what[0] == "node":
            turn = Turn.NODE
        elif step.do in ("finish", "fail"):
            turn = Turn.COMPLETION
        self.simulator.agenda.at(step.at, turn, partial(self._do, step, what))

    async def look(self, at: int, expected: wire.Expectation | None) -> Snapshot:
        """What the engine says."""
        self.simulator.run(at if expected is not None else None)
        given: list[tuple[str, str | None, str]] = [
            (one.gang, None, one.cause.value) for one in self.simulator.release.given_back
        ]
        return look(self.simulator.engine, self.simulator.now, given)

    # ---- steps

    def _do(self, step: wire.Step, what: Named) -> None:
        if why := self._done(step, what):
            self._refused.append(f"at {duration(step.at)}: {step.do} {what[1]}: {why}")

    def _done(self, step: wire.Step, what: Named) -> str:
        """Why the step cannot be done; "" when it was."""
        kind, name = what
        if step.do == "restart":
            self.simulator.restart()
            return ""
        if step.do == "create":
            return self._create(what)
        match kind:
            case "node":
                return self._node(step, name)
            case "queue":
                return self._queue(step, name)
            case "pool":
                return self._pool(step, name)
            case "pod":
                if not self.simulator.cluster.occupied(name):
                    return "it is not there"
                self.simulator.cluster.vacate(name)
                return ""
            case _:
                life = self._life(name)
                return self._gang(step, life) if life is not None else "it is not there"

    def _life(self, name: str) -> Life | None:
        cluster = self.simulator.cluster
        return cluster.gangs.get(cluster.names.get(name, ""))

    def _create(self, what: Named) -> str:
        kind, name = what
        cluster, scenario, spec = self.simulator.cluster, self._scenario, self._specs[what][0]
        self._edits.pop(what, None)
        match kind:
            case "node":
                if name in cluster.nodes:
                    return "it exists already"
                cluster.see_node(compiled.node(spec, name, scenario.asked))
            case "queue":
                self.simulator.tell(QueueSeen(compiled.queue(spec)))
            case "pool":
                self.simulator.tell(PoolSeen(compiled.pool(spec)))
            case "pod":
                if cluster.occupied(name):
                    return "it exists already"
                cluster.occupy(name, spec.node, scenario.unmanaged[name])
                if spec.run is not None:
                    self.simulator.agenda.after(spec.run, partial(self._pod_ends, name), Turn.COMPLETION)
            case _:
                if self._life(name) is not None:
                    return "it exists already"
                submission = compiled.submission(spec, scenario.shapes)
                if spec.state == "Running":
                    nodes = spec.nodes if len(spec.nodes) == submission.size else spec.nodes * submission.size
                    cluster.found_running(submission, nodes, recorded=spec.record)
                else:
                    cluster.create(submission)
        return ""

    def _pod_ends(self, name: str) -> None:
        if self.simulator.cluster.occupied(name):
            self.simulator.cluster.vacate(name)

    def _node(self, step: wire.Step, name: str) -> str:
        cluster = self.simulator.cluster
        if name not in cluster.nodes:
            return "it does not exist"
        changed = {
            "cordon": {"cordoned": True}, "uncordon": {"cordoned": False}, "lose": {"ready": False}, "return": {"ready": True},
        }  # fmt: skip
        if step.do == "delete":
            cluster.remove_node(name)
            return ""
        fields = changed.get(step.do, step.with_)
        if "name" in fields or "count" in fields:
            return "name and count cannot change"
        why = self._edited(("node", name), fields)
        if step.do == "lose":
            cluster.silent(name)
        return why

    def _queue(self, step: wire.Step, name: str) -> str:
        if step.do == "delete":
            self.simulator.tell(QueueGone(name))
            return ""
        return "its name cannot change" if "name" in step.with_ else self._edited(("queue", name), step.with_)

    def _pool(self, step: wire.Step, name: str) -> str:
        if step.do == "delete":
            self.simulator.tell(PoolGone(name))
            return ""
        return "its name cannot change" if "name" in step.with_ else self._edited(("pool", name), step.with_)

    def _gang(self, step: wire.Step, life: Life) -> str:
        cluster, name = self.simulator.cluster, life.gang.name
        match step.do:
            case "finish" | "fail":
                failed = step.do == "fail"
                if step.with_:
                    return cluster.end_pod(life, (step.with_.get("role", ""), step.with_["member"]), failed=failed)
                if life.gang.finished or life.started_at is None:
                    return "it does not run"
                cluster.finish(life, failed=failed)
            case "delete":
                cluster.delete(life)
            case "requeue":
                cluster.change(life, requested=f"at {self.simulator.now} ms")
            case "hold" | "resume":
                rest = tuple(one for one in life.gang.blocked if one.reason is not Reason.HELD)
                life.generation += 1
                cluster.change(life, blocked=(*rest, HELD) if step.do == "hold" else rest)
            case _:
                if wrong := [field for field in step.with_ if field not in EDITABLE]:
                    return f"{wrong[0]} cannot be edited; what can is {', '.join(EDITABLE)}"
                if "queue" in step.with_ and life.gang.record is not None:
                    return "queue cannot change while the gang is placed"
                return self._edited(("gang", name), step.with_)
        return ""

    def _edited(self, what: Named, fields: dict[str, Any]) -> str:
        """Merge fields into a spec, check it as in the file, and let it be seen."""
        kind, name = what
        spec, written = self._specs[what]
        edits = {**self._edits.get(what, {}), **fields}
        try:
            spec = type(spec).model_validate({**written, **edits})
            if kind == "node":
                self.simulator.cluster.see_node(compiled.node(spec, name, self._scenario.asked))
            elif kind == "queue":
                self.simulator.tell(QueueSeen(compiled.queue(spec)))
            elif kind == "pool":
                self.simulator.tell(PoolSeen(compiled.pool(spec)))
            elif (life := self._life(name)) is not None:
                self.simulator.cluster.edit(life, compiled.submission(spec, self._scenario.shapes))
        except ValidationError as error:
            return "; ".join(describe(one) for one in error.errors())
        except (compiled.BadSpecError, QuantityError) as problem:
            return str(problem)
        self._edits[what] = edits
        return ""


def _written(scenario: Scenario) -> Iterator[tuple[Named, tuple[Any, dict[str, Any]]]]:
    """Everything in the file that has a name: its model, and the fields as they were written."""
    file, raw = scenario.file, scenario.raw
    for kind, field in (("queue", "queues"), ("pool", "pools"), ("pod", "unmanaged"), ("gang", "gangs")):
        for spec, written in zip(getattr(file, field), raw.get(field, ()), strict=True):
            yield (kind, spec.name), (spec, written)
    for spec, written in zip(file.nodes, raw.get("nodes", ()), strict=True):
        for name in compiled.node_names(spec):
            yield ("node", name), (spec, written)
