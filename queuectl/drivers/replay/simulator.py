"""The engine in virtual time: one pass after another, each at the time of the next thing that happens.

A pass takes in all that is due at one moment, lets the engine decide, and carries its plan out; what follows at the same
moment is the next pass. Nothing here waits, and the same input gives the same plans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from queuectl.drivers.replay.agenda import Agenda
from queuectl.drivers.replay.cluster import Cluster
from queuectl.drivers.replay.life import Delays
from queuectl.drivers.replay.release import Release
from queuectl.engine.engine import Engine
from queuectl.model.changes import (
    Change,
    GangGone,
    GangSeen,
    LevelsGone,
    LevelsSeen,
    MemberGone,
    MemberSeen,
    NodeGone,
    NodeSeen,
    OccupantGone,
    OccupantSeen,
    PoolGone,
    PoolSeen,
    QueueGone,
    QueueSeen,
    RecordSeen,
)
from queuectl.model.plan import Plan
from queuectl.model.settings import Settings

# Passes at one moment before it is called a loop: a gang needs about four (admit, extras, a replacement, its refusal), and
# a gang of n extras that one limit lets in one by one may need n.
PASSES = 10_000

Key = tuple[str, str]
Arrange = Callable[[list[Change]], list[Change]]


class RestlessError(Exception):
    """Decisions at one moment go on for ever: a bug in the engine, or in this simulator. The message says when."""


class PlanHash:
    """SHA-256 of all plans that say something: one line of canonical JSON each, keys sorted, without spaces."""

    def __init__(self) -> None:
        self.count = 0
        self._sha = hashlib.sha256()

    def add(self, at: int, plan: Plan) -> None:
        """Take in the plan of one decision. A plan without actions says nothing and counts for nothing."""
        if plan.actions:
            self.count += len(plan.actions)
            actions = [{type(action).__name__: action} for action in plan.actions]
            line = {"actions": actions, "at": at, "wakeAt": plan.wake_at}
            self._sha.update(msgspec.json.encode(line, order="sorted") + b"\n")

    @property
    def hexdigest(self) -> str:
        """The hash so far."""
        return self._sha.hexdigest()


class Simulator:
    """An engine, the cluster around it, and the time. Between two ``run`` the caller may do things to ``cluster``.

    ``forget``: gangs are deleted when they end, for long traces. ``arrange`` reorders what is told within one pass; the
    plans must not depend on it.
    """

    def __init__(
        self,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        delays: Delays = Delays(),  # noqa: B008 - frozen
        *,
        forget: bool = False,
        arrange: Arrange | None = None,
    ) -> None:
        self.engine = Engine(settings)
        self.agenda = Agenda()
        self.plans = PlanHash()
        self.cluster = Cluster(self.tell, self.agenda, delays, forget=forget)
        self.release = Release(self.cluster, self.tell, self.agenda, delays)
        self._settings, self._arrange = settings, arrange
        self._facts: dict[Key, Change] = {}
        self._news: dict[Key, Change] = {}
        self._wake: int | None = None

    @property
    def now(self) -> int:
        """The time (ms)."""
        return self.agenda.now

    def tell(self, change: Change) -> None:
        """Something changed. Of several states of one object within a pass the engine hears the last, as from a watch."""
        key, lasting = _key(change)
        self._news.pop(key, None)
        self._news[key] = change
        if lasting is True:
            self._facts[key] = change
        elif lasting is False:
            self._facts.pop(key, None)

    def restart(self) -> None:
        """The controller dies and another takes over: all it knows is what the cluster holds."""
        self.engine = Engine(self._settings)
        self._wake = None
        self._news = dict(self._facts)

    def run(self, until: int | None = None) -> None:
        """Let time pass up to ``until`` (ms, inclusive), or until nothing is left to happen. Raises RestlessError."""
        while (time := self._next()) is not None and (until is None or time <= until):
            self.agenda.now = max(self.now, time)
            self._moment()
        if until is not None:
            self.agenda.now = max(self.now, until)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to happen by itself."""
        return self._next() is None

    def _next(self) -> int | None:
        times = [time for time in (self.agenda.next, self._wake, self.now if self._news else None) if time is not None]
        return min(times, default=None)

    def _moment(self) -> None:
        for _ in range(PASSES):
            while (act := self.agenda.due()) is not None:
                act()
            self.cluster.rebind()
            self._deliver()
            plan = self.engine.decide(self.now)
            self.plans.add(self.now, plan)
            self._wake = plan.wake_at
            for action in plan.actions:
                self.release.accept(action)
            time = self._next()
            if time is None or time > self.now:
                return
        raise RestlessError(f"decisions at {self.now} ms go on and on; the last plan was {plan}")

    def _deliver(self) -> None:
        news, self._news = list(self._news.values()), {}
        for change in self._arrange(news) if self._arrange is not None else news:
            self.engine.observe(change)


def _key(change: Change) -> tuple[Key, bool | None]:
    """What a change is about, and whether it holds from now on (True), ends what held (False), or is only said (None)."""
    match change:
        case NodeSeen(node):
            return ("node", node.name), True
        case NodeGone(name):
            return ("node", name), False
        case LevelsSeen(_, topology):
            return ("levels", topology), True
        case LevelsGone(topology):
            return ("levels", topology), False
        case PoolSeen(pool):
            return ("pool", pool.name), True
        case PoolGone(name):
            return ("pool", name), False
        case QueueSeen(queue):
            return ("queue", queue.name), True
        case QueueGone(name):
            return ("queue", name), False
        case GangSeen(gang):
            return ("gang", gang.uid), True
        case GangGone(uid):
            return ("gang", uid), False
        case MemberSeen(member):
            return ("member", member.uid), True
        case MemberGone(uid):
            return ("member", uid), False
        case OccupantSeen(uid, _, _):
            return ("occupant", uid), True
        case OccupantGone(uid):
            return ("occupant", uid), False
        case RecordSeen(gang, _):
            return ("record", gang), None
        case _:
            return ("failed", f"{change.gang}/{change.round}"), None
