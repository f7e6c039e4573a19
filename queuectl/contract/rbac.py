"""Who may do what: the least that the controller needs, and roles for people that join the built-in view, edit, admin."""

from __future__ import annotations

from typing import Any

from queuectl.contract.home import GROUP, LEASE, NAMESPACE, USER

Json = dict[str, Any]

NAME = "queuectl"
_API = "rbac.authorization.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io"
_FOLLOW = ["list", "watch"]
_READ = ["get", *_FOLLOW]
_SERVICE_ACCOUNT = "system:serviceaccount:"


def subject(user: str) -> Json:
    """The RBAC subject of a user name as the API server sees it: a service account or a user."""
    if user.startswith(_SERVICE_ACCOUNT):
        namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
        return {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    return {"kind": "User", "apiGroup": _RBAC, "name": user}


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Json:
    rule: Json = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule | {"resourceNames": names} if names else rule


def _role(name: str, rules: list[Json], aggregate: list[str] | None = None) -> Json:
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{to}": "true" for to in aggregate or ()}
    metadata: Json = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def controller_rules() -> list[Json]:
    """Cluster-wide rights of the controller. No secrets, no wildcard, no delete, nothing on nodes but reading.

    What is written is read back after an error, hence `get` on it; the rest is only followed.
    """
    return [
        _rule("", ["pods"], [*_READ, "patch"]),
        _rule("", ["pods/status"], ["patch"]),
        _rule("", ["nodes"], _FOLLOW),
        _rule("", ["pods/eviction"], ["create"]),
        _rule("batch", ["jobs"], [*_READ, "patch"]),
        _rule("jobset.x-k8s.io", ["jobsets"], [*_READ, "patch"]),
        _rule("leaderworkerset.x-k8s.io", ["leaderworkersets"], _FOLLOW),
        _rule("apps", ["replicasets", "statefulsets"], _FOLLOW),
        _rule("policy", ["poddisruptionbudgets"], ["list"]),
        _rule("scheduling.k8s.io", ["priorityclasses"], _FOLLOW),
        _rule(GROUP, ["queues", "pools", "topologies"], _FOLLOW),
        # `release` is a virtual verb: the policy queuectl-release asks for it when our gate is removed.
        _rule(GROUP, ["podgroups"], [*_READ, "create", "release"]),
        _rule(GROUP, ["queues/status", "podgroups/status"], ["patch"]),
    ]


def lease_rules() -> list[Json]:
    """Rights in the controller's own namespace: its Lease. A create cannot be bound to a name."""
    return [
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "patch"], [LEASE]),
    ]


def rbac(user: str = USER, namespace: str = NAMESPACE) -> list[Json]:
    """Roles and bindings; with the service account when ``user`` is one."""
    who = subject(user)
    account: list[Json] = []
    if who["kind"] == "ServiceAccount":
        metadata = {"name": who["name"], "namespace": who["namespace"]}
        account = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}]
    here = {"name": NAME, "namespace": namespace}
    return [
        *account,
        _role(NAME, controller_rules()),
        {
            "apiVersion": _API,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
            "subjects": [who],
        },
        {"apiVersion": _API, "kind": "Role", "metadata": here, "rules": lease_rules()},
        {
            "apiVersion": _API,
            "kind": "RoleBinding",
            "metadata": here,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NAME},
            "subjects": [who],
        },
        # A RoleBinding to the built-in roles reaches PodGroups only; the other kinds have no namespace, so
        # reading them takes a ClusterRoleBinding, to `view` or to the third role.
        _role(
            "queuectl-view",
            [_rule(GROUP, ["podgroups", "queues", "pools", "topologies"], _READ)],
            ["view", "edit", "admin"],
        ),
        _role(
            "queuectl-edit",
            [_rule(GROUP, ["podgroups"], ["create", "update", "patch", "delete", "deletecollection"])],
            ["edit", "admin"],
        ),
        _role("queuectl-queues-view", [_rule(GROUP, ["queues", "pools", "topologies"], _READ)]),
    ]
