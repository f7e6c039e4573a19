"""Phase 1 of the fair shares: what each queue may count on, E, worked out down the tree for each resource on its own.

Going up, every queue learns what it can make use of, and going down, what it is given of its parent's E:

    up    D = min(Σ demand of a leaf | Σ C of the children, limit)      G = max(guarantee, Σ G of the children)      C = max(D, G)
    down  E(root) = capacity, and among the children of a queue
          gs = filled(E(parent), up to G, in proportion to G)                            first the guarantees,
          q  = filled(E(parent) - Σ gs, up to C - gs, in proportion to quota - gs)       then the quotas,
          E  = gs + q                                                                    scaled down where they do not fit

``filled`` raises one λ from 0 to at most 1 and gives each child min(up to, λ × proportion) until the amount is used up.

E is held in 2^-128ths of the resource's unit, because a quota that is scaled down is seldom a whole number. What is not scaled
is exact: a queue that gets its quota or its whole claim gets it to the last byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from queuectl.engine.claims import Claim, Listed

BITS = 128
ONE = 1 << BITS
"""One unit of a resource (a byte, a thousandth of a CPU or of a device), and one capacity where parts of it are meant."""

NEAR = ONE >> 80
"""Amounts nearer than this are taken for equal: what fits exactly must fit in spite of rounding, which is 2^-128 an addend."""


class Node:
    """A queue, or the root (``claim`` None), while shares are computed. Vectors are lists by counted resource."""

    __slots__ = (
        "budget", "ceiling", "claim", "depth", "entitled", "fair", "floor", "kids", "number", "parent", "quota", "reserve",
        "sets", "total", "used", "want",
    )  # fmt: skip

    def __init__(self, claim: Claim | None) -> None:
        self.claim = claim
        self.number = 0  # in the list that ``planted`` returns
        self.depth = 0  # of the root; its children have 1
        self.parent: Node | None = None
        self.kids: list[Node] = []
        self.sets: list[list[int]] = []  # demand of a leaf, by support set
        self.total: list[int] = []  # their sum, limits aside; of an inner queue Σ C of its children
        self.used: list[int] = []  # decayed usage of all leaves below
        self.reserve: list[int] = []  # G
        self.want: list[int] = []  # C
        self.ceiling: list[int | None] = []  # limit; None is none
        self.quota: list[int] = []
        self.floor: list[int] = []  # gs, in 2^-128ths
        self.budget: list[int] = []  # E, in 2^-128ths
        self.entitled: list[int] = []  # E after phase 2, which may lower it
        self.fair: list[int] = []  # F, in 2^-128ths; phase 2 writes it

    @property
    def name(self) -> str:
        """The queue's name, empty for the root."""
        return self.claim.name if self.claim else ""


def planted(claims: Iterable[Claim]) -> list[Node]:
    """The tree as a list, the root first and every queue before its children, who are sorted by name. O(queues × log).

    Raises KeyError where a parent does not exist.
    """
    nodes = {claim.name: Node(claim) for claim in sorted(claims, key=lambda claim: claim.name)}
    root = Node(None)
    for node in nodes.values():
        above = node.claim.parent if node.claim else None
        node.parent = root if above is None else nodes[above]
        node.parent.kids.append(node)
    found: list[Node] = []
    todo = [root]
    while todo:
        node = todo.pop()
        node.number = len(found)
        node.depth = node.parent.depth + 1 if node.parent else 0
        found.append(node)
        todo.extend(reversed(node.kids))
    return found


def entitle(nodes: Sequence[Node], capacity: Sequence[int], resources: Mapping[str, int]) -> None:
    """Write E and all that leads to it into the tree; ``resources`` numbers the counted resources.

    O(queues × resources), and a sort of the children where quotas do not fit.
    """
    for node in reversed(nodes):
        _ask(node, resources)
    nodes[0].budget, nodes[0].ceiling = [amount * ONE for amount in capacity], list(capacity)
    for node in nodes:
        if node.kids:
            give(node, capacity)


def entitle_again(
    nodes: Sequence[Node], changed: Iterable[Node], capacity: Sequence[int], resources: Mapping[str, int]
) -> set[int]:
    """The same after the demand of some leaves has changed; returns the numbers of the queues whose E has changed.

    O(resources) for each queue above a changed one, and for their siblings where that changes what is asked for.
    """
    asks = {node.number for node in changed}
    uneven: set[int] = set()  # queues with a child that asks for something else now
    for number in sorted(asks, reverse=True):
        node: Node | None = nodes[number]
        while node is not None and node.claim is not None:
            asked = node.want
            demand(node, resources)
            if node.want == asked or node.parent is None:
                break
            uneven.add(node.parent.number)
            node = node.parent
    moved: set[int] = set()
    todo = sorted(uneven)
    while todo:
        node = nodes[todo.pop(0)]
        before = [kid.budget for kid in node.kids]
        give(node, capacity)
        for kid, old in zip(node.kids, before, strict=True):
            if kid.budget != old:
                moved.add(kid.number)
                if kid.kids and kid.number not in uneven:
                    uneven.add(kid.number)
                    todo = sorted([*todo, kid.number])
    return moved


