"""States, and the moves that lead from one to the next.

In the *prompt* run everything happens as soon as it can, in one fixed order, nothing fails, and it ends when nothing is
left to do. A *departure* from it is to hold something up (an answer, a request, a watch, a decision, a whole process, a
step of the cluster) for as long as one likes, or a disturbance: a crash, a second leader, a lost answer, a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from queuectl.control.release import Release
from queuectl.control.source import KINDS, Source
from queuectl.control.steps import Step
from tests.exploration import surroundings
from tests.exploration.configurations import Configuration, disturbances
from tests.exploration.parts import Parts
from tests.exploration.surroundings import Action

Item = TypeVar("Item")
Actor = tuple[str, ...]
Move = tuple[str | int, ...]
"""What happens: a word, then numbers or names."""

_OF_PROCESS = ("answer", "watch", "decision")  # what stands still when a process does
_QUIET: tuple[tuple[int, ...], ...] = ((),) * len(KINDS)


class Proc(NamedTuple):
    """A process: its mind, the events that its watches have not delivered, and its writes on their way (answer or -1)."""

    mind: int
    streams: tuple[tuple[int, ...], ...]
    flights: tuple[tuple[int, int], ...]


class State(NamedTuple):
    """Everything. ``standby`` is the mind of a process that mirrors and does not lead, -1 when there is none.

    ``lost`` are requests whose answer nobody awaits; ``left`` how often each disturbance may still come.
    """

    cluster: int
    procs: tuple[Proc, ...]
    standby: int
    lost: tuple[int, ...]
    held: frozenset[Actor]
    left: tuple[int, ...]


class Explorer:
    """The moves of one configuration. ``make`` is the release machine, or a mutant of it."""

    def __init__(self, configuration: Configuration, make: Callable[[Source], Release] = Release) -> None:
        self.configuration = configuration
        self.parts = Parts(make, configuration.most)
        self._names = tuple(configuration.disturbances)
        self._due: dict[int, tuple[Action, ...]] = {}
        self._fences: dict[int, int] = {}

    # ---- states

    def first(self) -> State:
        """One process leads, and has seen everything."""
        cluster = self.parts.start(self.configuration.objects)
        begun = self.parts.begins(cluster, 1)
        proc = Proc(begun.mind, _QUIET, ())
        standby = self.parts.begins(cluster, 0).mind if self.configuration.standby else -1
        return State(cluster, (proc,), standby, (), frozenset(), tuple(self.configuration.disturbances.values()))

    def leader(self, state: State) -> Proc | None:
        """The process that holds the Lease."""
        fence = self.fence(state)
        return next((proc for proc in state.procs if self.parts.minds[proc.mind].fence == fence), None)

    def fence(self, state: State) -> int:
        """The newest fence."""
        found = self._fences.get(state.cluster)
        if found is None:
            lease = next(iter(self.parts.clusters[state.cluster].all("leases")))
            found = self._fences[state.cluster] = int(lease["spec"]["leaseTransitions"])
        return found

    def due(self, cluster: int) -> tuple[Action, ...]:
        """What the cluster's own parts would do now."""
        found = self._due.get(cluster)
        if found is None:
            found = self._due[cluster] = tuple(surroundings.due(self.parts.clusters[cluster]))
        return found

    # ---- moves

    def prompt(self, state: State) -> Iterator[tuple[Actor, Move]]:
        """What is to happen now, most urgent first, each with whom to hold up to keep it from happening."""
        parts, minds, now = self.parts, self.parts.minds, self.parts.clusters[state.cluster].now
        for number, proc in enumerate(state.procs):
            who = str(minds[proc.mind].fence)
            for index, (write, answer) in enumerate(proc.flights):
                if answer >= 0:
                    yield ("answer", who, parts.named(write)), ("answer", number, index)
        for number, proc in enumerate(state.procs):
            who = str(minds[proc.mind].fence)
            for index, (write, answer) in enumerate(proc.flights):
                if answer < 0:
                    yield ("request", who, parts.named(write)), ("commit", number, index)
        for number, proc in enumerate(state.procs):
            who = str(minds[proc.mind].fence)
            for kind, stream in enumerate(proc.streams):
                if stream:
                    yield ("watch", who, KINDS[kind].plural), ("see", number, kind)
        for number, proc in enumerate(state.procs):
            mind = minds[proc.mind]
            if mind.woken or (mind.wake_at is not None and mind.wake_at <= now):
                yield ("decision", str(mind.fence)), ("decide", number)
        for action in self.due(state.cluster):
            yield ("cluster", *action), ("act", *action)

    def choices(self, state: State) -> list[tuple[Move, int]]:
        """All moves, each with the departures that it costs; the prompt one first, if there is one: with none the run is over."""
        free = next(((actor, move) for actor, move in self.prompt(state) if not self._held(state, actor)), None)
        found: list[tuple[Move, int]] = []
        if free is not None:
            actor, move = free
            found.append((move, 0))
            if actor[0] in self.configuration.holds:
                found.append((("hold", *actor), 1))
            if "process" in self.configuration.holds and actor[0] in _OF_PROCESS:
                found.append((("hold", "process", actor[1]), 1))
        elif state.held:
            found.append((("wake",), 0))
        elif (leisure := self._at_leisure(state)) is not None:
            found.append((leisure, 0))
        found += [(("wake", *held), 0) for held in sorted(state.held)]
        found += [(("late", index), 0) for index in range(len(state.lost))]
        found += [(move, 1) for move in self._disturbances(state)]
        return found

    @staticmethod
    def rests(move: Move | None) -> bool:
        """Whether a state with this prompt move is one at rest: nothing is on its way, and no deadline is running."""
        return move is None or move[:2] in (("act", "finish"), ("act", "scale"))

    def _held(self, state: State, actor: Actor) -> bool:
        mine = actor[0] in _OF_PROCESS and ("process", actor[1]) in state.held
        return mine or actor in state.held

    def _at_leisure(self, state: State) -> Move | None:
        """When nothing is on its way: a new leader, time, and then the end of what runs, one by one."""
        leader = self.leader(state)
        if leader is None:
            return ("start",)
        slowly = next(surroundings.slowly(self.parts.clusters[state.cluster]), None)
        if slowly == ("collect",):
            return "act", "collect"
        if (due := self.parts.minds[leader.mind].wake_at) is not None:
            return "act", "tick", str(due)
        return ("act", *slowly) if slowly is not None else None

    def _disturbances(self, state: State) -> Iterator[Move]:
        left = {name for name, count in zip(self._names, state.left, strict=True) if count}
        leader = self.leader(state)
        for number, proc in enumerate(state.procs):
            if "crash" in left:
                yield "crash", number
            for index, (write, answer) in enumerate(proc.flights):
                if "timeout" in left:
                    yield "timeout", number, index
                if "refuse" in left and answer < 0 and self._of_gang(write):
                    yield "refuse", number, index
        if leader is not None:
            if "takeover" in left:
                yield ("takeover",)
            due = self.parts.minds[leader.mind].wake_at
            if "tick" in left and due is not None and due > self.parts.clusters[state.cluster].now:
                yield "disturb", "tick", str(due)
        for action in disturbances(self.configuration, self.parts.clusters[state.cluster], left):
            yield "disturb", *action

    def _of_gang(self, number: int) -> bool:
        """Whether a write releases a member of a gang. (Whatever else is refused for good waits until its user changes it.)"""
        write = self.parts.writes[number]
        return write.step is Step.RELEASE and write.gang != write.member

    # ---- steps

    def after(self, state: State, move: Move) -> tuple[State, tuple[str, ...]]:
        """The state that a move leads to, and the promises that it breaks."""
        verb, *what = move
        match verb, what:
            case "hold", actor:
                return state._replace(held=state.held | {tuple(map(str, actor))}), ()
            case "wake", actor:
                held = state.held - {tuple(map(str, actor))} if actor else frozenset[Actor]()
                return state._replace(held=held), ()
            case "answer", [int(number), int(index)]:
                return self._answered(state, number, index), ()
            case "commit", [int(number), int(index)]:
                proc = state.procs[number]
                write = proc.flights[index][0]
                done = self.parts.happens(state.cluster, write)
                flights = _with(proc.flights, index, (write, done.answer))
                state = self._replaced(state, number, proc._replace(flights=flights))
                return self._shown(state, done.cluster, done.events), done.faults
            case "see", [int(number), int(kind)]:
                proc = state.procs[number]
                first, *rest = proc.streams[kind]
                streams = (*proc.streams[:kind], tuple(rest), *proc.streams[kind + 1 :])
                return self._takes(state, number, proc._replace(streams=streams), "see", first), ()
            case "decide", [int(number)]:
                now = self.parts.clusters[state.cluster].now
                return self._takes(state, number, state.procs[number], "decide", now), ()
            case "late", [int(index)]:
                done = self.parts.happens(state.cluster, state.lost[index])
                state = state._replace(lost=(*state.lost[:index], *state.lost[index + 1 :]))
                return self._shown(state, done.cluster, done.events), done.faults
            case "act", action:
                return self._happens(state, tuple(map(str, action))), ()
            case "disturb", action:
                name = str(action[0])
                return self._happens(self._spent(state, name), tuple(map(str, action))), ()
            case "start", []:
                return self._begun(state), ()
            case "takeover", []:
                return self._begun(self._spent(state, "takeover")), ()
            case "crash", [int(number)]:
                return self._gone(self._spent(state, "crash"), number), ()
            case "timeout", [int(number), int(index)]:
                return self._timed_out(self._spent(state, "timeout"), number, index), ()
            case "refuse", [int(number), int(index)]:
                proc = state.procs[number]
                flights = _with(proc.flights, index, (proc.flights[index][0], self.parts.refused))
                return self._replaced(self._spent(state, "refuse"), number, proc._replace(flights=flights)), ()
        raise AssertionError(f"no such move: {move}")

    def _spent(self, state: State, name: str) -> State:
        where = self._names.index(name)
        return state._replace(left=_with(state.left, where, state.left[where] - 1))

    def _replaced(self, state: State, number: int, proc: Proc) -> State:
        return state._replace(procs=_with(state.procs, number, proc))

    def _happens(self, state: State, action: Action) -> State:
        done = self.parts.happens(state.cluster, action)
        return self._shown(state, done.cluster, done.events)

    def _shown(self, state: State, cluster: int, events: tuple[tuple[int, int], ...]) -> State:
        """The cluster is another; all watches will tell, those of a stand-by at once."""
        if not events:
            return state._replace(cluster=cluster)
        procs = []
        for proc in state.procs:
            streams = list(proc.streams)
            for kind, event in events:
                streams[kind] = (*streams[kind], event)
            procs.append(proc._replace(streams=tuple(streams)))
        standby = state.standby
        for _, event in events if standby >= 0 else ():
            standby = self.parts.takes(standby, "see", event).mind
        return self._tidy(state._replace(cluster=cluster, procs=tuple(procs), standby=standby))

    def _takes(self, state: State, number: int, proc: Proc, verb: str, *what: int) -> State:
        """A process takes an input; one that learns that another leads is gone."""
        moved = self.parts.takes(proc.mind, verb, *what)
        flights = self._sorted((*proc.flights, *((write, -1) for write in moved.sent)))
        state = self._replaced(state, number, proc._replace(mind=moved.mind, flights=flights))
        return self._gone(state, number) if self.parts.minds[moved.mind].fenced else self._tidy(state)

    def _sorted(self, flights: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """In an order that does not depend on which write was seen first in this exploration."""
        return tuple(sorted(flights, key=lambda flight: self.parts.named(flight[0])))

    def _answered(self, state: State, number: int, index: int) -> State:
        """An answer is delivered; where it does not tell what became of the object, that is read back first."""
        proc = state.procs[number]
        write, answer = proc.flights[index]
        read = self.parts.read_back(write, answer)
        current = self.parts.current(state.cluster, write) if read else self.parts.unknown
        flights = (*proc.flights[:index], *proc.flights[index + 1 :])
        return self._takes(state, number, proc._replace(flights=flights), "answer", write, answer, current)

    def _begun(self, state: State) -> State:
        fence = self.fence(state) + 1
        state = self._happens(state, ("acquire", str(fence)))
        if state.standby >= 0:
            begun = self.parts.takes(state.standby, "lead", fence, state.cluster)
        else:
            begun = self.parts.begins(state.cluster, fence)
        return state._replace(procs=(*state.procs, Proc(begun.mind, _QUIET, ())), standby=-1)

    def _gone(self, state: State, number: int) -> State:
        """A process is no more; what it had sent may still arrive."""
        lost = [write for write, answer in state.procs[number].flights if answer < 0]
        procs = (*state.procs[:number], *state.procs[number + 1 :])
        return self._tidy(state._replace(procs=procs, lost=tuple(sorted((*state.lost, *lost), key=self.parts.named))))

    def _timed_out(self, state: State, number: int, index: int) -> State:
        """The connection is reset: the request may have been carried out, may still be, or never will."""
        proc = state.procs[number]
        write, answer = proc.flights[index]
        flights = _with(proc.flights, index, (write, self.parts.unknown))
        lost = state.lost if answer >= 0 else tuple(sorted((*state.lost, write), key=self.parts.named))
        return self._tidy(self._replaced(state, number, proc._replace(flights=flights))._replace(lost=lost))

    def _tidy(self, state: State) -> State:
        """Nothing is held up that is not there."""
        if not state.held:
            return state
        there = {actor for actor, _ in self.prompt(state)}
        there |= {("process", str(self.parts.minds[proc.mind].fence)) for proc in state.procs}
        return state._replace(held=state.held & there)


def _with(items: tuple[Item, ...], index: int, item: Item) -> tuple[Item, ...]:
    return (*items[:index], item, *items[index + 1 :])
