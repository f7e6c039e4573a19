"""Who may be tried at all: what is known before a pod exists counts like what the pod itself shows."""

from __future__ import annotations

from queuectl.model.gangs import Role
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from tests.engine.world import World, gang, node, pods, queue, shape, told

GATE = "example.com/quota"


def test_a_gate_of_the_template_holds_the_gang_before_its_pods_exist() -> None:
    """Without pods the template speaks for them; a pod that has lost the gate speaks for itself."""
    roles = (Role("lead", 1, 1, shape(0)), Role("work", 2, 3, shape(), gates=(GATE,)))
    one = gang("g", roles=roles)
    world = World(node("n"), queue("q"), one)
    assert told(world.decide()) == ["refuse g ForeignGate"]
    assert world.engine.explain("g")[0] == Misfit(Reason.FOREIGN_GATE, TextEvidence(GATE))
    lead, first, second = pods(one)
    world.add(lead, first)
    assert (told(world.decide()), world.used("n")) == ([], 0)
    world.add(second)
    assert told(world.decide()) == ["admit g 0:g-lead0=n 1:g-work0=n 2:g-work1=n"]


def test_a_gate_of_extras_alone_holds_nothing() -> None:
    """The gang itself has no slot of that role."""
    roles = (Role("work", 1, 1, shape()), Role("spare", 0, 2, shape(), gates=(GATE,)))
    world = World(node("n"), queue("q"), gang("g", roles=roles))
    assert told(world.decide()) == ["admit g 0=n"]