def _ask(node: Node, resources: Mapping[str, int]) -> None:
    kids, claim, counted = node.kids, node.claim, range(len(resources))
    zeros = [0] * len(resources)
    node.used = [sum([kid.used[r] for kid in kids]) for r in counted]
    node.reserve = [sum([kid.reserve[r] for kid in kids]) for r in counted] if kids else zeros
    node.ceiling, node.quota = [None] * len(resources), zeros
    if claim is not None:
        if claim.usage and not kids:
            node.used = _vector(claim.usage, resources)
        if claim.guarantee:
            node.reserve = [max(pair) for pair in zip(node.reserve, _vector(claim.guarantee, resources), strict=True)]
        if claim.quota:
            node.quota = _vector(claim.quota, resources)
        for resource, amount in claim.limit:
            if resource in resources:
                node.ceiling[resources[resource]] = amount
    demand(node, resources)


def demand(node: Node, resources: Mapping[str, int]) -> None:
    """Write what a queue asks for, its children being up to date. O(resources × (children or support sets))."""
    counted = range(len(resources))
    if node.kids:
        node.total = [sum([kid.want[r] for kid in node.kids]) for r in counted]
    else:
        node.sets = [_vector(amounts, resources) for amounts in (node.claim.demand if node.claim else ())]
        node.total = node.sets[0] if len(node.sets) == 1 else [sum([one[r] for one in node.sets]) for r in counted]
    node.want = [
        max(kept, amount if top is None or amount < top else top)
        for amount, top, kept in zip(node.total, node.ceiling, node.reserve, strict=True)
    ]


def _vector(amounts: Listed, resources: Mapping[str, int]) -> list[int]:
    vector = [0] * len(resources)
    for resource, amount in amounts:
        if resource in resources:
            vector[resources[resource]] += amount
    return vector


def give(node: Node, capacity: Sequence[int]) -> None:
    """Divide the E of a queue among its children. O(children × resources), and a sort where quotas do not fit."""
    kids = node.kids
    floors, budgets = [], []
    for r, (own, have) in enumerate(zip(node.budget, capacity, strict=True)):
        given = [min(kid.want[r], kid.quota[r]) for kid in kids]
        if not any(kid.reserve[r] for kid in kids) and sum(given) * ONE <= own:
            floors.append([0] * len(kids))  # nothing is guaranteed and everything fits
            budgets.append([amount * ONE for amount in given])
            continue
        held = [kid.reserve[r] * ONE for kid in kids]
        lowest = filled(own, held, held)
        room = [max(0, kid.want[r] * ONE - floor) for kid, floor in zip(kids, lowest, strict=True)]
        weights = [max(0, kid.quota[r] * ONE - floor) for kid, floor in zip(kids, lowest, strict=True)]
        rest = filled(max(0, own - sum(lowest)), room, weights)
        floors.append(lowest)
        budgets.append([whole(floor + more, have) for floor, more in zip(lowest, rest, strict=True)])
    for number, kid in enumerate(kids):
        kid.floor = [one[number] for one in floors]
        kid.budget = [one[number] for one in budgets]


def filled(amount: int, room: Sequence[int], weights: Sequence[int]) -> list[int]:
    """min(room, λ × weight) of each, with the largest λ ≤ 1 for which the sum stays within ``amount``.

    Rounded down, each by less than one. O(n) where everything fits, else O(n log n).
    """
    given = [min(pair) for pair in zip(room, weights, strict=True)]
    if sum(given) <= amount + NEAR:
        return given
    # Whose room ends at the smallest λ comes first; the rest shares what then remains by weight.
    order = sorted((i for i, weight in enumerate(weights) if weight), key=lambda i: (room[i] * ONE // weights[i], i))
    total = sum(weights)
    for position, i in enumerate(order):
        if room[i] * total > weights[i] * amount + NEAR * total:
            for j in order[position:]:
                given[j] = min(room[j], amount * weights[j] // total)
            break
        given[i] = room[i]
        amount -= room[i]
        total -= weights[i]
    return given


def whole(amount: int, capacity: int) -> int:
    """The whole number of units that this is but for rounding, else the amount itself.

    Requests are whole units: what fits exactly must not be refused for a crumb.
    """
    if not amount & ONE - 1:
        return amount
    nearest = (amount + ONE // 2) // ONE * ONE
    return nearest if abs(amount - nearest) <= NEAR * (1 + capacity) else amount
