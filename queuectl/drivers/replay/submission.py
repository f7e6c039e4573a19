"""What somebody submits: one gang with its owner, in the engine's own terms."""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.gangs import Gang, GiveBack, Role, Shape
from queuectl.model.reasons import Misfit, Reason, TextEvidence

HELD = Misfit(Reason.HELD, TextEvidence("spec.hold is true"))


class Owner(enum.StrEnum):
    """Who makes the pods: a Job (which also takes them back), or their submitter, who wrote a PodGroup for them."""

    JOB = "Job"
    PODS = "Pods"


class Part(Struct, frozen=True, kw_only=True):
    """Equal pods of a gang: ``size`` of them, of which ``minimum`` start together. ``pinnable`` as in ``Member``."""

    role: str = ""
    size: int
    minimum: int
    shape: Shape
    required: str | None = None
    preferred: str | None = None
    pinnable: bool = True


class Submission(Struct, frozen=True, kw_only=True):
    """One gang as it is handed in. ``run`` is how long each pod runs (ms), None for ever.

    ``gates`` are scheduling gates of others on every pod. ``suspended``: its Job is created suspended, so the gang waits
    without pods.
    """

    name: str
    queue: str
    parts: tuple[Part, ...]
    namespace: str = "default"
    owner: Owner = Owner.JOB
    required: str | None = None
    preferred: str | None = None
    priority: int = 0
    gates: tuple[str, ...] = ()
    run: int | None = None
    suspended: bool = False
    hold: bool = False
    best_effort: bool = False

    @property
    def size(self) -> int:
        """All pods."""
        return sum(part.size for part in self.parts)

    @property
    def minimum(self) -> int:
        """Pods that start together."""
        return sum(part.minimum for part in self.parts)

    @property
    def lone(self) -> bool:
        """A pod on its own, for which nobody writes a PodGroup."""
        return self.owner is Owner.PODS and self.size == self.minimum == 1 and not self.parts[0].role

    def roles(self) -> tuple[Role, ...]:
        """The roles as the engine sees them: a Job tells its template, hand-written pods tell only themselves."""
        if self.owner is Owner.JOB:
            (part,) = self.parts
            return (Role("", part.minimum, part.size, part.shape, gates=self.gates),)
        if self.lone:
            return (Role("", 1, 1, self.parts[0].shape),)
        return tuple(
            Role(part.role, part.minimum, part.size, None, part.required, part.preferred) for part in self.parts
        )

    def gang(self, uid: str, created: int) -> Gang:
        """The gang that the cluster then holds."""
        return Gang(
            uid=uid,
            namespace=self.namespace,
            name=self.name,
            queue=self.queue,
            roles=self.roles(),
            required=self.required,
            preferred=self.preferred,
            priority=self.priority,
            created=created,
            queued_at=created,
            give_back=GiveBack.SUSPEND if self.owner is Owner.JOB else GiveBack.NONE,
            resumes=self.suspended,
            best_effort=self.best_effort,
            lone=self.lone,
            blocked=(HELD,) if self.hold else (),
        )
