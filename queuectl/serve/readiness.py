"""What a controller says of itself: whether it does its part, which part that is, and what is missing."""

from __future__ import annotations

from msgspec import Struct

from queuectl.contract.home import GROUP
from queuectl.control.loop import Controller


class Readiness(Struct, kw_only=True):
    """Whether the process does its part, which part that is, and what is missing."""

    kind: str = "Readiness"
    ready: bool
    role: str
    leader: str
    missing: list[str]


def readiness(controller: Controller) -> Readiness:
    """Ready is: everything was read and is current, and we lead with a proven fence, or somebody else leads."""
    leadership = controller.leadership
    missing = []
    for informer in controller.informers:
        if not informer.synced.is_set():
            advice = ""
            if informer.kind.group == GROUP:
                advice = " (are the definitions installed? `queuectl crds | kubectl apply --server-side -f -`)"
            missing.append(f"{informer.kind.plural} not synced{advice}")
    behind = controller.behind
    if not missing and behind * 1000 > controller.configuration.stale_after:
        missing.append(f"events have been cut off for {behind:.0f} s; nothing is decided on a view so old")
    holder, ours = leadership.holder, leadership.identity
    if controller.leading:
        role = "leading"
    elif holder and holder != ours:
        role = "standing by"
    elif leadership.fresh():
        role = "taking over"
        missing.append("fence not enforced: install the admission policies")
    else:
        role = "starting"
        if not missing:
            missing.append(f"the lease is not held yet: {leadership.trouble or 'nobody leads'}")
    return Readiness(ready=not missing, role=role, leader=holder, missing=missing)
