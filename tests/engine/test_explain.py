"""Why a gang waits: all of it, the dominant reason first, with the numbers that lead to the remedy."""

from __future__ import annotations

from queuectl.engine.engine import Engine
from queuectl.engine.standing import Phase
from queuectl.model.changes import GangSeen
from queuectl.model.gangs import Gang, Role
from queuectl.model.plan import Refuse
from queuectl.model.queues import QueueState
from queuectl.model.reasons import (
    CountEvidence,
    LevelEvidence,
    Misfit,
    NodesEvidence,
    QueueEvidence,
    Reason,
    TextEvidence,
    sentence,
)
from queuectl.model.resources import GPU
from queuectl.model.topology import Taint
from tests.engine.world import World, gang, node, pods, queue, shape


def racks(*queues: object) -> World:
    """Two racks of two nodes in one zone."""
    return World([node(f"{rack}{n}", rack=rack, zone="z") for rack in "rs" for n in (0, 1)], queues or queue("q"))


def level(
    name: str, domains: int, best: str, need: int, have: int, ever: int, *, free: int, required: bool = False
) -> LevelEvidence:
    """A level that is short of GPUs for pods of eight."""
    return LevelEvidence(name, domains, best, need, have, ever, required, GPU, 8_000, free * 1_000)


def test_every_level_that_blocks_is_named() -> None:
    """Over two limits, and no rack is free enough: all three, limits first."""
    world = racks(queue("top", limit=14), queue("q", "top", limit=12))
    world.start(first := gang("first", 5, each=shape(2)), pods(first))
    world.add(gang("g", 2, each=shape(8), required="rack"))
    assert world.engine.explain("g") == (
        Misfit(Reason.OVER_LIMIT, QueueEvidence("q", GPU, 16_000, 2_000, 12_000, 10_000)),
        Misfit(Reason.OVER_LIMIT, QueueEvidence("top", GPU, 16_000, 4_000, 14_000, 10_000)),
    )
    world.occupy("o", "s0", gpu=1)
    misfits = world.engine.explain("g")
    assert [one.reason for one in misfits[2:]] == [Reason.NO_CAPACITY, Reason.NO_DOMAIN_FITS, Reason.NO_DOMAIN_FITS]
    assert misfits[3] == Misfit(
        Reason.NO_DOMAIN_FITS,
        level("rack", 2, "s", 2, 1, 2, free=15, required=True),
    )
    assert sentence(misfits[3]).startswith("2 pods must fit into one rack (2 looked at): the best, s, has room for 1")


def test_what_can_never_fit_is_said_at_once_with_the_largest_that_would() -> None:
    world = racks()
    world.add(gang("g", 5, each=shape(8), required="rack"))
    assert world.engine.explain("g") == (
        Misfit(
            Reason.NEVER_FITS,
            level("rack", 2, "r", 5, 2, 2, free=16, required=True),
        ),
        Misfit(Reason.NEVER_FITS, level("", 1, "", 5, 4, 4, free=32)),
        Misfit(Reason.NEVER_FITS, level("zone", 1, "z", 5, 4, 4, free=32)),
    )


def test_all_blockers_of_the_gang_itself() -> None:
    world = racks(queue("top", state=QueueState.HELD), queue("q", "top"))
    one = gang(
        "g",
        roles=(Role("", 3, 3),),
        required="row",
        requeues=2,
        not_before=9_000_000,
        blocked=(Misfit(Reason.SUSPENDED, TextEvidence("by its user")),),
    )
    first, second = pods(one, 1), pods(one, 1, start=1, shape=shape(1, unmodelled=("topologySpread",)))
    world.add(one, first, second)
    world.change("g-0", foreign_gates=("example.com/quota",))
    world.change("g-1", pinnable=False)
    world.decide()
    assert world.why("g") == [
        Reason.INVALID_REQUEST,
        Reason.UNKNOWN_LEVEL,
        Reason.UNMODELLED,
        Reason.SUSPENDED,
        Reason.FOREIGN_GATE,
        Reason.WAITING_FOR_MEMBERS,
        Reason.QUEUE_HELD,
        Reason.BACKOFF,
    ]
    assert Misfit(Reason.WAITING_FOR_MEMBERS, CountEvidence(3, 2)) in world.engine.explain("g")


def test_the_queue_tree_tells_what_is_wrong_with_it() -> None:
    """Only the broken part is out; the rest of the tree goes on."""
    world = racks(
        queue("q"),
        queue("orphan", "nobody"),
        queue("ring1", "ring2"),
        queue("ring2", "ring1"),
        queue("going", deleting=True),
    )
    world.add(queue("top"), queue("leaf", "top"))
    names = ("q", "orphan", "ring1", "going", "top", "missing")
    world.add([gang(f"in-{name}", 1, name) for name in names])
    world.decide()
    assert {name: world.why(f"in-{name}") for name in names} == {
        "q": [],
        "orphan": [Reason.QUEUE_INACTIVE],
        "ring1": [Reason.QUEUE_INACTIVE, Reason.QUEUE_NOT_LEAF],
        "going": [Reason.QUEUE_INACTIVE],
        "top": [Reason.QUEUE_NOT_LEAF],
        "missing": [Reason.QUEUE_MISSING],
    }
    deep = racks([queue(f"d{n}", f"d{n - 1}" if n else None) for n in range(17)])
    deep.add(gang("g", 1, "d16"))
    assert deep.why("g") == [Reason.QUEUE_INACTIVE]


