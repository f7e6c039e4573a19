"""One controller process without asyncio: the loop's own wiring, driven one input at a time, and frozen between them.

``Process`` is the real ``Controller`` in all that it does with changes, plans and writes; what it does not have is time,
a network and tasks. ``Desk`` is the real ``Actuator`` cut in two where it waits for an answer.
"""

from __future__ import annotations

import heapq
import io
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from types import FunctionType
from typing import Any

from msgspec import Struct, json

from queuectl.contract import foreign
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import Kind
from queuectl.control.actuator import Actuator
from queuectl.control.informer import take_in
from queuectl.control.loop import Controller
from queuectl.control.ports import ClusterError, Deleted, Upserted
from queuectl.control.release import Release
from queuectl.control.source import KINDS, Source
from queuectl.control.steps import Fenced, Target, Write
from queuectl.engine.engine import Engine
from queuectl.model.settings import Settings

# Both deadlines alike, so that one step of time passes either; given back twice, a gang is deactivated.
SETTINGS = Settings(bind_timeout=60_000, start_timeout=60_000, backoff=30_000, max_requeues=1)
BY_PLURAL = {kind.plural: kind for kind in (*KINDS, foreign.BUDGETS, foreign.LEASES)}


class Nothing:
    """Metrics, blockers and queue statuses: what is only told to people is not explored."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: ()

    def next_due(self, *_: object) -> None:
        """Never."""


class Bell:
    """Whether the loop is to look again."""

    def __init__(self) -> None:
        self.rung = False

    def set(self) -> None:
        """Look again."""
        self.rung = True

    def clear(self) -> None:
        """Looked."""
        self.rung = False


class Holder:
    """Leadership as the loop asks for it."""

    fence = 0


class Flying:
    """The ledger without its waits: an object is free when nothing is on its way to it, however often that failed."""

    def __init__(self) -> None:
        self.targets: set[Target] = set()

    def free(self, target: Target, _now: float) -> bool:
        """Whether nothing is on its way to it."""
        return target not in self.targets

    def sent(self, target: Target) -> None:
        """Something is."""
        self.targets.add(target)

    def next_due(self, _now: float) -> None:
        """Nobody waits."""


class Canned:
    """A cluster that answers one write, and one read after it, as it was told to. Time stands still in it.

    The answer to a question about budgets holds all lists that it takes, by plural.
    """

    def __init__(self, answer: object, current: object) -> None:
        self._answer, self._current = answer, current

    async def create(self, *_: object) -> object:
        """The answer."""
        return _said(self._answer)

    async def patch(self, *_: object, **__: object) -> object:
        """The answer."""
        return _said(self._answer)

    async def evict(self, *_: object) -> None:
        """The answer."""
        _said(self._answer)

    async def list(self, kind: Kind, *_: object) -> object:
        """Its part of the answer."""
        found: Any = _said(self._answer)
        return found[kind.plural]

    async def get(self, *_: object) -> object:
        """What is there now."""
        return _said(self._current)

    def monotonic(self) -> float:
        """Seconds."""
        return 0.0


def _said(answer: object) -> object:
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def run(coroutine: Coroutine[Any, Any, object]) -> object:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Desk(Actuator):
    """Writes that wait for their turn, and those on their way, which are taken from ``sent``."""

    def __init__(self, source: Source, release: Release, observe: Callable[[list[Any]], None], most: int) -> None:
        self.ledger: Any = Flying()
        self.outstanding: Counter[str] = Counter()
        self.releasing: set[str] = set()
        self.fenced = None
        self.sent: list[Write] = []
        self.flying = 0
        self._source, self._release, self._observe, self._most = source, release, observe, most
        self._clock: Any = Canned(None, None)
        self._waiting: list[tuple[int, int, Write]] = []
        self._order = itertools.count()

    def pump(self) -> None:
        """Send as many as may be on their way: the part of ``_send`` before the request. The lease is taken for fresh."""
        while self._waiting and self.flying < self._most:
            write = heapq.heappop(self._waiting)[2]
            if self._release.due(write):
                self.flying += 1
                self.sent.append(write)
                continue
            self.ledger.targets.discard(write.target)
            self._source.touched.add(write.gang)
            self._over(write)
            self._observe([])

    def answered(self, write: Write, answer: object, current: object) -> None:
        """The part of ``_send`` after the request: ``answer`` to it, and what is ``current`` where it is read back."""
        self._cluster: Any = Canned(answer, current)
        self.flying -= 1
        try:
            reply = run(self._request(write))
            self.ledger.targets.discard(write.target)
            changes = self._release.on_reply(write, reply)
        except Fenced as problem:
            self.fenced = problem
            self._over(write)
            return
        finally:
            del self._cluster
        self._over(write)
        self._observe(changes)
        self.pump()


class Process(Controller):
    """A controller process between two inputs."""

    # Stand-ins with the surface that the loop uses; of the class, so that they are not frozen with every state.
    metrics = Nothing()  # type: ignore[assignment]  # left out of the exploration: it decides nothing
    configuration = Configuration()
    _blockers = Nothing()  # type: ignore[assignment]  # left out of the exploration: it decides nothing
    _queues = Nothing()  # type: ignore[assignment]  # left out of the exploration: it decides nothing
    _queues_looked = float("inf")
    _decision = 0
    revision = 0

    def __init__(self, make: Callable[[Source], Release], most: int) -> None:
        self.engine = Engine(SETTINGS)
        self.source = Source()
        self.release = make(self.source)
        self.actuator: Desk = Desk(self.source, self.release, self.observe, most)
        self.leadership: Any = Holder()
        self.leading = False
        self.wake_at: int | None = None
        self._looked: dict[str, float] = {}
        self._going: set[str] = set()
        self._moving: set[str] = set()
        self._queues_stale = False
        self._wake: Any = Bell()

    # ---- inputs

    def sees(self, kind: Kind, verb: str, obj: Any) -> None:
        """One event of a watch."""
        take_in(self.source, kind, Deleted(obj) if verb == "DELETED" else Upserted(obj), self.observe)

    def reads(self, kind: Kind, objects: list[Any]) -> None:
        """The whole state of a kind, as an informer takes it in."""
        seen = {obj.metadata.uid for obj in objects}
        for obj in objects:
            self.source.exists(obj.metadata.uid)
            self.sees(kind, "ADDED", obj)
        for uid in sorted(self.source.known(kind) - seen):
            if changes := self.source.gone(kind, uid):
                self.observe(changes)

    def leads(self, fence: int) -> None:
        """The fence holds, and what releases rest on was read anew."""
        self.leadership.fence = fence
        self.leading = True
        self.source.touched.update(self.source.groups)
        self._wake.set()

    def decides(self, now: int) -> None:
        """One round of the loop. No lost release ever gets too old: the protocol must hold without."""
        self._let_go()
        plan = self.engine.decide(now)
        self.wake_at = plan.wake_at
        self._accept(plan)
        self._looked.clear()  # half a second has passed since the last look
        self._write(now, 1.0)
        self._wake.clear()
        self.actuator.pump()

    @property
    def woken(self) -> bool:
        """Whether something happened since the last round."""
        return bool(self._wake.rung)

    def digest(self) -> bytes:
        """Equal for processes that will do the same from here on. Some 0.2 ms.

        What the engine derives (usage, rows, lines) follows from the facts and memories that are listed here.
        """
        engine, state, backlog, desk = self.engine, self.engine._state, self.engine._backlog, self.actuator
        mirror = {name: value for name, value in vars(self.source).items() if name not in ("_shapes", "members")}
        release = {name: value for name, value in vars(self.release).items() if name != "_view"}
        batches = sorted(
            (
                [offer.order for offer in batch.offers],
                batch.queue,
                batch.parked,
                batch.over_limit,
                batch.unplaced,
                batch.missing,
            )
            for held in backlog._offered.values()
            for batch, _ in held.values()
        )
        listed = (
            *(mirror[name] for name in sorted(mirror)),
            [
                [gang, list(members)] for gang, members in sorted(self.source.members.items())
            ],  # in which order they came
            *(release[name] for name in sorted(release)),
            list(state.gangs.values()),
            (
                state.changed,
                state.dirty,
                state.fleet.nodes,
                state.fleet.gained,
                state.branches.queues,
                state._occupants,
            ),
            (engine._now, engine._fresh, engine._stuck, engine._told, batches, backlog.stirred),
            ([write for _, _, write in sorted(desk._waiting, key=lambda one: one[:2])], desk.ledger.targets),
            (dict(desk.outstanding), desk.releasing, desk.flying, desk.fenced is not None),
            (self._going, self._moving, self.leadership.fence, self.leading, self.woken, self.wake_at),
        )
        return blake2b(b"\n".join(map(_encoded, listed)), digest_size=16).digest()


def _encoded(value: object) -> bytes:
    try:
        return json.encode(value, order="deterministic", enc_hook=_opened)
    except TypeError:  # it does not sort keys that are no texts, nor what cannot be compared
        return json.encode(_plain(value), order="deterministic")


def _opened(value: object) -> object:
    return value.__name__ if isinstance(value, type) else vars(value)


def _plain(value: object) -> object:
    """A value as lists and what the encoder knows, sorted where its order means nothing."""
    match value:
        case None | bool() | int() | str() | float():
            return value
        case dict():
            pairs = {_encoded(key).decode(): _plain(one) for key, one in value.items()}
            return [[key, pairs[key]] for key in sorted(pairs)]
        case set() | frozenset():
            return sorted(_encoded(one).decode() for one in value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case Struct():
            return [_plain(getattr(value, name)) for name in value.__struct_fields__]
        case _:
            return _plain(_opened(value))


# ---- freezing

_functions: dict[str, FunctionType] = {}


def _function(name: str) -> FunctionType:
    return _functions[name]


def _kind(plural: str) -> Kind:
    return BY_PLURAL[plural]


class _Freezer(pickle.Pickler):
    """Kinds are compared by identity, and sort keys are lambdas: both are named instead of copied."""

    def reducer_override(self, obj: Any) -> Any:
        """See pickle."""
        if type(obj) is Kind:
            return _kind, (obj.plural,)
        if type(obj) is FunctionType and obj.__name__ == "<lambda>":
            if obj.__closure__:
                raise pickle.PicklingError(f"{obj.__qualname__} remembers something")
            _functions[f"{obj.__module__}.{obj.__qualname__}"] = obj
            return _function, (f"{obj.__module__}.{obj.__qualname__}",)
        return NotImplemented


def freeze(process: Process) -> bytes:
    """A process as bytes. Tables that the engine makes anew by itself are left out."""
    rooms = process.engine._placement.rooms
    rooms._rooms.clear()
    rooms._ever.clear()
    buffer = io.BytesIO()
    _Freezer(buffer, pickle.HIGHEST_PROTOCOL).dump(process)
    return buffer.getvalue()


def thaw(frozen: bytes) -> Process:
    """The process again, sharing nothing with any other."""
    found = pickle.loads(frozen)
    assert isinstance(found, Process)
    return found
