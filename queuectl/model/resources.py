"""Resource vectors in integers: cpu in milli-CPU, extended resources (GPUs) in thousandths of a device, the rest whole.

One unit a resource, decided by its name alone (``unit``), so that every part adds and compares plain integers.
Quantity text is parsed in ``model/quantity.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PODS = "pods"
CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"
MAX = 2**63 - 1  # Go's int64: what the API server itself can hold

Amounts = tuple[tuple[str, int], ...]
"""Canonical resource vector: (name, amount) sorted by name, amounts > 0 only; equal vectors hash alike."""


def unit(name: str) -> int:
    """How many of our integer units make one: 1000 for cpu and extended resources (with a ``/``), else 1."""
    return 1000 if name == CPU or ("/" in name and not name.startswith("hugepages-")) else 1


def amounts(values: Mapping[str, int] | Iterable[tuple[str, int]]) -> Amounts:
    """Canonical vector of ``values``; zeros are dropped. Raises ValueError on a negative amount."""
    pairs = sorted(values.items() if isinstance(values, Mapping) else values)
    for name, amount in pairs:
        if amount < 0:
            raise ValueError(f"negative amount of {name}: {amount}")
    return tuple((name, amount) for name, amount in pairs if amount)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Sum of two vectors."""
    total = dict(one)
    for name, amount in other:
        total[name] = total.get(name, 0) + amount
    return amounts(total)


def highest(one: Amounts, other: Amounts) -> Amounts:
    """Largest of each resource."""
    total = dict(one)
    for name, amount in other:
        total[name] = max(total.get(name, 0), amount)
    return amounts(total)


def times(vector: Amounts, count: int) -> Amounts:
    """``count`` such vectors together."""
    return tuple((name, amount * count) for name, amount in vector) if count else ()


_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def show(name: str, amount: int) -> str:
    """The amount as people write it: ``8`` GPUs, ``500m`` cpu, ``64Gi`` memory."""
    per = unit(name)
    if per == 1000:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name in (MEMORY, "ephemeral-storage") or name.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
    return str(amount)