def test_nodes_that_are_out_are_counted_by_cause() -> None:
    world = racks()
    world.add(node("r0", rack="r", zone="z", cordoned=True), node("r1", rack="r", zone="z", ready=False))
    world.add(gang("g", 3, each=shape(8, selector=(("zone", "z"), ("disk", "ssd")))))
    found = world.engine.explain("g")
    assert Misfit(Reason.NODE_SELECTOR_MISMATCH, NodesEvidence(4, 4, "disk")) in found
    assert Misfit(Reason.NODE_UNHEALTHY, NodesEvidence(1, 4, "cordoned")) in found
    assert Misfit(Reason.NODE_UNHEALTHY, NodesEvidence(1, 4, "not ready")) in found


def test_an_unusable_node_is_told_once() -> None:
    """Kubernetes taints what is cordoned or silent, and that is no cause of its own; a taint that somebody set is one."""
    own = Taint("team", "infra", "NoSchedule")
    world = racks()
    cordoned = (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), own)
    silent = tuple(Taint("node.kubernetes.io/unreachable", "", effect) for effect in ("NoExecute", "NoSchedule"))
    pressed = (Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),)
    world.add(node("r0", rack="r", zone="z", cordoned=True, taints=cordoned))
    world.add(node("r1", rack="r", zone="z", ready=False, taints=silent))
    world.add(node("s0", rack="s", zone="z", taints=pressed))
    world.add(gang("g", 4, each=shape(8)))
    assert [one for one in world.engine.explain("g") if isinstance(one.evidence, NodesEvidence)] == [
        Misfit(Reason.TAINT_NOT_TOLERATED, NodesEvidence(1, 4, "node.kubernetes.io/disk-pressure")),
        Misfit(Reason.TAINT_NOT_TOLERATED, NodesEvidence(1, 4, "team")),
        Misfit(Reason.NODE_UNHEALTHY, NodesEvidence(1, 4, "cordoned")),
        Misfit(Reason.NODE_UNHEALTHY, NodesEvidence(1, 4, "not ready")),
    ]


def test_a_node_outside_a_level_hosts_only_gangs_that_do_not_ask_for_it() -> None:
    world = World(node("alone"), queue("q"), gang("anywhere", 2), gang("together", 2, required="rack"))
    world.decide()
    assert (world.phase("anywhere"), world.why("together")) == ("Assumed", [Reason.NEVER_FITS] * 2)


def test_not_yet_tried_is_behind_in_its_queue() -> None:
    world = racks()
    world.add(gang("g", 1))
    assert world.engine.explain("g") == (Misfit(Reason.BEHIND_IN_QUEUE, QueueEvidence("q")),)
    assert world.engine.explain("nobody") == ()


def test_the_view_counts_and_places() -> None:
    """Positions in the leaf, pending amounts and phases, as the command line shows them."""
    world = racks(queue("top"), queue("q", "top"))
    world.start(first := gang("first", 4, each=shape(8), queued_at=1), pods(first))
    world.add(gang("b", 1, queued_at=3), gang("a", 2, queued_at=2))
    world.decide()
    view = world.engine.view()
    assert [(one.uid, one.position, one.phase.value) for one in view.gangs] == [
        ("a", 1, "Pending"),
        ("b", 2, "Pending"),
        ("first", 0, "Running"),
    ]
    assert world.engine.queues() == view.queues
    top = next(one for one in view.queues if one.name == "top")
    assert (dict(top.pending)[GPU], dict(top.usage)[GPU], top.gangs_pending, top.gangs_running) == (3_000, 32_000, 2, 1)


def test_a_gang_without_roles_waits_with_its_reason() -> None:
    """No PodGroup, or one that cannot be used: nothing to place, but a reason to tell; what runs of it counts as running."""
    bad = Misfit(Reason.INVALID_REQUEST, TextEvidence("spec.minMember: must not be above maxMember"))
    engine = Engine()
    engine.observe(GangSeen(Gang(uid="g", namespace="ns", name="bad", queue="q", roles=(), blocked=(bad,))))
    (refuse,) = engine.decide(0).actions
    assert isinstance(refuse, Refuse)
    assert bad in refuse.misfits
    assert engine.explain("g")[0] == bad
    assert engine.view().gangs[0].phase is Phase.PENDING
