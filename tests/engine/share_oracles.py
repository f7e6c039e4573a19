"""Published oracles of hierarchical dominant resource fairness, as claims and as trees of unit tasks."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from queuectl.engine.claims import Claim
from tests.engine.discrete_hdrf import Queue

F = Fraction
PLENTY = 10**12  # tasks: more than anybody gets
UNIT = 10**9  # of a share that the oracle gives as a fraction of a unit


def leaf(name: str, above: str | None = None, tasks: int = PLENTY, weight: int = 1, **task: int) -> Claim:
    """A queue that wants many tasks of this size."""
    demand = tuple(sorted((resource, size * tasks) for resource, size in task.items()))
    return Claim(name=name, parent=above, weight=weight, demand=(demand,))


def sized(name: str, task: Mapping[str, int], weight: int = 1) -> Claim:
    """The same, with the task in a mapping."""
    return Claim(name=name, weight=weight, demand=(tuple((r, size * PLENTY) for r, size in sorted(task.items())),))


def inner(name: str, parent: str | None = None, weight: int = 1) -> Claim:
    return Claim(name=name, parent=parent, weight=weight)


HIERARCHIES = {
    "H1": ([leaf("n1", c=1, m=1), inner("n2"), leaf("n21", "n2", c=1), leaf("n22", "n2", m=1)], 10,
           {"n1": 5, "n21": 5, "n22": 5}),
    "H2": ([leaf("n1", m=1), inner("n2"), leaf("n21", "n2", c=1), leaf("n22", "n2", m=1)], 10,
           {"n1": 5, "n21": 10, "n22": 5}),
    "H4": ([leaf("n1", c=1), leaf("n2", c=1), inner("n3"), leaf("n31", "n3", c=1), leaf("n32", "n3", m=1), leaf("n4", m=1)],
           30, {"n1": 10, "n2": 10, "n31": 10, "n32": 15, "n4": 15}),
    "H5": ([inner("a", weight=3), leaf("a1", "a", c=1, m=1), leaf("a2", "a", c=1, m=1, weight=2), leaf("b", c=1, m=1)], 120,
           {"a1": 30, "a2": 60, "b": 30}),
    "slide-480": ([inner("p"), leaf("x", "p", c=1, weight=2), leaf("y", "p", c=1), leaf("z", "p", c=1, weight=2), leaf("o", c=1)],
                  480, {"p": 240, "x": 96, "y": 48, "z": 96, "o": 240}),
    "slide-480-idle": ([inner("p"), leaf("x", "p", c=1, weight=2, tasks=0), leaf("y", "p", c=1), leaf("z", "p", c=1, weight=2),
                        leaf("o", c=1)], 480, {"p": 240, "x": 0, "y": 80, "z": 160, "o": 240}),
}  # fmt: skip
HIERARCHIES["H3"] = HIERARCHIES["H2"]  # H3 is H2 with a usage; shares do not depend on usage


H6 = [
    leaf("n1", c=1),
    leaf("n2", c=1),
    inner("n3"),
    leaf("n31", "n3", c=1, weight=9),
    leaf("n32", "n3", m=1, weight=1),
    leaf("n4", m=1),
]


C, M, BOTH = {"c": F(1)}, {"m": F(1)}, {"c": F(1), "m": F(1)}


def whole_tasks(row: str) -> tuple[Queue, int]:
    """The published trees in unit tasks, and how much there is of each resource; H3 and H4-held begin with tasks that run."""
    n2 = Queue("n2", kids=[Queue("n21", task=C, tasks=10 if row == "H3" else 0), Queue("n22", task=M)])
    n3 = Queue("n3", kids=[Queue("n31", task=C, tasks=20 if row == "H4-held" else 0), Queue("n32", task=M)])
    a = Queue("a", 3, kids=[Queue("a1", 1, BOTH), Queue("a2", 2, BOTH)])
    roots = {
        "H1": [Queue("n1", task=BOTH), n2],
        "H2": [Queue("n1", task=M), n2],
        "H3": [Queue("n1", task=M), n2],
        "H4": [Queue("n1", task=C), Queue("n2", task=C), n3, Queue("n4", task=M)],
        "H5": [a, Queue("b", 1, BOTH)],
    }
    name = row.removesuffix("-held")
    return Queue("", kids=roots[name]), HIERARCHIES[name][1]


H1, H2, H5 = {"n1": 5, "n21": 5, "n22": 5}, {"n1": 5, "n21": 10, "n22": 5}, {"a1": 30, "a2": 60, "b": 30}
H4 = {"n1": 10, "n2": 10, "n31": 10, "n32": 15, "n4": 15}
HELD = {"n1": 5, "n2": 5, "n31": 20, "n32": 15, "n4": 15}
IN_TASKS = [
    ("H1", H1, H1, H1),
    ("H2", {"n1": 6, "n21": 10, "n22": 4}, H2, H2),
    ("H3", {"n1": 10, "n21": 10, "n22": 0}, H2, H2),
    ("H4", H4, H4 | {"n32": 20, "n4": 10}, H4),
    # From an empty cluster the naive rule gets H4 right; with n31 ahead it does not.
    ("H4-held", HELD | {"n32": 10, "n4": 20}, HELD, HELD),
    ("H5", H5, H5, H5),
]
