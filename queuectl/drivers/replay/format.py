"""The scenario file: what may be written in it. docs/replay.md explains every field to its readers.

Each model names what it knows; an unknown field is refused with the list of those, and a field that the product cannot act
on yet with the reason, so that nobody takes silence for support.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from queuectl.contract import schema, v1alpha1
from queuectl.contract.config import Duration
from queuectl.contract.schema import Name, Quantity, Resource, Rule
from queuectl.contract.slots import MAX_MEMBERS
from queuectl.contract.v1alpha1 import TopologyConstraint, TopologySpec
from queuectl.model.reasons import Reason
from queuectl.model.topology import DEFAULT_TOPOLOGY

Amounts = dict[Resource, Quantity]
NodeName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]
Members = Annotated[int, Field(ge=1, le=MAX_MEMBERS)]
Why = Annotated[Reason, Field(strict=False)]

FAIRNESS = "fair shares come with the fairness work"
TIME = "promises and estimates come with the timeline"


class Part(schema.Part):
    """Of a scenario file. ``later`` names fields of the design that nothing acts on yet, with the reason."""

    later: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in given:
                if key in cls.later:
                    raise _refusal(str(key), f"not yet: {cls.later[key]}; leave it out")
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, 1)
                    advice = f", did you mean {near[0]}?" if near else "."
                    raise _refusal(str(key), f"unknown field{advice} Known are: {', '.join(known)}")
        return given


def _refusal(key: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{message}", {"message": message, "path": f".{key[:60]}"})


class Taint(Part):
    """A node's taint, as in Kubernetes."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Node(Part):
    """A node, or ``count`` equal ones named ``name`` and a number from 0."""

    name: NodeName
    count: Annotated[int, Field(ge=1, le=100_000)] | None = None
    allocatable: Amounts = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)
    cordoned: bool = False
    ready: bool = True

    later: ClassVar[dict[str, str]] = {"links": "links inside a node come with the node agent"}


class Queue(Part, v1alpha1.QueueSpec):
    """A queue: its spec, and its name."""

    name: Name

    later: ClassVar[dict[str, str]] = {
        name: why
        for why, names in {
            "the queue's spec has no such field yet": (
                "order",
                "preemption",
                "usage",
                "namespaceSelector",
                "guarantee",
            ),
            TIME: ("backfill", "patience", "reserve"),
            "limits on numbers of gangs come with fairness": ("maxPending", "maxRunning", "maxRunningPerUser"),
        }.items()
        for name in names
    }
    rules = (
        Rule(None, ".parent", "a queue cannot be its own parent", lambda self, _: self.parent != self.name),
    )  # fmt: skip


class Pool(Part, v1alpha1.PoolSpec):
    """A pool: its spec, and its name."""

    name: Name

    later: ClassVar[dict[str, str]] = dict.fromkeys(
        ("product", "expectedDevices", "unmanagedPods"), "a pool's spec has no such field yet"
    )


class Topology(Part, TopologySpec):
    """A topology that pools may name: its spec, and its name."""

    name: Name


class Role(Part):
    """Pods of one kind inside a gang of ``owner: Pods``."""

    name: Name
    size: Members
    min: Annotated[int, Field(ge=0, le=MAX_MEMBERS)] | None = None
    pod: Amounts = Field(default_factory=dict)
    spec: dict[str, Any] = Field(default_factory=dict)
    topology: TopologyConstraint | None = None

    rules = (Rule(None, ".min", "must not be above size", lambda self, _: (self.min or 0) <= self.size),)


class Gang(Part):
    """A gang and its owner, in the order of creation."""

    name: Name
    namespace: Name = "default"
    queue: Name
    owner: Literal["Job", "StatefulSet", "ReplicaSet", "LWS", "Pods"] | None = None
    size: Members | None = None
    min: Members | None = None
    pod: Amounts = Field(default_factory=dict)
    spec: dict[str, Any] = Field(default_factory=dict)
    roles: Annotated[list[Role], Field(min_length=1, max_length=32)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=1_000_000_000)] = 0
    topology: TopologyConstraint | None = None
    gates: list[str] = Field(default_factory=list)
    best_effort: bool = False
    hold: bool = False
    preemptible: bool | None = None
    state: Literal["Pending", "Running", "Suspended"] = "Pending"
    nodes: list[NodeName] = Field(default_factory=list)
    record: bool = True
    run: Duration | None = None
    created: Duration = 0

    later: ClassVar[dict[str, str]] = {
        "promise": TIME,
        "recovery": "what happens below the minimum is not configurable yet",
    }
    rules = (
        Rule(None, ".size", "give either size or roles, not both and not neither",
             lambda self, _: (self.size is None) != (self.roles is None)),
        Rule(None, ".preemptible", "not yet: nothing is preempted, so nothing can be kept from it; leave it out",
             lambda self, _: self.preemptible is not False),
        Rule(None, ".min", "must not be above size; with roles, each role has its own",
             lambda self, _: self.min is None or (self.size is not None and self.min <= self.size)),
        Rule(None, ".min", "an LWS starts as a whole: leave it out",
             lambda self, _: self.min is None or self.owner != "LWS"),
        Rule(None, ".owner", "makes pods by its own templates: roles need owner: Pods",
             lambda self, _: self.roles is None or self.owner in (None, "Pods")),
        Rule(None, ".run", "only a Job and Pods end by themselves: a StatefulSet, ReplicaSet or LWS makes each pod again",
             lambda self, _: self.run is None or self.kind in ("Job", "Pods")),
        Rule(None, ".record", "only a Job and Pods can run without our admission",
             lambda self, _: self.record or self.kind in ("Job", "Pods")),
        Rule(None, ".pod", "with roles, each role has its own pod and spec",
             lambda self, _: self.roles is None or not (self.pod or self.spec)),
        Rule(None, ".roles", "names a role twice, or none of them has a min of 1 or more",
             lambda self, _: self.roles is None or (len({role.name for role in self.roles}) == len(self.roles)
                                                    and any(role.min != 0 for role in self.roles))),
        Rule(None, ".state", "only a Job can be created suspended: other owners have state Pending or Running",
             lambda self, _: self.state != "Suspended" or self.kind == "Job"),
        Rule(None, ".nodes", "state Running needs the nodes where its pods run, and no other state has any",
             lambda self, _: bool(self.nodes) == (self.state == "Running")),
        Rule(None, ".hold", "only a PodGroup written by hand can be held from the start: use owner: Pods, or a step hold",
             lambda self, _: not self.hold or self.kind == "Pods"),
    )  # fmt: skip

    @property
    def kind(self) -> str:
        """Its owner; a Job unless there are roles."""
        return self.owner or ("Pods" if self.roles else "Job")


