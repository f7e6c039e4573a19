"""What the Source remembers of objects apart from what they mean: versions, names, sums, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from queuectl.contract import owners
from queuectl.contract.foreign import Kind, Meta, PriorityClass, SelectorTerm, Workload
from queuectl.model.gangs import Member, Stage


class Tracked(Struct, gc=False):
    """A managed pod: the engine's member, and what a patch of it needs."""

    namespace: str
    version: str
    member: Member
    terms: tuple[SelectorTerm, ...] | None
    queue: str
    group: str  # name of the PodGroup that its label names, "" when none
    owner: str  # UID of the owner that controls it, "" when it is none that we know
    owner_kind: str
    owner_name: str
    likeness: int  # pods of equal likeness get the same answer from the admission chain
    priority: int
    problem: str  # what is wrong with its requests, "" when nothing is
    waiting: tuple[str, str] | None  # reason and message of our condition, where that says that it waits

    @property
    def kind(self) -> object:
        """Pods of one kind get the same answer from the API server: one namespace, equal in shape and likeness."""
        return self.namespace, self.member.shape, self.likeness


class Tally(Struct):
    """What the members of one gang add up to, kept as they come and go: a look at all of them would cost each O(members)."""

    priorities: dict[int, int] = field(default_factory=dict)  # priority → members
    present: int = 0  # that have not failed
    succeeded: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # pod UID → what is wrong with it

    def count(self, one: Tracked, by: int) -> None:
        """Count a member in (1) or out (-1)."""
        member = one.member
        self.present += by * (member.stage is not Stage.FAILED)
        self.succeeded += by * (member.stage is Stage.SUCCEEDED)
        if left := self.priorities.get(one.priority, 0) + by:
            self.priorities[one.priority] = left
        else:
            del self.priorities[one.priority]
        if one.problem:
            if by > 0:
                self.problems[member.uid] = one.problem
            else:
                del self.problems[member.uid]


class Names:
    """Cluster-wide objects by UID that are known by name: of two with one name, the later is the one that exists."""

    def __init__(self) -> None:
        self.by_uid: dict[str, str] = {}
        self._holder: dict[str, str] = {}

    def seen(self, meta: Meta) -> None:
        """The object exists."""
        self.by_uid[meta.uid] = meta.name
        self._holder[meta.name] = meta.uid

    def gone(self, uid: str) -> str | None:
        """The name that nothing has any more, None when it was made anew before the old one was seen to go."""
        name = self.by_uid.pop(uid, None)
        if name is None or self._holder[name] != uid:
            return None
        del self._holder[name]
        return name


class Classes:
    """Priority classes."""

    def __init__(self) -> None:
        self.names = Names()
        self._values: dict[str, tuple[int, bool]] = {}  # name → value, whether it is the default

    def seen(self, one: PriorityClass) -> bool:
        """The class exists so; whether that is news."""
        self.names.seen(one.metadata)
        before, now = self._values.get(one.metadata.name), (one.value, one.global_default)
        self._values[one.metadata.name] = now
        return before != now

    def gone(self, uid: str) -> bool:
        """The class of this UID is gone; whether that changes anything."""
        name = self.names.gone(uid)
        return name is not None and self._values.pop(name, None) is not None

    def of(self, owner: Workload | None) -> int:
        """Priority of a template: its own number, else its class, else the default class, else 0.

        Of several default classes the lowest counts, as the API server has it.
        """
        parts = owners.of(owner).parts(owner) if owner is not None else ()
        spec = parts[0].template.spec if parts else None
        if spec is not None and spec.priority is not None:
            return spec.priority
        if spec is not None and spec.priority_class_name:
            return self._values.get(spec.priority_class_name, (0, False))[0]
        return min((value for value, default in self._values.values() if default), default=0)


class Problems(dict[tuple[str, str, str], str]):
    """(plural, namespace, name) → what is wrong with that object, until it is well or gone."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, tuple[str, str, str]] = {}  # by UID

    def note(self, kind: Kind, meta: Meta, problem: str) -> None:
        """The object cannot be used."""
        key = (kind.plural, meta.namespace, meta.name)
        self[key] = problem
        if meta.uid:
            self._keys[meta.uid] = key

    def well(self, kind: Kind, meta: Meta) -> str:
        """Nothing is wrong with it, or it is gone; what was."""
        if not self:
            return ""
        self._keys.pop(meta.uid, None)
        return self.pop((kind.plural, meta.namespace, meta.name), "")

    def gone(self, uid: str) -> None:
        """The object of this UID is gone."""
        if (key := self._keys.pop(uid, None)) is not None:
            self.pop(key, None)

    def of(self, kind: Kind) -> Iterable[str]:
        """UIDs of this kind with a problem."""
        return (uid for uid, key in self._keys.items() if key[0] == kind.plural)


def older(one: str, other: str) -> bool:
    """Whether one version of an object precedes another: an event that was overtaken by the answer to our own write.

    Versions of one object are comparable integers (KEP-5504); whatever is not a number is taken as new.
    """
    return one.isdigit() and other.isdigit() and int(one) < int(other)
