"""``observe`` what happened, ``decide`` what to do: the pipeline on one screen.

A decision settles what changed, answers deadlines, completes gangs that already have their admission, and then admits
gangs in turn until everybody left has been refused. It is called when something changed or a deadline has passed; a call
that finds nothing changed costs microseconds. The plan depends on the facts, not on the order in which they came.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from queuectl.engine import deadlines, view
from queuectl.engine.asks import core_request, extra_requests, extra_slots, places
from queuectl.engine.backlog import Backlog
from queuectl.engine.lines import Offer
from queuectl.engine.ordering import Turns
from queuectl.engine.placement import Placement
from queuectl.engine.readiness import blockers
from queuectl.engine.renewal import admit, renew, torn
from queuectl.engine.request import Fit, Refusal, Request
from queuectl.engine.standing import LIVE, Phase, Standing
from queuectl.engine.state import State
from queuectl.engine.view import QueueView
from queuectl.engine.ways import Ways
from queuectl.model.changes import Change
from queuectl.model.gangs import Record
from queuectl.model.plan import Action, AdmitExtra, Plan, Refuse
from queuectl.model.reasons import Misfit, QueueEvidence, Reason, TextEvidence, by_dominance
from queuectl.model.settings import Settings
from queuectl.model.topology import Level

_ADMITTED = (Phase.RECORDED, Phase.RELEASED, Phase.BOUND, Phase.RUNNING)


class Engine:
    """The controller's judgement: pure, synchronous, deterministic. Nothing but these six methods is public."""

    def __init__(self, settings: Settings = Settings()) -> None:  # noqa: B008  (frozen)
        self._settings = settings
        self._state = State()
        self._placement = Placement(self._state)
        self._ways = Ways(self._state, self._placement)
        self._turns = Turns(self._state.branches, self._state.fleet.pools, self._ways.of)
        self._snapshots = view.Snapshots(self._state, self._said)
        self._backlog = Backlog(self._state, self._placement, self._turns, self._ways)
        self._now = 0
        self._timers: list[tuple[int, str]] = []  # (due, gang); stale entries are skipped
        self._fresh: set[str] = set()  # settled since the last decision
        self._promised: set[str] = set()  # gangs to whose extras a place was promised in this decision
        self._stuck: set[str] = set()  # gangs of which an admitted member has no node to go to
        self._told: set[str] = set()  # gangs whose reasons may have changed in this decision
        self._capacity: dict[str, int] = {}
        self._pools = (0, 0)  # edition and version of the pools
        self._levels: tuple[Level, ...] = ()

    def observe(self, change: Change) -> None:
        """Take in one fact. About a microsecond; the work is done once, by the next decision."""
        self._state.apply(change)

    def decide(self, now: int) -> Plan:
        """What to do at ``now`` (ms; never goes back). Everything admitted is charged before this returns."""
        self._now = max(self._now, now)
        expired = self._expired()
        if not (self._state.changed or expired):
            return Plan((), self._wake_at())
        self._state.changed = False
        self._catch_up()
        self._fresh |= expired
        settled, self._fresh = sorted(self._fresh), set()
        for uid in settled:
            self._review(uid)
        actions = [*self._withdraw(settled), *self._renew(settled)]
        self._backlog.wake()
        actions += self._admit()
        self._told.update(settled)
        actions += self._refuse()
        return Plan(tuple(actions), self._wake_at())

    def explain(self, gang_uid: str) -> tuple[Misfit, ...]:
        """Everything that keeps a gang waiting, dominant first: itself, every queue above it, every topology level."""
        self._catch_up()
        standing = self._state.gangs.get(gang_uid)
        if standing is None or standing.gang is None:
            return ()
        if not standing.waiting:
            return self._said(standing)
        found = list(self._blockers(standing))
        reasons = {misfit.reason for misfit in found}
        if standing.gang.roles and not reasons & {Reason.WAITING_FOR_MEMBERS, Reason.UNKNOWN_LEVEL}:
            request, _ = core_request(standing, self._state.fleet.pools)
            branch = self._state.branches.branches.get(standing.gang.queue)
            over, answer = self._ways.place(branch, request, request.need)
            found += over
            if isinstance(answer, Refusal):
                found += answer.misfits
        return by_dominance(tuple(dict.fromkeys((*found, *_bypassed(standing))))) or (_behind(standing),)

    def view(self) -> view.View:
        """A frozen copy of everything, for people. O(gangs + queues + nodes), and O(members) of gangs changed since the last."""
        self._catch_up()
        position: dict[str, int] = {}
        for line in self._turns.lines.values():
            position |= view.positions(list(line.offers()))
        gangs, nodes = self._snapshots.gangs(position), self._snapshots.nodes()
        return view.View(view.queue_views(self._state), gangs, nodes, view.pool_views(self._state))

    def prepare(self) -> Iterator[None]:
        """Most of the work of the next ``view``, in steps of a fraction of a millisecond. Facts may come between them."""
        self._catch_up()
        yield from self._snapshots.prepare()

    def queues(self) -> tuple[QueueView, ...]:
        """The queues of ``view`` alone. O(queues): cheap enough to be read every few seconds, however many gangs there are."""
        self._catch_up()
        return view.queue_views(self._state)

    # -- settling ------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Bring rows, queue tree and charges up to the facts."""
        state = self._state
        state.fleet.refresh()
        resized = state.fleet.capacity != self._capacity
        if resized:
            self._capacity = dict(state.fleet.capacity)
        relevelled, self._levels = self._levels != state.fleet.levels, state.fleet.levels
        recounted = state.recount()
        pools = state.fleet.pools.edition, state.fleet.pools.version
        redeclared, repooled = pools[0] != self._pools[0], pools[1] != self._pools[1]
        self._pools = pools
        edited = state.branches.refresh(self._capacity, state.fleet.pools, resized=resized or recounted or repooled)
        if edited or relevelled or recounted or redeclared:
            state.dirty.update(state.gangs)
        for uid in sorted(state.dirty):
            state.settle(uid)
        self._placement.forget()
        self._fresh |= state.dirty
        state.dirty.clear()

    def _review(self, uid: str) -> None:
        """Renew what follows from a gang's charges: its blockers, its deadline and its offers."""
        standing = self._state.gangs.get(uid)
        if standing is None:
            self._backlog.offer(uid, "", [])
            self._stuck.discard(uid)
            return
        gang = standing.gang
        asks = gang is not None and (standing.waiting or gang.maximum > gang.minimum or bool(extra_slots(standing)))
        standing.blockers = self._blockers(standing) if asks else ()
        self._stamp(standing)
        self._backlog.offer(uid, gang.queue if gang is not None else "", self._wanted(standing))

    def _blockers(self, standing: Standing) -> tuple[Misfit, ...]:
        return blockers(standing, self._state.branches, self._placement.known, self._settings, self._now)

    def _stamp(self, standing: Standing) -> None:
        before = standing.due
        deadlines.stamp(standing, self._settings, self._now)
        if standing.due is not None and standing.due != before:
            heapq.heappush(self._timers, (standing.due, standing.uid))

    def _wanted(self, standing: Standing) -> list[tuple[Request, Offer]]:
        gang = standing.gang
        if gang is None:
            return []
        if standing.waiting:
            if standing.blockers:
                return []
            request, _ = core_request(standing, self._state.fleet.pools)
            return [(request, Offer((False, -gang.priority, gang.queued_at, gang.uid, -1), gang.uid))]
        if standing.phase not in _ADMITTED or standing.withdrawn or standing.blockers:
            return []
        return [
            (request, Offer((True, -gang.priority, gang.queued_at, gang.uid, slot), gang.uid, slot, member))
            for slot, member, request in extra_requests(standing, self._state.fleet.pools)
        ]

    # -- what is due ---------------------------------------------------------------------------------------------------

    def _expired(self) -> set[str]:
        found = set()
        while self._timers and self._timers[0][0] <= self._now:
            due, uid = heapq.heappop(self._timers)
            standing = self._state.gangs.get(uid)
            if standing is not None and standing.due == due:
                found.add(uid)
        return found

    def _wake_at(self) -> int | None:
        while self._timers:
            due, uid = self._timers[0]
            standing = self._state.gangs.get(uid)
            if standing is not None and standing.due == due:
                return due
            heapq.heappop(self._timers)
        return None

    def _withdraw(self, settled: list[str]) -> list[Action]:
        actions: list[Action] = []
        for uid in settled:
            standing = self._state.gangs.get(uid)
            if standing is None:
                continue
            action = deadlines.requested(standing, self._now)
            if action is None and standing.due is not None and standing.due <= self._now:
                action = deadlines.overdue(standing, self._settings, self._now)
            if action is not None:
                actions.append(action)
                self._review(uid)
            elif standing.due is not None and standing.due <= self._now:
                self._stamp(standing)
        return actions

    def _renew(self, settled: list[str]) -> list[Action]:
        """Admissions that are known already, torn gangs first."""
        candidates = self._stuck.union(settled) if self._backlog.stirred else set(settled)
        standings = [self._state.gangs[uid] for uid in sorted(candidates) if uid in self._state.gangs]
        actions: list[Action] = []
        for standing in sorted(standings, key=lambda one: not torn(one)):
            actions += renew(standing, self._state, self._placement, self._settings, self._now)
            if standing.stuck or standing.uid in self._stuck:
                self._review(standing.uid)
                self._told.add(standing.uid)
            (self._stuck.add if standing.stuck else self._stuck.discard)(standing.uid)
        return actions

    # -- admissions ----------------------------------------------------------------------------------------------------

    def _admit(self) -> list[Action]:
        """One turn after another until everybody left has been refused."""
        actions: list[Action] = []
        while (batch := self._turns.head(self._capacity)) is not None:
            offer = batch.head
            branch = self._state.branches.branches[batch.queue]
            over, found = self._ways.place(branch, batch.request, batch.need)
            if over or not isinstance(found, Fit):
                if self._backlog.park(batch, over, found):
                    self._told.update(offer.gang for offer in batch.offers)
                continue
            standing = self._state.gangs[offer.gang]
            if offer.slot < 0:
                actions.append(self._admit_gang(standing, found))
            else:
                actions.append(self._admit_extra(standing, offer, batch.request, found))
            self._backlog.doze(found)
        self._backlog.settle()
        for uid in sorted(self._promised):
            self._stamp(self._state.gangs[uid])
        self._promised.clear()
        return actions

    def _admit_gang(self, standing: Standing, fit: Fit) -> Action:
        _, slots = core_request(standing, self._state.fleet.pools)
        standing.assumed = Record(standing.last_round + 1, places(standing, fit, slots), self._now)
        standing.refused = None
        standing.said = frozenset()  # the admission itself says that nothing is in the way any more
        self._state.settle(standing.uid)
        self._review(standing.uid)
        return admit(standing)

    def _admit_extra(self, standing: Standing, offer: Offer, request: Request, fit: Fit) -> Action:
        node = fit.nodes[0][0][0]
        self._state.promise(standing, offer.member, offer.slot, node)
        bound = self._state.fleet.pools and request.groups[0].pools is None
        if bound or (request.required is not None and request.anchor is None):
            self._review(standing.uid)  # the others must now stay in its domain, or pool
        else:
            self._backlog.take(standing.uid, offer.slot)
        self._promised.add(standing.uid)
        return AdmitExtra(standing.uid, standing.round, self._now, offer.slot, node, offer.member)

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _refuse(self) -> list[Action]:
        """A Refuse for every gang whose set of reasons is another than the last one told, the empty one included."""
        actions: list[Action] = []
        for uid in sorted(self._told):
            standing = self._state.gangs.get(uid)
            if standing is None or standing.gang is None:
                continue
            misfits = self._said(standing)
            reasons = frozenset(misfit.reason for misfit in misfits)
            if reasons != standing.said:
                standing.said = reasons
                actions.append(Refuse(uid, next((one.number for one in self._backlog.offers(uid)), 0), misfits))
        self._told.clear()
        return actions

    def _said(self, standing: Standing) -> tuple[Misfit, ...]:
        """What is known against a gang without asking placement again."""
        if not standing.waiting:
            return tuple(dict.fromkeys((*_torn(standing), *standing.notes, *standing.delays, *_bypassed(standing))))
        found = [*standing.blockers, *_bypassed(standing)]
        for batch in self._backlog.offers(standing.uid):
            found += batch.misfits if batch.parked else ()
        return by_dominance(tuple(found)) or (_behind(standing),)


def _behind(standing: Standing) -> Misfit:
    return Misfit(Reason.BEHIND_IN_QUEUE, QueueEvidence(standing.gang.queue if standing.gang else ""))


def _torn(standing: Standing) -> tuple[Misfit, ...]:
    """Members of a recorded gang that have no place now, unless that is noted already, or it is given back for that."""
    noted = any(misfit.reason is Reason.TORN for misfit in standing.notes)
    if not standing.stuck or noted or standing.withdrawn or standing.phase is Phase.ASSUMED:
        return ()
    names = sorted(member.name for slot, member in standing.filler().items() if slot in standing.stuck)
    who = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)
    return (Misfit(Reason.TORN, TextEvidence(f"no place now for {who}")),) if names else ()


def _bypassed(standing: Standing) -> tuple[Misfit, ...]:
    """Members that run although the gang has no record: the gate was bypassed, or they were there before us."""
    if standing.placed is not None:
        return ()
    names = sorted(standing.members[uid].name for uid in standing.slot_of if standing.members[uid].stage in LIVE)
    return tuple(Misfit(Reason.BYPASSED_GATE, TextEvidence(name)) for name in names)
