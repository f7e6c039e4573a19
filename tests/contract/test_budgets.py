"""Whether disruption budgets let all of a gang's pods go at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuectl.contract.budgets import protected
from queuectl.contract.foreign import DisruptionBudget, Pod

WEB = {"matchLabels": {"app": "web"}}


def budget(name: str, allowed: int, selector: dict[str, Any] | None) -> DisruptionBudget:
    """A budget as the API server shows it."""
    spec = {} if selector is None else {"selector": selector}
    body = {"metadata": {"name": name}, "spec": spec, "status": {"disruptionsAllowed": allowed}}
    return msgspec.convert(body, DisruptionBudget)


def pods(count: int, **labels: str) -> list[Pod]:
    """So many pods with these labels."""
    return [msgspec.convert({"metadata": {"name": f"p{n}", "labels": labels}}, Pod) for n in range(count)]


@pytest.mark.parametrize(
    ("allowed", "count", "says"),
    [
        (3, 3, ""),
        (2, 3, "PodDisruptionBudget one lets 2 of 3 pods go now"),
        (0, 1, "PodDisruptionBudget one lets 0 of 1 pods go now"),
    ],
)
def test_all_pods_are_counted_before_the_first_goes(allowed: int, count: int, says: str) -> None:
    """Each eviction uses up some of what is allowed."""
    assert protected([budget("one", allowed, WEB)], pods(count, app="web")) == says


def test_a_pod_under_two_budgets_never_goes() -> None:
    """The Eviction API refuses it, whatever they allow."""
    two = [budget("b", 9, WEB), budget("a", 9, {})]
    assert protected(two, pods(1, app="web")) == "pod p0 is under the PodDisruptionBudgets a and b at once"
    assert protected(two, pods(1, app="other")) == ""


def test_the_first_by_name_is_named() -> None:
    """Whatever the order in which they are listed."""
    mixed = [*pods(1, app="web"), *pods(1, app="api")]
    both = [budget("web", 0, WEB), budget("api", 0, {"matchLabels": {"app": "api"}})]
    assert protected(both, mixed) == protected(both[::-1], mixed) == "PodDisruptionBudget api lets 0 of 1 pods go now"


def expression(operator: str, *values: str) -> dict[str, Any]:
    """A selector of one requirement on the label tier."""
    one = {"key": "tier", "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchExpressions": [one]}


@pytest.mark.parametrize(
    ("selector", "labels", "covers"),
    [
        (None, {"app": "web"}, False),  # of policy/v1: without a selector it protects nothing
        ({}, {}, True),
        (WEB, {}, False),
        (WEB, {"app": "api"}, False),
        (expression("In", "a", "b"), {"tier": "b"}, True),
        (expression("In", "a", "b"), {"tier": "c"}, False),
        (expression("In", "a"), {}, False),
        (expression("NotIn", "a"), {"tier": "a"}, False),
        (expression("NotIn", "a"), {"tier": "b"}, True),
        (expression("NotIn", "a"), {}, True),
        (expression("Exists"), {"tier": ""}, True),
        (expression("Exists"), {}, False),
        (expression("DoesNotExist"), {"tier": "a"}, False),
        (expression("DoesNotExist"), {}, True),
        (expression("Later", "a"), {}, True),
        ({**WEB, **expression("Exists")}, {"app": "web"}, False),
        ({**WEB, **expression("Exists")}, {"app": "web", "tier": "a"}, True),
    ],
)
def test_selectors(selector: dict[str, Any] | None, labels: dict[str, str], covers: bool) -> None:
    """Label selectors as Kubernetes has them; an operator that nobody knows yet protects."""
    assert bool(protected([budget("one", 0, selector)], pods(1, **labels))) is covers
