"""Whether disruption budgets let a set of pods go at once. Pure.

The Eviction API asks about one pod at a time, and each eviction uses up some of the budget. A gang that loses a part of its
pods and may not lose the rest would be neither running nor given back, so all of them are counted before the first goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuectl.contract.foreign import DisruptionBudget, LabelSelector, Pod


def protected(budgets: Sequence[DisruptionBudget], pods: Iterable[Pod]) -> str:
    """Why budgets do not let all these pods of one namespace go now; "" when they do. O(budgets × pods).

    ``pods`` are running ones: the Eviction API lets a pod that is pending, has ended or is going pass every budget. One
    under two budgets is never evicted.
    """
    counts: dict[str, int] = {}
    for pod in pods:
        labels = pod.metadata.labels or {}
        over = [budget.metadata.name for budget in budgets if _covers(budget.spec.selector, labels)]
        if len(over) > 1:
            return f"pod {pod.metadata.name} is under the PodDisruptionBudgets {' and '.join(sorted(over)[:2])} at once"
        for name in over:
            counts[name] = counts.get(name, 0) + 1
    for budget in sorted(budgets, key=lambda one: one.metadata.name):
        needed, allowed = counts.get(budget.metadata.name, 0), budget.status.disruptions_allowed
        if needed > allowed:
            return f"PodDisruptionBudget {budget.metadata.name} lets {allowed} of {needed} pods go now"
    return ""


def _covers(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    for one in selector.match_expressions or ():
        value, values = labels.get(one.key), one.values or ()
        matches = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not matches.get(one.operator, True):  # what the API server may learn one day is taken for a match: protected
            return False
    return True
