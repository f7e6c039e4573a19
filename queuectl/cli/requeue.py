"""``queuectl requeue``: asks for another try by an annotation, with the rights of whoever calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from queuectl.cli import options, render
from queuectl.cli.options import GANGS
from queuectl.cli.problems import Problem
from queuectl.contract import owners, seats, translate
from queuectl.contract.foreign import GROUP, POD_GROUPS, PODS, Custom, Meta, Pod
from queuectl.contract.names import POD_GROUP_LABEL, PREEMPTIBLE, REQUEUE
from queuectl.contract.times import to_wire
from queuectl.control.ports import Cluster, ClusterError, NotFound
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.credentials import ConfigurationProblem
from queuectl.serve.forms import nearest


@click.command("requeue")
@click.argument("what", nargs=-1, required=True, metavar="gang NAME")
@options.namespace
@options.cluster
def command(what: tuple[str, ...], namespace: str | None, kubeconfig: str | None, context: str | None) -> None:
    r"""Ask for another try: give the gang back, or end its back-off.

    NAME is the PodGroup's, its owner's (a Job, StatefulSet …), or a pod's; of a LeaderWorkerSet with several groups, a
    pod's. A gang that runs is given back whole and queued anew; one that waits for its back-off, or was deactivated, is
    tried at once. Pods without an owner are not made again: a gang of those is given back only where its PodGroup is
    annotated queuectl.io/preemptible: "true". It takes the right to patch podgroups.queuectl.io in the namespace (role
    queuectl-edit, part of edit and admin).

    \b
    queuectl requeue gang train
    queuectl requeue statefulset/web -n search
    """
    _, name = options.one(what, (GANGS,))
    space = options.namespace_of(namespace, kubeconfig, context)
    asyncio.run(_requeue(kubeconfig, context, space, name))


async def _requeue(kubeconfig: str | None, context: str | None, namespace: str, name: str) -> None:
    try:
        async with KubeCluster.connect(kubeconfig, context) as cluster:
            group = await find(cluster, namespace, name)
            meta = group.metadata
            if irrevocable(group):
                raise Problem(
                    f'the pods of "{meta.name}" have no owner that makes them again: it cannot be given back',
                    f"Delete them by hand, or accept that they are deleted and ask again: "
                    f"kubectl -n {namespace} annotate podgroups.{GROUP} {meta.name} {PREEMPTIBLE}=true",
                )
            now = to_wire(round(datetime.now(UTC).timestamp() * 1000))
            body = {"metadata": {"uid": meta.uid, "annotations": {REQUEUE: now}}}
            await cluster.patch(POD_GROUPS, meta.namespace, meta.name, body)
    except ConfigurationProblem as problem:
        raise Problem(problem.message, problem.advice) from None
    except ClusterError as problem:
        raise Problem(*words(problem, namespace)) from None
    render.out(f"podgroup.{GROUP}/{meta.name} asked to be requeued")


async def find(cluster: Cluster, namespace: str, name: str) -> Custom:
    """The PodGroup of this name, of an owner of this name (the youngest), or of a pod. Raises Problem or ClusterError.

    Owners are those that the PodGroup names, and what owns these. One that has a gang for each of several groups does not
    tell which is meant.
    """
    try:
        found: Custom = await cluster.get(POD_GROUPS, namespace, name)
    except NotFound:
        groups: list[Custom] = await cluster.list(POD_GROUPS, namespace)
    else:
        return found
    owned = [group for group in groups if any(owner.name == name for owner in group.metadata.owner_references)]
    if len(parts := sorted(group.metadata.name for group in owned if _group_of(group) is not None)) > 1:
        shown = ", ".join(parts[:3]) + (", …" if len(parts) > 3 else "")
        raise Problem(f'"{name}" has {len(parts)} gangs, one for each of its groups', f"Name one of them: {shown}")
    if owned := owned or await _made_for(cluster, namespace, name, groups):
        return max(owned, key=lambda group: (group.metadata.creation_timestamp, group.metadata.uid))
    try:
        pod: Pod = await cluster.get(PODS, namespace, name)
    except ClusterError:
        pass
    else:
        return await _of_pod(cluster, pod, groups)
    known = {group.metadata.name for group in groups}
    known |= {owner.name for group in groups for owner in group.metadata.owner_references}
    alike = nearest(name, known)
    raise Problem(
        f'gang "{name}" not found in namespace "{namespace}"', f"nearest: {', '.join(alike)}" if alike else ""
    )


async def _made_for(cluster: Cluster, namespace: str, name: str, groups: Sequence[Custom]) -> list[Custom]:
    """PodGroups of owners that something of this name owns in turn: a Deployment's ReplicaSets, a CronJob's Jobs."""
    made: set[str] = set()
    for row in owners.OWNERS.values():
        try:
            listed = await cluster.list(row.kind, namespace)
        except ClusterError:
            continue  # a kind that the cluster does not know, or that this user may not read
        made |= {one.metadata.uid for one in listed if any(it.name == name for it in one.metadata.owner_references)}
    return [group for group in groups if any(owner.uid in made for owner in group.metadata.owner_references)]


async def _of_pod(cluster: Cluster, pod: Pod, groups: Sequence[Custom]) -> Custom:
    """The PodGroup that a pod belongs to: the one that its label names, else that of its owner or of that one's owner."""
    meta = pod.metadata
    label, seat = (meta.labels or {}).get(POD_GROUP_LABEL), seats.group(meta)
    makers = set() if label or seat else await _makers(cluster, meta)
    for group in groups:
        if group.metadata.name == label or any(owner.uid in makers for owner in group.metadata.owner_references):
            return group
        if seat is not None and not label and _group_of(group) == seat:
            return group
    if label or makers or seat:
        of = label or (seat[0] if seat else next(o.name for o in meta.owner_references))
        raise Problem(
            f'"{meta.name}" is a pod of {of}, which has no PodGroup',
            f"Does the controller run, and does the pod have a queue? queuectl explain gang {meta.name} -n {meta.namespace}",
        )
    raise Problem(
        f'"{meta.name}" is a pod on its own, without a PodGroup: it cannot be requeued',
        f"Delete it and create it again, or make it a Job: kubectl -n {meta.namespace} delete pod {meta.name}",
    )


