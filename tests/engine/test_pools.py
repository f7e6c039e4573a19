"""Pools: where a gang may go, what counts where, and what is said of it."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.engine.asks import core_request
from queuectl.engine.engine import Engine
from queuectl.engine.pools import Pools
from queuectl.model import changes as c
from queuectl.model.gangs import Role, Stage
from queuectl.model.pools import OUTSIDE
from queuectl.model.reasons import LevelEvidence, Misfit, QueueEvidence, Reason, remedy, sentence
from queuectl.model.resources import CPU, GPU
from queuectl.model.topology import HOSTNAME, Level, merge
from tests.engine.world import World, entry, gang, node, pods, pool, queue, shape, told


def two(*queues: object, h: int = 8, a: int = 8) -> World:
    """One node of each kind, each a pool."""
    return World(
        node("h0", h, labels={"gpu": "h100"}), node("a0", a, labels={"gpu": "a100"}),
        pool("h100", gpu="h100"), pool("a100", gpu="a100"), *queues,
    )  # fmt: skip


def admitted(name: str, **nodes: int) -> str:
    """As ``told`` says it: so many slots on each node, in this order."""
    order = [node for node, count in nodes.items() for _ in range(count)]
    return " ".join(["admit", name, *(f"{slot}={node}" for slot, node in enumerate(order))])


# ---- membership


def members(pools: Pools) -> dict[str, set[str]]:
    """Pool -> its nodes."""
    return {name: {node for node, homes in pools.of.items() if name in homes} for name in pools.pools}


LABELS = st.fixed_dictionaries({"x": st.sampled_from(["0", "1", None]), "y": st.sampled_from(["0", "1", None])})


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), LABELS, st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from("pqr"), LABELS), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_membership_and_capacity_follow_labels_and_selectors(
    nodes: list[tuple[str, dict[str, str | None], int]], declared: list[tuple[int, str, dict[str, str | None]]]
) -> None:
    """Nodes come, change and go, pools too, in any order: what is kept is what the last of each says."""
    world = World()
    for at, (name, labels, gpus) in enumerate([*nodes, ("e", {"x": None, "y": None}, 1)]):
        for when, other, selector in declared:
            if when == at:
                world.add(pool(other, x=selector["x"], y=selector["y"]))
        if gpus:
            world.add(node(name, gpus, labels=labels))
        else:
            world.tell(c.NodeGone(name))
        if at % 2:
            world.decide()
    world.decide()
    view = world.engine.view()
    for one in view.pools if world.engine._state.fleet.pools else ():
        inside = [each for each in view.nodes if dict(one.selector).items() <= dict(each.labels).items()]
        assert dict(one.allocatable).get(GPU, 0) == sum(dict(each.allocatable)[GPU] for each in inside)
        assert all((one.name in each.pools) is (each in inside) for each in view.nodes)


@given(st.lists(st.sets(st.sampled_from("pqr")), max_size=6))
@settings(max_examples=100, deadline=None)
def test_kinship_is_what_sets_of_nodes_say(homes: list[set[str]]) -> None:
    world = World(pool("p", p="1"), pool("q", q="1"), pool("r", r="1"))
    world.add(node(f"n{number}", labels=dict.fromkeys(home, "1")) for number, home in enumerate(homes))
    world.decide()
    pools = world.engine._state.fleet.pools
    inside = members(pools)
    for name in "pqr":
        around = {other for other in "pqr" if inside[name] <= inside[other]} if inside[name] else {name}
        across = {other for other in "pqr" if inside[name] & inside[other]} - around
        assert set(pools.kinship.around[name]) == around
        assert set(pools.kinship.across[name]) == across
        assert pools.size(name) == len(inside[name])
    assert pools.size(OUTSIDE) == sum(not home for home in homes)


def test_without_pools_there_is_one_of_all_nodes() -> None:
    world = World(node("n0", 8), node("n1", 4, cordoned=True), queue("q"))
    (one,) = world.engine.view().pools
    assert (one.name, one.declared, one.selector, dict(one.allocatable)[GPU]) == ("default", False, (), 12_000)
    assert [view.pools for view in world.engine.view().nodes] == [(), ()]


# ---- limits


def test_a_limit_in_a_pool_names_pool_need_and_have() -> None:
    world = two(queue("top", entries=(entry("h100", limit=4),)), queue("q", "top"))
    world.start(gang("first", 3, each=shape(selector=(("gpu", "h100"),))), [])
    world.add(gang("second", 2, each=shape(selector=(("gpu", "h100"),))))
    assert told(world.decide()) == ["refuse second OverLimit"]
    (why,) = world.engine.explain("second")
    assert why == Misfit(Reason.OVER_LIMIT, QueueEvidence("top", GPU, 2000, 1000, 4000, 3000, pool="h100"))
    assert sentence(why) == "queue top in pool h100: needs 2 nvidia.com/gpu, 1 left of its limit 4 (3 in use)"
    assert remedy(why) == "raise the limit of top in pool h100 or wait until 1 are given back there"


def test_every_limit_on_the_path_counts_and_each_pool_by_itself() -> None:
    """q may have 2 in h100 and its parent 3 in a100: four go nowhere, three to a100, two more to h100."""
    world = two(queue("top", entries=(entry("a100", limit=3),)), queue("q", "top", entries=(entry("h100", limit=2),)))
    world.add(gang("four", 4), gang("three", 3, queued_at=1), gang("two", 2, queued_at=2))
    assert told(world.decide()) == [
        "admit three 0=a0 1=a0 2=a0", "admit two 0=h0 1=h0", "refuse four OverLimit OverLimit",
    ]  # fmt: skip
    assert (world.usage_in("q"), world.usage_in("top")) == ({"a100": 3, "h100": 2}, {"a100": 3, "h100": 2})


def test_a_refused_gang_wakes_when_the_limit_of_its_pool_has_room() -> None:
    """Not when another pool has: nothing is tried then, and the refusal stands."""
    world = two(queue("q", entries=(entry("h100", limit=2), entry("a100", limit=2))))
    each = {kind: shape(selector=(("gpu", kind),)) for kind in ("h100", "a100")}
    for name, kind in (("h", "h100"), ("a", "a100")):
        world.start(gang(name, 2, each=each[kind]), pods(gang(name, 2, each=each[kind])))
    world.add(gang("waits", 1, each=each["h100"]))
    assert told(world.decide()) == ["refuse waits OverLimit"]
    world.change("a", finished=True)
    for one in world.members("a"):
        world.change(one.uid, stage=Stage.SUCCEEDED)
    assert told(world.decide()) == []
    world.change("h-0", stage=Stage.SUCCEEDED)
    assert told(world.decide()) == ["admit waits 0=h0"]


def test_a_limit_counts_what_is_on_the_pools_nodes_now() -> None:
    """A node that leaves the pool takes its usage along; one that is deleted does, too."""
    world = two(queue("q", entries=(entry("h100", limit=8),)))
    world.add(node("h1", labels={"gpu": "h100"}))
    one = gang("one", 8, each=shape(selector=(("gpu", "h100"),)))
    world.start(one, pods(one))
    assert world.usage_in("q") == {"h100": 8}
    world.add(node("h0", labels={"gpu": "broken"}))
    assert (world.usage_in("q"), world.usage("q")) == ({}, 8)
    world.add(node("h0", labels={"gpu": "h100"}))
    assert world.usage_in("q") == {"h100": 8}
    world.tell(c.NodeGone("h0"))
    assert (world.usage_in("q"), world.usage("q")) == ({}, 8)


def test_edits_of_pools_are_followed() -> None:
    world = two(queue("q", entries=(entry("big", limit=9),)), pool("big"))
    world.start(gang("g", 6), pods(gang("g", 6)))
    assert world.usage_in("q") == {"a100": 6, "big": 6}
    world.add(pool("big", gpu="h100"))
    assert world.usage_in("q") == {"a100": 6}
    world.add(gang("h", 8))
    assert told(world.decide()) == [admitted("h", h0=8)]
    assert world.usage_in("q") == {"a100": 6, "big": 8, "h100": 8}
    for name in ("big", "h100", "a100"):
        world.tell(c.PoolGone(name))
    world.add(queue("q"))
    assert (told(world.decide()), world.usage_in("q"), world.usage("q")) == ([], {}, 14)


def test_a_pool_that_does_not_exist_stops_the_queue_and_all_below_it_only() -> None:
    world = two(
        queue("top", entries=(entry("b200", limit=8),)), queue("q", "top"), queue("r", entries=(entry("h100", limit=8),))
    )  # fmt: skip
    world.add(gang("g", 1), gang("h", 1, "r"))
    assert told(world.decide()) == ["admit h 0=a0", "refuse g QueueInactive"]
    (why,) = world.engine.explain("g")
    assert sentence(why) == "queue top is inactive: there is no Pool b200"
    assert remedy(why) == "create the Pool b200, or correct its name in the resources of top"
    world.add(pool("b200", gpu="b200"))
    assert told(world.decide()) == ["admit g 0=a0"]


def test_only_while_there_is_no_pool_default_means_all_nodes() -> None:
    world = World(node("n0", 8), queue("q", entries=(entry("default", limit=2),)))
    world.add(gang("g", 3))
    assert told(world.decide()) == ["refuse g OverLimit"]
    world.add(pool("other", gpu="none"))
    assert told(world.decide()) == ["refuse g QueueInactive"]
    world.tell(c.PoolGone("other"))
    world.add(queue("q", entries=(entry("default", limit=3),)))
    assert told(world.decide()) == ["admit g 0=n0 1=n0 2=n0"]


# ---- placement


def test_equal_members_are_not_spread_over_pools() -> None:
    """Eight are free in each of two pools: twelve wait, and every pool says how many it has room for. A pool of both helps."""
    world = two(queue("q"), gang("g", 12))
    assert told(world.decide()) == ["refuse g NeverFits NeverFits"]
    assert [sentence(one) for one in world.engine.explain("g")] == [
        "12 pods can never fit into pool a100; even empty, it has room for 8",
        "12 pods can never fit into pool h100; even empty, it has room for 8",
    ]
    world.add(pool("both"))
    assert told(world.decide()) == [admitted("g", a0=4, h0=8)]


def test_what_can_never_be_is_not_said_while_another_pool_is_only_full() -> None:
    """Nothing but the pool that could hold it stands in the way: the other is too small for ever, which is no reason."""
    world = two(queue("q"), a=4)
    world.start(gang("first", 5), pods(gang("first", 5)))
    world.add(gang("g", 6))
    assert told(world.decide()) == ["refuse g NoCapacity"]
    (why,) = world.engine.explain("g")
    assert isinstance(why.evidence, LevelEvidence)
    assert (why.evidence.pool, why.evidence.have, why.evidence.ever) == ("h100", 3, 8)


def test_of_many_pools_the_refusal_names_the_nearest_few_and_any_of_them_wakes_the_gang() -> None:
    """Twenty pools of one node; the gang lacks least where most is free, and starts where room comes first, named or not."""
    world = World(queue("q"), [pool(f"p{n}", team=f"t{n}") for n in range(20)])
    world.add(node(f"n{n:02}", 8, labels={"team": f"t{n}"}) for n in range(20))
    for n in range(20):
        world.occupy(f"o{n}", f"n{n:02}", 8 - n % 8)
    world.add(gang("g", 8))
    assert told(world.decide()) == [f"refuse g{' NoCapacity' * 8}"]
    places = [one.evidence for one in world.engine.explain("g")]
    assert [place.pool for place in places if isinstance(place, LevelEvidence)] == [
        "p15", "p7", "p14", "p6", "p13", "p5", "p12", "p4",
    ]  # fmt: skip
    world.tell(c.OccupantGone("o0"))
    assert told(world.decide()) == [admitted("g", n00=8)]


def test_nodes_of_no_pool_are_there_for_everybody() -> None:
    """Who needs no GPU breaks into no GPU node, whatever pools there are, and is refused by none while those have room."""
    world = two(queue("q"))
    world.add(node("c0", 0, cpu=8), gang("few", 8, each=shape(0)), gang("more", 8, each=shape(0), queued_at=1))
    assert told(world.decide()) == [admitted("few", c0=8), admitted("more", a0=8)]
    world.add(gang("most", 65, each=shape(0)))
    assert told(world.decide()) == ["refuse most NeverFits NeverFits NeverFits"]
    assert "65 pods can never fit into the cluster outside all pools; even empty, it has room for 8" in [
        sentence(one) for one in world.engine.explain("most")
    ]


def test_a_leader_without_gpus_stays_with_its_workers_where_it_can() -> None:
    """And goes to another pool where its selector says so: then each is charged where it is, in one admission."""
    world = two(queue("q"))
    world.add(node("c0", 0, cpu=64, labels={"kind": "cpu"}), pool("cpu", kind="cpu"))
    workers = Role("w", 8, 8, shape(1))
    world.add(gang("near", roles=(Role("l", 1, 1, shape(0)), workers)))
    assert told(world.decide()) == [admitted("near", a0=9)]
    world.add(gang("far", roles=(Role("l", 1, 1, shape(0, selector=(("kind", "cpu"),))), workers)))
    assert told(world.decide()) == [admitted("far", c0=1, h0=8)]
    assert world.usage_in("q") == {"a100": 8, "cpu": 0, "h100": 8}


def test_of_pools_that_fit_the_one_with_quota_left_is_taken() -> None:
    """h100 is the smaller and would be looked at first; the quota of the whole path must allow it."""
    world = two(queue("top"), queue("q", "top", entries=(entry("a100", quota=4),)))
    world.add(node("a1", labels={"gpu": "a100"}))
    world.add(queue("top", entries=(entry("a100", quota=4), entry("h100", quota=8))))
    world.add(gang("g", 4), gang("h", 8, queued_at=1))
    assert told(world.decide()) == [admitted("g", a0=4), admitted("h", h0=8)]


def test_a_replacement_stays_in_the_pool_and_never_breaks_a_limit_of_another() -> None:
    world = two(queue("q", entries=(entry("a100", limit=0),)))
    world.add(node("h1", labels={"gpu": "h100"}, cordoned=True))
    one = gang("g", 2, each=shape(4))
    world.start(one, pods(one))
    assert world.usage_in("q") == {"h100": 8}
    world.tell(c.MemberGone("g-1"))
    world.add(node("h0", labels={"gpu": "h100"}, cordoned=True), pods(one, 1, start=1, created=7))
    assert told(world.decide()) == ["refuse g Torn"]
    world.add(node("h1", labels={"gpu": "h100"}))
    assert told(world.decide()) == ["extra g 1:g-1=h1", "refuse g"]


# ---- quotas and turns


def test_a_quota_that_is_not_listed_follows_the_largest_fraction_in_its_pool() -> None:
    """4 of 8 GPUs in h100 is half of its CPUs, too: beyond either the queue borrows."""
    world = two(queue("q", entries=(entry("h100", quota=4),)))
    world.decide()
    branch = world.engine._state.branches.branches["q"]
    assert branch.quota_in["h100"][GPU] == 4_000
    assert branch.quota_in["h100"][CPU] == 32_000
    world.add(pool("h100", (GPU,), gpu="h100"))
    world.decide()
    assert world.engine._state.branches.branches["q"].quota_in == {"h100": {GPU: 4_000}}


def test_turns_go_by_the_quota_of_the_pool_that_a_gang_can_go_to() -> None:
    """a is entitled to h100, b to a100; both want a100: b's turn comes first although a has the older gangs."""
    world = two(queue("a", entries=(entry("h100", quota=8),)), queue("b", entries=(entry("a100", quota=2),)))
    each = shape(selector=(("gpu", "a100"),))
    world.add(gang(f"a{n}", 1, "a", each=each, queued_at=1) for n in range(8))
    world.add(gang(f"b{n}", 1, "b", each=each, queued_at=2) for n in range(4))
    turns = [line.split()[1] for line in told(world.decide()) if line.startswith("admit")]
    assert turns[:2] == ["b0", "b1"]
    assert len(turns) == 8


