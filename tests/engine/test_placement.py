"""Placement against every possible placement on small trees, and the tie-breaks that people ask about."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine import search as module
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit, Group, Refusal, Request
from queuectl.engine.state import State
from queuectl.model import changes as c
from queuectl.model.gangs import Requirement, Term
from queuectl.model.reasons import Reason
from queuectl.model.resources import Amounts
from queuectl.model.topology import Node, Taint
from tests.engine import oracle
from tests.engine.world import LEVELS, node, resources, shape, tolerate

USED = dict[str, Amounts]


def placement(nodes: list[Node], used: USED) -> Placement:
    state = State()
    state.apply(c.LevelsSeen(LEVELS))
    for one in nodes:
        state.apply(c.NodeSeen(one))
    for name, amounts in used.items():
        state.apply(c.OccupantSeen(f"on-{name}", name, amounts))
    state.fleet.refresh()
    return Placement(state)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], USED]:
    """Up to six nodes in up to two zones and three racks, some outside, some partly used."""
    nodes: list[Node] = []
    used: USED = {}
    for number in range(draw(st.integers(1, 6))):
        gpu = draw(st.sampled_from([0, 2, 4]))
        rack, zone = draw(st.sampled_from(["r", "s", None])), draw(st.sampled_from(["x", "y", "x", None]))
        nodes.append(
            node(
                f"n{number}",
                gpu,
                cpu=draw(st.integers(2, 6)),
                rack=rack,
                zone=zone,
                cordoned=draw(st.integers(0, 9)) == 0,
            )
        )
        if taken := draw(st.sampled_from([0, 0, 1, 2])):
            used[f"n{number}"] = resources(min(taken, gpu), 1, 0, 1)
    return nodes, used


levels = st.sampled_from([None, None, "zone", "rack", "node"])


@given(clusters(), st.integers(1, 5), st.sampled_from([0, 1, 2]), levels)
@settings(max_examples=300, deadline=None)
def test_equal_members_get_the_least_objective(
    cluster: tuple[list[Node], USED], count: int, gpu: int, level: str | None
) -> None:
    """Exactly the least of all placements, and a refusal exactly when there is none."""
    nodes, used = cluster
    request = Request((Group(shape(gpu), count),), level)
    found = placement(nodes, used).place(request)
    least = oracle.best(request, nodes, used, LEVELS)
    assert isinstance(found, Fit) == (least is not None)
    if isinstance(found, Fit):
        assert oracle.objective(oracle.counts(found), request, nodes, used, LEVELS) == least


@given(clusters(), st.integers(1, 2), st.integers(1, 3), st.sampled_from([0, 1, 2]), levels, levels)
@settings(max_examples=200, deadline=None)
def test_unlike_members_get_the_least_objective(
    cluster: tuple[list[Node], USED], leaders: int, workers: int, gpu: int, level: str | None, own: str | None
) -> None:
    """Two shapes, one of them with a level of its own."""
    nodes, used = cluster
    request = Request((Group(shape(0, 2), leaders), Group(shape(gpu, 1), workers, own)), level)
    found = placement(nodes, used).place(request)
    least = oracle.best(request, nodes, used, LEVELS)
    assert isinstance(found, Fit) == (least is not None)
    if isinstance(found, Fit):
        assert oracle.objective(oracle.counts(found), request, nodes, used, LEVELS) == least


@given(clusters(), st.integers(1, 2), st.integers(1, 3), levels, levels)
@settings(max_examples=150, deadline=None)
def test_packing_is_valid_and_misses_nothing_within_its_budget(
    cluster: tuple[list[Node], USED], leaders: int, workers: int, level: str | None, own: str | None
) -> None:
    """With the exact search switched off: still a placement of the request whenever there is one."""
    nodes, used = cluster
    request = Request((Group(shape(0, 2), leaders), Group(shape(1, 1), workers, own)), level)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_EXACT_GROUPS", 0)
        found = placement(nodes, used).place(request)
    possible = list(oracle.placements(request, nodes, used, LEVELS))
    assert isinstance(found, Fit) == bool(possible)
    if isinstance(found, Fit):
        assert oracle.counts(found) in possible


def test_the_oracle_catches_the_naive_variant() -> None:
    """Best fit by node fills the gap in the far rack first and then spreads over two racks; the objective does not."""
    nodes = [node("a", 2, rack="r", zone="x"), node("b", 4, rack="s", zone="x"), node("c", 4, rack="s", zone="x")]
    used = {"a": resources(1, 1, 0, 1)}
    request = Request((Group(shape(1), 5),))
    naive = oracle.best_fit(shape(1), 5, nodes, used)
    found = placement(nodes, used).place(request)
    least = oracle.best(request, nodes, used, LEVELS)
    assert naive is not None
    assert oracle.objective(naive, request, nodes, used, LEVELS) != least
    assert isinstance(found, Fit)
    assert oracle.objective(oracle.counts(found), request, nodes, used, LEVELS) == least


def test_a_small_gang_does_not_break_an_empty_node() -> None:
    nodes = [node("a", rack="r", zone="x"), node("b", rack="r", zone="x")]
    assert placement(nodes, {"b": resources(5, 1, 0, 1)}).place(Request((Group(shape(1), 2),))) == Fit(((("b", 2),),))


def test_the_tightest_rack_of_the_tightest_zone() -> None:
    """Leftover is judged from the top: zone y has less left, although zone x has the tighter rack."""
    nodes = [
        node(f"{zone}{rack}{number}", rack=zone + rack, zone=zone)
        for zone in "xy"
        for rack in "rs"
        for number in (0, 1)
    ]
    used = {
        "xr0": resources(8, 8, 0, 8),
        "yr0": resources(4, 1, 0, 1),
        "yr1": resources(4, 1, 0, 1),
        "ys0": resources(8, 1, 0, 1),
    }
    found = placement(nodes, used).place(Request((Group(shape(4), 2),), "rack"))
    assert found == Fit(((("yr0", 1), ("yr1", 1)),)) or found == Fit(((("ys1", 2),),))
    assert isinstance(found, Fit)
    assert oracle.objective(
        oracle.counts(found), Request((Group(shape(4), 2),), "rack"), nodes, used, LEVELS
    ) == oracle.best(Request((Group(shape(4), 2),), "rack"), nodes, used, LEVELS)


def test_selector_affinity_and_taints() -> None:
    """Each constraint alone picks its node; each is named with counts when none is left."""
    nodes = [
        node("plain"),
        node("h100", labels={"gpu": "h100", "mem": "80"}),
        node("dirty", taints=(Taint("team", "x"),)),
    ]
    where = {
        "h100": shape(1, selector=(("gpu", "h100"),)),
        "dirty": shape(
            1,
            tolerations=(tolerate("team"),),
            affinity=(Term(fields=(Requirement("metadata.name", "In", ("dirty",)),)),),
        ),
        "plain": shape(1, affinity=(Term((Requirement("gpu", "DoesNotExist"),)),)),
    }
    for name, one in where.items():
        assert placement(nodes, {}).place(Request((Group(one, 1),))) == Fit((((name, 1),),))
    more = shape(1, affinity=(Term((Requirement("mem", "Gt", ("80",)),)),))
    found = placement(nodes, {}).place(Request((Group(more, 1),)))
    assert isinstance(found, Refusal)
    assert found.misfits[0].reason is Reason.NEVER_FITS
    assert {one.reason for one in found.misfits} == {
        Reason.NEVER_FITS,
        Reason.NODE_SELECTOR_MISMATCH,
        Reason.TAINT_NOT_TOLERATED,
    }


def test_a_preference_is_tried_then_climbed() -> None:
    """Workers prefer one rack although the leader must then sit elsewhere; when no rack holds them they may spread."""
    nodes = [
        node("a", 2, cpu=3, rack="r", zone="x"),
        node("b", 2, cpu=2, rack="s", zone="x"),
        node("c", 0, cpu=4, rack="t", zone="x"),
    ]
    group = Group(shape(1), 2, preferred="rack")
    found = placement(nodes, {}).place(Request((Group(shape(0, 3), 1), group)))
    assert isinstance(found, Fit)
    assert len(found.nodes[1]) == 1
    wide = Group(shape(1), 4, preferred="rack")
    assert isinstance(placement(nodes, {}).place(Request((Group(shape(0, 3), 1), wide))), Fit)
