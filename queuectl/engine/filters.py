"""Which nodes a shape may use at all: selector, required affinity, taints, pool. A mask over the rows, kept per constraint.

Requests play no part here, so shapes that differ only in size share a mask. Cordon and readiness are not in the mask:
they change often and are read per row (``Fleet.usable``).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from queuectl.engine.fleet import Flags, Fleet
from queuectl.engine.request import Zone
from queuectl.model.gangs import Requirement, Shape, Term, Toleration
from queuectl.model.pools import OUTSIDE
from queuectl.model.reasons import Misfit, NodesEvidence, Reason
from queuectl.model.topology import Taint

_MASKS = 512  # 10 kB each at 10,000 nodes: 5 MB, and real clusters have tens of distinct constraints, not hundreds
_PASSING = "node.kubernetes.io/"  # taints the node controller sets while a node is unwell; they say nothing of "ever"
_BLOCKING = ("NoSchedule", "NoExecute")

_Constraint = tuple[tuple[tuple[str, str], ...], tuple[Term, ...] | None, tuple[Toleration, ...], bool]


class Filters:
    """Masks by constraint, and label columns by key; all void when a node's labels or taints change."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._edition = -1
        self._masks: OrderedDict[_Constraint, Flags] = OrderedDict()
        self._labels: dict[str, dict[str, Flags]] = {}
        self._taints: dict[tuple[Taint, ...], Flags] | None = None
        self._zones: dict[Zone, Flags] = {}

    def mask(self, shape: Shape, *, ever: bool = False) -> Flags:
        """Rows that satisfy the shape's constraints. ``ever``: without the taints that come and go with a node's health.

        Amortised O(1); O(nodes) for a new constraint, O(nodes × labels) for a new label key.
        """
        self._catch_up()
        constraint = (shape.selector, shape.affinity, shape.tolerations, ever)
        if (mask := self._masks.get(constraint)) is not None:
            self._masks.move_to_end(constraint)
            return mask
        mask = self._selected(shape.selector) & self._affine(shape.affinity)
        for taints, rows in self._tainted().items():
            if _refusing(taints, shape.tolerations, ever=ever) is not None:
                mask = mask & ~rows
        self._masks[constraint] = mask
        if len(self._masks) > _MASKS:
            self._masks.popitem(last=False)
        return mask

    def zone(self, zone: Zone) -> Flags:
        """Rows of the nodes in a zone. Amortised O(1); O(nodes) for a new one."""
        self._catch_up()
        if (mask := self._zones.get(zone)) is None:
            if len(self._zones) >= _MASKS:
                self._zones.clear()
            mask = np.logical_or.reduce([self._pooled(pool) for pool in zone.pools])
            for pool in zone.without:
                mask = mask & ~self._pooled(pool)
            self._zones[zone] = mask
        return mask

    def _pooled(self, pool: str) -> Flags:
        of, nodes = self._fleet.pools.of, self._fleet.tree.nodes
        inside = (not of[name] if pool == OUTSIDE else pool in of[name] for name in nodes)
        return np.fromiter(inside, np.bool_, len(nodes))

    def causes(self, shape: Shape) -> tuple[Misfit, ...]:
        """Why nodes are out for this shape, with counts: each selector key, the affinity, each taint, health.

        A node may be out for several causes, which must all go; each cause is told once.
        """
        self._catch_up()
        total = len(self._fleet.tree.nodes)
        found: list[Misfit] = []

        def out(reason: Reason, rows: Flags, what: str) -> None:
            if count := int(np.count_nonzero(rows)):
                found.append(Misfit(reason, NodesEvidence(count, total, what)))

        for key, value in shape.selector:
            out(Reason.NODE_SELECTOR_MISMATCH, ~self._selected(((key, value),)), key)
        for key in sorted({one.key for term in shape.affinity or () for one in (*term.expressions, *term.fields)}):
            out(Reason.NODE_SELECTOR_MISMATCH, ~self._affine(shape.affinity), key)
            break  # terms are alternatives: the nodes are out once, not once a key
        cordoned, usable = self._fleet.cordoned, self._fleet.usable
        by_taint: dict[str, Flags] = {}
        for taints, rows in self._tainted().items():
            # The taints that come with a cordon or with silence are told as that, and once.
            for part, ill in ((rows & usable, False), (rows & ~usable, True)):
                if (taint := _refusing(taints, shape.tolerations, ever=ill)) is not None:
                    by_taint[taint.key] = by_taint.get(taint.key, False) | part
        for key, rows in sorted(by_taint.items()):
            out(Reason.TAINT_NOT_TOLERATED, rows, key)
        out(Reason.NODE_UNHEALTHY, cordoned, "cordoned")
        out(Reason.NODE_UNHEALTHY, ~usable & ~cordoned, "not ready")
        return tuple(found)

    def _catch_up(self) -> None:
        if self._edition != self._fleet.edition:
            self._edition = self._fleet.edition
            self._masks.clear()
            self._labels.clear()
            self._taints = None
            self._zones.clear()

    def _none(self) -> Flags:
        return np.zeros(len(self._fleet.tree.nodes), np.bool_)

    def _values(self, key: str) -> dict[str, Flags]:
        """Value of a label -> rows that carry it."""
        if key not in self._labels:
            rows: dict[str, list[int]] = {}
            for row, name in enumerate(self._fleet.tree.nodes):
                for label, value in self._fleet.nodes[name].labels:
                    if label == key:
                        rows.setdefault(value, []).append(row)
            self._labels[key] = {value: self._flags(numbers) for value, numbers in rows.items()}
        return self._labels[key]

    def _flags(self, rows: list[int]) -> Flags:
        flags = self._none()
        flags[rows] = True
        return flags

    def _selected(self, selector: tuple[tuple[str, str], ...]) -> Flags:
        mask = ~self._none()
        for key, value in selector:
            mask = mask & self._values(key).get(value, self._none())
        return mask

    def _affine(self, affinity: tuple[Term, ...] | None) -> Flags:
        if affinity is None:
            return ~self._none()
        mask = self._none()
        for term in affinity:
            if not term.expressions and not term.fields:
                continue  # Kubernetes: an empty term matches no node
            rows = ~self._none()
            for one in term.expressions:
                rows &= self._holds(one, self._values(one.key))
            for one in term.fields:
                numbers = [self._fleet.row[value] for value in one.values if value in self._fleet.row]
                rows &= self._flags(numbers) if one.operator == "In" else ~self._flags(numbers)
            mask |= rows
        return mask

    def _holds(self, one: Requirement, values: dict[str, Flags]) -> Flags:
        match one.operator:
            case "In" | "NotIn":
                wanted = [rows for value, rows in values.items() if value in one.values]
            case "Exists" | "DoesNotExist":
                wanted = list(values.values())
            case _:  # Gt, Lt
                wanted = [rows for value, rows in values.items() if _compares(one, value)]
        mask = np.logical_or.reduce(wanted) if wanted else self._none()
        return ~mask if one.operator in ("NotIn", "DoesNotExist") else mask

    def _tainted(self) -> dict[tuple[Taint, ...], Flags]:
        """Distinct sets of blocking taints -> rows; nodes of one kind share theirs, so there are few."""
        if self._taints is None:
            rows: dict[tuple[Taint, ...], list[int]] = {}
            for row, name in enumerate(self._fleet.tree.nodes):
                if taints := tuple(taint for taint in self._fleet.nodes[name].taints if taint.effect in _BLOCKING):
                    rows.setdefault(taints, []).append(row)
            self._taints = {taints: self._flags(numbers) for taints, numbers in rows.items()}
        return self._taints


def _refusing(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], *, ever: bool) -> Taint | None:
    for taint in taints:
        if ever and taint.key.startswith(_PASSING):
            continue
        if not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect not in ("", taint.effect) or one.key not in ("", taint.key):
        return False
    return one.operator == "Exists" or (one.key != "" and one.value == taint.value)


def _compares(one: Requirement, value: str) -> bool:
    """Gt and Lt as in Kubernetes: both sides must be integers, else the node does not match."""
    if len(one.values) != 1 or not _integer(value) or not _integer(one.values[0]):
        return False
    return int(value) > int(one.values[0]) if one.operator == "Gt" else int(value) < int(one.values[0])


def _integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii()
