"""A scenario file from text: parsed, checked field by field, and every name in it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from queuectl.contract.schema import describe
from queuectl.contract.shapes import Shapes, vector
from queuectl.drivers.replay import compile as compiled
from queuectl.drivers.replay import format as wire
from queuectl.drivers.replay.submission import Owner, Submission
from queuectl.model.quantity import QuantityError
from queuectl.model.resources import Amounts, amounts
from queuectl.model.topology import Node

KINDS = ("gang", "node", "queue", "pool", "pod")
MOST = 16 * 2**20  # bytes of a scenario file: far more than a person writes, and a bound on what a mistake may cost
_VERBS = {
    "gang": ("finish", "fail", "delete", "create", "requeue", "hold", "resume", "edit"),
    "node": ("cordon", "uncordon", "lose", "return", "delete", "create", "edit"),
    "queue": ("delete", "create", "edit"),
    "pool": ("delete", "create", "edit"),
    "pod": ("finish", "delete", "create"),
}


class BadFileError(ValueError):
    """The file cannot be used; one line a mistake, each naming the field, what is wrong and what is allowed."""


class Scenario(Struct, frozen=True):
    """A file that was read: what it says, ``raw`` and as a model, and the gangs, nodes and pods it describes, by name."""

    raw: dict[str, Any]
    file: wire.File
    nodes: dict[str, tuple[wire.Node, Node]]
    gangs: dict[str, Submission]
    unmanaged: dict[str, Amounts]
    asked: frozenset[str]
    shapes: Shapes

    def kind_of(self, target: str) -> tuple[str, str]:
        """``g`` or ``gang/g`` → ("gang", "g"). Raises BadFileError when there is none, or several."""
        return _resolve(_names(self), target)


def load(path: Path) -> Scenario:
    """Read a file. Raises BadFileError."""
    try:
        size = path.stat().st_size
        if size > MOST:
            raise BadFileError(f"{path}: {size} bytes; a scenario file has at most {MOST}")
        return read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise BadFileError(f"{path}: {problem}") from None


def read(text: str) -> Scenario:
    """Read a scenario from text. Raises BadFileError with all that is wrong."""
    try:
        raw = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as problem:
        raise BadFileError(f"not YAML: {' '.join(str(problem).split())}") from None
    except RecursionError:
        raise BadFileError("not a scenario: nested too deeply") from None
    if not isinstance(raw, dict):
        raise BadFileError("not a scenario: must be a mapping with nodes, queues, gangs, steps and expect")
    try:
        file = wire.File.model_validate(raw)
    except ValidationError as error:
        raise BadFileError("\n".join(describe(one) for one in error.errors())) from None
    scenario, problems = _compiled(raw, file)
    if problems := [*problems, *_references(scenario)]:
        raise BadFileError("\n".join(problems))
    return scenario


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice: of two, nobody can know which was meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, Hashable):
                if name in seen:
                    raise yaml.MarkedYAMLError(problem=f"{name} is written twice", problem_mark=key.start_mark)
                seen.add(name)
        return super().construct_mapping(node, deep)


def _compiled(raw: dict[str, Any], file: wire.File) -> tuple[Scenario, list[str]]:
    problems: list[str] = []
    shapes = Shapes()
    gangs: dict[str, Submission] = {}
    for number, gang in enumerate(file.gangs):
        try:
            gangs[gang.name] = compiled.submission(gang, shapes)
        except compiled.BadSpecError as problem:
            problems.append(f"gangs[{number}]{problem}")
    unmanaged: dict[str, Amounts] = {}
    for number, pod in enumerate(file.unmanaged):
        try:
            unmanaged[pod.name] = amounts({**dict(vector(pod.pod)), "pods": 1})
        except QuantityError as problem:
            problems.append(f"unmanaged[{number}].pod: {problem}")
    asked = frozenset(
        name
        for requests in (*(part.shape.requests for gang in gangs.values() for part in gang.parts), *unmanaged.values())
        for name, _ in requests
    )
    nodes: dict[str, tuple[wire.Node, Node]] = {}
    for number, node in enumerate(file.nodes):
        for name in compiled.node_names(node):
            if name in nodes:
                problems.append(f"nodes[{number}].name: there is another node {name}")
            try:
                nodes[name] = node, compiled.node(node, name, asked)
            except QuantityError as problem:
                problems.append(f"nodes[{number}].allocatable: {problem}")
                break
    return Scenario(raw, file, nodes, gangs, unmanaged, asked, shapes), problems


def _names(scenario: Scenario) -> dict[str, list[str]]:
    """Name → the kinds of thing that are called so."""
    found: dict[str, list[str]] = {}
    file = scenario.file
    listed = (
        [gang.name for gang in file.gangs],
        list(scenario.nodes),
        [queue.name for queue in file.queues],
        [pool.name for pool in file.pools],
        [pod.name for pod in file.unmanaged],
    )
    for kind, names in zip(KINDS, listed, strict=True):
        for name in dict.fromkeys(names):
            found.setdefault(name, []).append(kind)
    return found


def _resolve(names: dict[str, list[str]], target: str) -> tuple[str, str]:
    kind, slash, name = target.partition("/")
    if slash:
        if kind not in KINDS:
            raise BadFileError(f"{kind} is none of {', '.join(KINDS)}")
        if kind in names.get(name, ()):
            return kind, name
        raise BadFileError(f"there is no {kind} {name}")
    kinds = names.get(target, [])
    if len(kinds) == 1:
        return kinds[0], target
    if not kinds:
        raise BadFileError(f"there is no gang, node, queue, pool or unmanaged pod {target}")
    raise BadFileError(f"{target} is the name of a {' and of a '.join(kinds)}; write {kinds[0]}/{target}")


def _references(scenario: Scenario) -> Iterator[str]:
    """Names that lead nowhere, or to two things."""
    file = scenario.file
    listed = (
        ("gangs", file.gangs), ("queues", file.queues), ("pools", file.pools), ("topologies", file.topologies),
        ("unmanaged", file.unmanaged),
    )  # fmt: skip
    for what, entries in listed:
        counts = Counter(entry.name for entry in entries)
        yield from (f"{what}: {name} is listed twice" for name, count in counts.items() if count > 1)
    for number, gang in enumerate(file.gangs):
        yield from (f"gangs[{number}].nodes: there is no node {n}" for n in gang.nodes if n not in scenario.nodes)
        if gang.state == "Running" and gang.name in scenario.gangs:
            yield from _running(f"gangs[{number}]", scenario, gang)
    for number, pod in enumerate(file.unmanaged):
        if pod.node not in scenario.nodes:
            yield f"unmanaged[{number}].node: there is no node {pod.node}"
    names = _names(scenario)
    for number, step in enumerate(file.steps):
        if step.do == "restart":
            continue
        try:
            kind, name = _resolve(names, step.target)
        except BadFileError as problem:
            yield f"steps[{number}].target: {problem}"
            continue
        if step.do not in _VERBS[kind]:
            yield f"steps[{number}].do: {step.do} is nothing for a {kind}; a {kind} knows {', '.join(_VERBS[kind])}"
        elif step.do in ("finish", "fail") and step.with_:
            yield from _member(f"steps[{number}].with", scenario.gangs.get(name), step.with_)
        if kind == "gang" and name in scenario.gangs:
            yield from _for_ever(f"steps[{number}]", scenario.gangs[name], step)
    gangs = {gang.name for gang in file.gangs}
    for number, one in enumerate(file.expect):
        for field in ("running", "admitted", "leaving", "finished", "waiting", "notes", "given_back", "nodes_of"):
            for name in getattr(one, field) or ():
                if name not in gangs:
                    yield f"expect[{number}].{to_camel(field)}: there is no gang {name}"
        queues = {queue.name for queue in file.queues}
        yield from (f"expect[{number}].usage: there is no queue {name}" for name in one.usage if name not in queues)
        yield from (
            f"expect[{number}].usageIn: there is no queue {name}" for name in one.usage_in if name not in queues
        )


def _running(path: str, scenario: Scenario, gang: wire.Gang) -> Iterator[str]:
    size = scenario.gangs[gang.name].size
    if len(gang.nodes) not in (1, size):
        yield f"{path}.nodes: has {len(gang.nodes)} names; write one node for all {size} pods, or one for each"


def _for_ever(path: str, submission: Submission, step: wire.Step) -> Iterator[str]:
    """What keeps its pods alive does not end, and one group of a set keeps its size."""
    owner = submission.owner
    if owner.keeps and (step.do == "finish" or (step.do == "fail" and not step.with_)):
        what = f"{'an' if owner is Owner.LWS else 'a'} {owner}"
        yield f"{path}.do: {step.do}: {what} makes its pods again; let one of them fail (with: member), or delete it"
    if owner is Owner.LWS and step.do == "edit" and step.with_.keys() & {"size", "min"}:
        yield f"{path}.with: a group of an LWS keeps its size and starts as a whole"


def _member(path: str, submission: Submission | None, given: dict[str, Any]) -> Iterator[str]:
    role, member = given.get("role", ""), given.get("member")
    part = next((one for one in submission.parts if one.role == role), None) if submission is not None else None
    if submission is None:
        yield f"{path}: an unmanaged pod has no members"
    elif part is None:
        yield f"{path}.role: there is no role {role!r}"
    elif isinstance(member, bool) or not isinstance(member, int) or not 0 <= member < part.size:
        yield f"{path}.member: is a number from 0 to {part.size - 1}"