def test_both_a_quota_over_all_nodes_and_one_in_a_pool_must_cover_a_gang() -> None:
    world = two(queue("q", entries=(entry(quota=6), entry("h100", quota=4))), queue("r", entries=(entry(quota=16),)))
    state = world.engine._state
    for need, kind, within in ((4, "h100", True), (5, "h100", False), (6, "a100", True), (7, "a100", False)):
        name = f"{kind}-{need}"
        world.add(gang(name, need, each=shape(1, 0, 0, selector=(("gpu", kind),))))
        world.engine._catch_up()
        request, _ = core_request(state.gangs[name], state.fleet.pools)
        (way,) = world.engine._ways.of(request)
        assert world.engine._ways._beyond(state.branches.branches["q"], way, request.need) == (not within,), name


# ---- by brute force


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("pq")), st.integers(0, 4)), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
    st.fixed_dictionaries({"p": st.sampled_from([None, 0, 2, 3, 4]), "q": st.sampled_from([None, 0, 2, 3, 4])}),
)
@settings(max_examples=400, deadline=None)
def test_a_gang_starts_exactly_when_some_choice_of_pools_holds_it(
    nodes: list[tuple[set[str], int]], counts: list[int], limits: dict[str, int | None]
) -> None:
    """All assignments of members to nodes, tried one by one: inside one pool for each role, and under every limit as a whole."""
    world = World(pool("p", p="1"), pool("q", q="1"))
    world.add(node(f"n{n}", gpus, labels=dict.fromkeys(home, "1")) for n, (home, gpus) in enumerate(nodes))
    world.add(queue("q", entries=tuple(entry(name, limit=limit) for name, limit in limits.items())))
    sizes = [(count, gpus) for gpus, count in enumerate(counts, start=1)]  # of one GPU each, and of two
    made = tuple(Role(f"r{n}", count, count, shape(gpus, 0, 0)) for n, (count, gpus) in enumerate(sizes))
    world.add(gang("g", roles=made))
    world.decide()
    started = world.phase("g") == "Assumed"
    assert started is any(_holds(nodes, sizes, limits, choice) for choice in _choices(nodes, sizes))


