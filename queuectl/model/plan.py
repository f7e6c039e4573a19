"""Everything the engine can answer."""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.gangs import Place
from queuectl.model.reasons import Misfit


class Assignment(Struct, frozen=True):
    """A slot, its node, and the member (pod UID) that fills it now; None while the pod does not exist yet."""

    slot: int
    node: str
    member: str | None = None


class Admit(Struct, frozen=True):
    """This gang runs on these places, in this round. Given again, unchanged in its places, when a member fills a slot.

    ``assignments`` cover every slot of the record, sorted by slot.
    """

    gang: str
    round: int
    decided_at: int
    assignments: tuple[Assignment, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """What the record says: slots and nodes, without the members."""
        return tuple(Place(one.slot, one.node) for one in self.assignments)


class AdmitExtra(Struct, frozen=True):
    """One member beyond the record (an extra, or a replacement of a lost member) may start on this node."""

    gang: str
    round: int
    decided_at: int
    slot: int
    node: str
    member: str


class Cause(enum.StrEnum):
    """Why a gang is given back."""

    BIND_DEADLINE = "BindDeadline"
    START_DEADLINE = "StartDeadline"
    TORN = "Torn"
    REQUESTED = "Requested"
    NODE_LOST = "NodeLost"


class Withdraw(Struct, frozen=True):
    """Give this gang back, whole: it returns to its queue at its old place, not before ``not_before`` (ms).

    ``deactivate`` is true when it was given back too often and waits for an edit or a requeue by hand.
    """

    gang: str
    round: int
    cause: Cause
    detail: str
    not_before: int
    deactivate: bool = False


class Refuse(Struct, frozen=True):
    """The set of reasons why a gang waits has changed; ``evidence`` resolves to misfits through ``explain``.

    Also what is to be said of a gang that does not wait (released but not bound, nobody to give it back). Without
    misfits: what was said holds no more. An Admit ends what was said by itself.
    """

    gang: str
    evidence: int
    misfits: tuple[Misfit, ...]


Action = Admit | AdmitExtra | Withdraw | Refuse


class Plan(Struct, frozen=True):
    """What to do now, in this order, and when (ms) to ask again although nothing has changed; None for never."""

    actions: tuple[Action, ...]
    wake_at: int | None = None
