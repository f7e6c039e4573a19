"""``queuectl requeue``: asks for another try by an annotation, with the rights of whoever calls it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import click

from queuectl.cli import options, render
from queuectl.cli.options import GANGS
from queuectl.cli.problems import Problem
from queuectl.contract.foreign import GROUP, POD_GROUPS, PODS, Custom
from queuectl.contract.names import REQUEUE
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

    NAME is the PodGroup's or its Job's. A gang that runs is given back whole and queued anew; one that waits for its
    back-off, or was deactivated, is tried at once. It takes the right to patch podgroups.queuectl.io in the namespace
    (role queuectl-edit, part of edit and admin).

    \b
    queuectl requeue gang train
    """
    _, name = options.one(what, (GANGS,))
    space = options.namespace_of(namespace, kubeconfig, context)
    asyncio.run(_requeue(kubeconfig, context, space, name))


async def _requeue(kubeconfig: str | None, context: str | None, namespace: str, name: str) -> None:
    try:
        async with KubeCluster.connect(kubeconfig, context) as cluster:
            group = await find(cluster, namespace, name)
            now = to_wire(round(datetime.now(UTC).timestamp() * 1000))
            meta = group.metadata
            body = {"metadata": {"uid": meta.uid, "annotations": {REQUEUE: now}}}
            await cluster.patch(POD_GROUPS, meta.namespace, meta.name, body)
    except ConfigurationProblem as problem:
        raise Problem(problem.message, problem.advice) from None
    except ClusterError as problem:
        raise Problem(*words(problem, namespace)) from None
    render.out(f"podgroup.{GROUP}/{meta.name} asked to be requeued")


async def find(cluster: Cluster, namespace: str, name: str) -> Custom:
    """The PodGroup of this name, or of an owner of this name (the youngest). Raises Problem or ClusterError."""
    try:
        found: Custom = await cluster.get(POD_GROUPS, namespace, name)
    except NotFound:
        groups: list[Custom] = await cluster.list(POD_GROUPS, namespace)
    else:
        return found
    owned = [group for group in groups if any(owner.name == name for owner in group.metadata.owner_references)]
    if owned:
        return max(owned, key=lambda group: (group.metadata.creation_timestamp, group.metadata.uid))
    try:
        await cluster.get(PODS, namespace, name)
    except ClusterError:
        pass
    else:
        raise Problem(
            f'"{name}" is a pod on its own, without a PodGroup: it cannot be requeued',
            f"Delete it and create it again, or make it a Job: kubectl -n {namespace} delete pod {name}",
        )
    known = {group.metadata.name for group in groups}
    known |= {owner.name for group in groups for owner in group.metadata.owner_references}
    alike = nearest(name, known)
    raise Problem(
        f'no PodGroup or Job "{name}" in namespace "{namespace}"', f"nearest: {', '.join(alike)}" if alike else ""
    )


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