class Unmanaged(Part):
    """A pod of somebody else, which is there from ``created`` until it ends after ``run``."""

    name: Name
    node: NodeName
    pod: Amounts = Field(default_factory=dict)
    created: Duration = 0
    run: Duration | None = None


class Step(Part):
    """Something that happens. ``target`` names a gang, node, queue, pool or unmanaged pod; ``gang/x`` where it is not unique."""

    at: Duration
    do: Literal[
        "finish", "fail", "delete", "create", "requeue", "hold", "resume", "edit", "cordon", "uncordon", "lose",
        "return", "restart",
    ]  # fmt: skip
    target: Annotated[str, Field(max_length=300)] = ""
    with_: Annotated[dict[str, Any], Field(alias="with")] = Field(default_factory=dict)

    rules = (
        Rule(None, ".target", "names nothing: only restart, of the controller, has no target",
             lambda self, _: bool(self.target) != (self.do == "restart")),
        Rule(None, ".with", "belongs to edit (fields of the target), finish and fail (member: NUMBER)",
             lambda self, _: not self.with_ or self.do in ("edit", "finish", "fail")),
        Rule(None, ".with", "edit needs the fields that change, as in with: {queue: b}",
             lambda self, _: bool(self.with_) or self.do != "edit"),
        Rule(None, ".with", "is member: NUMBER, or role and member, and nothing else",
             lambda self, _: self.do == "edit" or set(self.with_) <= {"member", "role"}),
    )  # fmt: skip


class Expectation(Part):
    """What must be true at ``at``, after everything that happens then. What is not named is not compared."""

    at: Duration
    running: list[Name] | None = None
    admitted: list[Name] | None = None
    leaving: list[Name] | None = None
    finished: list[Name] | None = None
    waiting: dict[Name, list[Why]] | None = None
    notes: dict[Name, list[Why]] | None = None
    given_back: list[Name] | None = None
    usage: dict[Name, Amounts] = Field(default_factory=dict)
    usage_in: dict[Name, dict[Name, Amounts]] = Field(default_factory=dict)
    nodes_of: dict[Name, list[NodeName] | dict[NodeName, int]] = Field(default_factory=dict)

    later: ClassVar[dict[str, str]] = {"shares": FAIRNESS, "entitlement": FAIRNESS, "eta": TIME}


class Settings(Part):
    """The engine's part of the controller's configuration; docs/configuration.md."""

    bind_timeout: Duration | None = None
    start_timeout: Duration | None = None
    backoff: Duration | None = None
    backoff_limit: Duration | None = None
    max_requeues: Annotated[int, Field(ge=0, le=1000)] | None = None


class Delays(Part):
    """How long the cluster takes in the engine's own tier; nothing by default. A real cluster takes its own time."""

    record: Duration = 0
    release: Duration = 0
    bind: Duration = 0
    start: Duration = 0
    create: Duration = 0
    stop: Duration = 0
    give_up: Duration = 300_000


class File(Part):
    """A whole scenario."""

    nodes: list[Node] = Field(default_factory=list)
    topology: TopologySpec | None = None
    topologies: list[Topology] = Field(default_factory=list)
    pools: list[Pool] = Field(default_factory=list)
    queues: list[Queue] = Field(default_factory=list)
    unmanaged: list[Unmanaged] = Field(default_factory=list)
    gangs: list[Gang] = Field(default_factory=list)
    settings: Settings = Settings()
    delays: Delays = Delays()
    steps: list[Step] = Field(default_factory=list)
    expect: list[Expectation] = Field(default_factory=list)

    rules = (
        Rule(None, ".topologies", f"{DEFAULT_TOPOLOGY} applies where no pool names another: write it as topology",
             lambda self, _: all(one.name != DEFAULT_TOPOLOGY for one in self.topologies)),
    )  # fmt: skip
