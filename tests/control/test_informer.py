"""How an informer keeps its stream: what it resumes from, when its view is old, how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest

from queuectl.contract import cluster_scoped, foreign
from queuectl.contract.foreign import Custom, Job, JobSet, Kind, Meta, Node
from queuectl.control.informer import FIRST_WAIT, LAST_WAIT, LOOK_AGAIN, LOOK_SOON, Informer, take_in
from queuectl.control.ports import Bookmark, Deleted, Event, Expired, Malformed, NotFound, Unreachable, Upserted
from queuectl.control.source import Source
from queuectl.model.changes import Change, NodeSeen


class Script:
    """A clock and a cluster whose streams are told in advance: events, seconds that pass, deeds of others, and how each ends."""

    def __init__(self, *streams: tuple[Event | float | Exception | Callable[[], object], ...]) -> None:
        self.streams = list(streams)
        self.time = 0.0
        self.since: list[str | None] = []
        self.slept: list[float] = []
        self.live: list[bool] = []  # after each event
        self.informer: Informer | None = None
        self.source = Source()
        self.changes: list[Change] = []

    def now(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def watch(self, kind: Kind, since: str | None) -> AsyncGenerator[Event, None]:
        self.since.append(since)
        if not self.streams:
            raise asyncio.CancelledError
        for step in self.streams.pop(0):
            if isinstance(step, float):
                self.time += step
            elif isinstance(step, Exception):
                raise step
            elif callable(step):
                step()
            else:
                yield step
                self.live.append(self.informer is not None and self.informer.lost_at is None)

    async def play(self, kind: Kind = foreign.NODES) -> Informer:
        """Run to the end of the script."""
        informer = self.informer = Informer(self, kind, self.source, self, self.changes.extend)  # type: ignore[arg-type]  # watch is all it uses
        with pytest.raises(asyncio.CancelledError):
            await informer.run()
        return informer


CUT = Unreachable("cut")


async def test_a_kind_that_the_cluster_does_not_know_is_looked_for_now_and_then() -> None:
    """Its absence keeps nobody from starting and costs a request every five minutes; it may come, and go again."""
    missing = NotFound("the server could not find the requested resource", 404)
    here = msgspec.convert(
        {"metadata": {"name": "train", "namespace": "ns", "uid": "u", "resourceVersion": "6"}}, JobSet
    )
    seen: list[tuple[bool, bool, float | None, int]] = []
    script = Script()

    def note() -> None:
        assert script.informer is not None
        one = script.informer
        seen.append((one.absent, one.synced.is_set(), one.lost_at, len(script.source.owners)))

    script.streams = [
        (missing,),
        (note, missing),
        (note, Upserted(here), Bookmark("6", synced=True), note, CUT),
        (missing,),
        (note, missing),
    ]
    informer = await script.play(foreign.JOB_SETS)
    assert seen == [(False, True, None, 0), (False, True, None, 0), (False, True, None, 1), (False, True, None, 0)]
    assert [wait for wait in script.slept if wait > LAST_WAIT * 2] == [LOOK_AGAIN] * 4
    assert script.since == [None, None, None, "6", None, None]
    assert informer.lists == 5


class Busy(Script):
    """While a kind is not looked for, a Job of one of its objects comes."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if seconds == LOOK_AGAIN:
            owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "uid": "s"}
            meta = {"name": "train-0", "namespace": "ns", "uid": "j", "resourceVersion": "1"}
            job = {"metadata": {**meta, "ownerReferences": [{**owner, "controller": True}]}}
            take_in(self.source, foreign.JOBS, Upserted(msgspec.convert(job, Job)), self.changes.extend)
            await asyncio.Event().wait()


async def test_a_kind_that_something_names_is_looked_for_soon() -> None:
    """Its definition was installed a moment ago: nobody waits five minutes for that."""
    script = Busy((NotFound("the server could not find the requested resource", 404),), (Bookmark("6", synced=True),))
    informer = await script.play(foreign.JOB_SETS)
    assert [wait for wait in script.slept if wait >= LOOK_SOON] == [LOOK_AGAIN, LOOK_SOON]
    assert (informer.absent, informer.lists, script.source.missed) == (False, 2, {})


async def test_a_kind_that_must_be_there_is_missed() -> None:
    """Without our definitions nothing may be decided."""
    script = Script((NotFound("no such resource", 404),))
    informer = await script.play(foreign.QUEUES)
    assert not informer.synced.is_set()
    assert max(script.slept) < LOOK_AGAIN


async def test_a_resumed_stream_is_live_before_its_first_event() -> None:
    """Nodes and classes may be still for minutes: a view is not old because nothing happens."""
    script = Script((Bookmark("5", synced=True), 100.0, CUT), (Bookmark("5"),))
    informer = await script.play()
    assert script.since == [None, "5", "5"]
    assert script.live == [True, True]
    assert informer.lists == 1


async def test_each_cut_after_a_long_life_is_waited_out_as_if_it_were_the_first() -> None:
    """A balancer that cuts every few minutes does not blind us for longer and longer."""
    life = (Bookmark("5"), LAST_WAIT + 60, CUT)
    script = Script((Bookmark("5", synced=True), LAST_WAIT + 60, CUT), *[life] * 8)
    await script.play()
    assert max(script.slept) <= FIRST_WAIT * 1.5


async def test_cuts_at_once_are_waited_out_longer_and_longer() -> None:
    """Also where every stream opens before it breaks."""
    script = Script((Bookmark("5", synced=True), CUT), *[(Bookmark("5"), CUT)] * 12)
    await script.play()
    assert script.slept[-1] >= LAST_WAIT / 2


