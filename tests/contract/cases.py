"""Right and wrong objects: one table for the models and for the real API server, so that both say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Case:
    """A spec. ``path`` is the field that is wrong, None when nothing is; ``says`` is part of the models' message.

    ``server`` is false where only the models can tell (the server's pattern language knows no such rule).
    """

    name: str
    kind: str
    spec: Json
    path: str | None = None
    says: str = ""
    server: bool = True
    object_name: str = "one"

    def manifest(self) -> Json:
        """The object."""
        where = {"namespace": "default"} if self.kind == "PodGroup" else {}
        return {
            "apiVersion": "queuectl.io/v1alpha1",
            "kind": self.kind,
            "metadata": {"name": self.object_name, **where},
            "spec": self.spec,
        }


def queue(name: str, path: str | None = None, says: str = "", server: bool = True, **spec: Any) -> Case:
    return Case(name, "Queue", spec, path, says, server)


def gpus(name: str, path: str | None = None, says: str = "", server: bool = True, **entry: Any) -> Case:
    where = f"spec.resources[0].{path}" if path else None
    return Case(name, "Queue", {"resources": [{"name": GPU, **entry}]}, where, says, server)


def amount(name: str, resource: str, quota: Any, path: str | None = None, says: str = "") -> Case:
    where = f"spec.resources[0].{path}" if path else None
    return Case(name, "Queue", {"resources": [{"name": resource, "quota": quota}]}, where, says)


def group(name: str, path: str | None = None, says: str = "", **spec: Any) -> Case:
    return Case(name, "PodGroup", {"queue": "a", **spec}, f"spec.{path}" if path else None, says)


def levels(name: str, path: str | None = None, says: str = "", *entries: Any) -> Case:
    return Case(name, "Topology", {"levels": [*entries]}, path, says)


def nodes(name: str, path: str | None = None, says: str = "", server: bool = True, **spec: Any) -> Case:
    return Case(name, "Pool", spec, path and f"spec.{path}", says, server)


RACK, NODE = {"name": "rack", "keys": ["example.com/rack"]}, {"name": "node", "keys": ["kubernetes.io/hostname"]}

CASES = (
    queue("empty"),
    queue("all-set", parent="up", weight=0, priority=-5, state="Held", resources=[]),
    queue("weight-1000", weight=1000),
    queue("weight-1001", "spec.weight", "less than or equal to 1000", weight=1001),
    queue("weight-negative", "spec.weight", "greater than or equal to 0", weight=-1),
    queue("weight-text", "spec.weight", "valid integer", weight="2"),
    queue("priority-huge", "spec.priority", "less than or equal to", priority=10**9),
    queue("state-draining", "spec.state", "'Open' or 'Held'", state="Draining"),
    Case("own-parent", "Queue", {"parent": "one"}, "spec.parent", "cannot be its own parent"),
    queue("parent-capital", "spec.parent", "pattern", parent="Up"),
    queue("parent-empty", "spec.parent", "at least 1 character", parent=""),
    queue("parent-long", "spec.parent", "at most 63", parent="a" * 64),
    queue("resources-twice", "spec.resources", "listed twice", resources=[{"name": GPU}, {"name": GPU, "pool": "*"}]),
    queue("resources-in-two-pools",
          resources=[{"name": GPU}, {"name": GPU, "pool": "h100"}]),
    gpus("pool-all", pool="*"),
    gpus("pool-other", pool="h100", quota=8),
    queue("resources-twice-in-a-pool", "spec.resources", "listed twice", resources=[{"name": GPU, "pool": "h100"}] * 2),
    queue("resources-64", resources=[{"name": f"a.b/{'r' * 240}{n}", "quota": "9" * 15, "limit": "1e15"} for n in range(64)]),
    queue("resources-many", "spec.resources", "at most 64", resources=[{"name": f"a.b/r{n}"} for n in range(65)]),
    queue("resource-unnamed", "spec.resources[0].name", "is missing", resources=[{"quota": 1}]),
    queue("resource-space", "spec.resources[0].name", "pattern", resources=[{"name": "a b"}]),
    queue("pool-bad", "spec.resources[0].pool", "pattern", resources=[{"name": GPU, "pool": "**"}]),
    gpus("quota-int", quota=8),
    gpus("quota-text", quota="8"),
    gpus("quota-exponent", quota="1e3"),
    gpus("quota-thousands-of-milli", quota="2000m"),
    gpus("quota-zero", quota=0, limit=0),
    gpus("quota-equals-limit", quota=8, limit="8"),
    gpus("quota-above-limit", "quota", "must not be above limit", quota=9, limit=8),
    gpus("quota-above-limit-in-other-words", "quota", "must not be above limit", quota="1k", limit="999"),
    gpus("quota-half", "quota", "must be a whole number", quota="0.5"),
    gpus("limit-half", "limit", "must be a whole number", limit="500m"),
    gpus("quota-float", "quota", "in quotes", quota=0.5),
    gpus("quota-negative", "quota", "must not be negative", quota=-1),
    gpus("quota-negative-text", "quota", "must not be negative", quota="-1"),
    gpus("quota-nan", "quota", "is no quantity", quota="NaN"),
    gpus("quota-inf", "quota", "is no quantity", quota="inf"),
    gpus("quota-empty", "quota", "is no quantity", quota=""),
    gpus("quota-giant", "quota", "more than 2^63-1", quota="1e400"),
    gpus("quota-giant-exponent", "quota", "exponent out of range", quota="1e9999999999"),
    gpus("quota-minus-zero", "quota", "without a minus", quota="-0"),
    gpus("quota-long-exponent", "quota", "at most two digits", quota="0e400"),
    gpus("quota-almost-whole", "quota", "must be a whole number", quota="999999999999999999u"),
    gpus("quota-beyond-int64", "quota", "more than 2^63-1", quota="9223372036854775808"),
    gpus("quota-beyond-int64-in-milli", "quota", "is too large", quota="9223372036854776"),
    gpus("quota-1000-digits", "quota", "at most 128 characters", quota="9" * 1000),
    gpus("quota-33-characters", "quota", "at most 32 characters", quota="1" + "0" * 15 + "." + "0" * 16),
    gpus("quota-capital-k", "quota", "the suffix for 1000 is k", quota="1K"),
    gpus("quota-space", "quota", "no spaces", quota=" 1"),
    gpus("quota-newline", "quota", "no spaces", quota="1\n"),
    gpus("quota-underscore", "quota", "without separators", quota="1_000"),
    gpus("quota-bool", "quota", "valid string", quota=True),
    gpus("guarantee-unknown", "guarantee", "unknown field", guarantee=1),
    amount("cpu-half", "cpu", "500m"),
    amount("cpu-giant", "cpu", "1e400", "quota", "more than 2^63-1"),
    amount("memory-binary", "memory", "1.5Gi"),
    amount("memory-with-zeros", "memory", "31.00Mi"),
    amount("memory-huge", "memory", "662039849633Ki"),
    amount("memory-half-byte", "memory", "100m", "quota", "must be a whole number"),
    amount("hugepages", "hugepages-2Mi", "64Gi"),
    group("one", minMember=1),
    group("same", minMember=8, maxMember=8),
    group("below", "maxMember", "must not be below minMember", minMember=8, maxMember=7),
    group("zero", "minMember", "greater than or equal to 1", minMember=0),
    group("most", minMember=100_000),
    group("too-many", "minMember", "less than or equal to 100000", minMember=100_001),
    group("neither", "minMember", "either minMember or roles"),
    group("both", "minMember", "either minMember or roles", minMember=1, roles=[{"name": "a", "minMember": 1}]),
    group("roles", roles=[{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 0, "maxMember": 4}]),
    group("roles-32", roles=[{"name": f"{'r' * 60}{n}", "minMember": 1, "maxMember": 2} for n in range(32)]),
    group("roles-and-max", "maxMember", "not together with roles", maxMember=4, roles=[{"name": "a", "minMember": 1}]),
    group("roles-empty", "roles", "at least 1 item", roles=[]),
    group("roles-twice", "roles", "listed twice", roles=[{"name": "a", "minMember": 1}] * 2),
    group("roles-of-extras", "roles", "at least one role", roles=[{"name": "a", "minMember": 0, "maxMember": 1}]),
    group("role-below", "roles[0].maxMember", "must not be below", roles=[{"name": "a", "minMember": 2, "maxMember": 1}]),
    group("role-of-none", "roles[0].minMember", "at least 1", roles=[{"name": "a", "minMember": 0}]),
    group("role-capital", "roles[0].name", "pattern", roles=[{"name": "A", "minMember": 1}]),
    group("topology", minMember=2, topology={"required": "rack", "preferred": "node"}),
    group("topology-empty-level", "topology.required", "at least 1 character", minMember=2, topology={"required": ""}),
    group("hold-text", "hold", "valid boolean", minMember=1, hold="true"),
    group("priority-unknown", "priority", "unknown field", minMember=1, priority=3),
    Case("no-queue", "PodGroup", {"minMember": 1}, "spec.queue", "is missing"),
    Case("queue-long", "PodGroup", {"queue": "a" * 64, "minMember": 1}, "spec.queue", "at most 63"),
    Case("name-63", "PodGroup", {"queue": "a", "minMember": 1}, object_name="n" * 63),
    Case("name-64", "PodGroup", {"queue": "a", "minMember": 1}, "metadata.name", "at most 63", object_name="n" * 64),
    nodes("of-all-nodes"),
    nodes("of-some-nodes", nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "team": ""}, resources=[GPU, "cpu"]),
    nodes("selector-of-16", nodeSelector={f"k{n}": "v" for n in range(16)}),
    nodes("selector-of-17", "nodeSelector", "at most 16", nodeSelector={f"k{n}": "v" for n in range(17)}),
    nodes("selector-key-bad", "nodeSelector", "no label can have", nodeSelector={"a b": "v"}),
    nodes("selector-key-empty", "nodeSelector", "no label can have", nodeSelector={"": "v"}),
    nodes("selector-value-bad", "nodeSelector.gpu", "pattern", nodeSelector={"gpu": "h 100"}),
    nodes("selector-value-long", "nodeSelector.gpu", "at most 63", nodeSelector={"gpu": "h" * 64}),
    nodes("selector-value-number", "nodeSelector.gpu", "valid string", nodeSelector={"gpu": 100}),
    nodes("selector-list", "nodeSelector", "valid dictionary", nodeSelector=["gpu"]),
    nodes("counted-twice", "resources", "names a resource twice", resources=[GPU, GPU]),
    nodes("counted-pods", "resources", "pods are never shared", resources=["pods"]),
    nodes("counted-bad", "resources[0]", "pattern", resources=["a b"]),
    nodes("of-a-topology", topology="fabric"),
    nodes("topology-capital", "topology", "pattern", topology="Fabric"),
    nodes("product-unknown", "product", "unknown field", product="H100"),
    levels("levels", None, "", RACK, NODE),
    levels("levels-none", "spec.levels", "at least 1 item"),
    levels("levels-upside-down", "spec.levels", "the level node must be the last", NODE, RACK),
    levels("levels-twice", "spec.levels", "listed twice", RACK, RACK),
    levels("level-without-keys", "spec.levels[0].keys", "at least 1 item", {"name": "rack", "keys": []}),
    levels("level-key-twice", "spec.levels[0].keys", "a key twice", {"name": "rack", "keys": ["a", "a"]}),
    levels("level-key-bad", "spec.levels[0].keys[0]", "pattern", {"name": "rack", "keys": ["a b"]}),
)  # fmt: skip
