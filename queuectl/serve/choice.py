"""Which gangs a reader asked for, in which order: filters, a search, stable sorting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from queuectl.engine.view import GangView, View
from queuectl.model.reasons import by_dominance
from queuectl.serve import forms
from queuectl.serve.words import PHASES


class Choice(Struct, frozen=True, kw_only=True):
    """A list's query. ``queue`` takes in all below it; ``search`` is part of a name, queue or reason; 0 is no ``limit``.

    ``sort`` is one of ``SORTS``, with a ``-`` before it for the other direction.
    """

    namespace: str = ""
    queue: str = ""
    phases: frozenset[str] = frozenset()
    search: str = ""
    sort: str = "name"
    limit: int = 0


class Chosen(Struct, frozen=True):
    """All gangs that fit, sorted, and how many of them have which dominant reason."""

    gangs: list[GangView]
    reasons: dict[str, int]


def _dominant(gang: GangView) -> str:
    return by_dominance(gang.misfits)[0].reason.value if gang.misfits else ""


SORTS: Final[dict[str, Callable[[GangView], Any]]] = {
    "name": lambda gang: (gang.namespace, gang.name),
    "position": lambda gang: (gang.queue, gang.position or float("inf"), gang.queued_at),
    "queued": lambda gang: gang.queued_at,
    "queue": lambda gang: gang.queue,
    "pods": lambda gang: gang.minimum,
    "phase": lambda gang: PHASES.index(forms.public_phase(gang)),
    "reason": lambda gang: (not gang.misfits, _dominant(gang)),
}


def choose(view: View, choice: Choice, owner: Callable[[str], str]) -> Chosen:
    """The gangs of a view. ``owner`` gives the name of a gang's owner, by UID. Ties are sorted by namespace and name."""
    queues = {one.name: one for one in view.queues}
    below: dict[str, bool] = {}
    words = choice.search.lower()

    def inside(queue: str) -> bool:
        if queue not in below:
            below[queue] = queue == choice.queue or any(one.name == choice.queue for one in forms.path(queue, queues))
        return below[queue]

    def told(gang: GangView) -> bool:
        names = (f"{gang.namespace}/{gang.name}", owner(gang.uid), gang.queue, _dominant(gang))
        return any(words in name.lower() for name in names)

    found = [
        gang
        for gang in view.gangs
        if (not choice.namespace or gang.namespace == choice.namespace)
        and (not choice.queue or inside(gang.queue))
        and (not choice.phases or forms.public_phase(gang) in choice.phases)
        and (not words or told(gang))
    ]
    found.sort(key=lambda gang: (gang.namespace, gang.name, gang.uid))
    found.sort(key=SORTS[choice.sort.removeprefix("-")], reverse=choice.sort.startswith("-"))
    counted = Counter(_dominant(gang) for gang in found if gang.misfits)
    return Chosen(found, dict(sorted(counted.items(), key=lambda one: (-one[1], one[0]))))
