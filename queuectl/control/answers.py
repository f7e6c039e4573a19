"""What an error that the API server answers means for us."""

from __future__ import annotations

from queuectl.contract.owners import shorten
from queuectl.contract.policies import FENCE_POLICIES, STALE_FENCE
from queuectl.control.ports import ClusterError
from queuectl.model.reasons import Misfit, Reason, TextEvidence


def is_stale_fence(message: str) -> bool:
    """Whether one of our fence policies refused: another process leads."""
    return STALE_FENCE in message and any(f"'{name}'" in message for name in FENCE_POLICIES)


def lacks_rights(reply: ClusterError) -> bool:
    """Whether RBAC, not the object, was refused: it heals when our role is back, and says nothing about the gang."""
    return reply.status == 403 and " cannot " in reply.message and " resource " in reply.message


def rejected(reply: ClusterError) -> Misfit:
    """A refusal as the reason of a gang, in the API server's own words."""
    return Misfit(Reason.PATCH_REJECTED, TextEvidence(shorten(reply.message.partition("Invalid value:")[0], 300)))