def _group_of(group: Custom) -> tuple[str, int] | None:
    """Name of the LeaderWorkerSet, and number of its group, that a PodGroup stands for; None for all others."""
    for owner in group.metadata.owner_references:
        _, _, index = owners.key_of(group.metadata.name, owner).partition("/")
        if (number := seats.number(index, seats.GROUPS)) is not None:
            return owner.name, number
    return None


def irrevocable(group: Custom) -> bool:
    """Whether the gang holds places and nobody can take them back: pods without an owner, whose deletion is not accepted."""
    accepted = (group.metadata.annotations or {}).get(PREEMPTIBLE) == "true"
    admitted = bool((group.status or {}).get("admission"))
    return admitted and not accepted and translate.controller(group.metadata) is None


async def _makers(cluster: Cluster, meta: Meta) -> set[str]:
    """UIDs of the owners of an object that make gangs, and of their own owners."""
    found = set()
    for reference in meta.owner_references:
        row = owners.OWNERS.get((reference.api_version, reference.kind))
        if row is None:
            continue
        found.add(reference.uid)
        try:
            owner = await cluster.get(row.kind, meta.namespace, reference.name)
        except ClusterError:
            continue  # it is gone, or may not be read: what it is owned by stays unknown
        found |= {above.uid for above in owner.metadata.owner_references}
    return found


def words(problem: ClusterError, namespace: str) -> tuple[str, str]:
    """What went wrong, and what to do about it."""
    match problem.status:
        case 403:
            return problem.message, (
                f"You may not patch podgroups.{GROUP} in {namespace}; the role queuectl-edit allows it, "
                "and is part of edit and admin."
            )
        case 404:
            return problem.message, (
                f"Is {GROUP} installed in this cluster? `queuectl crds | kubectl apply --server-side -f -`"
            )
        case 0:
            return f"the API server does not answer: {problem.message}", "Check --kubeconfig and --context."
        case _:
            return problem.message, ""
