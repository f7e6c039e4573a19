"""The release machine with one function replaced each: what the exploration must find out.

The product has no eviction yet: of owners that evict, the Eviction API's UID precondition comes with them and gets its
mutant then. What identifies an object today are UID and version in the writes to owners, by which gangs are given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from queuectl.contract.foreign import JOBS
from queuectl.control import muster
from queuectl.control.release import Intent, Release
from queuectl.control.steps import Step, Write, on_pod
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
}
"""Each with a configuration in which it is found out, and the promise that it breaks there."""
