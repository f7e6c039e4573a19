"""What placement is asked and what it answers: values that ordering may hold without knowing how nodes are found."""

from __future__ import annotations

from functools import reduce

from msgspec import Struct

from queuectl.model.gangs import Shape
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts, plus, times


class Group(Struct, frozen=True, gc=False):
    """Equal members of a request; ``required`` is the level that this group alone must stay inside, ``preferred`` should.

    ``pools`` has the pools that may hold it, none of them where its kin are outside every pool; None: any.
    """

    shape: Shape
    count: int
    required: str | None = None
    preferred: str | None = None
    pools: tuple[str, ...] | None = None


class Request(Struct, frozen=True, cache_hash=True, gc=False):
    """What is to be placed together. ``anchor`` is a node whose domain of the required level must hold it all."""

    groups: tuple[Group, ...]
    required: str | None = None
    anchor: str | None = None

    @property
    def need(self) -> Amounts:
        """Everything it asks for together."""
        needs = [times(group.shape.requests, group.count) for group in self.groups]
        return reduce(plus, needs) if needs else ()


class Zone(Struct, frozen=True, gc=False):
    """The nodes of any of these pools (``OUTSIDE``: those of none) that belong to none of the pools ``without``."""

    pools: tuple[str, ...]
    without: tuple[str, ...] = ()


class Way(Struct, frozen=True):
    """One choice of a pool for each group of a request, and what that would add to pools.

    ``around`` has for each group the pools that then hold it for certain. ``adds`` is what the request adds to each of
    those; ``may_add`` what it adds at most to pools that hold some of these nodes only.
    """

    pools: tuple[str, ...]
    around: tuple[tuple[str, ...], ...]
    adds: dict[str, Amounts]
    may_add: dict[str, Amounts]


class Fit(Struct, frozen=True, gc=False):
    """Per group, nodes in row order with how many of its members each takes."""

    nodes: tuple[tuple[tuple[str, int], ...], ...]


class Refusal(Struct, frozen=True, gc=False):
    """All that stands in the way of a placement, required level first, then coarse to fine.

    ``missing`` more pods of group ``short`` would have to fit somewhere, at least; 0 when no group is short by itself, or that
    is not known.
    """

    misfits: tuple[Misfit, ...]
    short: int = 0
    missing: int = 0
