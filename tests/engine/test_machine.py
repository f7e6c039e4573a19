"""Random lives of a small cluster, with echoes lost, repeated and late: the promises hold after every step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from queuectl.engine.engine import Engine
from queuectl.engine.standing import Phase
from queuectl.model import changes as c
from queuectl.model.gangs import GiveBack, Role, Stage
from queuectl.model.plan import Admit, AdmitExtra, Plan, Withdraw
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from queuectl.model.resources import GPU
from tests.engine.world import NODE, RACK, World, entry, gang, node, pods, pool, queue, shape, told

NODES = ("a0", "a1", "b0")
GANGS = tuple("ghijk")
QUEUES = {"q": "top", "r": "top", "s": None}
POOLS = ("o", "p")


def move(**what: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule of the cluster's side, after which the controller may act: nothing, decide, obey too, let the pods run too."""

    def decorate(step: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(step)
        def whole(self: Machine, then: int, **drawn: Any) -> None:
            step(self, **drawn)
            if then >= 1:
                self.decide_now(0)
            if then >= 2:
                self.obey_now(how=5)
            if then >= 3:
                for name in GANGS:
                    self.world.run(name, Stage.BOUND if then == 3 else Stage.RUNNING)

        del whole.__wrapped__  # the rule's own signature has one parameter more
        made: Any = rule  # typed by overloads that do not take a mapping
        return made(then=st.integers(0, 4), **what)(whole)  # type: ignore[no-any-return]  # hypothesis' rule() is Any here

    return decorate


class Machine(RuleBasedStateMachine):
    """The cluster's side changes at random; the controller obeys now, later, or is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(queue("top", limit=10), queue("q", "top", quota=4), queue("r", "top", limit=6), queue("s"))
        self.pending: list[Plan] = []
        self.over: dict[str, int] = {}
        for name in NODES:
            self.world.add(node(name, 4, rack=name[0], zone="z"))
        # Something is there from the start: random steps alone would spend most of a life on an empty cluster.
        starters = (
            gang("g", 2, maximum=3),
            gang("h", 1, "r", maximum=3),
            gang("i", 3, "s", required="rack"),
            gang("j", 3, "r"),
        )
        for one in starters:
            self.world.add(one, pods(one, one.maximum))

    # -- the cluster ---------------------------------------------------------------------------------------------------

    @move(
        name=st.sampled_from(NODES),
        gpu=st.sampled_from([2, 4, 4]),
        bad=st.integers(0, 4),
        rack=st.sampled_from(["a", "b", None]),
    )
    def node_changes(self, name: str, gpu: int, bad: int, rack: str | None) -> None:
        self.world.add(node(name, gpu, rack=rack, zone="z", cordoned=bad == 0, ready=bad != 1))

    @move(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.world.tell(c.NodeGone(name))

    @move(name=st.sampled_from(sorted(QUEUES)), limit=st.sampled_from([None, 2, 6]), gone=st.integers(0, 5),
          inside=st.sampled_from([None, None, "p", "o"]), few=st.integers(0, 3))  # fmt: skip
    def queue_changes(self, name: str, limit: int | None, gone: int, inside: str | None, few: int) -> None:
        if gone == 0:
            self.world.tell(c.QueueGone(name))
        else:
            entries = [entry(limit=limit), *([] if inside is None else [entry(inside, quota=few % 2, limit=few)])]
            self.world.add(queue(name, QUEUES[name], entries=tuple(entries), weight=gone - 1))

    @move(
        name=st.sampled_from(POOLS), rack=st.sampled_from(["a", "b", None]), gone=st.integers(0, 3), flat=st.booleans()
    )
    def pool_changes(self, name: str, rack: str | None, gone: int, flat: bool) -> None:
        """``flat``: its nodes have racks that are in no zone."""
        if gone == 0:
            self.world.tell(c.PoolGone(name))
        else:
            self.world.add(pool(name, topology="flat" if flat else "default", rack=rack))

    @move(known=st.booleans())
    def topology_changes(self, known: bool) -> None:
        self.world.tell(c.LevelsSeen((RACK, NODE), "flat") if known else c.LevelsGone("flat"))

    @move(name=st.sampled_from(GANGS), size=st.integers(1, 4), extra=st.integers(0, 2), gpu=st.sampled_from([1, 2]),
        where=st.sampled_from([*QUEUES, "top"]), required=st.sampled_from([None, None, "rack"]),
        known=st.booleans(), with_pods=st.integers(0, 6), give_back=st.sampled_from(list(GiveBack)), two=st.booleans(),
    )  # fmt: skip
    def gang_comes(self, name: str, size: int, two: bool, **what: Any) -> None:
        if ("gang", name) in self.world.facts:
            return
        template = shape(what["gpu"]) if what["known"] else None
        roles: tuple[Role, ...] = (Role("w", size, size + what["extra"], template),)
        if two:
            roles = (Role("l", 1, 1, shape(0)), *roles)
        self.world.add(
            gang(name, queue=what["where"], roles=roles, required=what["required"], give_back=what["give_back"])
        )

    @move(name=st.sampled_from(GANGS), start=st.integers(0, 4), gpu=st.sampled_from([1, 1, 2]), gated=st.integers(0, 5))
    def pod_comes(self, name: str, start: int, gpu: int, gated: int) -> None:
        one = gang(name, roles=(Role("w", 1, 9, shape(gpu)),))
        (pod,) = pods(one, 1, start=start)
        if ("member", pod.uid) not in self.world.facts:
            bypass: dict[str, Any] = {} if gated else {"stage": Stage.RUNNING, "node": "a0"}
            self.world.add(replace(pod, rank=None if start == 3 else start, **bypass))

    @move(name=st.sampled_from(GANGS), which=st.integers(0, 9), stage=st.sampled_from(list(Stage)))
    def pod_moves_on(self, name: str, which: int, stage: Stage) -> None:
        members = self.world.members(name)
        if which < len(members) and members[which].stage is not Stage.GATED and stage > members[which].stage:
            at = members[which].node or members[which].pinned
            self.world.change(members[which].uid, stage=stage, node=at)

    @move(name=st.sampled_from(GANGS), which=st.integers(0, 9), leaving=st.booleans())
    def pod_goes(self, name: str, which: int, leaving: bool) -> None:
        members = self.world.members(name)
        if which < len(members):
            if leaving:
                self.world.change(members[which].uid, leaving=True)
            else:
                self.world.tell(c.MemberGone(members[which].uid))

    @move(name=st.sampled_from(GANGS))
    def gang_goes(self, name: str) -> None:
        if ("gang", name) in self.world.facts:
            self.world.tell(c.GangGone(name))

    @move(name=st.sampled_from(GANGS), done=st.booleans())
    def gang_is_given_back_or_ends(self, name: str, done: bool) -> None:
        if ("gang", name) not in self.world.facts:
            return
        one = self.world.gang(name)
        if done:
            self.world.change(name, finished=True)
        elif one.record is not None and not one.evicted:
            self.world.change(name, evicted=True)
        elif one.record is not None:
            self.world.change(
                name, evicted=False, record=None, requeues=one.requeues + 1, not_before=self.world.now * 1000 + 5000
            )

    @move(at=st.sampled_from(NODES), gpu=st.integers(0, 3), uid=st.sampled_from(["o1", "o2"]))
    def somebody_else(self, at: str, gpu: int, uid: str) -> None:
        if gpu:
            self.world.occupy(uid, at, gpu)
        else:
            self.world.tell(c.OccupantGone(uid))

    @move(which=st.integers(0, 200))
    def an_echo_comes_again(self, which: int) -> None:
        """The last news of one object is repeated."""
        facts = [self.world.facts[key] for key in sorted(self.world.facts)]
        self.world.engine.observe(facts[which % len(facts)])

    @move(name=st.sampled_from(GANGS), value=st.sampled_from(["t1", "t2"]))
    def somebody_asks_for_a_requeue(self, name: str, value: str) -> None:
        if ("gang", name) in self.world.facts:
            self.world.change(name, requested=value)

    # -- the controller ------------------------------------------------------------------------------------------------

    @rule(after=st.sampled_from([0, 0, 1, 70, 1000]))
    def decide(self, after: int) -> None:
        self.decide_now(after)

    def decide_now(self, after: int) -> None:
        """A decision with everything checked around it."""
        before = self.charged()
        self.world.now += after
        plan = self.world.engine.decide(self.world.now * 1000)
        self.world.engine._state.check()
        self.admissions_fit(before, plan)
        if plan.actions:
            self.pending.append(plan)
        again = self.world.engine.decide(self.world.now * 1000)
        assert again == Plan((), plan.wake_at), "nothing has changed since"

    @precondition(lambda self: self.pending)
    @rule(how=st.integers(0, 5))
    def obey(self, how: int) -> None:
        self.obey_now(how)

    def obey_now(self, how: int) -> None:
        """Carry out the oldest plan; sometimes a write is refused; what no longer exists is left out."""
        for action in self.pending.pop(0).actions if self.pending else ():
            match action:
                case Admit() if ("gang", action.gang) in self.world.facts:
                    if action.round < self.world.gang(action.gang).round:
                        continue
                    if how == 0 and self.world.gang(action.gang).record is None:
                        misfit = Misfit(Reason.PATCH_REJECTED, TextEvidence("no"))
                        self.world.tell(c.WriteFailed(action.gang, action.round, misfit, retry=action.round % 2 == 0))
                        continue
                    if (
                        self.world.gang(action.gang).record is None
                        and action.round == self.world.gang(action.gang).round
                    ):
                        continue  # given back since
                    self.world.record(action)
                    for one in action.assignments:
                        if one.member and ("member", one.member) in self.world.facts:
                            pod = self.world.member(one.member)
                            if pod.stage is Stage.GATED:
                                self.world.change(pod.uid, stage=Stage.RELEASED, pinned=one.node)
                case AdmitExtra() if ("member", action.member) in self.world.facts:
                    if how == 0:
                        misfit = Misfit(Reason.PATCH_REJECTED, TextEvidence("no"))
                        retry = action.slot % 2 == 0
                        self.world.tell(
                            c.WriteFailed(action.gang, action.round, misfit, retry=retry, member=action.member)
                        )
                    elif self.world.member(action.member).stage is Stage.GATED:
                        self.world.obey(Plan((action,)))
                case Withdraw() if ("gang", action.gang) in self.world.facts:
                    if self.world.gang(action.gang).record is not None:
                        self.world.change(action.gang, evicted=True)

    # -- the promises --------------------------------------------------------------------------------------------------

    def charged(self) -> dict[str, tuple[int, int]]:
        """GPU units used and offered, by node; used and limited, by queue."""
        view = self.world.engine.view()
        nodes = {
            "node " + one.name: (dict(one.used).get(GPU, 0), dict(one.allocatable).get(GPU, 0)) for one in view.nodes
        }
        queues: dict[str, tuple[int, int]] = {}
        for one in view.queues:
            for where, usage in (("*", one.usage), *((name, dict(one.pools).get(name, ())) for name in POOLS)):
                limits = [e.limit for e in one.entries if e.limit is not None and e.pool == where]
                queues[f"queue {one.name} in {where}"] = (dict(usage).get(GPU, 0), min(limits, default=10**9))
        return nodes | queues

    def admissions_fit(self, before: dict[str, tuple[int, int]], plan: Plan) -> None:
        """P2: no decision takes a node over what it offers or a queue over its limit, or further over."""
        for name, (used, most) in self.charged().items():
            assert used <= max(most, before.get(name, (0, 0))[0]), (name, used, most, before.get(name), told(plan))

    @invariant()
    def every_live_pod_is_charged_once(self) -> None:
        view = self.world.engine.view()
        assert self.world.engine.queues() == view.queues
        state = self.world.engine._state
        state.check()
        for standing in state.gangs.values():
            held = list(standing.slot_of.values())
            assert len(held) == len(set(held)), "two members in one slot"
            for uid, member in standing.members.items():
                if Stage.RELEASED <= member.stage <= Stage.RUNNING and (at := member.node or member.pinned):
                    key = standing.slot_of.get(uid, uid)
                    assert standing.charges[key].node == at
                    assert standing.charges[key].shape == member.shape

    @invariant()
    def the_facts_alone_give_the_same_usage(self) -> None:
        """A restart, when nothing is only assumed or remembered: the same use of every queue."""
        state = self.world.engine._state
        if any(one.assumed or one.extras or one.moved or one.filled or one.reshaped for one in state.gangs.values()):
            return
        other = Engine()
        for key in sorted(self.world.facts, reverse=True):
            other.observe(self.world.facts[key])
        usage = [(one.name, one.usage, one.pools) for one in self.world.engine.view().queues]
        assert [(one.name, one.usage, one.pools) for one in other.view().queues] == usage

    def teardown(self) -> None:
        """Left alone, the plan comes to rest."""
        for _ in range(20):
            self.world.now += 10_000
            plan = self.world.engine.decide(self.world.now * 1000)
            self.world.engine._state.check()
            if not plan.actions:
                self.nothing_is_held_in_vain()
                return
        raise AssertionError(told(plan))

    def nothing_is_held_in_vain(self) -> None:
        """L3: hours later, no gang that is only partly there holds its places, unless nobody can take it back; that is told."""
        for _ in range(3):
            self.world.now += 10_000
            self.world.engine.decide(self.world.now * 1000)
        for standing in self.world.engine._state.gangs.values():
            underway = standing.phase in (Phase.RECORDED, Phase.RELEASED, Phase.BOUND) and standing.placed is not None
            if underway and standing.owed(standing.filler()):
                why = {misfit.reason for misfit in self.world.engine.explain(standing.uid)}
                assert standing.withdrawn or Reason.NOT_REQUEUEABLE in why, standing.uid


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
