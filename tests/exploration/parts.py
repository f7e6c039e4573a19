"""The parts of a state, each kept once: clusters, processes, writes, answers and events, by number.

A step of the whole is a step of one part, and a part does not see the others. So each part's step is run once, by the
real code, and remembered: the whole has a hundred times more steps than its parts have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import json

from queuectl.contract.foreign import BUDGETS, PODS, Kind
from queuectl.control import ports
from queuectl.control.loop import RELEASED_BY
from queuectl.control.ports import ClusterError, NotFound
from queuectl.control.release import Release
from queuectl.control.source import KINDS, Source
from queuectl.control.steps import Step, Write
from queuectl.drivers.embedded.admission import USER
from queuectl.drivers.embedded.cluster import EmbeddedCluster
from tests.exploration import promises, surroundings
from tests.exploration.process import Process, freeze, run, thaw
from tests.exploration.server import Server, Snapshot
from tests.exploration.surroundings import GPU, Action

T = TypeVar("T")
NUMBER = {kind.plural: number for number, kind in enumerate(KINDS)}
UNKNOWN = ports.Unreachable("connection reset")
REFUSED = ports.Refused('admission webhook "policy.example.com" denied the request: not today', 403)


class Table(Generic[T]):
    """Things by number; equal keys are one thing."""

    def __init__(self) -> None:
        self.things: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def put(self, key: Hashable, thing: T) -> int:
        """The number of the thing of this key, which is kept if it is new."""
        number = self._numbers.setdefault(key, len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number

    def find(self, key: Hashable) -> int | None:
        """The number of what has this key, None when nothing has."""
        return self._numbers.get(key)

    def __getitem__(self, number: int) -> T:
        return self.things[number]

    def __len__(self) -> int:
        return len(self.things)


class Mind(NamedTuple):
    """A frozen process, and what of it decides which steps come next."""

    frozen: bytes
    fence: int
    woken: bool
    fenced: bool
    wake_at: int | None


class Seen(NamedTuple):
    """An event of a watch."""

    kind: Kind
    verb: str
    body: bytes


class Outcome(NamedTuple):
    """What a step of the cluster led to: events in order, the answer (-1: nobody asked), and broken promises."""

    cluster: int
    events: tuple[tuple[int, int], ...]
    answer: int
    faults: tuple[str, ...]


class Moved(NamedTuple):
    """What an input led a process to: its next state, and the writes that went out."""

    mind: int
    sent: tuple[int, ...]


class Parts:
    """All parts of one exploration. ``make`` is the release machine, or a mutant of it."""

    def __init__(self, make: Callable[[Source], Release], most: int) -> None:
        self.clusters: Table[Snapshot] = Table()
        self.minds: Table[Mind] = Table()
        self.writes: Table[Write] = Table()
        self._answers: Table[tuple[Kind | None, bytes | ClusterError]] = Table()
        self.events: Table[Seen] = Table()
        self._server = Server()
        self._make, self._most = make, most
        self._outcomes: dict[tuple[int, Action | int], Outcome] = {}
        self._moved: dict[tuple[int, tuple[Any, ...]], Moved] = {}
        self._warm: dict[int, Process] = {}  # the last one, which often takes the next input too: no need to thaw it
        self._at_rest: dict[tuple[int, int], tuple[str, ...]] = {}
        self.unknown, self.refused = self.answer(None, UNKNOWN), self.answer(None, REFUSED)

    def answer(self, kind: Kind | None, said: dict[str, Any] | ClusterError) -> int:
        """The number of an answer."""
        if isinstance(said, ClusterError):
            return self._answers.put((type(said).__name__, said.message, said.status), (None, said))
        body = json.encode(said, order="deterministic")
        return self._answers.put((kind.plural if kind else "", body), (kind, body))

    def said(self, answer: int) -> object:
        """An answer as the port gives it, decoded anew so that nothing is shared."""
        kind, said = self._answers[answer]
        if isinstance(said, ClusterError) or kind is None:
            return said
        if kind is BUDGETS:
            lists = json.decode(said)
            return {
                one.plural: [json.decode(json.encode(body), type=one.type) for body in lists[one.plural]]
                for one in (BUDGETS, PODS)
            }
        return json.decode(said, type=kind.type)

    def failed(self, answer: int) -> bool:
        """Whether it is an error."""
        return self._answers[answer][0] is None

    def read_back(self, write: int, answer: int) -> bool:
        """Whether the object of a write is read once it is answered: that of one that failed, and a pod that was evicted."""
        return self.failed(answer) or self.writes[write].step is Step.EVICT

    # ---- the cluster

    def start(self, objects: list[tuple[Kind, str, dict[str, Any]]]) -> int:
        """A cluster with these objects (kind, namespace, body)."""
        server = self._server
        for kind, namespace, body in objects:
            server.create(kind, namespace, body, "user")
        return self._keep(server.save())

    def _keep(self, snapshot: Snapshot) -> int:
        return self.clusters.put(snapshot.digest(), snapshot)

    def happens(self, cluster: int, action: Action | int) -> Outcome:
        """What follows from a step of the surroundings, or from a write of ours (by number)."""
        found = self._outcomes.get((cluster, action))
        if found is None:
            found = self._outcomes[cluster, action] = self._happen(cluster, action)
        return found

    def _happen(self, cluster: int, action: Action | int) -> Outcome:
        server, before = self._server, self.clusters[cluster]
        server.load(before)
        answer = -1
        if isinstance(action, int):
            answer = self._write(self.writes[action])
        else:
            surroundings.act(server, action)
        events = []
        for stored in server.committed:
            promises.remember(server.notes, stored)
            if (number := NUMBER.get(stored.kind.plural)) is not None:
                body = json.encode(stored.object, order="deterministic")
                event = self.events.put((number, stored.verb, body), Seen(stored.kind, stored.verb, body))
                events.append((number, event))
        after = server.save()
        faults = tuple(fault for stored in server.committed for fault in promises.judge(before, after, stored))
        return Outcome(self._keep(after), tuple(events), answer, faults)

    def _write(self, write: Write) -> int:
        try:
            if write.step is Step.CREATE:
                done = self._server.create(write.kind, write.namespace, write.body, USER)
            elif write.step is Step.BUDGETS:
                done = {kind.plural: self._server.list(kind, write.namespace) for kind in (BUDGETS, PODS)}
            elif write.step is Step.EVICT:
                done = self._server.get(write.kind, write.namespace, write.name)
                run(
                    EmbeddedCluster(self._server, USER).evict(
                        write.namespace, write.name, write.body["metadata"]["uid"]
                    )
                )
            else:
                done = self._server.patch(
                    write.kind,
                    write.namespace,
                    write.name,
                    write.body,
                    USER,
                    subresource=write.subresource,
                    dry_run=write.dry_run,
                )
        except ClusterError as refusal:
            return self.answer(None, refusal)
        return self.answer(write.kind, done)

    def named(self, write: int) -> str:
        """A write as people call it. No two that are on their way from one process have the same name."""
        return f"{self.writes[write].step.name} {self.writes[write].name}"

    def current(self, cluster: int, write: int) -> int:
        """The answer to reading back the object of a write."""
        wanted = self.writes[write]
        found = self.clusters[cluster].get(wanted.kind.plural, wanted.name, wanted.namespace)
        return self.answer(None, NotFound("not found", 404)) if found is None else self.answer(wanted.kind, found)

    # ---- processes

    def begins(self, cluster: int, fence: int) -> Moved:
        """A process that was just started and has read everything; with a fence, it leads."""
        key = (-1, (cluster, fence))
        if key not in self._moved:
            process = Process(self._make, self._most)
            for kind in KINDS:
                process.reads(kind, self._listed(cluster, kind))
            if fence:
                process.leads(fence)
            self._moved[key] = self._settle(process)
        return self._moved[key]

    def _listed(self, cluster: int, kind: Kind) -> list[Any]:
        """All objects of a kind, decoded anew."""
        return [json.decode(json.encode(body), type=kind.type) for body in self.clusters[cluster].all(kind.plural)]

    def takes(self, mind: int, verb: str, *what: int) -> Moved:
        """What a process does with an input (see ``give``)."""
        key = (mind, (verb, *what))
        found = self._moved.get(key)
        if found is None:
            process = self._warm.pop(mind, None) or thaw(self.minds[mind].frozen)
            self.give(process, verb, *what)
            found = self._moved[key] = self._settle(process)
            self._warm = {found.mind: process}
        return found

    def give(self, process: Process, verb: str, *what: int) -> None:
        """An input: ``see`` an event; the ``answer`` to a write, with what was read back; ``decide`` now; ``lead`` a cluster.

        A new leader reads anew what releases rest on; everything else it has seen.
        """
        match verb:
            case "see":
                seen = self.events[what[0]]
                process.sees(seen.kind, seen.verb, json.decode(seen.body, type=seen.kind.type))
            case "answer":
                process.actuator.answered(self.writes[what[0]], self.said(what[1]), self.said(what[2]))
            case "decide":
                process.decides(what[0])
            case _:
                for kind in RELEASED_BY:
                    process.reads(kind, self._listed(what[1], kind))
                process.leads(what[0])

    def _settle(self, process: Process) -> Moved:
        sent = []
        for write in process.actuator.sent:
            body = json.encode(write.body, order="deterministic")
            sent.append(self.writes.put((write.step, write.target, write.gang, write.member, write.round, body), write))
        process.actuator.sent.clear()
        key = process.digest()
        number = self.minds.find(key)
        if number is None:
            fenced = process.actuator.fenced is not None
            mind = Mind(freeze(process), process.leadership.fence, process.woken, fenced, process.wake_at)
            number = self.minds.put(key, mind)
        return Moved(number, tuple(sent))

    def at_rest(self, cluster: int, mind: int) -> tuple[str, ...]:
        """What is wrong where nothing is on its way: torn gangs, and a leader whose books differ from the objects."""
        key = cluster, mind
        if key not in self._at_rest:
            state = self.clusters[cluster]
            faults = [*promises.torn(state), *promises.unmarked(state)]
            engine = thaw(self.minds[mind].frozen).engine
            engine._state.check()
            booked = {name: used[GPU] // 1000 for name, used in engine._state.fleet.used.items() if GPU in used}
            held = dict(+promises.charged(state)[0])
            if booked != held and not promises.sizeless(state):
                faults.append(f"P2: the leader charges {booked}, and the objects hold {held}")
            self._at_rest[key] = tuple(faults)
        return self._at_rest[key]