def _choices(nodes: list[tuple[set[str], int]], sizes: list[tuple[int, int]]) -> list[tuple[str, ...]]:
    """A pool for each role: one for all, but for those that no node there could hold one member of."""
    homes = ("p", "q", OUTSIDE)

    def suits(pool: str, gpus: int) -> bool:
        return any(_inside(home, pool) and free >= gpus for home, free in nodes)

    found = set()
    for home in homes:
        suited = [[one for one in homes if suits(one, gpus)] for _, gpus in sizes]
        if any(home in one for one in suited):
            found |= set(product(*([home] if home in one else one for one in suited)))
    return sorted(found)


def _inside(home: set[str], pool: str) -> bool:
    return pool in home if pool != OUTSIDE else not home


def _holds(
    nodes: list[tuple[set[str], int]],
    sizes: list[tuple[int, int]],
    limits: dict[str, int | None],
    choice: tuple[str, ...],
) -> bool:
    """Whether members fit so; a pool whose limit cannot take all that may land there takes nothing of what need not."""
    members = [(gpus, choice[role]) for role, (count, gpus) in enumerate(sizes) for _ in range(count)]

    def total(pool: str, sure: bool) -> int:
        inside = {one: [home for home, _ in nodes if _inside(home, one)] for one in ("p", "q", OUTSIDE)}
        return sum(
            gpus
            for gpus, chosen in members
            if (all if sure else any)(pool in home for home in inside[chosen]) and inside[chosen]
        )

    for name, limit in limits.items():
        if limit is not None and total(name, sure=True) > limit:
            return False
    avoided = {pool for pool, limit in limits.items() if limit is not None and total(pool, sure=False) > limit}
    for where in product(range(len(nodes)), repeat=len(members)):
        used = [0] * len(nodes)
        for (gpus, _), at in zip(members, where, strict=True):
            used[at] += gpus
        if any(taken > free for taken, (_, free) in zip(used, nodes, strict=True)):
            continue
        if all(
            _inside(nodes[at][0], chosen)
            and not any(pool in nodes[at][0] and not _sure(nodes, chosen, pool) for pool in avoided)
            for (_, chosen), at in zip(members, where, strict=True)
        ):
            return True
    return False


