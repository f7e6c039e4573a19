"""``queuectl run`` with one function of the release protocol replaced: what the proofs must find out.

``python -m tests.proofs.controller MUTANT -- <arguments of queuectl run>``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from queuectl.cli.main import main
from queuectl.control import muster, release
from queuectl.control.release import Intent, Release
from queuectl.control.steps import Step, Write, on_pod


def without_record(self: Release, group: Any, owner: Any, intent: Intent, fence: int) -> Iterator[Write]:
    """Release at once, without recording the decision first."""
    for one in intent.admit.assignments:
        tracked = self._view.pods.get(one.member or "")
        if tracked is not None and muster.ready(tracked):
            yield on_pod(Step.RELEASE, tracked, one.node, intent.admit.round, fence)


def without_version(make: Callable[..., Write]) -> Callable[..., Write]:
    """Patch pods whatever has happened to them since they were looked at."""

    def made(*arguments: Any, **options: Any) -> Write:
        write = make(*arguments, **options)
        write.body["metadata"].pop("resourceVersion", None)
        return write

    return made


def install(mutant: str) -> None:
    """Replace the function. Raises KeyError for a mutant that does not exist."""
    match mutant:
        case "none":
            return
        case "no-record":
            Release._admit = without_record  # type: ignore[method-assign]  # that is the mutant
            Release.due = lambda self, write: True  # type: ignore[method-assign]  # the mutant is made by replacing it
        case "no-version":
            release.on_pod = without_version(release.on_pod)  # type: ignore[attr-defined]  # that is the mutant
        case _:
            raise KeyError(mutant)


if __name__ == "__main__":
    install(sys.argv[1])
    sys.argv = ["queuectl", *sys.argv[3:]]
    main()
