"""Why a request does not fit, as evidence: every level that is too small, and the nodes that are out, with numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from queuectl.engine.curves import Need
from queuectl.engine.fleet import Flags, least, total
from queuectl.engine.request import Zone
from queuectl.engine.rooms import Rooms, Tally
from queuectl.model.gangs import Shape
from queuectl.model.reasons import CountEvidence, LevelEvidence, Misfit, Reason


def refuse(
    rooms: Rooms,
    needs: tuple[Need, ...],
    shapes: tuple[Shape, ...],
    top: int,
    inside: int | None,
    zones: tuple[Zone, ...] = (),
    *,
    unproven: bool,
) -> tuple[Misfit, ...]:
    """Evidence for a request that was not placed. O(levels × nodes); called once for all equal gangs of a queue.

    ``top`` is the required level (-1: none) and ``inside`` its only domain allowed (None: any). ``zones`` confine the groups.
    """
    found: list[Misfit] = []
    for need, shape, zone in zip(needs, shapes, zones or (None,) * len(needs), strict=True):
        # What a limit keeps from the gang now is no reason to say never.
        whole = None if zone is None else Zone(zone.pools)
        ever = rooms.ever(shape, whole)
        required = max(top, need.level)
        for level in (required, *range(-1, required)):
            domain = inside if level == top and level >= 0 else None
            found.extend(_short(rooms, need, ever, whole, level, domain, required=level == required and level >= 0))
    if not found:
        # Each group fits by itself, but not all of them together.
        what = max(needs, key=lambda need: need.count)
        if unproven:
            found.append(Misfit(Reason.SEARCH_BUDGET, CountEvidence(sum(need.count for need in needs), 0)))
        else:
            found.append(_together(rooms, needs, zones, top, what))
    causes = dict.fromkeys(cause for shape in shapes for cause in rooms.filters.causes(shape))
    return (*dict.fromkeys(found), *causes)


def _short(
    rooms: Rooms, need: Need, ever: Tally, zone: Zone | None, level: int, domain: int | None, *, required: bool
) -> Iterator[Misfit]:
    """The misfit of one level, if it is too small for the group."""
    fleet = rooms.fleet
    if level < 0:
        have, most, best, domains = need.room.total, ever.total, -1, 1
    else:
        allowed = fleet.named[level] if domain is None else np.arange(len(fleet.named[level])) == domain
        if zone is not None:
            allowed = allowed & _reached(rooms, zone, level)
        domains = int(np.count_nonzero(allowed))
        if not domains:
            have = most = 0
            best = -1
        else:
            sums = np.where(allowed, need.room.sums[level], -1)
            best = int(sums.argmax())
            have, most = int(sums[best]), int(np.where(allowed, ever.sums[level], -1).max())
    if have >= need.count:
        return
    reason = Reason.NO_CAPACITY if level < 0 else Reason.NO_DOMAIN_FITS
    if most < need.count:
        reason = Reason.NEVER_FITS
    resource, per_pod, free = _scarce(rooms, need, ever, level, best)
    yield Misfit(
        reason,
        LevelEvidence(
            level="" if level < 0 else fleet.levels[level].name,
            domains=domains,
            best=fleet.tree.levels[level].names[best] if level >= 0 and best >= 0 else "",
            need=need.count,
            have=have,
            ever=most,
            required=required,
            resource=resource,
            short_need=per_pod,
            short_have=free,
            pool=_named((zone,)),
        ),
    )


def _scarce(rooms: Rooms, need: Need, ever: Tally, level: int, best: int) -> tuple[str, int, int]:
    """The resource that gives out first in the best domain, what a pod needs of it, and what is free there."""
    fleet = rooms.fleet
    if level >= 0 and best < 0:
        return "", 0, 0
    rows = fleet.rows_of(level, best)
    part = slice(rows.start, rows.stop)
    suited = ((ever.rows[part] > 0) & fleet.usable[part]).nonzero()[0] + rows.start
    choices = []
    for name, amount in need.requests:
        column = fleet.free.get(name)
        free = np.zeros(0, np.int64) if column is None else np.maximum(column[suited], 0)
        choices.append((total(free // least(amount)), name, amount, total(free)))
    _, name, amount, left = min(choices, default=(0, "", 0, 0))
    return name, amount, left


def _together(rooms: Rooms, needs: tuple[Need, ...], zones: tuple[Zone, ...], top: int, largest: Need) -> Misfit:
    """The groups fit one by one; the cluster (or required level) cannot hold them at the same time."""
    fleet = rooms.fleet
    resource, per_pod, free = _scarce(rooms, largest, largest.room, -1, -1)
    size = sum(need.count for need in needs)
    evidence = LevelEvidence(
        level="" if top < 0 else fleet.levels[top].name,
        domains=1 if top < 0 else int(np.count_nonzero(fleet.named[top])),
        best="",
        need=size,
        have=size - 1,
        ever=size,
        required=top >= 0,
        resource=resource,
        short_need=per_pod,
        short_have=free,
        pool=_named(zones),
    )
    return Misfit(Reason.NO_CAPACITY if top < 0 else Reason.NO_DOMAIN_FITS, evidence)


def _named(zones: tuple[Zone | None, ...]) -> str:
    """The one pool that these zones are about; "" where they are about none or several."""
    pools = {pool for zone in zones if zone is not None for pool in zone.pools}
    return next(iter(pools)) if len(pools) == 1 else ""


def _reached(rooms: Rooms, zone: Zone, level: int) -> Flags:
    """Domains of a level in which the zone has a node."""
    starts = rooms.fleet.starts[level]
    return np.logical_or.reduceat(rooms.filters.zone(zone), starts) if len(starts) else np.zeros(0, np.bool_)