def _sure(nodes: list[tuple[set[str], int]], chosen: str, pool: str) -> bool:
    inside = [home for home, _ in nodes if _inside(home, chosen)]
    return bool(inside) and all(pool in home for home in inside)


# ---- topologies


def test_levels_of_several_topologies_are_one_order() -> None:
    """As each has them; between levels that none orders, the default's come first. The node is last."""
    zone, rack, fabric, block, host = (Level(name, (name,)) for name in ("zone", "rack", "fabric", "block", "node"))
    default = (zone, rack, host)
    assert merge(default, []) == (default, ())
    assert merge(default, [("a", (fabric, host))]) == ((zone, rack, fabric, host), ())
    assert merge(default, [("a", (zone, block, rack, host))]) == ((zone, block, rack, host), ())
    assert merge(default, [("a", (block, zone, host)), ("b", (fabric, block, host))]) == (
        (fabric, block, zone, rack, host), (),
    )  # fmt: skip
    assert merge(default, [("a", (rack, zone, host)), ("b", (rack, block, host))]) == (
        (zone, rack, block, host),
        ("a",),
    )


def test_a_level_that_a_nodes_topology_does_not_have_joins_and_parts_nothing() -> None:
    """Below zone some nodes have racks, others fabrics; who lacks the label of its own level is alone there."""
    zone, rack, fabric, host = (Level(name, (name,)) for name in ("zone", "rack", "fabric", "node"))
    world = World(levels=(zone, rack, host))
    world.tell(c.LevelsSeen((zone, fabric, host), "fabrics"))
    world.add(pool("h", topology="fabrics", kind="h"))
    world.add(node(name, zone="z", rack="r", labels={"fabric": "f", "kind": "h"}) for name in ("h0", "h1"))
    world.add(node("h2", zone="z", rack="r", labels={"kind": "h"}))
    world.add(node(name, zone="z", rack="r", labels={"fabric": "f"}) for name in ("a0", "a1"))
    world.decide()
    tree = world.engine._state.fleet.tree
    found = {
        table.level: [
            (table.named[number], tree.nodes[table.starts[number] : table.starts[number + 1]])
            for number in range(len(table.names))
        ]
        for table in tree.levels
    }
    assert found == {
        "zone": [(True, ("a0", "a1", "h0", "h1", "h2"))],
        "rack": [(True, ("a0", "a1")), (False, ("h0", "h1", "h2"))],
        "fabric": [(False, ("a0", "a1")), (True, ("h0", "h1")), (False, ("h2",))],
        "node": [(True, (name,)) for name in ("a0", "a1", "h0", "h1", "h2")],
    }
    views = {view.name: view.domains for view in world.engine.view().nodes}
    assert (views["h0"], views["h2"], views["a0"]) == (
        (("zone", "z"), ("fabric", "f")), (("zone", "z"),), (("zone", "z"), ("rack", "r")),
    )  # fmt: skip


