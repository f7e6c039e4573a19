"""``queuectl crds``: what has to be in the cluster before the controller starts."""

from __future__ import annotations

from typing import Any

import click
import yaml

from queuectl.cli.problems import Usage
from queuectl.contract.policies import NAMESPACE, USER
from queuectl.contract.publish import manifests

_GROUPS = {
    "crds": ("apiextensions.k8s.io",),
    "policies": ("admissionregistration.k8s.io",),
    "rbac": ("rbac.authorization.k8s.io", "v1"),  # with the namespace and the service account
}


class _Plain(yaml.SafeDumper):
    """Without anchors, which kubectl reads and people do not."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


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
    documents = [
        one
        for one in manifests(user, namespace)
        if only is None or str(one["apiVersion"]).partition("/")[0] in _GROUPS[only]
    ]
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=4096, allow_unicode=True)
    click.echo(text, nl=False)
