"""Capacity that entitlements are computed from, and whole devices for display."""

from __future__ import annotations

from queuectl.engine.apportionment import Part, whole_parts
from queuectl.engine.grace import GRACE, Sighting, entitling
from queuectl.model.resources import GPU

EIGHT = ((GPU, 8000),)


def test_a_node_that_blinks_changes_nothing_and_one_that_stays_away_is_forgotten() -> None:
    """b was last seen at 1,000 ms: it counts until ten minutes later, and that moment is known in advance."""
    seen = [Sighting("a", EIGHT, 5000), Sighting("b", EIGHT, 1000)]
    assert entitling(seen, [], 5000) == ({GPU: 16_000}, 1000 + GRACE)
    now = 1000 + GRACE
    seen[0] = Sighting("a", EIGHT, now)
    assert entitling(seen, [], now - 1) == ({GPU: 16_000}, now)
    assert entitling(seen, [], now) == ({GPU: 8000}, None)


def test_unmanaged_pods_are_not_there_to_be_shared() -> None:
    seen = [Sighting("a", EIGHT, 0)]
    assert entitling(seen, [((GPU, 3000), ("pods", 1))], 0) == ({GPU: 5000}, None)
    assert entitling(seen, [((GPU, 9000),)], 0) == ({GPU: 0}, None)


def parts(*shares: float, most: float | None = None) -> list[Part]:
    """The first is the oldest."""
    limit = None if most is None else int(most * 1000)
    return [Part(int(share * 1000), age, f"u{age}", limit) for age, share in enumerate(shares)]


def test_the_largest_lost_fractions_get_what_is_left_of_the_whole_sum() -> None:
    assert whole_parts(parts(3.333, 3.333, 3.334), 1000) == [3, 3, 4]
    assert whole_parts(parts(0.5, 0.5), 1000) == [1, 0]
    assert whole_parts(parts(1.6, 2.7, 0.9), 1000) == [1, 3, 1]


def test_of_equal_fractions_the_older_then_the_smaller_uid() -> None:
    young, old, twin = Part(500, 9, "a"), Part(500, 1, "z"), Part(500, 1, "b")
    assert whole_parts([young, old, twin], 1000) == [0, 0, 1]
    assert whole_parts([young, old], 1000) == [0, 1]


def test_never_above_demand_or_limit() -> None:
    """Half a device each, and nobody may have a whole one: none is shown."""
    assert whole_parts(parts(0.5, 0.5, most=0.6), 1000) == [0, 0]
    assert whole_parts([Part(500, 0, "a", 600), Part(500, 1, "b", 2000)], 1000) == [0, 1]


def test_what_rounding_has_cut_off_a_sum_is_put_back() -> None:
    third = 2**64 * 10 // 3
    assert whole_parts([Part(third, age, "u") for age in range(3)], 2**64) == [4, 3, 3]