def test_a_topology_that_cannot_apply_is_told_and_the_default_one_does() -> None:
    zone, rack, host = (Level(name, (name,)) for name in ("zone", "rack", "node"))
    world = World(node("n0", rack="r", zone="z"), pool("p", topology="odd"), levels=(zone, rack, host))
    world.decide()

    def problem() -> str:
        (one,) = world.engine.view().pools
        return one.problem

    assert problem() == "there is no Topology odd; the default one applies"
    world.tell(c.LevelsSeen((rack, zone, host), "odd"))
    assert problem() == "Topology odd has levels in another order than those before it; the default one applies"
    assert world.engine.view().nodes[0].domains == (("zone", "z"), ("rack", "r"))
    world.tell(c.LevelsSeen((rack, host), "odd"))
    assert (problem(), world.engine.view().nodes[0].domains) == ("", (("rack", "r"),))
    world.tell(c.LevelsGone("odd"))
    assert world.engine.view().nodes[0].domains == (("zone", "z"), ("rack", "r"))
    world.tell(c.LevelsGone("default"))
    assert world.engine.view().nodes[0].domains == ()


def test_a_level_of_one_pool_wakes_who_waited_for_it() -> None:
    rack, host = Level("rack", ("rack",)), Level("node", (HOSTNAME,))
    world = World(
        node("n0", rack="r"), queue("q"), pool("p", topology="racks"), gang("g", required="rack"), levels=(host,)
    )
    assert told(world.decide()) == ["refuse g UnknownLevel"]
    world.tell(c.LevelsSeen((rack, host), "racks"))
    assert told(world.decide()) == ["admit g 0=n0"]


