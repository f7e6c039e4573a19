"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from queuectl.cli.client import DEFAULT
from queuectl.cli.problems import Usage
from queuectl.contract.home import GROUP

Command = TypeVar("Command", bound=Callable[..., Any])

QUEUES, GANGS, NODES, POOLS = "queues", "gangs", "nodes", "pools"
_KINDS = {
    **dict.fromkeys(("queues", "queue", f"queues.{GROUP}", f"queue.{GROUP}"), QUEUES),
    **dict.fromkeys(("gangs", "gang", "podgroups", "podgroup", f"podgroups.{GROUP}", f"podgroup.{GROUP}"), GANGS),
    **dict.fromkeys(("nodes", "node", "no"), NODES),
    **dict.fromkeys(("pools", "pool", f"pools.{GROUP}", f"pool.{GROUP}"), POOLS),
}
KINDS = (QUEUES, GANGS, NODES, POOLS)
# What a gang may be named by, too: what makes its pods, and what makes that. With or without their API group.
_MAKERS = ("pod", "job", "cronjob", "jobset", "replicaset", "deployment", "statefulset", "leaderworkerset")
_SHORT = ("po", "cj", "rs", "deploy", "sts", "lws")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def server(command: Command) -> Command:
    """``--server``."""
    return click.option(
        "--server",
        envvar="QUEUECTL_SERVER",
        default=DEFAULT,
        metavar="URL",
        help=f"The controller's API ($QUEUECTL_SERVER).  [default: {DEFAULT}]",
    )(command)


def namespace(command: Command) -> Command:
    """``-n``."""
    return click.option("-n", "--namespace", metavar="NAME", help="Default: that of your kubeconfig's context.")(
        command
    )


def cluster(command: Command) -> Command:
    """``--kubeconfig`` and ``--context``."""
    command = click.option("--context", metavar="NAME", help="Context of the kubeconfig.")(command)
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        help="Default: $KUBECONFIG, then ~/.kube/config, then the pod's own account.",
    )(command)


def targets(arguments: tuple[str, ...], known: tuple[str, ...] = KINDS) -> tuple[str, list[str]]:
    """``gang train``, ``gang/train``, ``gangs a b``, ``podgroup.queuectl.io/x``, ``job/train``, ``sts web`` → (gangs, names).

    Raises Usage.
    """
    first, slash, name = arguments[0].partition("/")
    kind = _KINDS.get(first.lower())
    if kind is None and _maker(first) and (slash or len(arguments) > 1):
        kind = GANGS
    if kind not in known:
        if known == (GANGS,):
            raise Usage(f'"{first}" is no kind of gang; as in: gang NAME, job/NAME, pod/NAME')
        raise Usage(f'"{first}" is none of {", ".join(known)}')
    if not slash:
        return kind, list(arguments[1:])
    if len(arguments) > 1 or not name:
        raise Usage(f"{' '.join(arguments)}: write either KIND NAME or KIND/NAME")
    return kind, [name]


def _maker(kind: str) -> bool:
    """Whether gangs may be named by something of this kind: ``job``, ``Jobs``, ``statefulset.apps``."""
    word = kind.lower().partition(".")[0]
    return word in _SHORT or word.removesuffix("s") in _MAKERS


def one(arguments: tuple[str, ...], known: tuple[str, ...] = KINDS) -> tuple[str, str]:
    """As ``targets``, for verbs that take exactly one name. Raises Usage."""
    kind, names = targets(arguments, known)
    if len(names) != 1:
        raise Usage(f"name one of the {kind}, as in: {kind.removesuffix('s')} NAME")
    return kind, names[0]


def namespace_of(given: str | None, kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace meant: the one given, else that of the kubeconfig's context, else of the pod, else ``default``."""
    if given is not None:
        if not given:
            raise Usage("-n needs a name; all namespaces: -A")
        return given
    files = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    paths = [Path(name) for name in files if name] or [Path.home() / ".kube" / "config"]
    found = _context_namespace(paths, context)
    if found is None and not any(path.exists() for path in paths) and _ACCOUNT.exists():
        found = _ACCOUNT.read_text(encoding="utf-8").strip()
    return found or "default"


def _context_namespace(paths: list[Path], context: str | None) -> str | None:
    """What kubectl would use: of several files the first that says something wins. Unreadable files say nothing."""
    import yaml  # noqa: PLC0415 - only where no namespace was given

    contexts: dict[str, Any] = {}
    for path in paths:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
            context = context or content.get("current-context")
            for entry in content.get("contexts") or ():
                contexts.setdefault(entry["name"], entry.get("context") or {})
        except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
            continue
    found = contexts.get(context or "", {}).get("namespace")
    return found if isinstance(found, str) else None
