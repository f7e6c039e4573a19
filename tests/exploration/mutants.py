"""The release machine with one function replaced each: what the exploration must find out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from queuectl.contract import translate
from queuectl.contract.foreign import JOBS
from queuectl.control import muster
from queuectl.control.lost import LostReleases
from queuectl.control.release import Intent, Release
from queuectl.control.source import Source
from queuectl.control.steps import Step, Write, on_owner, on_pod
from queuectl.model.gangs import Record
from tests.exploration.configurations import CONFIGURATIONS, Configuration


class WithoutRecord(Release):
    """Releases without recording first. (The last look before sending, a second net, is out of its way too.)"""

    def _admit(self, group: Any, owner: Any, intent: Intent, fence: int) -> Iterator[Write]:
        for one in intent.admit.assignments:
            tracked = self._view.pods.get(one.member or "")
            if tracked is not None and muster.ready(tracked):
                yield on_pod(Step.RELEASE, tracked, one.node, intent.admit.round, fence)

    def due(self, write: Write) -> bool:
        return True


class WithoutVersion(Release):
    """Writes whatever has happened to the object since it was looked at: no resourceVersion in any write."""

    def next_writes(self, *arguments: Any, **options: Any) -> Iterator[Write]:
        for write in super().next_writes(*arguments, **options):
            yield _without(write, "resourceVersion")

    def due(self, write: Write) -> bool:
        return super().due(self._versioned(write))

    def _versioned(self, write: Write) -> Write:
        """As it would be with the version that the mirror has, so that the last look judges all else as ever."""
        uid = write.member if write.kind.plural == "pods" else write.gang
        version = self._view.version(write.kind, uid)
        meta = {**write.body["metadata"], "resourceVersion": version}
        return structs.replace(write, body={**write.body, "metadata": meta})


class WithoutFence(Release):
    """Writes with a fence that no later leader's exceeds: the API server cannot tell an old leader's writes."""

    def next_writes(self, gang: str, fence: int, *arguments: Any, **options: Any) -> Iterator[Write]:
        yield from super().next_writes(gang, fence + 1000, *arguments, **options)


class WithoutIdentity(Release):
    """Suspends and resumes whatever Job has the name: neither UID nor version in writes to owners."""

    def next_writes(self, *arguments: Any, **options: Any) -> Iterator[Write]:
        for write in super().next_writes(*arguments, **options):
            yield _without(write, "uid", "resourceVersion") if write.kind is JOBS else write


class WithoutUid(Release):
    """Evicts whatever pod has the name. (The policy that refuses such an eviction has no stand-in here.)"""

    def next_writes(self, *arguments: Any, **options: Any) -> Iterator[Write]:
        for write in super().next_writes(*arguments, **options):
            yield structs.replace(write, body={"metadata": {"uid": ""}}) if write.step is Step.EVICT else write


class Forgetful(LostReleases):
    """Whatever was not answered was not carried out."""

    def note(self, view: Source, write: Write, now: int) -> None:
        pass


class WithoutVoid(Release):
    """Gives a place away though a release to it may still be carried out."""

    def __init__(self, view: Source) -> None:
        super().__init__(view)
        self.lost = Forgetful()


class Fickle(Release):
    """Goes on with a gang whose user has resumed it, though a write that returns it may still be carried out."""

    def next_writes(self, *arguments: Any, **options: Any) -> Iterator[Write]:
        self._returning.clear()
        yield from super().next_writes(*arguments, **options)


class WithoutAsking(Release):
    """Suspends whatever is to be given back in its own name, whoever has suspended it already."""

    def _give_back(self, group: Any, owner: Any, record: Record, fence: int, *arguments: Any) -> Iterator[Write]:
        gang = group.metadata.uid
        if owner is not None and translate.suspension_step(owner, gang, record.round) != "suspended":
            yield on_owner(Step.SUSPEND, gang, owner, record.round, fence)
            return
        yield from super()._give_back(group, owner, record, fence, *arguments)


def _without(write: Write, *preconditions: str) -> Write:
    meta = {key: value for key, value in write.body.get("metadata", {}).items() if key not in preconditions}
    return structs.replace(write, body={**write.body, "metadata": meta})


def _only(name: str, *disturbances: str, holds: tuple[str, ...] = ()) -> Configuration:
    """A configuration with these disturbances, and little or nothing held up: the shortest way to what a mutant breaks."""
    return structs.replace(CONFIGURATIONS[name], disturbances=dict.fromkeys(disturbances, 1), holds=holds)


MUTANTS: dict[str, tuple[Callable[..., Release], Configuration, str]] = {
    "without the record": (WithoutRecord, _only("job"), "P1"),
    "without the version": (WithoutVersion, _only("people", "hold"), "R1"),
    "without the fence": (WithoutFence, _only("late arrival", "arrive", "takeover", holds=("request",)), "P2"),
    "without the fence, after a crash": (WithoutFence, _only("late arrival", "arrive", "crash"), "P2"),
    "without the owner's identity": (WithoutIdentity, _only("replaced", "requeue", "replace-job"), "S1"),
    "without the eviction's UID": (WithoutUid, _only("evicted", "requeue", "timeout"), "P5"),
    "without making lost releases void": (WithoutVoid, CONFIGURATIONS["lingering"], "P2"),
    "without asking who suspended": (WithoutAsking, CONFIGURATIONS["claimed"], "S1"),
    "without keeping to a return": (Fickle, CONFIGURATIONS["taken away"], "P1"),
}
"""Each with a configuration in which it is found out, and the promise that it breaks there."""
