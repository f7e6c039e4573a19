"""What the queues of one pool ask for: the frozen input of the fair shares, and what is refused before they are computed.

Terms, as everywhere in the shares:

* *counted resources*: those whose capacity is given, in the order of their names. The rest plays no part.
* *support set* of a request: which counted resources it needs. Demand is kept for each set apart, so that a queue whose
  GPU work is held up by full GPUs still gets CPU for work that needs no GPU.
* *demand* of a leaf: what it is charged plus what its gangs that could run today ask for. An admission moves a gang from
  the one to the other and changes no demand, hence no share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from queuectl.model.resources import Amounts, show

Listed = tuple[tuple[str, int], ...]
"""(resource, amount) in the resource's integer unit. Unlike ``Amounts`` it may hold 0, which is not the same as unset."""


class Claim(Struct, frozen=True, kw_only=True):
    """One queue in one pool. ``parent`` None is a child of the root; only leaves have demand and usage.

    ``demand`` has one vector for each support set. ``usage`` is decayed usage (``decay``), and ``usage_weight`` how much it
    counts among the children of this queue, in thousandths; None: as at the parent, 0: not at all.
    Raises ValueError, with what to write instead, when a number is negative.
    """

    name: str
    parent: str | None = None
    weight: int = 1
    priority: int = 0
    quota: Listed = ()
    limit: Listed = ()
    guarantee: Listed = ()
    demand: tuple[Amounts, ...] = ()
    usage: Listed = ()
    usage_weight: int | None = None

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError(f"queue {self.name}: weight {self.weight} is negative; 0 means no share of the surplus")
        if self.usage_weight is not None and self.usage_weight < 0:
            raise ValueError(f"queue {self.name}: usage weight {self.usage_weight} is negative; 0 switches it off")
        for field, instead in _INSTEAD.items():
            for resource, amount in getattr(self, field):
                if amount < 0:
                    raise ValueError(
                        f"queue {self.name}: {field} of {resource} is {show(resource, amount)}, a negative amount; {instead}"
                    )
        for vector in self.demand:
            for resource, amount in vector:
                if amount < 0:
                    raise ValueError(f"queue {self.name}: demand for {resource} is negative: {amount}")


_INSTEAD = {
    "quota": "leave it out for none, or write the pool's capacity to entitle the queue to all of it",
    "limit": "leave it out for no limit",
    "guarantee": "leave it out for none",
    "usage": "usage starts at 0",
}


def by_support(requests: Iterable[Amounts], counted: Iterable[str]) -> tuple[Amounts, ...]:
    """Requests summed for each support set, counted resources only, in a fixed order. O(requests × resources)."""
    counts = frozenset(counted)
    totals: dict[tuple[str, ...], dict[str, int]] = {}
    for request in requests:
        kept = [(resource, amount) for resource, amount in request if amount and resource in counts]
        total = totals.setdefault(tuple(resource for resource, _ in kept), {})
        for resource, amount in kept:
            total[resource] = total.get(resource, 0) + amount
    return tuple(tuple(sorted(total.items())) for support, total in sorted(totals.items()) if support)


def quotas(listed: Mapping[str, int], capacity: Mapping[str, int]) -> dict[str, int]:
    """The quota of every counted resource: as listed, else capacity × the largest listed fraction, 0 without any entry.

    Without the rule a queue with a quota for GPUs only would never be within its quota, since all its gangs use CPU.
    """
    top, bottom = 0, 1  # the largest fraction so far, compared by cross-multiplication
    for resource, amount in listed.items():
        if (have := capacity.get(resource, 0)) and amount * bottom > top * have:
            top, bottom = amount, have
    return {resource: listed.get(resource, have * top // bottom) for resource, have in sorted(capacity.items())}


def refusals(claims: Iterable[Claim]) -> dict[str, str]:
    """Queue → why shares cannot be computed with it, and what to do. Whoever leaves these out may divide the rest.

    A queue below a refused one is refused with it. O(queues × (depth + resources)).
    """
    found: dict[str, str] = {}
    queues: dict[str, Claim] = {}
    for claim in claims:
        if claim.name in queues:
            found[claim.name] = "there are two queues of this name; remove one"
        queues[claim.name] = claim
    for name in sorted(queues):
        if name not in found and (problem := _broken_path(name, queues)):
            found[name] = problem
    kids: dict[str | None, list[str]] = {}
    for name, claim in sorted(queues.items()):
        if name not in found:
            kids.setdefault(claim.parent, []).append(name)
    for name in kids.get(None, ()):
        _guaranteed(name, queues, kids, found)
    for name in sorted(queues):
        at = queues[name].parent
        while name not in found and at is not None:
            if at in found:
                found[name] = f"queue {at} above it is refused: {found[at]}"
            at = queues[at].parent if at in queues else None
    return found


def _broken_path(name: str, queues: dict[str, Claim]) -> str:
    """What is wrong with a queue's own way up; queues that only stand below it come after it."""
    at = queues[name].parent
    if at is not None and at not in queues:
        return f"its parent {at} does not exist; create it or name another"
    seen = set()
    while at is not None and at in queues and at not in seen:
        if at == name:
            return "its parents form a cycle; name another parent"
        seen.add(at)
        at = queues[at].parent
    return ""


def _guaranteed(
    name: str, queues: dict[str, Claim], kids: dict[str | None, list[str]], found: dict[str, str]
) -> dict[str, int]:
    """What must be held for a queue even while nobody uses it; guarantees that a limit would break are refused."""
    claim = queues[name]
    limit = dict(claim.limit)
    for resource, amount in claim.guarantee:
        if amount > limit.get(resource, amount):
            found[name] = (
                f"its guarantee of {show(resource, amount)} {resource} is above its limit of "
                f"{show(resource, limit[resource])}; lower the one or raise the other"
            )
    below = {kid: _guaranteed(kid, queues, kids, found) for kid in kids.get(name, ())}
    totals: dict[str, int] = {}
    for kid, held in below.items():
        if kid not in found:
            for resource, amount in held.items():
                totals[resource] = totals.get(resource, 0) + amount
    for resource, total in sorted(totals.items()):
        if total > limit.get(resource, total):
            for kid, held in below.items():
                if held.get(resource):
                    found.setdefault(
                        kid,
                        f"the guarantees below {name} add up to {show(resource, total)} {resource}, above its limit of "
                        f"{show(resource, limit[resource])}; lower them or raise it",
                    )
            totals[resource] = 0
    own = dict(claim.guarantee)
    return {resource: max(own.get(resource, 0), totals.get(resource, 0)) for resource in sorted({*own, *totals})}
