"""``queuectl explain``: why a gang waits, with every number, and what would free it; or where it runs."""

from __future__ import annotations

from typing import Any

import click

from queuectl.cli import columns, options, render
from queuectl.cli.client import Server
from queuectl.cli.options import GANGS
from queuectl.cli.text import plain

Json = dict[str, Any]


@click.command("explain")
@click.argument("what", nargs=-1, required=True, metavar="gang NAME")
@options.namespace
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Typed fields instead of sentences.")
@options.cluster
@options.server
def command(
    what: tuple[str, ...],
    namespace: str | None,
    output: str | None,
    kubeconfig: str | None,
    context: str | None,
    server: str,
) -> None:
    r"""Say why a gang waits and what would free it, or where it runs.

    NAME is the PodGroup's, its owner's (a Job, JobSet, Deployment, StatefulSet …), or a pod's.

    \b
    queuectl explain gang train
    queuectl explain job/train -n vision
    """
    _, name = options.one(what, (GANGS,))
    space = options.namespace_of(namespace, kubeconfig, context)
    found = Server(server).get("explain", "namespaces", space, "gangs", name)
    if output:
        render.out(render.as_json(found) if output == "json" else render.as_yaml(found))
        return
    if not found["leading"]:
        render.say("note: this controller does not lead; positions and reasons may be old or missing")
    render.out(lines(found))


def lines(found: Json) -> list[str]:
    """The explanation for people."""
    meta = found["metadata"]
    who = f"{meta['name']} ({columns.owner(found)})" if found["owner"] else meta["name"]
    text = [plain(f"Gang {who} in namespace {meta['namespace']} {found['summary']}.")]
    if found["phase"] in {"Pending", "Deactivated"}:
        if (waited := columns.since(found["queuedAt"], found["asOf"])) is not None:
            place = f"; {found['waiting']} wait in its queue" if found["position"] else ""
            text.append(f"Queued {waited} ago{place}.")
    elif (since := columns.since(found["admittedAt"], found["asOf"])) is not None:
        text.append(f"Admitted {since} ago.")
    for number, blocker in enumerate(found["blockers"], 1):
        text += ["", plain(f"{number}. {blocker['reason']}: {blocker['sentence']}.")]
        if blocker["remedy"]:
            text.append(plain(f"   What would free it: {blocker['remedy']}."))
    if found["phase"] == "Pending" and not found["blockers"]:
        text += ["", "Nothing is known against it: the controller has not come to it yet."]
    if found["nodes"]:
        text += ["", *_table(["node", "pods"], [[node["name"], node["pods"]] for node in found["nodes"]])]
    if found["path"] and found["phase"] in {"Pending", "Deactivated"}:
        text += _path(found["path"])
    return text


def _path(queues: list[Json]) -> list[str]:
    """The queues from the leaf up, over all nodes, and in the pools in which they list something."""
    shown = columns.resources(queues, wide=False)
    rows: list[columns.Row] = []
    pooled = False
    for queue in queues:
        listed = [one for one in queue["pools"] if one["quota"] is not None or one["limit"] is not None]
        pooled |= bool(listed)
        for one in (*queue["resources"], *listed):
            if one["name"] in shown:
                cells = [one.get("pool", "*"), one["name"], one["used"], one["quota"], one["limit"]]
                rows.append([queue["metadata"]["name"], queue["state"], *cells])
    headers = ["queue", "state", "pool", "resource", "used", "quota", "limit"]
    if not pooled:
        headers, rows = [*headers[:2], *headers[3:]], [[*row[:2], *row[3:]] for row in rows]
    return ["", *_table(headers, rows)] if rows else []


def _table(headers: list[str], rows: list[columns.Row]) -> list[str]:
    return render.Table(headers).lines(rows)
