"""Reading the pin that a release puts on a pod (``patches.pin``): which node it names, and the affinity as it was before."""

from __future__ import annotations

from msgspec.structs import replace

from queuectl.contract import names
from queuectl.contract.foreign import NodeSelector, PodSpec


def pinned(required: NodeSelector | None) -> str | None:
    """The one node that every term of a required affinity names, or None. An empty term matches no node and names none."""
    found: set[str] = set()
    for term in (required.node_selector_terms if required else None) or ():
        if not (term.match_expressions or term.match_fields):
            continue
        here = {
            field.values[0]
            for field in term.match_fields or ()
            if field.key == names.FIELD_NAME and field.operator == "In" and field.values
        }
        if len(here) != 1:
            return None
        found |= here
    return found.pop() if len(found) == 1 else None


def unpinned(spec: PodSpec) -> PodSpec:
    """The spec as it was before we pinned it: without the last field of every term, where that names the one node.

    So a pod keeps its shape when it is released, and a gang has as many shapes as before. ``patches.pin`` appends ours
    last, and makes a term only where there was no affinity.
    """
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return spec
    required = affinity.node_affinity.required
    if (node := pinned(required)) is None:
        return spec
    kept = []
    for term in required.node_selector_terms or ():
        if term.match_fields:
            *before, last = term.match_fields
            if (last.key, last.operator, last.values) != (names.FIELD_NAME, "In", (node,)):
                return spec
            kept.append(replace(term, match_fields=tuple(before) or None))
        elif term.match_expressions:
            return spec
        else:
            kept.append(term)
    alone = len(kept) == 1 and not (kept[0].match_expressions or kept[0].match_fields)
    node_affinity = replace(affinity.node_affinity, required=None if alone else NodeSelector(tuple(kept)))
    return replace(spec, affinity=replace(affinity, node_affinity=node_affinity))


def pinnable(required: NodeSelector | None) -> bool:
    """Whether an affinity can be tightened to one node: the API lets an empty term stay only as it is, and it matches none."""
    terms = required.node_selector_terms if required else None
    return required is None or any(term.match_expressions or term.match_fields for term in terms or ())
