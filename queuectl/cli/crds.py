"""``queuectl crds``: what has to be in the cluster before the controller starts."""

from __future__ import annotations

import click

from queuectl.cli.problems import Usage
from queuectl.contract.home import NAMESPACE, USER
from queuectl.contract.plain import documents
from queuectl.contract.publish import manifests

_GROUPS = {
    "crds": ("apiextensions.k8s.io",),
    "policies": ("admissionregistration.k8s.io",),
    "rbac": ("rbac.authorization.k8s.io", "v1"),  # with the namespace and the service account
}


@click.command("crds")
@click.option("--only", type=click.Choice(list(_GROUPS)), help="Only this part.")
@click.option("--user", default=USER, metavar="NAME", help=f"The controller's user name.  [default: {USER}]")
@click.option("--namespace", default=NAMESPACE, metavar="NAME", help=f"Holds its Lease.  [default: {NAMESPACE}]")
def command(only: str | None, user: str, namespace: str) -> None:
    r"""Print what has to be in the cluster: definitions, policies and roles.

    \b
    Apply it, and again after every upgrade:
      queuectl crds | kubectl apply --server-side -f -

    A controller outside the cluster needs --user: its user name as the API server sees it (kubectl auth whoami).
    """
    if not user or not namespace:
        raise Usage("--user and --namespace must not be empty")
    wanted = [
        one
        for one in manifests(user, namespace)
        if only is None or str(one["apiVersion"]).partition("/")[0] in _GROUPS[only]
    ]
    click.echo(documents(wanted), nl=False)
