"""Decayed usage: what a queue has used, halved every half-life, and what that does to its weight in the surplus.

    u(t) = ∫ charged(s) · 0.5^((t - s) / half-life) ds        in unit·milliseconds
    w'   = weight / Σ weight,  u' = u / Σ u among siblings;  the surplus weight becomes max(w' + k (w' - u'), 0)

It touches the surplus only: no usage, however high, takes from what a queue is entitled to. The formula of the weight is that
of KAI's time-based fair share, but normalised to the siblings' total instead of the cluster's, so that it is as strong in a
small subtree as at the root.

All in integers, so that every machine gets the same numbers: 2^-f by square roots of one half, one for each binary digit of f.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

BITS = 64
ONE = 1 << BITS
THOUSAND = 1000
PER_LN2 = 26613026195688644983
"""1 / ln 2 in 2^-64ths, rounded: the integral of 0.5^(t/h) over all t is h / ln 2."""


def _roots() -> tuple[int, ...]:
    """0.5^(1/2), 0.5^(1/4), ... in 2^-64ths, until they are 1 to the last digit."""
    roots = [isqrt(1 << 2 * BITS - 1)]
    while len(roots) < BITS:
        roots.append(isqrt(roots[-1] << BITS))
    return tuple(roots)


ROOTS = _roots()


def kept(step: int, half_life: int) -> int:
    """0.5^(step / half_life) in 2^-64ths, for times in one unit. O(64)."""
    if half_life <= 0 or step < 0:
        raise ValueError(
            f"a step of {step} with a half-life of {half_life}: time goes forward and a half-life is positive"
        )
    whole, rest = divmod(step, half_life)
    if whole > BITS:
        return 0
    factor = ONE
    for root in ROOTS:
        rest *= 2
        if rest >= half_life:
            rest -= half_life
            factor = factor * root >> BITS
    return factor >> whole


def decayed(usage: int, charged: int, step: int, half_life: int) -> int:
    """Usage after ``step`` ms in which ``charged`` units were held; in 2^-64ths of a unit·ms, like ``usage``.

    Exact for uneven steps: cutting a step in two changes the result by rounding only, less than a unit·ms in 2^32 of them.
    """
    factor = kept(step, half_life)
    return (usage * factor >> BITS) + (charged * half_life * (ONE - factor) * PER_LN2 >> BITS)


def surplus_weights(weights: Sequence[int], usage: Sequence[int], k: int, whole: int | None = None) -> list[int]:
    """The siblings' weights with their usage counted in, as integers on a common scale; ``k`` in thousandths.

    ``whole`` is what usage is normalised to, the siblings' total unless given. Without any usage the weights stay as they are.
    """
    total, used = sum(weights), sum(usage) if whole is None else whole
    if not k or not used:
        return list(weights)
    return [
        max(0, THOUSAND * weight * used + k * (weight * used - one * total))
        for weight, one in zip(weights, usage, strict=True)
    ]
