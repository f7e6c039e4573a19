"""``queuectl describe``: all that is known of one object, for people."""

from __future__ import annotations

from typing import Any

import click

from queuectl.cli import columns, options, render
from queuectl.cli.client import Server
from queuectl.cli.options import GANGS, POOLS, QUEUES
from queuectl.cli.text import plain

Json = dict[str, Any]


@click.command("describe")
@click.argument("what", nargs=-1, required=True, metavar="queue|gang|node|pool NAME")
@options.namespace
@options.cluster
@options.server
def command(
    what: tuple[str, ...], namespace: str | None, kubeconfig: str | None, context: str | None, server: str
) -> None:
    """Show all that is known of one queue, gang, node or pool."""
    kind, name = options.one(what)
    asked = Server(server)
    if kind == GANGS:
        space = options.namespace_of(namespace, kubeconfig, context)
        found = asked.get("namespaces", space, "gangs", name)
        render.out(gang(found))
    elif kind == QUEUES:
        found = asked.get("queues", name)
        gangs = asked.get("gangs", queue=name)
        render.out(queue(found, gangs))
    elif kind == POOLS:
        render.out(pool(asked.get("pools", name)))
    else:
        render.out(node(asked.get("nodes", name)))


def queue(found: Json, gangs: Json) -> list[str]:
    """A queue, its resources, and the gangs that wait in it or below it, in the order of their turns."""
    counts = found["counts"]
    text = render.block(
        [
            ("Name", found["metadata"]["name"]),
            ("Path", " > ".join(found["path"])),
            ("State", found["state"]),
            ("Weight", found["weight"]),
            ("Priority", found["priority"]),
            ("Gangs", f"{counts['pending']} pending, {counts['admitted']} admitted, {counts['running']} running"),
        ]
    )
    text += _blockers(found["blockers"])
    rows: list[columns.Row] = [
        [one["name"], one["used"], one["quota"], one["limit"], one["pending"]] for one in found["resources"]
    ]
    text += _section("Resources", ["resource", "used", "quota", "limit", "wanted"], rows)
    rows = [[one["pool"], one["name"], one["used"], one["quota"], one["limit"]] for one in found["pools"]]
    text += _section("In pools", ["pool", "resource", "used", "quota", "limit"], rows)
    waiting = [one for one in gangs["items"] if one["phase"] == "Pending"]
    waiting.sort(key=lambda one: (one["queue"], one["position"] is None, one["position"] or 0, one["queuedAt"] or ""))
    rows = [
        [
            one["position"],
            one["metadata"]["namespace"],
            one["metadata"]["name"],
            one["queue"],
            one["minMember"],
            columns.since(one["queuedAt"], gangs["asOf"]),
            one["reason"],
        ]
        for one in waiting
    ]
    return text + _section("Waiting", ["position", "namespace", "name", "queue", "pods", "queued", "reason"], rows)


def gang(found: Json) -> list[str]:
    """A gang, its roles and its pods."""
    counts = found["counts"]
    size = str(found["minMember"])
    if found["maxMember"] > found["minMember"]:
        size += f", up to {found['maxMember']}"
    text = render.block(
        [
            ("Name", found["metadata"]["name"]),
            ("Namespace", found["metadata"]["namespace"]),
            ("Owner", columns.owner(found) or ("a pod on its own" if found["single"] else None)),
            ("Queue", found["queue"]),
            ("Phase", found["phase"]),
            ("Position", found["position"]),
            ("Priority", found["priority"]),
            ("Pods", size),
            ("Topology", _topology(found)),
            ("Created", found["createdAt"]),
            ("Queued", found["queuedAt"]),
            ("Admitted", found["admittedAt"]),
            ("Round", found["round"]),
            ("Given back", f"{found['requeues']} times"),
            ("Members", ", ".join(f"{counts[stage]} {stage}" for stage in counts)),
        ]
    )
    if found["reason"]:
        named = (found["owner"] or found["metadata"])["name"]
        more = f"All reasons: queuectl explain gang {named} -n {found['metadata']['namespace']}"
        text += ["", plain(f"{found['reason']}: {found['message']}"), plain(more)]
    rows: list[columns.Row] = [
        [
            role["name"],
            role["minMember"],
            role["maxMember"],
            _topology(role),
            ",".join(f"{name}={amount}" for name, amount in (role["requests"] or {}).items()),
        ]
        for role in found["roles"]
    ]
    text += _section("Roles", ["role", "min", "max", "topology", "each asks for"], rows)
    rows = [
        [pod["name"], pod["role"], pod["rank"], pod["stage"], pod["node"], ",".join(pod["gates"]), pod["trouble"]]
        for pod in found["pods"]
    ]
    return text + _section("Members", ["pod", "role", "rank", "stage", "node", "other gates", "trouble"], rows)


def node(found: Json) -> list[str]:
    """A node, what is free on it, and whose pods it holds."""
    text = render.block(
        [
            ("Name", found["metadata"]["name"]),
            ("Status", found["status"]),
            ("Domains", ", ".join(f"{one['level']} {one['name']}" for one in found["domains"])),
            ("Pools", ", ".join(found["pools"]) or None),
        ]
    )
    rows: list[columns.Row] = [
        [one["name"], one["used"], one["allocatable"], one["free"]] for one in found["resources"]
    ]
    text += _section("Resources", ["resource", "used", "allocatable", "free"], rows)
    rows = [[one["namespace"], one["name"], one["pods"]] for one in found["gangs"]]
    return text + _section("Gangs", ["namespace", "name", "pods"], rows)


def pool(found: Json) -> list[str]:
    """A pool, what is free in it, and what queues have there."""
    text = render.block(
        [
            ("Name", found["metadata"]["name"]),
            ("Selector", columns.selector(found)),
            ("Topology", found["topology"]),
            ("Counted", ", ".join(found["counted"]) or "devices, cpu and memory"),
            ("Nodes", f"{found['nodes']}, {found['usable']} of them usable"),
        ]
    )
    text += ["", plain(f"Not as declared: {found['problem']}")] if found["problem"] else []
    rows: list[columns.Row] = [
        [one["name"], one["used"], one["allocatable"], one["free"]] for one in found["resources"]
    ]
    text += _section("Resources", ["resource", "used", "allocatable", "free"], rows)
    rows = [[one["queue"], one["name"], one["used"], one["quota"], one["limit"]] for one in found["queues"]]
    return text + _section("Queues", ["queue", "resource", "used", "quota", "limit"], rows)


def _topology(found: Json) -> str | None:
    required, preferred = found["required"], found["preferred"]
    parts = [f"one {required} required" if required else "", f"one {preferred} preferred" if preferred else ""]
    return ", ".join(part for part in parts if part) or None


def _blockers(blockers: list[Json]) -> list[str]:
    text = []
    for one in blockers:
        text += ["", plain(f"{one['reason']}: {one['sentence']}")]
        text += [plain(f"  What would free it: {one['remedy']}")] if one["remedy"] else []
    return text


def _section(title: str, headers: list[str], rows: list[columns.Row]) -> list[str]:
    return ["", f"{title}:", *render.indented(render.Table(headers).lines(rows))] if rows else []
