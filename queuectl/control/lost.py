"""Releases of which nobody knows whether they are carried out: the answer never came.

Such a request may still be on its way. It names UID and version of its pod, so it can be carried out at any moment while the
pod is what it was when the request was sent, and never after. Until then its place is not free, whatever becomes of its
gang. Mostly it is sent again, and one of the two changes the version. Where it is no longer called for, a write that
changes nothing but the version makes it void (``Step.VOID``).

Nothing of this need outlive the process: what a leader had sent is refused by its fence once the next one leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from queuectl.control.source import Source
from queuectl.control.steps import Write, voiding

# Milliseconds after which a request is taken for dead although its pod was never seen to change: an API server ends each one
# after --request-timeout, a minute by default. Only where a policy or webhook keeps us from writing to the pod at all.
LINGERS = 300_000


class Lost(Struct):
    """A release without an answer, and since when (wall-clock milliseconds).

    ``refused`` is true once the same release, sent again, was refused: that is no answer for the first one.
    """

    write: Write
    since: int
    refused: bool = False


class LostReleases:
    """The last lost release of each pod: of all that were sent for one version at most one is carried out.

    O(1) by pod, and O(lost releases) where a gang or all of them are meant.
    """

    def __init__(self) -> None:
        self._lost: dict[str, Lost] = {}

    def note(self, view: Source, write: Write, now: int) -> None:
        """No answer came. Its pod has been read back since, where that was possible."""
        before = self._of(view, write.member)
        self._lost[write.member] = Lost(write, now, refused=before is not None and before.refused)
        self._of(view, write.member)

    def refuse(self, view: Source, pod: str) -> bool:
        """A release of the pod was refused. Whether an earlier one, of the same version, may be carried out all the same."""
        if (lost := self._of(view, pod)) is None:
            return False
        lost.refused = True
        return True

    def lingers(self, view: Source, *, gang: str = "", pod: str = "") -> bool:
        """Whether a release of this gang's, or of this pod, may still be carried out."""
        if pod:
            return self._of(view, pod) is not None
        return any(lost.write.gang == gang for lost in self._all(view))

    def voids(self, view: Source, fence: int, due: Callable[[Write], bool]) -> Iterator[Write]:
        """Writes that keep them from being carried out, where they are not ``due``: those are just sent again."""
        for lost in self._all(view):
            if lost.refused or not due(lost.write):
                yield voiding(view.pods[lost.write.member], lost.write, fence)

    def expire(self, view: Source, now: int) -> None:
        """Forget those that are too old to be carried out: what waited for them may go on."""
        dead = [lost.write for lost in self._all(view) if now - lost.since >= LINGERS]
        for write in dead:
            del self._lost[write.member]
            view.touched.add(write.gang)

    def _all(self, view: Source) -> Iterator[Lost]:
        for pod in list(self._lost):
            if (lost := self._of(view, pod)) is not None:
                yield lost

    def _of(self, view: Source, pod: str) -> Lost | None:
        """The release of this pod that may still be carried out; one whose pod has changed or is gone is forgotten."""
        if (lost := self._lost.get(pod)) is None:
            return None
        tracked = view.pods.get(pod)
        if tracked is None or tracked.version != lost.write.body["metadata"]["resourceVersion"]:
            del self._lost[pod]
            return None
        return lost
