"""``queuectl get``: lists, once or for as long as they change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from queuectl.cli import columns, options, render
from queuectl.cli.client import NotFound, Server
from queuectl.cli.options import GANGS
from queuectl.cli.problems import Problem, Usage
from queuectl.cli.text import plain
from queuectl.serve.words import PHASES

Json = dict[str, Any]

INTERVAL = 1.0  # seconds between two looks of -w; the controller answers from a view that may be half a second old
pause = time.sleep  # replaced by tests
_SORTS = {
    "name": lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]),
    "position": lambda item: (item["position"] is None, item["queue"], item["position"] or 0, item["metadata"]["name"]),
    "age": lambda item: (item["createdAt"] or "", item["metadata"]["name"]),
}


@click.command("get")
@click.argument("what", nargs=-1, required=True, metavar="queues|gangs|nodes|pools [NAME...]")
@options.namespace
@click.option("-A", "--all-namespaces", is_flag=True, help="Gangs of all namespaces.")
@click.option(
    "-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="Another form than the table."
)
@click.option("--queue", metavar="NAME", help="Gangs of this queue and those below it.")
@click.option("--phase", type=click.Choice(PHASES, case_sensitive=False), help="Gangs in this phase.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="name", help="Order of gangs.  [default: name]")
@click.option("-w", "--watch", is_flag=True, help="Go on: print what changes, until Ctrl-C.")
@options.cluster
@options.server
def command(
    what: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    output: str | None,
    queue: str | None,
    phase: str | None,
    sort: str,
    watch: bool,
    kubeconfig: str | None,
    context: str | None,
    server: str,
) -> None:
    r"""List queues, gangs, nodes or pools.

    \b
    queuectl get queues
    queuectl get gangs -A --phase Pending --sort position
    queuectl get nodes -o json
    """
    kind, names = options.targets(what)
    if kind != GANGS and (namespace or all_namespaces or queue or phase):
        raise Usage(f"-n, -A, --queue and --phase choose among gangs; {kind} have none of these")
    if names and (queue or phase or all_namespaces):
        raise Usage("give either names or -A, --queue and --phase")
    space = ""
    if kind == GANGS and not all_namespaces:
        space = options.namespace_of(namespace, kubeconfig, context)
    lister = _Lister(Server(server), kind, names, space, {"queue": queue or "", "phase": phase or ""}, sort)
    printer = _Printer(kind, output, namespaces=all_namespaces, single=len(names) == 1)
    if watch:
        _watch(lister, printer)
    else:
        _once(lister, printer)


class _Lister:
    """Asks for what was named, or for the list."""

    def __init__(
        self, server: Server, kind: str, names: list[str], namespace: str, filters: dict[str, str], sort: str
    ) -> None:
        self.kind, self.names, self.namespace = kind, names, namespace
        self.missing: list[NotFound] = []
        self._server, self._filters, self._sort = server, filters, sort
        self._warned = False

    def list(self) -> Json:
        """A list with ``items``, ``asOf`` and ``leading``; names that were not found are left in ``missing``."""
        if self.names:
            items = list(self._named())
            first = items[0] if items else {"asOf": "", "leading": True}
            found = {"kind": "List", "asOf": first["asOf"], "leading": first["leading"], "items": items}
        elif self.kind == GANGS:
            found = self._server.get("gangs", namespace=self.namespace, **self._filters)
            found["items"].sort(key=_SORTS[self._sort])
        else:
            found = self._server.get(self.kind)
        if not found["leading"] and not self._warned:
            self._warned = True
            render.say("note: this controller does not lead; positions and reasons may be old or missing")
        return found

    def left(self, item: Json) -> Json | None:
        """What became of a gang that was listed and is no more: it may fit the filters no longer. None when it is gone."""
        if not any(self._filters.values()):
            return None
        meta = item["metadata"]
        try:
            found = self._server.get("namespaces", meta["namespace"], "gangs", meta["name"])
        except NotFound:
            return None
        return found if found["metadata"]["uid"] == meta["uid"] else None

    def _named(self) -> Iterator[Json]:
        self.missing.clear()
        for name in self.names:
            where = ("namespaces", self.namespace, "gangs", name) if self.kind == GANGS else (self.kind, name)
            try:
                yield self._server.get(*where)
            except NotFound as problem:
                self.missing.append(problem)


class _Printer:
    """Prints objects in the form that was asked for."""

    def __init__(self, kind: str, output: str | None, *, namespaces: bool, single: bool) -> None:
        self._kind, self._output, self._single = kind, output, single
        self._wide, self._namespaces = output == "wide", namespaces
        self._table = render.Table(columns.headers(kind, wide=self._wide, namespaces=namespaces))
        self._shown: list[str] = []

    def whole(self, listing: Json) -> None:
        """A list, or the one object that was named."""
        items = listing["items"]
        if self._output in {"json", "yaml"}:
            if self._single and not items:
                return
            whole = items[0] if self._single else listing
            render.out(render.as_json(whole) if self._output == "json" else render.as_yaml(whole))
        else:
            self._items(items, listing["asOf"], items)

    def changes(self, changed: list[Json], listing: Json) -> None:
        """What is new since the last look."""
        if self._output in {"json", "yaml"}:
            for item in changed:
                render.out(render.as_json(item) if self._output == "json" else "---\n" + render.as_yaml(item))
        else:
            self._items(changed, listing["asOf"], [*listing["items"], *changed])

    def _items(self, items: list[Json], as_of: str, all_items: list[Json]) -> None:
        if self._output == "name":
            render.out(plain(columns.full_name(self._kind, item)) for item in items)
            return
        self._shown = sorted({*self._shown, *columns.resources(all_items, wide=self._wide)})
        rows = columns.rows(self._kind, items, self._shown, as_of, wide=self._wide, namespaces=self._namespaces)
        render.out(self._table.lines(rows))


def _once(lister: _Lister, printer: _Printer) -> None:
    listing = lister.list()
    printer.whole(listing)
    for problem in lister.missing:
        problem.show()
    if lister.missing:
        raise click.exceptions.Exit(1)
    if not listing["items"]:
        where = f" in namespace {lister.namespace}; -A shows those of all namespaces." if lister.namespace else "."
        render.say(f"No {lister.kind} found{where}")


def _watch(lister: _Lister, printer: _Printer) -> None:
    """Print every object once, and again whenever it is another than it was."""
    before: dict[tuple[str, str, str], Json] = {}
    while True:
        listing = lister.list()
        now = {columns.key(item): item for item in listing["items"]}
        changed = [item for key, item in now.items() if _lasting(before.get(key)) != _lasting(item)]
        gone = [lister.left(item) or {**item, **_GONE} for key, item in before.items() if key not in now]
        printer.changes([*changed, *gone], listing)
        if lister.missing and not before and not now:
            raise Problem(lister.missing[0].message, lister.missing[0].advice)
        before = now
        pause(INTERVAL)


def _lasting(item: Json | None) -> Json | None:
    """The object without the time of the answer, which always changes."""
    return item and {key: value for key, value in item.items() if key != "asOf"}


_GONE: Json = {"phase": "Gone", "state": "Gone", "status": "Gone", "reason": "", "message": "", "position": None}
