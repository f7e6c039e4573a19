"""The vocabulary as a page: every public name with its meaning, for ``api/v1alpha1/README.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from queuectl.contract import names
from queuectl.contract.crd import DEFINITIONS, Definition
from queuectl.contract.home import GROUP, USER
from queuectl.contract.policies import SUMMARY
from queuectl.contract.v1alpha1 import VERSION
from queuectl.model.reasons import (
    CountEvidence,
    Evidence,
    LevelEvidence,
    Misfit,
    NodesEvidence,
    QueueEvidence,
    Reason,
    TextEvidence,
    remedy,
    sentence,
)

_GPU = "nvidia.com/gpu"
_LEVEL = LevelEvidence("rack", 4, "rack-2", 8, 6, 16, required=True, resource=_GPU, short_need=8000, short_have=48_000)
_EXAMPLES: dict[Reason, Evidence] = {
    Reason.QUEUE_MISSING: QueueEvidence("vision"),
    Reason.QUEUE_NOT_LEAF: QueueEvidence("research"),
    Reason.QUEUE_HELD: QueueEvidence("vision"),
    Reason.QUEUE_INACTIVE: QueueEvidence("vision", detail="its parent research does not exist"),
    Reason.OVER_LIMIT: QueueEvidence("vision", _GPU, 64_000, 32_000, 96_000, 64_000),
    Reason.BEHIND_IN_QUEUE: QueueEvidence("vision", detail="3 gangs are ahead"),
    Reason.WAITING_FOR_MEMBERS: CountEvidence(8, 5),
    Reason.POD_GROUP_MISSING: TextEvidence("train"),
    Reason.UNKNOWN_LEVEL: TextEvidence("row"),
    Reason.FOREIGN_GATE: TextEvidence("example.com/quota"),
    Reason.HELD: TextEvidence("spec.hold"),
    Reason.SUSPENDED: TextEvidence("Job train"),
    Reason.INVALID_REQUEST: TextEvidence("spec.maxMember: must not be below minMember"),
    Reason.PATCH_REJECTED: TextEvidence('admission webhook "check.example.com" denied the request'),
    Reason.UNMODELLED: TextEvidence("required pod anti-affinity"),
    Reason.BACKOFF: CountEvidence(1_767_225_600_000, 2),
    Reason.DEACTIVATED: CountEvidence(5, 6),
    Reason.NO_CAPACITY: LevelEvidence("", 1, "", 8, 6, 16, resource=_GPU, short_need=8000, short_have=48_000),
    Reason.NO_DOMAIN_FITS: _LEVEL,
    Reason.FRAGMENTED: _LEVEL,
    Reason.NODE_SELECTOR_MISMATCH: NodesEvidence(12, 16, "gpu.example.com/model In [h100]"),
    Reason.TAINT_NOT_TOLERATED: NodesEvidence(4, 16, "dedicated=inference:NoSchedule"),
    Reason.NODE_UNHEALTHY: NodesEvidence(1, 16, "cordoned"),
    Reason.NEVER_FITS: LevelEvidence("rack", 4, "rack-2", 32, 6, 16, required=True),
    Reason.SEARCH_BUDGET: TextEvidence("the search was cut short; it goes on when the cluster changes"),
    Reason.NOT_BINDING: TextEvidence("train-3: 0/16 nodes are available"),
    Reason.NOT_STARTING: TextEvidence("train-3: image cannot be pulled"),
    Reason.TORN: TextEvidence("train-3 no longer fits gpu-07"),
    Reason.ROLLED_BACK: TextEvidence("train-3 was not bound within 60 s"),
    Reason.BYPASSED_GATE: TextEvidence("train-3"),
    Reason.NOT_REQUEUEABLE: TextEvidence("band"),
    Reason.VICTIM_PROTECTED: TextEvidence("PodDisruptionBudget web lets 1 of 3 pods go now"),
}


def examples() -> dict[Reason, Misfit]:
    """A misfit of every reason, as users meet it."""
    return {reason: Misfit(reason, _EXAMPLES[reason]) for reason in Reason}


_WORDS = (
    ("Scheduling gate", ((names.GATE, "pods", ("ours; removed only by the controller, or by whoever holds the verb "
                          "`release` on podgroups (break-glass). Foreign gates are never touched")),)),
    ("Labels", (
        (names.QUEUE_LABEL, "pods, Jobs, Deployments, StatefulSets", ("the leaf queue; it makes a pod managed. Copied from an "
         "owner to its pod template; in a JobSet it "
         "belongs on its Job templates, in a LeaderWorkerSet on its pod templates. Cannot change after creation. An empty one "
         "counts as none")),
        (names.POD_GROUP_LABEL, "pods", ("the PodGroup in the same namespace; absent: derived from the owner, else a group "
         "of one")),
        (names.ROLE_LABEL, "pods", "the role inside the group (leader, worker)"),
        (names.UNMANAGED_LABEL, "pods, Jobs", ("`\"true\"` escapes the namespace's default queue. DaemonSet pods and pods "
         "that name their node escape it anyway")),
        (names.DEFAULT_QUEUE_LABEL, "namespaces", "queue of pods and Jobs that name none"),
    )),
    ("Annotations", (
        (names.MIN_MEMBER, "owners", ("`N` or `all`: how many of the owner's pods start together; without it 1. Not read from "
         "pods; a PodGroup written by hand has `spec.minMember`")),
        (names.TOPOLOGY_REQUIRED, "owners, pods on their own", "level in one domain of which all members go, or nowhere"),
        (names.TOPOLOGY_PREFERRED, "owners, pods on their own", "level of which as few domains as possible are used"),
        (names.BEST_EFFORT, "owners, PodGroups, pods on their own", ('`"true"` accepts placement although a required '
         "constraint is not modelled; all-or-nothing is then not promised")),
        (names.PREEMPTIBLE, "PodGroups written by hand, pods on their own", ('`"true"` accepts that pods which no owner makes '
         "again are deleted to give them back (by the Eviction API, once disruption budgets let all go); without it they "
         "are never given back")),
        (names.REQUEUE, "PodGroups", "a new value (a time, by custom) asks for another try"),
        (names.OPERATOR_HOLD, "PodGroups", "its presence is the operator's hold, besides the tenant's own `spec.hold`"),
    )),
    ("Annotations that only the controller writes", (
        (names.FENCE, "pods, Jobs, JobSets", "the fence of the last writer; a write with an older one is refused"),
        (names.RECORD, "pods", ("the admission of a group of one, of an extra or of a replacement; behind the gate, that a "
         "release which was never answered no longer counts")),
        (names.SUSPENSION, "Jobs, JobSets", "which round was suspended or resumed by the controller"),
    )),
    ("Pod conditions", (
        (names.WAITING, "pods on their own", ("`True` while the pod waits: reason and message are those that a PodGroup has in "
         "`status.blocker`, and as late. `False` once it is admitted. A pod that never waited has none")),
    )),
)  # fmt: skip


def readme() -> str:
    """The page, in Markdown."""
    lines = [
        f"# {GROUP}/{VERSION}",
        "",
        "Generated by `python -m queuectl.contract.publish`, except the [examples](examples/).",
        "",
        "| file | holds |",
        "|---|---|",
        *(f"| [{one.plural}.yaml]({one.plural}.yaml) | {_about(one)} |" for one in DEFINITIONS),
        "| [policies.yaml](policies.yaml) | gate injection (Kubernetes 1.36 or newer) and what is refused |",
        "| [rbac.yaml](rbac.yaml) | the controller's account and rights; roles that join view, edit and admin |",
        "",
        "Apply the definitions and rbac.yaml first, then policies.yaml, which is in force after 1 to 2 seconds. Use",
        "server-side apply. Before Kubernetes 1.36 the `MutatingAdmissionPolicy` objects are not known and can be left out;",
        "whoever submits then writes label and gate. The policies let the controller run as",
        f"`{USER}`; `queuectl.contract.publish.manifests` gives the same for another user.",
        "",
        "Queue, Pool and Topology have no namespace: a binding of `view` or `edit` in a namespace does not reach them. Bind the",
        "ClusterRole `queuectl-queues-view` by a ClusterRoleBinding to whoever may see all queues.",
    ]
    for title, words in _WORDS:
        lines += ["", f"## {title}", "", "| name | where | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {where} | {meaning} |" for name, where, meaning in words]
    for one in DEFINITIONS:
        if one.status:
            lines += ["", f"## Status of a {one.kind}", "", "Only the controller writes it.", ""]
            lines += ["| field | meaning |", "|---|---|"]
            lines += [
                f"| `{path}` | {meaning} |" for path, meaning in _fields(_schema(one)["properties"]["status"], "")
            ]
    said = "The reason of a PodGroup's `status.blocker`, or of a pod's condition, with an example of its message."
    lines += ["", "## Reasons", "", said, ""]
    lines += ["| reason | message | what frees it |", "|---|---|---|"]
    lines += [f"| `{reason}` | {sentence(misfit)} | {remedy(misfit)} |" for reason, misfit in examples().items()]
    lines += ["", "## Admission policies", "", "| name | what it does |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in SUMMARY.items()]
    return "\n".join(lines) + "\n"


def _about(definition: Definition) -> str:
    short = f"; short name `{definition.short[0]}`" if definition.short else ""
    return f"{definition.kind}, {definition.scope.lower()}{short}. {_schema(definition)['description']}"


def _schema(definition: Definition) -> dict[str, Any]:
    found: dict[str, Any] = definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def _fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Path and description of every field below; what is said of none (a name, an amount) stands with its list."""
    for name, child in node["properties"].items():
        here, inner = f"{path}{name}", child
        if "items" in child:
            here, inner = f"{here}[]", child["items"]
        if "description" in child:
            yield here, child["description"].replace("\n", " ")
        if "properties" in inner and name != "conditions":
            yield from _fields(inner, f"{here}.")
