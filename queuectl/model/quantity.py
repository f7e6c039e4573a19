"""Kubernetes quantities (``500m``, ``64Gi``, ``1e3``) as exact integers; no floats, no decimals.

The grammar is the documented one of Go's ``resource.Quantity`` (apimachinery ``pkg/api/resource/quantity.go``): a sign,
digits with at most one point (``5``, ``5.``, ``.5``), then nothing, a suffix, or an exponent. ``E`` alone is the suffix
exa, ``E`` before digits an exponent. What differs on purpose: Go's scanner takes a missing number (``Ki``, ``+``, ``.``)
as 0, lets exponents above 2^31 wrap around, and answers values beyond int64 with 0 or a cap; here all these are refused.
The API server writes quantities of its own kinds in canonical form, so no such text reaches us from a pod or a node.
"""

from __future__ import annotations

import re
from functools import lru_cache

from queuectl.model.resources import MAX

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SUFFIXES: dict[str, tuple[int, int]] = {  # (power of two, power of ten)
    **{f"{letter}i": (10 * power, 0) for power, letter in enumerate("KMGTPE", 1)},
    "n": (0, -9),
    "u": (0, -6),
    "m": (0, -3),
    "": (0, 0),
    "k": (0, 3),
    **{letter: (0, 3 * power) for power, letter in enumerate("MGTPE", 2)},
}
MAX_LENGTH = 128  # characters; 2^63-1 in nano units has 28, so nothing of use is longer
_NANO = 10**9
_SMALLEST = (
    -200
)  # power of ten: any 128 digits times this are less than one nano, which is where they are rounded up to
_LARGEST = 60  # power of ten: far above 2^63-1 whole units in nano (28 digits)


class QuantityError(ValueError):
    """The text is no quantity, or none that can be used here; the message says which and what to write instead."""


@lru_cache(maxsize=65_536)
def parse(text: str, per: int = 1, *, negative: bool = False) -> int:
    """The value of ``text`` in units of 1/``per`` (1000: milli, 1: whole), rounded up as Go does.

    Go first rounds away from zero to nano, then ``MilliValue()``/``Value()`` round up again; ``1n`` is one unit of any
    size, because who asks for something gets something. Negative values, if asked for, are rounded away from zero.
    Raises QuantityError for bad grammar, more than 2^63-1 units, and negative values unless ``negative``. Cost: under a
    microsecond when seen before, a few otherwise, whatever the text.
    """
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"{text[:20]}…: a quantity has at most {MAX_LENGTH} characters, this one {len(text)}")
    nano = _nano(text)
    if nano < 0 and not negative:
        raise QuantityError(f"{text}: must not be negative")
    units = -(-abs(nano) * per // _NANO)
    if units > MAX:
        raise QuantityError(f"{text}: more than 2^63-1" + (f" in units of 1/{per}" if per != 1 else ""))
    return units if nano >= 0 else -units


def whole(text: str) -> bool:
    """Whether the value, as Go keeps it, is an integer, as extended resources (GPUs) require. Raises as ``parse``."""
    return _nano(text) % _NANO == 0


def _nano(text: str) -> int:
    """The value in nano units, rounded away from zero. Bounded work: the exponent is checked before any power."""
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"{text[:20]}…: a quantity has at most {MAX_LENGTH} characters, this one {len(text)}")
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(_advice(text))
    part = match["part"] or ""
    mantissa = int(match["whole"] + part)
    exponent = match["exponent"] or "0"
    if len(exponent.lstrip("+-0")) > 9:  # Go keeps it in 32 bits
        raise QuantityError(f"{text}: exponent out of range")
    if mantissa == 0:
        return 0
    twos, tens = _SUFFIXES[match["suffix"] or ""]
    tens = max(tens + int(exponent) - len(part) + 9, _SMALLEST)
    if tens > _LARGEST:
        raise QuantityError(f"{text}: more than 2^63-1")
    value = mantissa << twos
    power: int = 10 ** abs(tens)
    nano = value * power if tens >= 0 else -(-value // power)
    return -nano if match["sign"] == "-" else nano


def _advice(text: str) -> str:
    """Why this is no quantity, with the likely correction."""
    shown = repr(text)
    if text != text.strip():
        return f"{shown}: a quantity has no spaces"
    if re.fullmatch(r"[+-]?[0-9.]+K", text):
        return f"{shown}: the suffix for 1000 is k (1024: Ki)"
    if re.fullmatch(r"[+-]?[0-9.]+(ki|[kKmMgGtTpPeE]i?[bB])", text):
        return f"{shown}: write the suffix as k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei"
    if "_" in text or "," in text:
        return f"{shown}: write the digits without separators"
    return f"{shown} is no quantity; write for example 8, 500m or 64Gi"
