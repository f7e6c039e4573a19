"""What is kept up to date or cut short is what would be computed anew and in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine import rooms as rooms_module
from queuectl.engine.curves import Curves, Need
from queuectl.engine.request import Fit, Group, Request
from queuectl.engine.rooms import Rooms
from queuectl.engine.search import Search
from queuectl.engine.single import Single
from queuectl.engine.sums import Column
from queuectl.model import changes as c
from queuectl.model.gangs import Shape, Stage
from queuectl.model.resources import GPU, MAX, PODS, amounts
from queuectl.model.topology import Node
from tests.engine.test_placement import USED, clusters, placement
from tests.engine.world import World, gang, node, pods, queue, resources, shape


@given(
    clusters(),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=12),
    st.sampled_from([shape(0), shape(1), shape(2, 2), shape(1, 0, 0)]),
)
@settings(max_examples=200, deadline=None)
def test_tallies_follow_the_nodes(
    cluster: tuple[list[Node], USED], moves: list[tuple[int, int, bool]], each: Shape
) -> None:
    """Pods come and go, nodes are cordoned; the tally that looked on is the one that only looks now."""
    nodes, used = cluster
    state = placement(nodes, used)._state
    rooms = Rooms(state.fleet)
    rooms.room(each)
    for at, gpu, cordon in moves:
        one = nodes[at % len(nodes)]
        if cordon:
            state.apply(
                c.NodeSeen(Node(name=one.name, allocatable=one.allocatable, labels=one.labels, cordoned=gpu > 1))
            )
        elif gpu:
            state.apply(c.OccupantSeen(f"o{at}", one.name, resources(gpu, 1, 0, 1)))
        else:
            state.apply(c.OccupantGone(f"o{at}"))
        state.fleet.refresh()
        fresh = Rooms(state.fleet)
        for kept, anew in (
            (rooms.room(each), fresh.room(each)),
            (rooms.ever(each), fresh.ever(each)),
        ):
            assert kept.total == anew.total
            assert all(np.array_equal(one, other) for one, other in zip(kept.sums, anew.sums, strict=True))
        kept_gpus = [column.copy() for sums in (state.fleet.gpus_free, state.fleet.gpus) for column in sums.sums]
        state.fleet._stale = True
        state.fleet.refresh()
        anew_gpus = [column for sums in (state.fleet.gpus_free, state.fleet.gpus) for column in sums.sums]
        assert all(np.array_equal(one, other) for one, other in zip(kept_gpus, anew_gpus, strict=True))


@given(clusters(), st.integers(2, 9), st.sampled_from([0, 1, 2]), st.integers(-1, 1))
@settings(max_examples=300, deadline=None)
def test_dropping_parts_that_cannot_become_the_whole_changes_nothing(
    cluster: tuple[list[Node], USED], count: int, gpu: int, level: int
) -> None:
    """The same cost and the very same rows, ties included, for no more merge steps."""
    made = placement(*cluster)
    fleet, rooms = made._state.fleet, made.rooms
    each = shape(gpu)
    need = Need(rooms.room(each), each.requests, count)
    for domain in range(len(fleet.starts[level]) if level >= 0 else 1):
        cut, full = (Curves(fleet, (need,), fleet.gpus_free, fleet.gpus) for _ in range(2))
        full._alone = False
        assert cut.cost(level, domain) == full.cost(level, domain)
        if full.cost(level, domain) is not None:
            assert cut.rows(level, domain) == full.rows(level, domain)
        assert cut._budget >= full._budget


@given(clusters(), st.sampled_from([0, 1, 2, 4]), st.integers(1, 2), st.sampled_from([0, 1, 8]))
@settings(max_examples=300, deadline=None)
def test_the_best_node_is_the_one_with_the_least_objective(
    cluster: tuple[list[Node], USED], gpu: int, count: int, looks: int
) -> None:
    """Term by term over all nodes that hold the pods, breakage before leftover; the first row of those equal.

    However many zones are looked at before all rows are.
    """
    made = placement(*cluster)
    fleet, free, installed = made._state.fleet, made._state.fleet.gpus_free, made._state.fleet.gpus
    each = shape(gpu)
    rows = (made.rooms.room(each).rows >= count).nonzero()[0]
    taken = gpu * 1000 * count

    def terms(row: int) -> tuple[int, ...]:
        pairs = [
            (int(free.sums[at][home[row]]), int(installed.sums[at][home[row]])) for at, home in enumerate(fleet.domain)
        ]
        return (
            *(whole if idle == whole and idle > taken else 0 for idle, whole in pairs),
            *(idle for idle, _ in pairs),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms_module, "_LOOKS", looks)
        found = Single(made.rooms, each, count, taken, set()).node(fleet.rows_of(-1, 0))
    assert found == min(rows.tolist(), key=lambda row: (terms(row), row), default=None)


@given(clusters(), st.integers(2, 9), st.sampled_from([0, 1, 2]), st.sampled_from([None, "zone", "rack"]))
@settings(max_examples=300, deadline=None)
def test_an_ideal_placement_in_the_fullest_domains_is_the_best_of_all(
    cluster: tuple[list[Node], USED], count: int, gpu: int, level: str | None
) -> None:
    """A look at a few domains, and one at all of them: answers of the same cost, or none."""
    request = Request((Group(shape(gpu), count),), level)
    few, every = placement(*cluster), placement(*cluster)
    near = few.place(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "_near", lambda _: None)
        full = every.place(request)
    assert isinstance(near, Fit) == isinstance(full, Fit)
    if isinstance(near, Fit) and isinstance(full, Fit):
        assert few.cost(request, near) == every.cost(request, full)


def test_a_gang_of_several_nodes_looks_into_the_fullest_zone_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three zones of two racks could take it; two have more free. The tally of its shape is made for 4 nodes of 12."""
    nodes = [
        node(f"{zone}{rack}{number}", rack=zone + rack, zone=zone) for zone in "xyz" for rack in "rs" for number in "01"
    ]
    made = placement(
        nodes, {"xr0": resources(1, 1), "yr0": resources(6, 1), "ys1": resources(1, 1), "zr0": resources(1, 1)}
    )
    counted = []
    hold = rooms_module._holds

    def noted(columns: Any, wants: Any, rows: Column) -> Column:
        counted.extend(rows.tolist())
        return hold(columns, wants, rows)

    monkeypatch.setattr(rooms_module, "_holds", noted)
    assert made.place(Request((Group(shape(4), 3),))) == Fit(((("ys0", 2), ("ys1", 1)),))
    assert {made._state.fleet.tree.nodes[row][0] for row in counted} == {"y"}


