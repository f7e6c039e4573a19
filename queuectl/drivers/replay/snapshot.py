"""How things stand at one moment: what an expectation is compared with, and what a replay prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from queuectl.drivers.replay import format as wire
from queuectl.engine.engine import Engine
from queuectl.engine.standing import Phase
from queuectl.model.quantity import parse
from queuectl.model.resources import show, unit

_LISTS = {
    Phase.RUNNING: "running",
    Phase.LEAVING: "leaving",
    Phase.FINISHED: "finished",
}  # every other phase but Pending is "admitted": decided upon, and not all of it started


class Snapshot(Struct, kw_only=True):
    """One moment. Gangs by name, sorted; amounts in the resources' integer units.

    ``waiting`` has all reasons of each gang, dominant first; ``notes`` what is to be said of gangs that do not wait.
    ``nodes_of`` counts the slots charged on each node, those that a lost member left held among them. ``given_back`` lists
    (gang, by, rule) from the beginning; nobody preempts yet, so ``by`` is always None and ``rule`` the cause.
    ``usage_in`` has the part of ``usage`` that is on the nodes of each pool.
    """

    at: int
    running: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    given_back: list[tuple[str, str | None, str]] = field(default_factory=list)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    usage_in: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    nodes_of: dict[str, dict[str, int]] = field(default_factory=dict)


def duration(at: int) -> str:
    """Milliseconds as the file writes them: ``20s``, ``1500ms``, ``90s``, ``2h``."""
    for size, letter in ((3_600_000, "h"), (60_000, "m"), (1000, "s")):
        if at % size == 0 and at >= size:
            return f"{at // size}{letter}"
    return f"{at}ms" if at else "0s"


def look(
    engine: Engine, at: int, given_back: Sequence[tuple[str, str | None, str]], name_of: Callable[[str], str] = str
) -> Snapshot:
    """The state of an engine, as it sees it. ``name_of``: the scenario's name of a gang, from the one it has there."""
    view = engine.view()
    snapshot = Snapshot(at=at, given_back=list(given_back))
    for name, gang in sorted(((name_of(gang.name), gang) for gang in view.gangs), key=lambda one: (one[0], one[1].uid)):
        if gang.phase is Phase.PENDING:
            snapshot.waiting[name] = list(dict.fromkeys(one.reason.value for one in engine.explain(gang.uid)))
        else:
            getattr(snapshot, _LISTS.get(gang.phase, "admitted")).append(name)
            if gang.misfits:
                snapshot.notes[name] = list(dict.fromkeys(one.reason.value for one in gang.misfits))
        if gang.nodes:
            snapshot.nodes_of[name] = dict(gang.nodes)
    snapshot.usage = {queue.name: dict(queue.usage) for queue in view.queues}
    snapshot.usage_in = {queue.name: {pool: dict(used) for pool, used in queue.pools} for queue in view.queues}
    return snapshot


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """The moment as printed: names of the scenario file, amounts as people write them."""
    return {
        "at": duration(snapshot.at),
        "running": snapshot.running,
        "admitted": snapshot.admitted,
        "leaving": snapshot.leaving,
        "finished": snapshot.finished,
        "waiting": snapshot.waiting,
        "notes": snapshot.notes,
        "givenBack": [{"gang": gang, "by": by, "rule": rule} for gang, by, rule in snapshot.given_back],
        "usage": {queue: _shown(usage) for queue, usage in snapshot.usage.items()},
        "usageIn": {
            queue: {pool: _shown(used) for pool, used in pools.items()}
            for queue, pools in snapshot.usage_in.items()
            if pools
        },
        "nodesOf": snapshot.nodes_of,
    }


def _shown(usage: dict[str, int]) -> dict[str, str]:
    return {name: show(name, amount) for name, amount in usage.items() if name != "pods"}


def differences(expected: wire.Expectation, found: Snapshot) -> Iterator[str]:
    """One line for each thing that is not as expected. What the expectation does not name is not compared.

    Lists of gangs are compared whole. The reasons of a waiting gang are compared as far as they are written: the dominant
    one alone, the first few in order, or none at all.
    """
    for name in ("running", "admitted", "leaving", "finished"):
        wanted = getattr(expected, name)
        if wanted is not None and sorted(wanted) != sorted(getattr(found, name)):
            yield f"{name}: expected {_list(wanted)}; is {_list(getattr(found, name))}"
    for name in ("waiting", "notes"):
        wanted = getattr(expected, name)
        if wanted is not None:
            yield from _reasons(name, wanted, getattr(found, name))
    if expected.given_back is not None:
        given = [gang for gang, _, _ in found.given_back]
        if expected.given_back != given:
            yield f"givenBack: expected {_list(expected.given_back)}; is {_list(given)}"
    for queue, amounts in expected.usage.items():
        yield from _usage(f"usage: {queue}", amounts, found.usage.get(queue))
    for queue, pools in expected.usage_in.items():
        held = found.usage_in.get(queue)
        for pool, amounts in pools.items():
            yield from _usage(f"usageIn: {queue}: {pool}", amounts, None if held is None else held.get(pool, {}))
    for gang, nodes in expected.nodes_of.items():
        there = found.nodes_of.get(gang, {})
        if (dict(nodes) if isinstance(nodes, dict) else set(nodes)) != (
            there if isinstance(nodes, dict) else set(there)
        ):
            shown = [f"{n}: {c}" for n, c in nodes.items()] if isinstance(nodes, dict) else nodes
            yield f"nodesOf: {gang}: expected {_list(shown)}; is {_list(f'{n}: {c}' for n, c in there.items())}"


def _usage(where: str, wanted: dict[str, str], held: dict[str, int] | None) -> Iterator[str]:
    for resource, quantity in wanted.items():
        amount = (held or {}).get(resource, 0)
        if held is None or amount != parse(quantity, unit(resource)):
            is_ = "no such queue" if held is None else show(resource, amount)
            yield f"{where}: expected {quantity} {resource}; is {is_}"


def _reasons(name: str, wanted: dict[str, Any], found: dict[str, list[str]]) -> Iterator[str]:
    if wanted.keys() != found.keys():
        yield f"{name}: expected {_list(sorted(wanted))}; is {_list(sorted(found))}"
    for gang in sorted(wanted.keys() & found.keys()):
        reasons = [reason.value for reason in wanted[gang]]
        if found[gang][: len(reasons)] != reasons:
            yield f"{name}: {gang}: expected {_list(reasons)}; is {_list(found[gang])}"


def _list(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"
