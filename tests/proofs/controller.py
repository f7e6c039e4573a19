"""``queuectl run`` with one function of the release protocol replaced: what the proofs must find out.

``python -m tests.proofs.controller MUTANT -- <arguments of queuectl run>``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from queuectl.cli.main import main
from queuectl.control import release
from queuectl.control.release import Intent, Release, Step, Write


def without_record(self: Release, gang: str, group: Any, owner: Any, intent: Intent, fence: int) -> Iterator[Write]:
    """Release at once, without recording the decision first."""
    for one in intent.admit.assignments:
        tracked = self._view.pods.get(one.member or "")
        if tracked is not None and release._ready(tracked):
            yield self._on_pod(Step.RELEASE, gang, tracked, one.node, intent.admit.round, fence)


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
        case "no-version":
            Release._on_pod = without_version(Release._on_pod)  # type: ignore[method-assign]  # that is the mutant
        case _:
            raise KeyError(mutant)


if __name__ == "__main__":
    install(sys.argv[1])
    sys.argv = ["queuectl", *sys.argv[3:]]
    main()