# ---- waking


def test_the_least_that_is_missing_in_any_pool_wakes_a_gang() -> None:
    """One more in h100 is enough, although six more are missing in a100."""
    world = two(queue("q"))
    world.occupy("h", "h0", 1)
    world.occupy("a", "a0", 6)
    world.add(gang("g", 8))
    assert told(world.decide()) == ["refuse g NoCapacity NoCapacity"]
    world.tell(c.OccupantGone("h"))
    assert told(world.decide()) == [admitted("g", h0=8)]


KINDS = ("a", "b", None)
COMES = st.tuples(st.just("gang"), st.integers(1, 6), st.sampled_from([1, 2]))
ENDS = st.tuples(st.just("ends"), st.integers(0, 9), st.none())
OCCUPIED = st.tuples(st.just("occupy"), st.integers(0, 3), st.integers(0, 4))
EVENTS = st.one_of(
    COMES, COMES, COMES, ENDS, ENDS, OCCUPIED, OCCUPIED,
    st.tuples(st.just("label"), st.integers(0, 3), st.sampled_from(KINDS)),
    st.tuples(st.just("limit"), st.sampled_from(["*", "p", "r"]), st.sampled_from([None, 0, 2, 4, 8])),
    st.tuples(st.just("pool"), st.sampled_from(["p", "r"]), st.sampled_from(KINDS)),
)  # fmt: skip