async def test_expired_starts_anew() -> None:
    """Only then is the state read again."""
    script = Script((Bookmark("5", synced=True), CUT), (Expired("too old"),), (Bookmark("9", synced=True), CUT))
    informer = await script.play()
    assert script.since == [None, "5", None, "9"]
    assert informer.lists == 2


def group(name: str, version: str) -> Custom:
    """A PodGroup of that version."""
    return Custom(
        metadata=Meta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=version),
        spec={"queue": "q", "minMember": 1},
    )


LIST_AGAIN = (Expired("too old"),)


async def test_a_fresh_list_does_not_forget_what_was_written_while_it_was_read() -> None:
    """It shows the state at version 12; our answer is of 15. A later list without it does forget it."""
    script = Script()

    def write() -> None:
        script.changes += script.source.apply(foreign.POD_GROUPS, Upserted(group("ours", "15")))

    script.streams = [
        (Upserted(group("old", "5")), Bookmark("10", synced=True), CUT),
        LIST_AGAIN,
        (write, Bookmark("12", synced=True), lambda: known.append(set(script.source.groups)), CUT),
        LIST_AGAIN,
        (Bookmark("20", synced=True), lambda: known.append(set(script.source.groups)), CUT),
    ]
    known: list[set[str]] = []
    await script.play(foreign.POD_GROUPS)
    assert known == [{"uid-ours"}, set()]


async def test_what_a_list_shows_only_as_malformed_is_there() -> None:
    """It stays as it was when it could be read, with a note."""
    script = Script(
        (Upserted(group("band", "5")), Bookmark("10", synced=True), CUT),
        LIST_AGAIN,
        (Malformed("ns", "band", "uid-band", "spec: deep"), Bookmark("12", synced=True), CUT),
    )
    await script.play(foreign.POD_GROUPS)
    assert set(script.source.groups) == {"uid-band"}
    assert script.source.problems == {("podgroups", "ns", "band"): "spec: deep"}


async def test_a_complete_state_knows_better_than_who_said_that_an_object_is_gone() -> None:
    """As when the API server answered 404 for all of a kind that it did not serve yet; a watch event alone does not."""
    script = Script(
        (Bookmark("1", synced=True), Deleted(group("band", "5")), Upserted(group("band", "4")), CUT),
        (lambda: known.append(set(script.source.groups)), *LIST_AGAIN),
        (Upserted(group("band", "5")), Bookmark("12", synced=True), CUT),
    )
    known: list[set[str]] = []
    await script.play(foreign.POD_GROUPS)
    assert known == [set()]
    assert set(script.source.groups) == {"uid-band"}


async def test_one_object_does_not_end_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the first state nor after: the others are seen, and the stream is resumed, not begun anew."""
    right = cluster_scoped.node

    def wrong(node: Node) -> object:
        return 1 // 0 if node.metadata.name.startswith("bad") else right(node)

    def node(name: str) -> Upserted:
        return Upserted(Node(metadata=Meta(name=name, uid=f"uid-{name}", resource_version="7")))

    monkeypatch.setattr(cluster_scoped, "node", wrong)
    script = Script(
        (node("bad1"), node("good1"), Bookmark("5", synced=True), node("bad2"), node("good2"), CUT),
    )
    informer = await script.play()
    assert [change.node.name for change in script.changes if isinstance(change, NodeSeen)] == ["good1", "good2"]
    assert list(script.source.problems) == [("nodes", "", "bad1"), ("nodes", "", "bad2")]
    assert (informer.lists, script.since) == (1, [None, "7"])


def test_an_event_that_calls_for_a_write_is_told_though_the_engine_learns_nothing() -> None:
    """A suspended Job counts no pods any more: what was given back is now to be returned, and nothing else may ever happen."""
    source = Source()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "12345-job", "controller": True}
    group = {
        "metadata": {"name": "job-train-12345", "namespace": "ns", "uid": "a-group", "ownerReferences": [owner]},
        "spec": {"queue": "q", "minMember": 2, "maxMember": 2},
    }
    source.apply(foreign.POD_GROUPS, Upserted(msgspec.convert(group, Custom)))

    def told(version: str, active: int) -> list[list[str]]:
        meta = {"name": "train", "namespace": "ns", "uid": "12345-job", "labels": {"queuectl.io/queue": "q"}}
        job = {
            "metadata": {**meta, "resourceVersion": version},
            "spec": {"parallelism": 2, "completions": 2, "suspend": True},
            "status": {"active": active},
        }
        heard: list[list[Change]] = []
        source.touched.clear()  # by the loop, which has looked
        take_in(source, foreign.JOBS, Upserted(msgspec.convert(job, foreign.Job)), heard.append)
        return [[type(change).__name__ for change in changes] for changes in heard]

    assert told("1", 2) == [["GangSeen"]]
    assert told("2", 0) == [[]]
    assert told("2", 0) == []  # an echo


def test_an_owner_that_comes_after_its_pods_is_told_for_it_lacks_a_podgroup() -> None:
    """What stands for its gang says the same as before; who makes the PodGroup must look all the same."""
    source, heard = Source(), list[list[Change]]()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "a-job", "controller": True}
    labels = {"queuectl.io/queue": "q"}
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": labels, "ownerReferences": [owner]}}
    source.apply(foreign.PODS, Upserted(msgspec.convert(pod, foreign.Pod)))
    source.touched.clear()
    job = {"metadata": {"name": "train", "namespace": "ns", "uid": "a-job", "labels": labels}}
    take_in(source, foreign.JOBS, Upserted(msgspec.convert(job, Job)), heard.append)
    assert (heard, source.underived) == ([[]], {"a-job": "q"})