def test_a_gang_that_vanishes_with_its_pods_gives_all_of_it_back() -> None:
    """Also when a pod of it had become another one since, and when all news of it comes at once."""
    story = World([node(f"n{number}") for number in range(2)], queue("q"))
    one = gang("g", 4, each=shape(2))
    story.add(one, pods(one))
    story.decide()
    story.change("g-0", shape=shape(1))
    story.decide()
    for uid in ("g-0", "g-1", "g-2", "g-3"):
        story.tell_gone(uid)
    story.tell(c.GangGone("g"))
    story.decide()
    assert story.engine._state.gangs == {}
    assert (story.usage("q"), story.used("n0"), story.used("n1")) == (0, 0, 0)


def test_unlike_pods_of_one_gang_on_one_node_are_charged_each_for_itself() -> None:
    """Two shapes on the node, one of them changed while it is gated; the ledger knows the sum."""
    story = World(node("n"), queue("q"))
    one = gang("g", 3, each=shape(2))
    members = pods(one)
    story.add(one, members[0], members[1])
    story.add(pods(one, 1, start=2, shape=shape(1)))
    story.obey(story.decide())
    assert {member.stage for member in story.members("g")} == {Stage.RELEASED}
    assert (story.used("n"), story.usage("q")) == (5, 5)


def test_amounts_near_the_end_of_an_int64_do_not_wrap() -> None:
    """Many such pods on one node: charged together, exact in the ledger, nothing free in the columns, all given back."""
    story = World(node("n"), queue("q"))
    for number in range(4):
        story.tell(c.OccupantSeen(f"o{number}", "n", amounts({GPU: MAX, PODS: 1})))
    story.decide()
    fleet = story.engine._state.fleet
    assert fleet.used["n"][GPU] == 4 * MAX
    assert int(fleet.free[GPU][0]) < 0
    for number in range(4):
        story.tell(c.OccupantGone(f"o{number}"))
    story.decide()
    assert int(fleet.free[GPU][0]) == 8000


def test_a_free_node_filled_to_the_last_gpu_still_breaks_its_free_rack() -> None:
    """Zone x has less left over, but both its nodes are free; the node in use breaks nothing."""
    free = [node(name, 2, rack="r", zone="x") for name in "ab"]
    made = placement([*free, node("c", 4, rack="s", zone="y"), node("d", 4, rack="s", zone="y")], {"c": resources(2)})
    assert made.place(Request((Group(shape(2), 1),))) == Fit(((("c", 1),),))