@given(st.lists(st.tuples(EVENTS, st.integers(0, 3)), min_size=10, max_size=30))
@settings(max_examples=200, deadline=None)
def test_nobody_sleeps_through_what_could_help(events: list[tuple[tuple[str, Any, Any], int]]) -> None:
    """After every decision that was carried out, an engine that knows nothing but the facts would admit nobody either."""
    world = World(queue("q"), pool("p", kind="a"), pool("r", kind="b"))
    world.add(node(f"n{number}", 4, labels={"kind": KINDS[number % 3]}) for number in range(4))
    limits: dict[str, int | None] = {}
    for number, ((what, one, other), decide) in enumerate(events):
        running = [uid for kind, uid in world.facts if kind == "gang"]
        match what:
            case "label":
                world.add(node(f"n{one}", 4, labels={"kind": other}))
            case "occupy" if other:
                world.occupy(f"o{one}", f"n{one}", other)
            case "occupy":
                world.tell(c.OccupantGone(f"o{one}"))
            case "limit":
                limits[one] = other
                world.add(queue("q", entries=tuple(entry(name, limit=limit) for name, limit in limits.items())))
            case "pool":
                world.add(pool(one, kind=other))
            case "gang":
                made = gang(f"g{number}", one, each=shape(other), queued_at=number)
                world.add(made, pods(made))
            case _ if running:
                for member in world.members(running[one % len(running)]):
                    world.tell(c.MemberGone(member.uid))
                world.tell(c.GangGone(running[one % len(running)]))
        if decide:
            while (plan := world.obey(world.decide())).actions:
                for action in plan.actions:
                    world.run(action.gang)
            fresh = Engine()
            for _, change in sorted(world.facts.items()):
                fresh.observe(change)
            assert [line for line in told(fresh.decide(world.now * 1000)) if line.startswith("admit")] == []
